"""Does this device compute what the CPU computes? One batch, asked before a long run.

``compare`` is the way in; ``runs`` computes the batch, ``judge`` says how far apart right results
may be, and ``report`` is what comes out.
"""

from helpers.agreement.compare import compare_with_cpu
from helpers.agreement.report import Agreement, Difference

__all__ = ["Agreement", "Difference", "compare_with_cpu"]
