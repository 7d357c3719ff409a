"""Mixed precision: autocast and gradient scaling where they work, and the reason where not."""

import functools
import platform
import warnings
from contextlib import AbstractContextManager, nullcontext

import torch

from helpers.device import as_device


def autocast(
    device: torch.device | str, dtype: torch.dtype | None
) -> AbstractContextManager[object]:
    """Return a context in which PyTorch computes in ``dtype`` where that is safe.

    ``None`` means float32 throughout. Where this machine cannot do ``dtype``, the context does
    nothing and one warning says so; ``autocast_dtype`` shows what really happens. Raises
    ``ValueError`` for a type that autocast never lowers to.
    """
    if dtype is None:
        return nullcontext()
    if dtype not in (torch.float16, torch.bfloat16):
        raise ValueError(f"autocast goes to float16 or bfloat16, not {dtype}; use None for float32")
    device = as_device(device)
    obstacle = _autocast_obstacle(device, dtype)
    if obstacle:
        warnings.warn(f"computing in float32: {obstacle}", stacklevel=2)
        return nullcontext()
    return torch.autocast(device.type, dtype=dtype)


def autocast_dtype(device: torch.device | str, dtype: torch.dtype | None) -> torch.dtype:
    """Return the type that a matrix product really has under ``autocast(device, dtype)``."""
    with autocast(device, dtype):
        matrix = torch.ones(2, 2, device=device)
        return (matrix @ matrix).dtype


def make_scaler(device: torch.device | str, dtype: torch.dtype | None) -> torch.amp.GradScaler:
    """Return a gradient scaler that is on exactly where one is needed: for float16.

    bfloat16 has float32's range, so its gradients do not underflow. A scaler that is off passes
    everything through; the reason is printed once. (MPS can scale since torch 2.8, and this
    package needs 2.9.)
    """
    device = as_device(device)
    reason = _no_scaling_because(device, dtype)
    if reason:
        _print_once(f"gradient scaling is off: {reason}")
    return torch.amp.GradScaler(device.type, enabled=not reason)


def _autocast_obstacle(device: torch.device, dtype: torch.dtype) -> str | None:
    if not torch.amp.is_autocast_available(device.type):
        return f"this PyTorch has no autocast for {device.type}"
    if device.type == "mps" and dtype == torch.bfloat16:
        version = platform.mac_ver()[0]
        if version and int(version.split(".")[0]) < 14:
            return f"bfloat16 on MPS needs macOS 14, this is {version}"
    if device.type == "cuda" and dtype == torch.bfloat16 and not torch.cuda.is_bf16_supported():
        return "this CUDA device has no bfloat16"
    return None


def _no_scaling_because(device: torch.device, dtype: torch.dtype | None) -> str | None:
    if dtype != torch.float16:
        name = str(dtype or torch.float32).removeprefix("torch.")
        return f"{name} gradients do not underflow the way float16's do"
    if _autocast_obstacle(device, dtype):
        return "float16 autocast is not available here"
    return None


@functools.cache
def _print_once(text: str) -> None:
    print(text)
