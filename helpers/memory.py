"""Where the bytes are: what PyTorch and the system count, and giving memory back."""

import gc
from dataclasses import dataclass
from types import TracebackType
from typing import Self

import psutil
import torch

from helpers.device import as_device, synchronize


@dataclass(frozen=True)
class MemoryReport:
    """Memory in bytes as PyTorch and the system count it; ``None`` means not applicable here.

    ``current`` is held by live tensors, ``driver`` is what PyTorch has taken from the system,
    ``cached`` is their difference (free blocks kept for reuse, and on MPS also Metal's own
    allocations), ``peak`` the highest ``current`` so far, ``recommended`` the most that the GPU
    should hold. ``process`` is the resident memory of this process, which is not GPU memory.
    """

    device: torch.device
    current_bytes: int | None
    driver_bytes: int | None
    peak_bytes: int | None
    recommended_bytes: int | None
    process_bytes: int

    @property
    def cached_bytes(self) -> int | None:
        """Bytes taken from the system that no live tensor uses."""
        if self.current_bytes is None or self.driver_bytes is None:
            return None
        return self.driver_bytes - self.current_bytes

    def rows(self) -> list[tuple[str, str]]:
        """Return (what, how much) pairs in words."""
        absent = f"not applicable on {self.device.type}"
        if self.device.type == "mps":
            absent = "this PyTorch does not count it"
        gpu = (
            ("live tensors (current)", self.current_bytes),
            ("taken from the system (driver)", self.driver_bytes),
            ("cached or other (driver - current)", self.cached_bytes),
            ("highest current so far (peak)", self.peak_bytes),
            ("recommended maximum", self.recommended_bytes),
        )
        rows = [(what, absent if n is None else format_bytes(n)) for what, n in gpu]
        return [
            *rows,
            ("this process, resident (not GPU memory)", format_bytes(self.process_bytes)),
        ]

    def __str__(self) -> str:
        """Return a small table."""
        width = max(len(what) for what, _ in self.rows())
        return "\n".join(f"{what:<{width}}  {amount:>12}" for what, amount in self.rows())


def memory_report(device: torch.device | str) -> MemoryReport:
    """Return what is held on ``device`` now; on the CPU only the process's memory is known."""
    device = as_device(device)
    synchronize(device)
    current = driver = recommended = None
    if device.type == "mps":
        current = torch.mps.current_allocated_memory()
        driver = torch.mps.driver_allocated_memory()
        recommended = torch.mps.recommended_max_memory()
    elif device.type == "cuda":
        current = torch.cuda.memory_allocated(device)
        driver = torch.cuda.memory_reserved(device)
        recommended = torch.cuda.get_device_properties(device).total_memory
    return MemoryReport(
        device=device,
        current_bytes=current,
        driver_bytes=driver,
        peak_bytes=_peak_bytes(device),
        recommended_bytes=recommended,
        process_bytes=psutil.Process().memory_info().rss,
    )


def release(device: torch.device | str) -> int | None:
    """Give memory that no tensor uses back to the system; return the bytes given back.

    Collects garbage first, then waits for the device, then empties the allocator's cache:
    cached blocks can only go when nothing refers to them any more. Memory of tensors that a
    variable still holds stays. Returns ``None`` on the CPU, where PyTorch keeps no such cache.
    """
    device = as_device(device)
    gc.collect()
    synchronize(device)
    if device.type not in ("mps", "cuda"):
        return None
    before = memory_report(device).driver_bytes or 0
    # torch.accelerator.empty_cache() has raised an internal error on MPS (pytorch/pytorch#186430).
    torch.mps.empty_cache() if device.type == "mps" else torch.cuda.empty_cache()
    return before - (memory_report(device).driver_bytes or 0)


@dataclass
class PeakMemory:
    """The peak of live tensor memory in a block: ``with PeakMemory(device) as peak: ...``.

    ``peak.bytes`` is the highest number of bytes held by live tensors on the device, or ``None``
    where PyTorch keeps no such count: on the CPU, and on MPS before torch 2.13.
    """

    device: torch.device | str
    bytes: int | None = None

    def __enter__(self) -> Self:
        """Wait for earlier work and start a new peak."""
        synchronize(self.device)
        device = as_device(self.device)
        if device.type == "cuda":
            torch.cuda.reset_peak_memory_stats(device)
        elif _peak_bytes(device) is not None:
            torch.accelerator.reset_peak_memory_stats()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Read the peak once the block's work is done."""
        if kind is None:
            synchronize(self.device)
            self.bytes = _peak_bytes(as_device(self.device))


def format_bytes(n: float) -> str:
    """Return a size in binary units: ``512 B``, ``1.5 MiB``, ``-3 KiB``."""
    size, unit = float(n), "B"
    for larger in ("KiB", "MiB", "GiB", "TiB"):
        if abs(size) < 1024:
            break
        size, unit = size / 1024, larger
    return f"{size:.0f} {unit}" if abs(size) >= 99.95 or unit == "B" else f"{size:.3g} {unit}"


def _peak_bytes(device: torch.device) -> int | None:
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    if device.type == "mps":
        try:
            return int(torch.accelerator.max_memory_allocated())
        except (AttributeError, RuntimeError):  # before torch 2.13 MPS keeps no peak
            return None
    return None
