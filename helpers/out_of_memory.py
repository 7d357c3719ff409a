"""Out of memory: the error in all its texts, and the batch that still fits."""

from collections.abc import Callable

import torch

from helpers.device import as_device, synchronize
from helpers.memory import release

OUT_OF_MEMORY_PHRASES = (
    "mps backend out of memory",  # followed by amounts in GB or GiB, "private" or "shared pool"
    "invalid buffer size",  # MPS, one tensor larger than Metal's largest buffer
    "defaultcpuallocator",  # "can't allocate memory" on Linux and macOS, "not enough memory" else
    "cuda error: out of memory",
    "cublas_status_alloc_failed",
    "cudnn_status_alloc_failed",
)


class BatchDoesNotFitError(RuntimeError):
    """Not even the smallest batch fits into memory."""


def is_out_of_memory(error: BaseException) -> bool:
    """Say whether ``error`` means that memory ran out, on any device.

    CUDA raises ``torch.OutOfMemoryError`` and NumPy ``MemoryError``; everything else is a plain
    ``RuntimeError`` that only its text tells apart, see ``OUT_OF_MEMORY_PHRASES``.
    """
    if isinstance(error, torch.OutOfMemoryError | MemoryError):
        return True
    text = str(error).lower()
    return isinstance(error, RuntimeError) and any(p in text for p in OUT_OF_MEMORY_PHRASES)


def find_batch_size(
    step: Callable[[int], object],
    *,
    device: torch.device | str,
    start: int = 1,
    limit: int = 4096,
) -> int:
    """Return the largest batch size that ``step(batch_size)`` survives, doubling from ``start``.

    Only powers of two times ``start`` up to ``limit`` are tried. Memory is released after each
    try. Raises ``BatchDoesNotFitError`` when ``start`` itself does not fit, ``ValueError`` for a
    ``start`` below one or above ``limit``; any error that is not about memory passes through.
    """
    if not isinstance(start, int) or not 1 <= start <= limit:
        raise ValueError(f"start must be a whole number from 1 to limit={limit}, not {start}")
    fitting = 0
    batch_size = start
    while batch_size <= limit and _fits(step, batch_size, device):
        fitting = batch_size
        batch_size *= 2
    if not fitting:
        raise BatchDoesNotFitError(
            f"A batch of {start} does not fit on {as_device(device).type}. Use a smaller model "
            "or smaller inputs, close other programs, or free what earlier cells still hold."
        )
    return fitting


def _fits(step: Callable[[int], object], batch_size: int, device: torch.device | str) -> bool:
    """Run one step and say whether memory sufficed; the error is dropped before releasing."""
    try:
        step(batch_size)
        synchronize(device)
        fits = True
    except (RuntimeError, MemoryError) as error:
        if not is_out_of_memory(error):
            raise
        fits = False
    # Outside the except block: the error's traceback would keep the step's tensors alive.
    release(device)
    return fits
