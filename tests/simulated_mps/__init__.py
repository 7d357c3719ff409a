"""A simulated MPS device, for machines that are no Mac. See README.md.

`python -m tests.simulated_mps script.py` runs a program on it.
"""

import os
import sys
from pathlib import Path

STARTUP = Path(__file__).resolve().parent / "startup"


def is_simulated() -> bool:
    """Return whether this process has, or will have once it imports torch, a simulated MPS."""
    return sys.platform != "darwin" and os.environ.get("SIMULATED_MPS") == "1"


def environment() -> dict[str, str]:
    """Return the variables that turn the simulation on in a Python process and its children."""
    return {"SIMULATED_MPS": "1", "PYTHONPATH": str(STARTUP)}


def enable() -> None:
    """Turn the simulation on in this process; see `enable.py`."""
    from .enable import enable

    enable()
