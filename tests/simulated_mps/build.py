"""Compile simulated_mps.cpp with this machine's compiler, once for each torch and compiler.

The library lies in `.build/simulated_mps/` of the checkout, which git ignores and `make clean`
removes. Its name holds a digest of all that it depends on, so a stale one is never loaded.
"""

import hashlib
import importlib.util
import os
import runpy
import shutil
import subprocess
import sys
from pathlib import Path

from filelock import FileLock

HERE = Path(__file__).resolve().parent
SOURCE = HERE / "simulated_mps.cpp"
CACHE = HERE.parents[1] / ".build" / "simulated_mps"
COMPILERS = ("c++", "g++", "clang++")


class SimulationError(RuntimeError):
    """The simulated MPS device cannot be set up here; the message says what to do."""


def library() -> Path:
    """Return the path of the compiled library, compiling it (half a minute) if it is not there yet.

    Raises ``SimulationError`` on a Mac, where there is no C++ compiler, and where it fails.
    """
    if sys.platform == "darwin":
        raise SimulationError("A Mac has MPS: there is nothing to simulate.")
    compiler = find_compiler()
    flags = _flags()
    path = CACHE / f"simulated_mps-{_digest(compiler, flags)}.so"
    if path.exists():
        return path
    CACHE.mkdir(parents=True, exist_ok=True)
    with FileLock(CACHE / "build.lock"):  # the children of one program may all get here at once
        if not path.exists():
            _compile(compiler, flags, path)
    return path


def find_compiler() -> str:
    """Return the path of a C++ compiler: that of ``CXX``, else the first that is installed."""
    wanted = os.environ.get("CXX")
    for name in [wanted] if wanted else COMPILERS:
        path = shutil.which(name)
        if path:
            return path
    missing = f"the compiler CXX={wanted}" if wanted else "a C++ compiler"
    raise SimulationError(
        f"Simulated MPS needs {missing}, and none is found: install one "
        "(Debian and Ubuntu: apt-get install g++; Fedora: dnf install gcc-c++)."
    )


def _torch() -> tuple[Path, dict[str, str]]:
    """Return the folder of the installed torch and what its version.py holds.

    Importing torch takes seconds, and would ask it about MPS before the simulation is on.
    """
    spec = importlib.util.find_spec("torch")
    if spec is None or spec.origin is None:
        raise SimulationError("Simulated MPS needs PyTorch: pip install torch")
    folder = Path(spec.origin).parent
    return folder, runpy.run_path(str(folder / "version.py"))


def _flags() -> list[str]:
    folder, version = _torch()
    return [
        "-std=c++20",
        "-O2",
        "-shared",
        "-fPIC",
        "-w",  # the warnings are about PyTorch's headers
        f'-DTORCH_COMMIT="{version["git_version"]}"',
        f"-I{folder}/include",
        f"-I{folder}/include/torch/csrc/api/include",
        f"-L{folder}/lib",
        f"-Wl,-rpath,{folder}/lib",
        "-ltorch_cpu",
        "-lc10",
    ]


def _digest(compiler: str, flags: list[str]) -> str:
    version = subprocess.run([compiler, "--version"], capture_output=True, text=True, check=False)
    parts = [_torch()[1]["__version__"], compiler, version.stdout, *flags, SOURCE.read_text()]
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:16]


def _compile(compiler: str, flags: list[str], path: Path) -> None:
    unfinished = path.with_suffix(f".{os.getpid()}")
    # libraries come after the source that needs them
    command = [compiler, str(SOURCE), "-o", str(unfinished), *flags]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        unfinished.unlink(missing_ok=True)
        first = next((line for line in done.stderr.splitlines() if "error" in line), done.stderr)
        raise SimulationError(
            f"Simulated MPS: {compiler} cannot compile {SOURCE.name} for this PyTorch: {first}"
        )
    unfinished.replace(path)
