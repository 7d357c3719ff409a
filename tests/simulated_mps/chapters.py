"""Run chapters of the book on the simulated MPS device.

    python -m tests.simulated_mps.chapters [chapters/train/mnist.ipynb ...] [pytest options]

Without a path, all of them. A chapter that breaks a rule of MPS (a float64 tensor, a call of CUDA,
an operator without a kernel, `.numpy()` on the device) fails, with the cell and the remedy. On a
Mac nothing is run: nothing has to be simulated there.
"""

import os
import sys
from pathlib import Path

from . import kernel
from .build import SimulationError

ROOT = Path(__file__).resolve().parents[2]


def main(arguments: list[str]) -> int | str:
    """Run pytest on the chapters in this environment and return its exit code."""
    import pytest

    if sys.platform == "darwin":
        print("A Mac has MPS: run  BOOK_DEVICE=mps python -m pytest --nbmake chapters  instead.")
        return 0
    try:
        kernel.install()
    except SimulationError as error:
        return str(error)
    os.environ |= {"BOOK_SCALE": "quick", "BOOK_DEVICE": "mps"}
    os.environ.setdefault("TQDM_DISABLE", "1")
    plugins = ["-p", "tests.notebooks.count_cells", "-p", "tests.simulated_mps.remedies"]
    options = ["-q", "--nbmake", f"--nbmake-kernel={kernel.NAME}", *plugins]
    chosen = [] if any(a.endswith(".ipynb") for a in arguments) else [str(ROOT / "chapters")]
    return int(pytest.main([*options, *arguments, *chosen]))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
