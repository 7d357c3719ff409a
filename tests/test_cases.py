"""Reported trouble that no single module answers for; the other cases stand beside their code."""

import inspect
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest

from helpers import timing
from tests.book import pages
from tests.notebooks import rules

ROOT = Path(__file__).resolve().parents[1]


def text_of(chapter: str) -> str:
    """Return a chapter's Markdown as one line."""
    notebook = nbformat.read(ROOT / f"chapters/{chapter}.ipynb", as_version=4)
    cells = [cell.source for cell in notebook.cells if cell.cell_type == "markdown"]
    return " ".join(" ".join(cells).split()).lower()


def test_c15_measuring_never_pauses_and_the_page_says_why():
    assert "sleep" not in inspect.getsource(timing)
    for word in ("pause", "battery", "heat"):
        assert word in text_of("measure/timing")


def test_c47_a_widget_without_its_state_is_found(tmp_path):
    page = tmp_path / "page.html"
    view = '<script type="application/vnd.jupyter.widget-view+json">{"model_id": "m"}</script>'
    page.write_text(f"<html><body><main>{view}</main></body></html>")
    assert list(pages.widgets_have_state(pages.read(page)))


def test_c48_no_chapter_shows_a_control_that_needs_a_kernel():
    for path in (ROOT / "chapters").rglob("*.ipynb"):
        code = "\n".join(
            cell.source
            for cell in nbformat.read(path, as_version=4).cells
            if cell.cell_type == "code"
        )
        assert "ipywidgets" not in code, path
        assert "interact(" not in code, path


@pytest.mark.parametrize("folder", ["root", "chapters/train", "elsewhere"])
def test_c53_helpers_and_their_data_are_found_from_every_folder(folder, tmp_path):
    where = {"root": ROOT, "elsewhere": tmp_path}.get(folder, ROOT / folder)
    program = "import helpers; print(len(helpers.mnist(full=False)))"
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=where, capture_output=True, text=True
    )
    assert done.stdout == "4000\n", done.stderr


def test_c55_a_second_timeout_key_is_refused():
    notebook = nbformat.v4.new_notebook(metadata={"execution": {"timeout": 60}})
    assert list(rules.has_one_timeout_key(notebook)) == []
    notebook.metadata["mystnb"] = {"execution_timeout": 60}
    assert list(rules.has_one_timeout_key(notebook))
