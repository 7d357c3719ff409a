"""Will it run on MPS, will it fit, and how fast can it be at best: asked before there is a Mac.

``run`` is the way in; ``trace`` watches one run with the help of ``places`` (whose line was it),
``shapes``, ``arithmetic``, ``live_memory`` and ``tally``; ``as_if_mps`` and ``mac_answers`` stand
in for the Mac; ``report`` is what comes out.
"""

from helpers.preflight.report import Finding, Report
from helpers.preflight.run import preflight, preflight_script
from helpers.preflight.shapes import NoValueError

__all__ = ["Finding", "NoValueError", "Report", "preflight", "preflight_script"]
