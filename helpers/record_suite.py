"""The fixed suite of a record: the same work on every machine, within three minutes on any.

A slow machine measures less, not longer. Each workload is a ladder of sizes: a step is taken only
if the time of the step before says that it fits into what is left of the ladder's time.
"""

import re
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime

import psutil
import torch

from helpers.device import first_line, is_simulated, seed_everything
from helpers.machine import describe_machine
from helpers.memory import release
from helpers.out_of_memory import is_out_of_memory
from helpers.record_work import PROBE_SIDE, Ladder, Work, ladders
from helpers.records import LeftOut, Measurement, Record, RecordError
from helpers.timing import Stopwatch, format_seconds, measure

MEMORY_SHARE = 0.25  # of the machine's: more, and a small Mac begins to swap
BUSY = 0.15  # share of the CPU cores from which a record says that the machine was not idle
_CALLS = 5  # at least, of a measurement: the first, a warm-up, three samples


class _OutOfTimeError(Exception):
    """The time of a ladder was up in the middle of a measurement."""


@dataclass
class Findings:
    """What the ladders brought."""

    measurements: list[Measurement] = field(default_factory=list)
    left_out: list[LeftOut] = field(default_factory=list)


def record(device: torch.device, *, say: Callable[[str], None] = print) -> Record:
    """Run the suite on ``device``, in less than three minutes, and return the record.

    ``say`` gets a line for each measurement. Raises RecordError for a simulated device.
    """
    if is_simulated(device):
        raise RecordError(
            "This is a simulated device, whose times are a CPU's: nothing is recorded."
        )
    load = psutil.cpu_percent(interval=1.0) / 100
    machine = describe_machine()
    start_s = until_s = time.perf_counter()
    seed_everything(0)
    found = Findings()
    for ladder in ladders(device):
        until_s += ladder.longest_s  # so a ladder may also use what those before it left
        climb(ladder, device, until_s, _memory_bytes(device), found, say)
    if not found.measurements:
        raise RecordError("Nothing could be measured on this device; run `make doctor`.")
    notes = [f"The machine was not idle: other programs used {load:.0%} of the CPU."]
    return Record(
        date=datetime.now().astimezone().date().isoformat(),
        device=device.type,
        machine=machine,
        threads=torch.get_num_threads(),
        load=round(load, 3),
        notes=tuple(notes if load > BUSY else ()),
        seconds=round(time.perf_counter() - start_s, 1),
        measurements=tuple(found.measurements),
        left_out=tuple(found.left_out),
    )


def _memory_bytes(device: torch.device) -> int | None:
    """All memory that the device can have: a card's own, or else the computer's."""
    if device.type == "cuda":
        return int(torch.cuda.get_device_properties(device).total_memory)
    return describe_machine().memory_bytes


def climb(
    ladder: Ladder,
    device: torch.device,
    until_s: float,
    memory_bytes: int | None,
    found: Findings,
    say: Callable[[str], None],
) -> None:
    """Measure the sizes of a ladder, from the smallest, as far as time and memory allow."""
    before: tuple[int, float] | None = None  # size and seconds
    for size in ladder.sizes:
        name = f"{ladder.workload} {ladder.dtype} {size:,}"
        try:
            expected_s = _expected_s(ladder, size, before, device)
            obstacle = _obstacle(ladder, size, expected_s, until_s, memory_bytes)
            if obstacle is None:
                work = _stopping(ladder.prepare(size), until_s)
                timing = measure(work, device=device, min_time_s=0.25, min_samples=3, warmup=1)
        except _OutOfTimeError:
            obstacle = "it took longer than expected, and its time was up"
        except (RuntimeError, MemoryError, TypeError) as error:
            obstacle = _reason(error)
        release(device)
        if obstacle is not None:
            found.left_out.append(LeftOut(ladder.workload, size, ladder.dtype, obstacle))
            say(f"{name}: left out, {obstacle}")
            continue
        before = (size, timing.median_s)
        found.measurements.append(
            Measurement(
                ladder.workload,
                size,
                ladder.dtype,
                timing.median_s,
                timing.iqr_s,
                timing.n,
                timing.first_s,
                timing.notes,
            )
        )
        say(f"{name}: {format_seconds(timing.median_s)}")


def _expected_s(
    ladder: Ladder, size: int, before: tuple[int, float] | None, device: torch.device
) -> float:
    """Seconds that one call should take, from the size before, or else from the probe."""
    if before is not None:
        return before[1] * (size / before[0]) ** ladder.growth
    if ladder.probe is None:
        return 0.0
    work = ladder.probe()
    work()  # the first call prepares kernels
    with Stopwatch(device) as watch:
        work()
    return watch.elapsed_s * (224 / PROBE_SIDE) ** 2 * (size / ladder.sizes[0]) ** ladder.growth


def _stopping(work: Work, until_s: float) -> Work:
    """Return work that refuses to begin after ``until_s``: a machine can become slower."""

    def call() -> object:
        if time.perf_counter() > until_s:
            raise _OutOfTimeError
        return work()

    return call


def _obstacle(
    ladder: Ladder, size: int, expected_s: float, until_s: float, memory_bytes: int | None
) -> str | None:
    left_s = until_s - time.perf_counter()
    if left_s <= 0 or _CALLS * expected_s > left_s:
        return f"it needs about {_CALLS * expected_s:.0f} s, and {max(left_s, 0):.0f} s are left"
    if memory_bytes is not None and ladder.bytes_each(size) > MEMORY_SHARE * memory_bytes:
        return f"it needs more than {MEMORY_SHARE:.0%} of the memory"
    return None


def _reason(error: BaseException) -> str:
    if is_out_of_memory(error):
        return "out of memory"
    # A path may hold the name of a user.
    line = re.sub(r"(?:[A-Za-z]:)?(?:[\\/][^\s\\/:]+){2,}", "<path>", first_line(str(error)))
    return f"{type(error).__name__}: {line}"[:200]
