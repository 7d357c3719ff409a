"""Read a table of comma-separated text that ships with the book; what is wrong names its place."""

import csv
from collections.abc import Iterator, Sequence
from pathlib import Path


def rows(
    path: Path, columns: Sequence[str], error: type[ValueError]
) -> Iterator[tuple[str, dict[str, str]]]:
    """Yield where each row stands ("chips.csv, line 3", with the whole path) and its cells.

    Raises ``error``, naming file, line and reason, for a file that is no text, for other columns,
    and for a row with more or fewer cells. A mark that spreadsheets put first (BOM) is no cell.
    """
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            reader = csv.DictReader(file)
            if sorted(reader.fieldnames or ()) != sorted(columns):
                raise error(f"{path}: the columns must be {', '.join(columns)}.")
            for row in reader:
                where = f"{path}, line {reader.line_num}"
                if None in row or None in row.values():
                    raise error(f"{where}: it must have {len(columns)} columns.")
                yield where, row
    except (UnicodeDecodeError, csv.Error) as problem:
        raise error(f"{path}: is no table of comma-separated text: {problem}.") from problem
