"""How far MPS gets on this computer: built, available, able to compute; and what stops it.

Which release of PyTorch needs which macOS was read in its official macOS wheels.
"""

import platform
from dataclasses import dataclass
from typing import Literal

import torch

from helpers import device as devices
from helpers import machine, remedies
from helpers.diagnosis import Check
from helpers.environment import minor_version

# 2.15's is what its error message says; nobody has verified it.
MACOS_NEEDED = {(2, minor): (14, 0) for minor in range(9, 15)} | {(2, 15): (15, 0)}
MACOS_UNVERIFIED = {(2, 15)}

MacKind = Literal["arm64", "rosetta", "intel"]
State = Literal[
    "elsewhere", "intel", "rosetta", "not built", "too old", "unavailable", "fails", "works"
]


@dataclass(frozen=True)
class Mps:
    """How far MPS gets here, and the error that stopped it."""

    state: State
    error: str = ""


def mac_kind() -> MacKind | None:
    """Return what Python runs on, or ``None`` if that is no Mac."""
    if platform.system() != "Darwin":
        return None
    if platform.machine() == "arm64":
        return "arm64"
    return "rosetta" if machine.is_translated() else "intel"


def read_mps() -> Mps:
    """Find out how far MPS gets: built, available, and able to compute. Raises nothing."""
    backend, kind = getattr(torch.backends, "mps", None), mac_kind()
    if kind in ("rosetta", "intel"):
        return Mps(kind)
    try:
        if kind and not (backend and backend.is_built()):
            return Mps("not built")
        if not (backend and backend.is_available()):
            return Mps(_why_unavailable(kind))
        devices.probe("mps")
    except Exception as error:
        return Mps("fails", devices.first_line(str(error)) or type(error).__name__)
    return Mps("works")


def why_no_mps(mps: Mps) -> str:
    """Return why MPS is not used, as the end of a sentence that begins with "because"."""
    return {
        "elsewhere": "MPS exists only on Apple chips, and no CUDA GPU can compute here",
        "intel": "this is an Intel Mac, where this book does not offer MPS",
        "rosetta": "this is an Intel Python, translated by Rosetta, and cannot use MPS",
        "not built": "this PyTorch was built without MPS",
        "too old": "this macOS is too old for this PyTorch's MPS",
        "unavailable": "MPS is built in, but unavailable",
        "fails": "MPS says it is available, but its first computation failed",
        "works": "MPS was not asked for",
    }[mps.state]


def check_macos() -> Check:
    """Compare macOS with what the installed PyTorch needs for MPS."""
    version, release = machine.macos_version(), minor_version(torch.__version__)
    if mac_kind() in (None, "intel"):
        return Check("macOS", "info", _not_applicable())
    if version is None:
        return Check("macOS", "warn", "unknown version", "macOS did not tell its version.")
    if release not in MACOS_NEEDED:
        meaning = f"Which macOS torch {remedies.torch_release()} needs for MPS is unverified here."
        return Check("macOS", "info", version, meaning)
    needed = ".".join(map(str, MACOS_NEEDED[release]))
    needs = f"torch {remedies.torch_release()} needs macOS {needed} for MPS"
    if not _too_old(version):
        return Check("macOS", "ok", version, f"{needs}.")
    if release in MACOS_UNVERIFIED:
        meaning = (
            f"{needs} according to its error message; that it fails on {version} is unverified. "
            f"torch {remedies.TESTED_PAIR[0]} needs macOS 14.0."
        )
        return Check("macOS", "warn", version, meaning, remedies.install_tested_pair())
    meaning = f"{needs}: update macOS in System Settings > General > Software Update."
    return Check("macOS", "fail", version, meaning, "softwareupdate --list")


def check_built(mps: Mps) -> Check:
    """Say whether this PyTorch contains MPS at all."""
    if mps.state == "not built":
        meaning = "This PyTorch was built without MPS: install the macOS arm64 wheel, which has it."
        return Check("MPS built", "fail", "no", meaning, remedies.reinstall_torch())
    return _not_asked("MPS built", mps) or Check("MPS built", "ok", "yes")


def check_available(mps: Mps) -> Check:
    """Say whether PyTorch finds an MPS device, and if not, why."""
    name = "MPS available"
    if mps.state == "not built":
        return Check(name, "info", "no, because it is not built")
    if mps.state == "too old":
        return Check(name, "fail", "no, because macOS is too old for this PyTorch")
    if mps.state == "unavailable":
        meaning = (
            "macOS is new enough, whatever PyTorch's own message says. Virtual machines, headless "
            "or remote sessions, sandboxes and containers may get no Metal GPU: see whether this "
            "is one. If not, install a clean wheel."
        )
        found = "no, although it is built"
        return Check(name, "fail", found, meaning, remedies.reinstall_torch())
    return _not_asked(name, mps) or Check(name, "ok", "yes")


def check_computes(mps: Mps) -> Check:
    """Say whether a small computation on MPS gave the right value."""
    name, error = "MPS computes", mps.error.lower()
    if mps.state in ("not built", "too old", "unavailable"):
        return Check(name, "info", "not tried, because MPS is not available")
    if mps.state != "fails":
        return _not_asked(name, mps) or Check(name, "ok", "yes")
    if "watermark" in error:
        meaning = "PyTorch refuses a memory variable: see the rows 'Variables'."
        return Check(name, "fail", mps.error, meaning)
    if "out of memory" in error:
        meaning = (
            "No memory for a 2x2 matrix: usually a virtual machine or a hosted runner, where MPS "
            "is not supported. On a Mac of your own, restart the kernel and look again."
        )
        return Check(name, "fail", mps.error, meaning)
    meaning = "MPS says it is available, but cannot compute: install a clean wheel."
    return Check(name, "fail", mps.error, meaning, remedies.reinstall_torch())


def _why_unavailable(kind: MacKind | None) -> State:
    if kind is None:
        return "elsewhere"
    version = machine.macos_version()
    return "too old" if version and _too_old(version) else "unavailable"


def _too_old(version: str) -> bool:
    needed = MACOS_NEEDED.get(minor_version(torch.__version__), (0, 0))
    # "26" stands for 26.0
    return minor_version(f"{version}.0") < needed


def _not_applicable() -> str:
    system = "an Intel Mac" if mac_kind() == "intel" else platform.system() or "this system"
    return f"not applicable on {system}"


def _not_asked(name: str, mps: Mps) -> Check | None:
    """Return the row of a computer where the question does not arise."""
    if mps.state in ("elsewhere", "intel"):
        return Check(name, "info", _not_applicable())
    if mps.state == "rosetta":
        return Check(name, "info", "not tried: an Intel Python cannot use it")
    if mac_kind() is None:  # only the book's own tests get here
        return Check(name, "info", f"simulated: {platform.system()} has no MPS")
    return None
