"""Make .venv, or bring it up to date: the one environment that every make target uses.

Standard library only, because nothing is installed yet. The stamp inside .venv is written last,
so an interrupted installation is noticed and done again; with a good stamp this returns at once.
"""

from __future__ import annotations

import errno
import hashlib
import importlib.util
import json
import os
import platform
import re
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
INPUTS = ("requirements.txt", "constraints.txt", "pyproject.toml")

# Free space in GB for a first installation: what it leaves behind, and pip's temporary files.
# Linux wheels of PyTorch bring the CUDA libraries, whether or not there is a GPU.
SPACE_NEEDED_GB = {"Linux": 10.0, "Darwin": 3.0}

NETWORK_TROUBLE = re.compile(
    r"NewConnectionError|NameResolutionError|Failed to establish a new connection"
    r"|Network is unreachable|Temporary failure in name resolution"
    r"|nodename nor servname|getaddrinfo failed|ConnectTimeout"
    r"|ReadTimeout|Read timed out|No route to host|Cannot connect to proxy|ProxyError|SSLError"
    r"|Connection reset by peer|RemoteDisconnected|IncompleteRead",
)


MAKE_VENV = (sys.executable, "-m", "venv")


class SetupError(Exception):
    """What is wrong, and what to do about it, in words for the reader."""


def main() -> int:
    try:
        bring_up_to_date(ROOT, asked_for=os.environ.get("PYTHON", ""))
    except SetupError as problem:
        print(problem, file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("\nInterrupted. Run the same command again to go on.", file=sys.stderr)
        return 130
    return 0


def bring_up_to_date(root: Path, *, asked_for: str = "") -> None:
    """Leave root/.venv complete, or raise SetupError."""
    state = state_of(root, asked_for=asked_for)
    if state == "ready":
        return
    refuse_wrong_computer()
    try:
        (root / ".build").mkdir(exist_ok=True)
        if state != "outdated":
            create(root, why=state)
        install(root, updating=state == "outdated")
    except OSError as error:
        raise SetupError(explain(error, root)) from error


# ---------------------------------------------------------------- what is there already


def state_of(root: Path, *, asked_for: str = "") -> str:
    """Return "ready", "outdated" (other requirements), or why .venv has to be made anew."""
    venv = root / ".venv"
    if not venv.exists() and not venv.is_symlink():
        return "missing"
    if not (venv / "pyvenv.cfg").is_file() and not (venv / "book-stamp.json").is_file():
        raise SetupError(
            f"{venv} exists and is no virtual environment: move it away and try again."
        )
    try:
        stamp = json.loads((venv / "book-stamp.json").read_text())
        recorded = stamp["python"], stamp["root"], stamp["inputs"]
    except (OSError, ValueError, KeyError, TypeError):
        return "its installation was not finished"
    version = version_of(venv / "bin" / "python")
    if recorded[0] != version:
        return "its Python is gone or was replaced"
    if recorded[1] != str(root):
        return "the folder was moved"
    if asked_for and version != platform.python_version():
        return f"it is Python {version} and PYTHON={asked_for} is {platform.python_version()}"
    return "ready" if recorded[2] == inputs_hash(root) else "outdated"


def version_of(python: Path) -> str | None:
    """Return the version of an interpreter, or None if it does not run."""
    command = [str(python), "-c", "import platform; print(platform.python_version())"]
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return None


def inputs_hash(root: Path) -> str:
    return hashlib.sha256(b"\0".join((root / name).read_bytes() for name in INPUTS)).hexdigest()


# ---------------------------------------------------------------- what stands in the way


def refuse_wrong_computer() -> None:
    """Raise SetupError where PyTorch has no wheel: Rosetta, Intel Macs, macOS before 14."""
    if platform.system() != "Darwin":
        return
    if platform.machine() == "x86_64":
        query = ["sysctl", "-in", "sysctl.proc_translated"]
        answer = subprocess.run(query, capture_output=True, text=True, check=False)
        if answer.stdout.strip() == "1":
            raise SetupError(
                f"{sys.executable} is an Intel Python translated by Rosetta, and PyTorch needs a "
                "native one: install an arm64 Python (python.org, Homebrew or conda for arm64).",
            )
        raise SetupError(
            "This is an Intel Mac: the pinned PyTorch has wheels for Apple silicon and Linux only."
        )
    release = platform.mac_ver()[0]
    if int(release.split(".")[0] or 0) < 14:
        raise SetupError(
            f"This Mac runs macOS {release}, and the pinned PyTorch needs macOS 14 or newer."
        )


def refuse_without_venv_module() -> None:
    if importlib.util.find_spec("venv") and importlib.util.find_spec("ensurepip"):
        return
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    raise SetupError(
        f"Python {version} came without its venv module; on Debian and Ubuntu: "
        f"sudo apt install python{version}-venv (then run the same command again).",
    )


def refuse_without_space(root: Path) -> None:
    needed = SPACE_NEEDED_GB.get(platform.system(), 10.0)
    free = shutil.disk_usage(root).free / 1e9
    if free < needed:
        raise SetupError(
            f"Too little disk space: the first installation needs about {needed:.0f} GB free "
            f"and {root} has {free:.1f} GB.",
        )


def explain(error: OSError, root: Path) -> str:
    where = error.filename or root
    if error.errno in (errno.EROFS, errno.EACCES, errno.EPERM):
        return (
            f"Cannot write {where}: {error.strerror}. Copy the book to a folder you may write to."
        )
    if error.errno == errno.ENOSPC:
        return f"The disk is full ({where}): free some space and run the same command again."
    return f"{where}: {error.strerror or error}."


# ---------------------------------------------------------------- creating and installing


def create(root: Path, *, why: str) -> None:
    """Make an empty .venv under this interpreter, in place of an unusable one."""
    refuse_without_venv_module()
    venv, old = root / ".venv", root / ".build" / "old-venv"
    shutil.rmtree(old, ignore_errors=True)  # of an interrupted removal
    if why != "missing":
        print(f"Making .venv again: {why}.", flush=True)
        # Out of the way in one step, so that an interruption leaves no half of it behind.
        venv.rename(old)
        if old.is_symlink():
            old.unlink()
        else:
            shutil.rmtree(old)
    refuse_without_space(root)
    command = [*MAKE_VENV, str(venv)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        lines = (done.stdout + done.stderr).strip().splitlines() or ["no reason given"]
        raise SetupError(f"Cannot make {venv}: {lines[-1]}")


def install(root: Path, *, updating: bool) -> None:
    """Let pip install the requirements, then write the stamp; no stamp if anything failed."""
    stamp, log = root / ".venv" / "book-stamp.json", root / ".build" / "install.log"
    before = stamp.read_text() if updating else None
    stamp.unlink(missing_ok=True)
    log.unlink(missing_ok=True)
    size = "0.5 GB" if platform.system() == "Darwin" else "3 GB"
    print(
        "The requirements have changed: updating .venv ..."
        if updating
        else f"Installing into .venv: once, a few minutes, a download of about {size} ...",
        flush=True,
    )
    if run_pip(root, log):
        text = log.read_text(errors="replace") if log.exists() else ""
        offline = NETWORK_TROUBLE.search(text) is not None
        if offline and before is not None:
            # pip changes nothing until it has fetched everything, so .venv is as it was
            stamp.write_text(before)
        raise SetupError(pip_failure(text, log, offline=offline, updating=updating))
    write_stamp(root)


def write_stamp(root: Path) -> None:
    """Record that .venv is complete, for which interpreter, folder and requirements."""
    python = version_of(root / ".venv" / "bin" / "python")
    content = {"python": python, "root": str(root), "inputs": inputs_hash(root)}
    (root / ".venv" / "book-stamp.json").write_text(json.dumps(content, indent=1))


def run_pip(root: Path, log: Path) -> int:
    """Run pip in .venv; its full output goes to the log, and to a terminal if there is one."""
    python = str(root / ".venv" / "bin" / "python")
    command = [python, "-m", "pip", "install", "--disable-pip-version-check", "--no-input"]
    command += ["--log", str(log), "-r", "requirements.txt", "-c", "constraints.txt"]
    terminal = sys.stdout.isatty()
    if not terminal:
        command += ["--quiet", "--progress-bar", "off"]
    errors = None if terminal else subprocess.DEVNULL
    return subprocess.run(command, cwd=root, stderr=errors, check=False).returncode


def pip_failure(text: str, log: Path, *, offline: bool, updating: bool) -> str:
    again = f"then run  make {os.environ.get('BOOK_GOAL', 'book')}  (pip's log: {log})"
    if offline and updating:
        return f"The requirements have changed and the network cannot be reached: connect, {again}"
    if offline:
        return f"The first installation needs the network once, and has none: connect, {again}"
    if "No space left on device" in text:
        return f"The disk is full: free some space, {again}"
    errors = re.findall(r"ERROR: (.+)", text)
    return f"pip failed: {errors[0] if errors else 'no reason given'}: mend it, {again}"


if __name__ == "__main__":
    sys.exit(main())
