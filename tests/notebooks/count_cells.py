"""A pytest plugin for nbmake runs: say how many code cells were executed, and which were skipped.

`pytest -p tests.notebooks.count_cells --nbmake chapters`; a green run that executed little would
otherwise look like any other (C57).
"""

from __future__ import annotations

from pathlib import Path

import nbformat
import pytest


@pytest.hookimpl
def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Add the counts of the notebooks that passed to pytest's summary."""
    terminalreporter.section("code cells")
    for report in terminalreporter.stats.get("passed", []):
        path = Path(report.nodeid.split("::")[0])
        if path.suffix == ".ipynb" and path.is_file():
            terminalreporter.line(f"{path}: {count(path)}")


def count(path: Path) -> str:
    """Return "12 executed" or "12 executed, 2 skipped (ids)" for a notebook that ran to its end."""
    cells = [cell for cell in nbformat.read(path, as_version=4).cells if cell.cell_type == "code"]
    skipped = [c.id for c in cells if "skip-execution" in c.metadata.get("tags", [])]
    text = f"{len(cells) - len(skipped)} executed"
    return f"{text}, {len(skipped)} skipped ({', '.join(skipped)})" if skipped else text
