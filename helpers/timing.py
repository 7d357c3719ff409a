"""An honest clock: the time a computation takes, not the time it takes to ask for it.

A GPU call returns as soon as the work is queued. Every reading here is taken between two
synchronizations, after a warm-up, many times over.
"""

import math
import os
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Self

import torch

from helpers.device import as_device, is_simulated, synchronize

# A sample shorter than this is mostly clock, call and synchronization; calls are then grouped.
SHORTEST_SAMPLE_S = 1e-3
WIDE_SPREAD = 0.25  # interquartile range over median from which a timing is reported as unsteady
SLOWDOWN = 1.25  # median of the last third over the first third from which heat is suspected
NOT_A_TIMING = "simulated: not a timing"


@dataclass(frozen=True)
class Timing:
    """Repeated measurements of one computation; all times are seconds for one call.

    ``first_s`` is the very first call, which pays for compilation and allocation and is therefore
    kept apart. ``flops`` and ``bytes_moved`` are the work of one call, as stated by the caller.
    """

    label: str
    device: torch.device
    first_s: float
    samples_s: tuple[float, ...]
    calls_per_sample: int = 1
    flops: float | None = None
    bytes_moved: float | None = None

    @property
    def n(self) -> int:
        """Number of samples."""
        return len(self.samples_s)

    @property
    def median_s(self) -> float:
        """Median time of one call in seconds."""
        return statistics.median(self.samples_s)

    @property
    def iqr_s(self) -> float:
        """Interquartile range of the samples in seconds; 0 for a single sample."""
        if self.n < 2:
            return 0.0
        lower, _, upper = statistics.quantiles(self.samples_s, n=4, method="inclusive")
        return upper - lower

    @property
    def flops_per_s(self) -> float | None:
        """Floating-point operations per second, or ``None`` when the work was not stated."""
        return None if self.flops is None else self.flops / self.median_s

    @property
    def bytes_per_s(self) -> float | None:
        """Bytes moved per second, or ``None`` when the traffic was not stated."""
        return None if self.bytes_moved is None else self.bytes_moved / self.median_s

    @property
    def notes(self) -> tuple[str, ...]:
        """What a reader must know before using the number; empty when there is nothing."""
        notes = []
        if is_simulated(self.device):
            notes.append(NOT_A_TIMING)
        if self.n < 3:
            notes.append(f"only {self.n} sample(s)")
        elif self.iqr_s > WIDE_SPREAD * self.median_s:
            notes.append(f"wide spread: the middle half spans {self.iqr_s / self.median_s:.0%}")
        if self._slowdown() > SLOWDOWN:
            notes.append(f"it became {self._slowdown():.1f} times slower while measured (heat?)")
        ceiling = most_flops_per_s(self.device)
        if self.flops_per_s is not None and self.flops_per_s > ceiling:
            notes.append(
                f"impossible: {self.flops_per_s / 1e12:,.0f} TFLOP/s is more than this device can "
                f"do ({ceiling / 1e12:,.0f} at the very most); was the work waited for?"
            )
        return tuple(notes)

    def _slowdown(self) -> float:
        """Median of the last third of the samples over that of the first third."""
        third = self.n // 3
        if third < 3:
            return 1.0
        return statistics.median(self.samples_s[-third:]) / statistics.median(
            self.samples_s[:third]
        )

    def __str__(self) -> str:
        """One line: median, spread, n, first call, rate and notes."""
        parts = [
            f"{self.label + ': ' if self.label else ''}{format_seconds(self.median_s)}",
            f"± {format_seconds(self.iqr_s / 2)}",
            f"(n={self.n}{f' x {self.calls_per_sample} calls' if self.calls_per_sample > 1 else ''}"
            f", {self.device.type}; first call {format_seconds(self.first_s)})",
        ]
        if self.flops_per_s is not None:
            parts.append(f"{_three_digits(self.flops_per_s / 1e12)} TFLOP/s")
        if self.bytes_per_s is not None:
            parts.append(f"{_three_digits(self.bytes_per_s / 1e9)} GB/s")
        return " ".join(parts) + "".join(f"\n  note: {note}" for note in self.notes)


def measure(
    fn: Callable[[], object],
    *,
    device: torch.device | str,
    label: str = "",
    flops: float | None = None,
    bytes_moved: float | None = None,
    warmup: int = 2,
    min_time_s: float = 0.5,
    min_samples: int = 5,
    max_samples: int = 200,
) -> Timing:
    """Time ``fn()`` on ``device`` and return a ``Timing``.

    The first call is timed apart, ``warmup`` calls are thrown away, then samples are taken until
    ``min_time_s`` seconds have been measured and there are ``min_samples`` of them, or until there
    are ``max_samples``. The device is synchronized before every reading of the clock. Calls
    shorter than a millisecond are grouped, and the group's time is divided by its size: the
    result is then what a call costs in a stream of calls, as in training.

    Device events are not used: on MPS they have been reported to hang and to run backwards
    (pytorch/pytorch#196395). Raises ``ValueError`` for a sample count below one, and whatever
    ``fn`` raises.
    """
    if min_samples < 1 or max_samples < min_samples:
        raise ValueError("measure needs 1 <= min_samples <= max_samples")
    device = as_device(device)
    first_s = _seconds(fn, device, calls=1)
    warm_s = [_seconds(fn, device, calls=1) for _ in range(max(warmup, 1))]
    calls = max(1, math.ceil(SHORTEST_SAMPLE_S / max(min(warm_s), 1e-9)))
    samples: list[float] = []
    measured_s = 0.0
    while len(samples) < max_samples:
        elapsed_s = _seconds(fn, device, calls)
        samples.append(elapsed_s / calls)
        measured_s += elapsed_s
        if measured_s >= min_time_s and len(samples) >= min_samples:
            break
    return Timing(label, device, first_s, tuple(samples), calls, flops, bytes_moved)


@dataclass
class Stopwatch:
    """Time a block of code on ``device``: ``with Stopwatch(device) as watch: ...``.

    Synchronizes on entry and on exit; afterwards ``watch.elapsed_s`` holds the seconds.
    Reading it inside the block raises ``RuntimeError``: the work may still be queued.
    """

    device: torch.device | str
    _started_s: float = field(default=0.0, init=False, repr=False)
    _elapsed_s: float | None = field(default=None, init=False, repr=False)

    def __enter__(self) -> Self:
        """Wait for earlier work, then start the clock."""
        self._elapsed_s = None
        synchronize(self.device)
        self._started_s = time.perf_counter()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Wait for the block's work, then stop the clock; a failed block has no time."""
        if kind is None:
            synchronize(self.device)
            self._elapsed_s = time.perf_counter() - self._started_s

    @property
    def elapsed_s(self) -> float:
        """Seconds the block took, its queued work included."""
        if self._elapsed_s is None:
            raise RuntimeError("the block has not finished: read elapsed_s after the with block")
        return self._elapsed_s


def crossover(sizes: Sequence[int], cpu_s: Sequence[float], gpu_s: Sequence[float]) -> int | None:
    """Return the smallest size from which on the GPU is always faster, or ``None``.

    All three have one entry a size, sizes ascending, times in seconds.
    """
    winner = None
    for size, cpu, gpu in zip(sizes, cpu_s, gpu_s, strict=True):
        if gpu >= cpu:
            winner = None
        elif winner is None:
            winner = size
    return winner


def most_flops_per_s(device: torch.device | str) -> float:
    """Return a rate that no device of this kind and size can exceed, for catching broken timings.

    It is deliberately generous, in FLOP per clock and core: CPU 2,048 (one bfloat16 AMX tile unit
    per core) at 6 GHz; CUDA 16,384 per multiprocessor (twice a Blackwell's dense float16) at
    3 GHz; Apple GPU 2,048 per core (128 multiply-adds, taken eightfold for half precision and
    matrix units) at 2 GHz, with 128 cores assumed where the count is unknown.
    """
    device = as_device(device)
    if device.type == "cuda":
        return torch.cuda.get_device_properties(device).multi_processor_count * 16_384 * 3e9
    if device.type == "mps":
        return _apple_gpu_cores() * 2_048 * 2e9
    return (os.cpu_count() or 1) * 2_048 * 6e9


def timed(text: str, device: torch.device | str) -> str:
    """Return ``text``, which states or heads times or rates of ``device``, marked if they are none.

    On the simulated MPS device "ms per step" becomes "ms per step (simulated: not a timing)".
    """
    return f"{text} ({NOT_A_TIMING})" if is_simulated(device) else text


def format_seconds(seconds: float) -> str:
    """Return a time with about three significant digits and a fitting unit: ``1.23 ms``."""
    for unit, factor in (("s", 1.0), ("ms", 1e3), ("µs", 1e6), ("ns", 1e9)):
        value = seconds * factor
        if value >= 0.9995 or unit == "ns":
            break
    return f"{_three_digits(value)} {unit}"


def _three_digits(value: float) -> str:
    """Return a number with at least three significant digits and no exponent above one."""
    return f"{value:,.0f}" if value >= 99.95 else f"{value:.3g}"


def _seconds(fn: Callable[[], object], device: torch.device, calls: int) -> float:
    """Seconds for ``calls`` calls, from an idle device to an idle device."""
    synchronize(device)
    start_s = time.perf_counter()
    for _ in range(calls):
        fn()
    synchronize(device)
    return time.perf_counter() - start_s


def _apple_gpu_cores() -> int:
    """Cores of this Mac's GPU (torch.backends.mps knows since 2.9), or 128 when unknown."""
    try:
        return int(torch.backends.mps.get_core_count()) or 128
    except (AttributeError, RuntimeError):
        return 128
