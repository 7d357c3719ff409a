"""Which device to compute on, and how to wait for it."""

import os
import platform
import random
import re
import warnings
from typing import Literal

import numpy as np
import torch

CHOICES = ("mps", "cuda", "cpu")
Scale = Literal["quick", "full"]


class DeviceUnavailableError(RuntimeError):
    """The device that was asked for cannot compute here."""


def pick_device(name: str | torch.device | None = None) -> torch.device:
    """Return the device to use: the argument, else ``BOOK_DEVICE``, else the best that works.

    ``None`` and ``"auto"`` try ``mps``, then ``cuda``, then ``cpu``, and probe each one, because a
    device can say that it is available and still fail its first allocation (virtual Macs do).
    A device named explicitly is used or refused; it is never exchanged for another.

    Raises ``ValueError`` for a name that is no device of this book, and
    ``DeviceUnavailableError`` when the named device cannot compute here.
    """
    requested = name if name is not None else os.environ.get("BOOK_DEVICE", "auto")
    origin = "the argument" if name is not None else "the variable BOOK_DEVICE"
    if str(requested).strip().lower() == "auto":
        return _first_that_works()
    device = _parse(requested, origin)
    if not _says_available(device):
        raise DeviceUnavailableError(
            f"{origin} asks for '{device}', but {_why_not(device)}. "
            f"Available here: {', '.join(_available())}."
        )
    try:
        probe(device)
    except Exception as error:
        raise DeviceUnavailableError(
            f"{origin} asks for '{device}', which says it is available, but its first computation "
            f"failed: {_first_line(error)}. {_likely_cause(device, error)}"
        ) from error
    return device


def as_device(device: torch.device | str) -> torch.device:
    """Return ``device`` as PyTorch's own type; whether it is there is another question.

    Raises ``ValueError`` with the choices for a name that is no device.
    """
    try:
        return torch.device(device)
    except RuntimeError:
        raise ValueError(
            f"'{device}' is no device: choose {', '.join(repr(choice) for choice in CHOICES)}, "
            "or take what pick_device() returns."
        ) from None


def probe(device: torch.device | str) -> None:
    """Allocate, compute and read back one value on ``device``.

    Raises whatever PyTorch raises, and ``RuntimeError`` when the value that comes back is wrong.
    """
    value = (torch.ones(2, 2, device=device) @ torch.ones(2, 2, device=device)).sum().item()
    if value != 8.0:
        raise RuntimeError(f"2x2 matrix product on {device} summed to {value}, not 8.0")


def synchronize(device: torch.device | str) -> None:
    """Wait until all work queued on ``device`` is done; the CPU has no queue to wait for."""
    device_type = as_device(device).type
    if device_type == "mps":
        torch.mps.synchronize()
    elif device_type == "cuda":
        torch.cuda.synchronize(device)


def is_simulated(device: torch.device | str) -> bool:
    """Return whether ``device`` is an MPS device without a Mac, as the book's tests simulate it.

    What is timed on it is the time of a CPU.
    """
    if as_device(device).type != "mps" or platform.system() == "Darwin":
        return False
    return bool(torch.backends.mps.is_available())


def seed_everything(seed: int) -> None:
    """Seed Python, NumPy and PyTorch (its CPU, CUDA and MPS generators) with ``seed``.

    The same seed gives different numbers on different devices, and on MPS from one PyTorch
    release to another: a seed makes a run repeatable, not portable.
    """
    random.seed(seed)
    np.random.seed(seed % 2**32)
    torch.manual_seed(seed)


def pick_scale(device: torch.device | str) -> Scale:
    """Return how large the chapter's experiments should be: ``"quick"`` or ``"full"``.

    ``BOOK_SCALE`` decides if it is set; otherwise the CPU gets ``"quick"`` and a GPU ``"full"``.
    Raises ``ValueError`` for any other value of ``BOOK_SCALE``.
    """
    requested = os.environ.get("BOOK_SCALE", "").strip().lower()
    if requested in ("quick", "full"):
        return "quick" if requested == "quick" else "full"
    if requested:
        raise ValueError(f"BOOK_SCALE is '{requested}'; it can be 'quick' or 'full'.")
    return "quick" if as_device(device).type == "cpu" else "full"


def first_line(message: str) -> str:
    """Return the first line of a PyTorch error without its advice to lift the memory limit.

    Where not even a two-by-two matrix fits, there is no limit to lift.
    """
    line = (message.strip().splitlines() or [""])[0]
    return re.sub(r"\s*Use PYTORCH_MPS_HIGH_WATERMARK_RATIO=0\.0[^(]*(\([^)]*\))?\.?", "", line)


def _parse(requested: str | torch.device, origin: str) -> torch.device:
    """Turn a name into a device, or say what the choices are."""
    text = str(requested).strip().lower()
    try:
        device = torch.device(text)
    except RuntimeError:
        device = None
    if device is None or device.type not in CHOICES:
        raise ValueError(
            f"{origin} is '{requested}', which is no device of this book. "
            f"Choose 'auto', {', '.join(repr(choice) for choice in CHOICES)}."
        )
    if device.type != "cuda" and device.index not in (None, 0):
        raise ValueError(f"{origin} is '{requested}', but there is only one {device.type} device.")
    # "mps:0" and "mps" are the same device; one spelling keeps comparisons simple.
    return torch.device(device.type) if device.type != "cuda" else device


def _says_available(device: torch.device) -> bool:
    if device.type == "mps":
        # torch.mps.is_available() is missing from some releases; the backend's own test is not.
        return bool(torch.backends.mps.is_available())
    if device.type == "cuda":
        return torch.cuda.is_available() and (device.index or 0) < torch.cuda.device_count()
    return True


def _available() -> list[str]:
    return [choice for choice in CHOICES if _says_available(torch.device(choice))]


def _first_that_works() -> torch.device:
    for name in CHOICES:
        device = torch.device(name)
        if not _says_available(device):
            continue
        try:
            probe(device)
        except Exception as error:
            warnings.warn(
                f"'{name}' says it is available, but its first computation failed: "
                f"{_first_line(error)}. {_likely_cause(device, error)} Trying the next device.",
                stacklevel=3,
            )
            continue
        return device
    raise DeviceUnavailableError("No device can compute here, not even the CPU: reinstall PyTorch.")


def _why_not(device: torch.device) -> str:
    if device.type == "mps":
        if not torch.backends.mps.is_built():
            return "this PyTorch was built without MPS (only the macOS arm64 builds have it)"
        return "MPS is built in but unavailable on this computer; `make doctor` says why"
    if torch.cuda.is_available():
        return f"there are only {torch.cuda.device_count()} CUDA devices"
    return "PyTorch sees no CUDA device"


def _likely_cause(device: torch.device, error: BaseException) -> str:
    if device.type == "mps" and "out of memory" in str(error).lower():
        return (
            "A Mac with no GPU memory at all for a two-by-two matrix is usually a virtual machine "
            "or a hosted runner, where MPS is not supported."
        )
    return "Run `make doctor` for a diagnosis."


def _first_line(error: BaseException) -> str:
    return (first_line(str(error)) or type(error).__name__).rstrip(".")
