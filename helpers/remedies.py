"""The commands that the doctor hands out: made for this platform, to be copied as they are."""

import os
import shlex
import shutil
import sys
from pathlib import Path

import torch

BOOK_PIN = "jupyter-book>=1.0.4,<2"
TESTED_PAIR = ("2.14.1", "0.29.1")  # torch and torchvision


def torch_release() -> str:
    """Return the installed PyTorch's version as pip knows it: "2.14.1" for "2.14.1+cu130"."""
    return str(torch.__version__).split("+")[0]


def python() -> str:
    """Return the shortest command that starts this very Python from the current folder."""
    for name in ("python", "python3"):
        if (found := shutil.which(name)) and is_this_python(found):
            return name
    return shlex.quote(short(sys.executable))


def is_this_python(executable: str) -> bool:
    """Return whether ``executable`` (a path, or a bare name as in kernel.json) is this Python."""
    # Jupyter replaces these names by the Python that it runs in.
    if executable in ("python", "python3", f"python3.{sys.version_info[1]}"):
        return True
    # A virtual environment's Python is a link to another one, so its folder must agree as well.
    other, this = Path(executable), Path(sys.executable)
    return (other.parent.resolve(), other.resolve()) == (this.parent.resolve(), this.resolve())


def short(path: str | Path) -> str:
    """Return ``path`` from the current folder or from ``~``, which names no user."""
    path = Path(path)
    if path.is_relative_to(Path.cwd()):
        return str(path.relative_to(Path.cwd()))
    return f"~/{path.relative_to(Path.home())}" if path.is_relative_to(Path.home()) else str(path)


def install_tested_pair() -> str:
    """Return the command that installs the PyTorch and torchvision that the book was tested on."""
    torch_version, torchvision_version = TESTED_PAIR
    return f"{python()} -m pip install torch=={torch_version} torchvision=={torchvision_version}"


def install_matching_torchvision() -> str:
    """Return the command with which pip finds the torchvision for the installed PyTorch."""
    return f"{python()} -m pip install torch=={torch_release()} torchvision"


def reinstall_torch() -> str:
    """Return the command that installs a clean wheel of the same PyTorch."""
    options = "--force-reinstall --no-cache-dir --no-deps"
    return f"{python()} -m pip install {options} torch=={torch_release()}"


def install_jupyter_book() -> str:
    """Return the command that installs version 1 of Jupyter Book."""
    return f'{python()} -m pip install "{BOOK_PIN}"'


def install_kernel() -> str:
    """Return the command that makes this Python the Jupyter kernel ``python3``."""
    return f"{python()} -m ipykernel install --sys-prefix --name python3"


def fresh_environment(interpreter: str | None = None) -> str:
    """Return the commands that build the book's environment anew, without conda's packages."""
    leave = ["conda deactivate"] if os.environ.get("CONDA_PREFIX") else []
    choice = f" PYTHON={interpreter}" if interpreter else ""
    return "\n".join([*leave, "rm -rf .venv", f"make book{choice}"])


def arm64_environment() -> str:
    """Return the commands that install an arm64 Python and build the environment with it."""
    brew = "/opt/homebrew"  # Homebrew's folder on Apple chips; the Intel one is /usr/local
    install = f"arch -arm64 {brew}/bin/brew install python@3.13"
    return f"{install}\n{fresh_environment(f'{brew}/bin/python3.13')}"
