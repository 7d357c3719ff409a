"""Apple's chips as ``data/chips.csv`` has them: GPU cores, bandwidth, memory and FP32 rate."""

import functools
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from helpers.csv_table import rows

CSV = Path(__file__).resolve().parent.parent / "data" / "chips.csv"
BY = ("Apple", "third party")
# Bounds that no chip of this kind can be outside of, to catch a slip of the unit.
_NUMBERS = {
    "gpu_cores": (1, 1_000),
    "gpu_cores_from": (1, 1_000),
    "bandwidth_gb_s": (10, 10_000),
    "max_memory_gb": (4, 10_000),
    "fp32_tflops": (0.5, 1_000),
}
_ORIGINS = {
    "bandwidth_by": "bandwidth_gb_s",
    "max_memory_by": "max_memory_gb",
    "fp32_by": "fp32_tflops",
}
_COLUMNS = ("chip", *_NUMBERS, *_ORIGINS, "sources", "note")


class ChipsError(ValueError):
    """The table of chips does not hold what it must."""


@dataclass(frozen=True)
class Chip:
    """One row: ``None`` where the source gives no figure, ``*_by`` whose figure it is."""

    chip: str
    gpu_cores: int | None  # of the largest variant that the row is about
    gpu_cores_from: int | None  # of the smallest
    bandwidth_gb_s: float | None
    bandwidth_by: str
    max_memory_gb: float | None
    max_memory_by: str
    fp32_tflops: float | None
    fp32_by: str
    sources: str
    note: str


@functools.cache
def chips(path: Path = CSV) -> tuple[Chip, ...]:
    """Return every chip of the table, in its order.

    Raises ChipsError naming the file, the line, the column and the reason where a row is wrong.
    """
    found = tuple(_chip(row, where) for where, row in rows(path, _COLUMNS, ChipsError))
    names = [row.chip for row in found]
    if twice := {name for name in names if names.count(name) > 1}:
        raise ChipsError(f"{path}: twice in the table: {', '.join(sorted(twice))}.")
    return found


def chip(name: str) -> Chip:
    """Return the row of a chip: ``M1 Pro``, or ``Apple M1 Pro``. ValueError if there is none."""
    wanted = name.strip().lower().removeprefix("apple ")
    found = next((row for row in chips() if row.chip.lower() == wanted), None)
    if found is None:
        known = ", ".join(row.chip for row in chips())
        raise ValueError(f"No chip is called {name!r} in data/chips.csv. It has {known}.")
    return found


def _chip(row: dict[str, str], where: str) -> Chip:
    if not row["chip"] or not row["sources"]:
        raise ChipsError(f"{where}: chip and sources must not be empty.")
    numbers = {column: _number(row, column, where) for column in _NUMBERS}
    cores = {column: numbers[column] for column in ("gpu_cores", "gpu_cores_from")}
    for column, of in _ORIGINS.items():
        if row[column] not in ("", *BY) or (row[column] and numbers[of] is None):
            raise ChipsError(f"{where}: {column} must be {' or '.join(BY)}, or empty with {of}.")
    typed: dict[str, Any] = {**row, **numbers}
    typed |= {column: None if n is None else int(n) for column, n in cores.items()}
    return Chip(**typed)


def _number(row: dict[str, str], column: str, where: str) -> float | None:
    if not row[column]:
        return None
    low, high = _NUMBERS[column]
    try:
        value = float(row[column])
    except ValueError:
        value = float("nan")
    if not low <= value <= high:
        raise ChipsError(
            f"{where}: {column} is {row[column]!r}; it must be a number from {low} to {high}."
        )
    return value
