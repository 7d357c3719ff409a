"""Figures that others have published, as ``data/published.csv`` has them: none is ours."""

import functools
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

from helpers.csv_table import rows

CSV = Path(__file__).resolve().parent.parent / "data" / "published.csv"
DEVICES = ("cpu", "mps", "cuda")
UNITS = ("s", "ms", "GB", "GB/s", "TFLOP/s", "cores", "times", "%")
_REQUIRED = ("id", "source", "device", "what", "value", "unit", "doubts")
_COLUMNS = (*_REQUIRED, "claim", "machine", "torch", "date", "url")


class PublishedError(ValueError):
    """The table of published figures does not hold what it must."""


@dataclass(frozen=True)
class Figure:
    """One published number, with who says it of which machine, and why to doubt it."""

    id: str
    source: str  # S0, S2 or S3 for the articles that the book audits, else a report's short name
    claim: str  # its number in the audit, such as "S0-19"; empty for a report
    machine: str  # as the source states it; empty where it names none
    device: str  # what computed: "cpu", "mps" or "cuda"
    what: str
    value: float
    unit: str
    torch: str  # empty where the source does not say
    date: str
    url: str
    doubts: str  # the reasons to doubt it, or "right"

    def __str__(self) -> str:
        """Return ``1.8 s (S0-19, M1 Pro)``."""
        of = ", ".join(part for part in (self.claim or self.source, self.machine) if part)
        return f"{self.value:g} {self.unit} ({of})"


@functools.cache
def published(path: Path = CSV) -> Mapping[str, Figure]:
    """Return every published figure by its id, in the order of the table.

    Raises PublishedError naming the file, the line, the column and the reason where a row is wrong.
    """
    figures: dict[str, Figure] = {}
    for where, row in rows(path, _COLUMNS, PublishedError):
        figure = _figure(row, where)
        if figure.id in figures:
            raise PublishedError(f"{where}: id {figure.id!r} is taken.")
        figures[figure.id] = figure
    return MappingProxyType(figures)


def _figure(row: dict[str, str], where: str) -> Figure:
    if empty := [column for column in _REQUIRED if not row[column]]:
        raise PublishedError(f"{where}: {empty[0]} must not be empty.")
    if not (row["claim"] or row["url"] or row["source"] == "specification"):
        raise PublishedError(f"{where}: url must not be empty where there is no claim.")
    for column, choices in (("device", DEVICES), ("unit", UNITS)):
        if row[column] not in choices:
            raise PublishedError(
                f"{where}: {column} is {row[column]!r}; it must be one of {', '.join(choices)}."
            )
    try:
        value = float(row["value"])
    except ValueError:
        value = math.nan
    if not 0 < value < math.inf:
        raise PublishedError(
            f"{where}: value is {row['value']!r}; it must be a number greater than 0."
        )
    typed: dict[str, Any] = {**row, "value": value}
    return Figure(**typed)
