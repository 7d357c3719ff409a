"""Measured runs with their machine, as ``data/records/*.json`` has them.

``record_suite`` makes a record, ``python -m helpers record`` runs it, and ``load_records`` reads
what there is. ``chips`` and ``published`` are the figures that others have given.
"""

import json
import re
import tempfile
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any

import jsonschema  # type: ignore[import-untyped]

from helpers.chips import chips
from helpers.machine import Machine
from helpers.published import published

__all__ = [
    "LeftOut",
    "Measurement",
    "Record",
    "RecordError",
    "check_folder",
    "chips",
    "load_records",
    "published",
    "save_record",
]

DATA = Path(__file__).resolve().parent.parent / "data"
FOLDER = DATA / "records"
FORMAT = 1


class RecordError(ValueError):
    """A record cannot be made, read or written."""


@dataclass(frozen=True)
class Measurement:
    """One workload at one size; ``size`` is what ``data/README.md`` says for the workload."""

    workload: str
    size: int
    dtype: str
    median_s: float
    iqr_s: float
    samples: int
    first_s: float
    notes: tuple[str, ...] = ()

    @property
    def flops_per_s(self) -> float | None:
        """Floating-point operations per second of a matrix product, else ``None``."""
        return 2 * self.size**3 / self.median_s if self.workload == "matmul" else None

    @property
    def bytes_per_s(self) -> float | None:
        """Bytes read and written per second by a copy, else ``None``."""
        return 2 * self.size / self.median_s if self.workload == "copy" else None


@dataclass(frozen=True)
class LeftOut:
    """What the suite did not measure on this machine, and why."""

    workload: str
    size: int
    dtype: str
    reason: str


@dataclass(frozen=True)
class Record:
    """One run of the suite on one device. It names the machine, and no user and no host."""

    date: str  # ISO, of the machine's own time zone
    device: str  # "cpu", "mps" or "cuda"
    machine: Machine
    threads: int  # of the CPU, for one operation
    load: float | None  # share of the CPU cores that other programs kept busy, before the run
    notes: tuple[str, ...]
    seconds: float  # of the whole run
    measurements: tuple[Measurement, ...]
    left_out: tuple[LeftOut, ...]

    @property
    def chip(self) -> str:
        """What computed: the CUDA card, or the computer's chip."""
        name = self.machine.gpu if self.device == "cuda" else self.machine.chip
        return name or "unknown chip"

    @property
    def stem(self) -> str:
        """File name without number and ending: ``apple-m2-pro-mps-torch2.14.1-2026-11-30``."""
        chip = re.sub(r"[^a-z0-9]+", "-", self.chip.lower()).strip("-")[:60] or "chip"
        torch = re.sub(r"[^A-Za-z0-9.]+", "-", self.machine.torch.split("+")[0])
        return f"{chip}-{self.device}-torch{torch}-{self.date}"

    def of(self, workload: str, dtype: str = "float32") -> dict[int, Measurement]:
        """Return the measurements of a workload by size."""
        return {
            found.size: found
            for found in self.measurements
            if (found.workload, found.dtype) == (workload, dtype)
        }

    def __str__(self) -> str:
        """Return one line, as ``stamp`` writes it: chip, device, PyTorch, system, date."""
        torch = f"torch {self.machine.torch.split('+')[0]}"
        return " · ".join((self.chip, self.device, torch, self.machine.os, self.date))


def load_records(folder: Path = FOLDER) -> tuple[list[Record], list[str]]:
    """Return every record of the folder, by file name, and a line for each file left out.

    A malformed file is left out: its line has its name, the field and the reason. Nothing is
    raised for it, nor for a folder that is not there or cannot be read.
    """
    records, left_out = [], []
    try:
        paths = [path for path in sorted(folder.iterdir()) if path.suffix == ".json"]
    except FileNotFoundError:
        return [], []
    except OSError as error:
        return [], [f"{folder.name}: cannot be read: {error.strerror}"]
    for path in paths:
        try:
            records.append(read_record(path))
        except RecordError as error:
            left_out.append(str(error))
    return records, left_out


def read_record(path: Path) -> Record:
    """Return the record in a file. RecordError, in one line, names the file, field and reason."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"), parse_constant=_no_number)
    except OSError as error:
        raise RecordError(f"{path.name}: cannot be read: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise RecordError(f"{path.name}: is not JSON: {error}") from error
    if problem := next(problems(content), None):
        raise RecordError(f"{path.name}: {problem}")
    del content["format"]
    content["machine"] = Machine(**content["machine"])
    content["notes"] = tuple(content["notes"])
    content["measurements"] = tuple(
        Measurement(**{**found, "notes": tuple(found["notes"])})
        for found in content["measurements"]
    )
    content["left_out"] = tuple(LeftOut(**found) for found in content["left_out"])
    return Record(**content)


def save_record(record: Record, folder: Path = FOLDER) -> Path:
    """Write a record into a new file of the folder, whole or not at all, and return its path.

    A file that is there stays: the next free number is appended to the name. Raises RecordError
    if the folder cannot be written to, or if the record does not match its own schema.
    """
    content = {"format": FORMAT, **asdict(record)}
    text = json.dumps(content, indent=1, ensure_ascii=False)
    try:
        problem = next(problems(json.loads(text, parse_constant=_no_number)), None)
    except ValueError as error:
        problem = str(error)
    if problem:
        raise RecordError(f"this record would not be readable: {problem}")
    check_folder(folder)
    try:
        path = _new_file(folder, record.stem)
    except OSError as error:
        raise RecordError(f"Cannot write to {folder}: {error.strerror}.") from error
    part = path.with_suffix(".part")
    try:
        part.write_text(text + "\n", encoding="utf-8")
        part.replace(path)
    except BaseException as error:
        for made in (part, path):
            made.unlink(missing_ok=True)
        if isinstance(error, OSError):
            raise RecordError(f"Cannot write {path}: {error.strerror}.") from error
        raise
    return path


def check_folder(folder: Path = FOLDER) -> None:
    """Raise RecordError, with what to do, if no file can be made in the folder."""
    advice = "Choose another one with --folder."
    if not folder.is_dir():
        raise RecordError(f"There is no folder {folder} to write the record to. {advice}")
    try:
        tempfile.TemporaryFile(dir=folder).close()
    except OSError as error:
        raise RecordError(f"Cannot write to {folder}: {error.strerror}. {advice}") from error


def problems(content: Any) -> Iterator[str]:
    """Yield what is wrong with a record's JSON: the field, and the reason."""
    for error in _validator().iter_errors(content):
        field = error.json_path.removeprefix("$").removeprefix(".") or "the record"
        reason = error.message if len(error.message) < 200 else f"breaks the rule {error.validator}"
        yield f"{field}: {reason}"
    if _validator().is_valid(content):
        yield from _repeated(content["measurements"])


def _repeated(measurements: list[dict[str, Any]]) -> Iterator[str]:
    """Yield what was measured more than once: of two numbers, a reader would see one."""
    keys = [(found["workload"], found["size"], found["dtype"]) for found in measurements]
    for workload, size, dtype in sorted(key for key, times in Counter(keys).items() if times > 1):
        yield f"measurements: {workload} at {size} in {dtype} is there more than once"


@cache
def _validator() -> jsonschema.Draft202012Validator:
    schema = json.loads((DATA / "record.schema.json").read_text(encoding="utf-8"))
    known = jsonschema.Draft202012Validator
    return known(schema, format_checker=known.FORMAT_CHECKER)


def _no_number(name: str) -> float:
    raise ValueError(f"{name} is not a number")


def _new_file(folder: Path, stem: str) -> Path:
    """Make and return an empty file with a name that nobody had."""
    number = 1
    while True:
        path = folder / (f"{stem}.json" if number == 1 else f"{stem}-{number}.json")
        try:
            path.touch(exist_ok=False)
            return path
        except FileExistsError:
            number += 1
