"""Programs in processes of their own, on the simulated device, for the tests in this folder."""

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
OURS = ("PYTORCH_", "BOOK_", "SIMULATED_MPS")


def clean_environment(**variables: str) -> dict[str, str]:
    """Return this process's environment without what steers MPS and the book, plus ``variables``.

    The working directory is no longer on the path of the program, so it is added.
    """
    kept = {name: value for name, value in os.environ.items() if not name.startswith(OURS)}
    return kept | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "2"} | variables


def simulated(
    *arguments: str, cwd: Path = ROOT, **variables: str
) -> subprocess.CompletedProcess[str]:
    """Run ``python -m tests.simulated_mps ARGUMENTS`` and return what became of it."""
    return subprocess.run(
        [sys.executable, "-m", "tests.simulated_mps", *arguments],
        cwd=cwd,
        env=clean_environment(**variables),
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
