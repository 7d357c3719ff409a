"""Run a program on the simulated MPS device.

    python -m tests.simulated_mps script.py [arguments]
    python -m tests.simulated_mps -m module [arguments]
    python -m tests.simulated_mps -c 'code'

What follows is what Python itself takes; processes that the program starts are simulated too.
"""

import os
import sys

from . import environment
from .build import SimulationError, library
from .enable import DEFAULT_MEMORY, MEMORY, memory_bytes


def main(arguments: list[str]) -> str | None:
    """Replace this process by Python with the simulation on; return only what prevents that."""
    if not arguments or arguments[0] in ("-h", "--help"):
        return __doc__
    try:
        memory_bytes(os.environ.get(MEMORY, DEFAULT_MEMORY))
        library()  # a missing compiler is one line here, and a traceback inside the program
    except SimulationError as error:
        return str(error)
    variables = environment()
    if os.environ.get("PYTHONPATH"):
        variables["PYTHONPATH"] += os.pathsep + os.environ["PYTHONPATH"]
    os.execve(sys.executable, [sys.executable, *arguments], {**os.environ, **variables})


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
