"""Chapters that the tests have executed, handed to the book, which need not run them again."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path

import nbformat
from jupyter_cache import get_cache
from jupyter_cache.base import CacheBundleIn


def hand_over(executed: Path, root: Path, cache: Path) -> None:
    """Put every notebook of ``executed`` into the book's cache, as the one under ``root``.

    A notebook whose code is another by now is put there in vain: the cache looks for the code.
    """
    book_cache = get_cache(str(cache))
    for path in sorted(executed.rglob("*.ipynb")):
        notebook = nbformat.read(path, as_version=4)
        seconds = take_timing(notebook)
        place = str(root / path.relative_to(executed))
        bundle = CacheBundleIn(notebook, place, data={"execution_seconds": seconds})
        # Skipped cells have no number, which the check would take for an unfinished run.
        book_cache.cache_notebook_bundle(bundle, check_validity=False, overwrite=True)


def take_timing(notebook: nbformat.NotebookNode) -> float:
    """Return the seconds from first to last cell; drop the records, which a source has not."""
    records = [cell.metadata.pop("execution", {}) for cell in notebook.cells]
    times = [datetime.fromisoformat(time) for record in records for time in record.values()]
    return (max(times) - min(times)).total_seconds() if times else 0.0
