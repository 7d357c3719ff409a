"""Whether two OpenMP libraries meet in one process, which kills it without a word in Jupyter."""

import os
import subprocess
import sys
from importlib import metadata
from pathlib import Path

from helpers import environment, remedies
from helpers.diagnosis import Check

IMPORT = "import numpy, torch"
LIMIT_S = 120  # a cold disk can make the first import of PyTorch slow


def check_openmp() -> Check:
    """Import NumPy and PyTorch in a child process, which two OpenMP libraries would kill."""
    try:
        child = import_in_child()
    except subprocess.TimeoutExpired:
        meaning = f"`{IMPORT}` took more than {LIMIT_S} s."
        return Check("OpenMP", "warn", "not known", meaning)
    override = environment.openmp_override()
    if child.returncode:
        return _failed_import(child)
    if override:
        meaning = (
            "Unsafe: it lets two OpenMP libraries share a process, which can crash or compute "
            f"wrong results. Here `{IMPORT}` works without it."
        )
        found = f"no clash, but KMP_DUPLICATE_LIB_OK={override}"
        return Check("OpenMP", "warn", found, meaning, "unset KMP_DUPLICATE_LIB_OK")
    if _mixes_conda_mkl_with_pip():
        meaning = "conda's MKL beside a PyTorch from pip can bring two OpenMP libraries together."
        return Check("OpenMP", "warn", "no clash yet", meaning, remedies.fresh_environment())
    return Check("OpenMP", "ok", f"no clash: `{IMPORT}` works")


def import_in_child() -> subprocess.CompletedProcess[str]:
    """Import both libraries where a crash kills nothing else, and with the clash not hidden."""
    visible = {name: value for name, value in os.environ.items() if name != "KMP_DUPLICATE_LIB_OK"}
    command = [sys.executable, "-c", IMPORT]
    return subprocess.run(command, env=visible, capture_output=True, text=True, timeout=LIMIT_S)


def _failed_import(child: subprocess.CompletedProcess[str]) -> Check:
    lines = child.stderr.strip().splitlines()
    clash = next((line for line in lines if line.startswith("OMP: Error")), None)
    found = clash or (lines[-1] if lines else f"`{IMPORT}` ended with code {child.returncode}")
    if clash or child.returncode < 0:  # below 0: killed by a signal
        meaning = (
            f"`{IMPORT}` dies; a notebook would only say that its kernel died. The usual cause is "
            "two OpenMP libraries in one process, such as conda's MKL beside a PyTorch from pip: "
            "install everything from one source. KMP_DUPLICATE_LIB_OK would only hide it."
        )
    else:
        meaning = f"`{IMPORT}` fails in a fresh Python: build the environment anew."
    return Check("OpenMP", "fail", found, meaning, remedies.fresh_environment())


def _mixes_conda_mkl_with_pip() -> bool:
    if not any(Path(sys.prefix, "conda-meta").glob("mkl-[0-9]*.json")):
        return False
    installer = metadata.distribution("torch").read_text("INSTALLER") or ""
    return installer.strip() in ("pip", "uv")
