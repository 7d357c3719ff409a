"""Every check of pages.py on every built page; `make test` builds the book first.

BOOK_HTML names another folder than the one that `make book` fills.
"""

import os
from pathlib import Path

import nbformat
import pytest
import yaml

from tests.notebooks import rules

from . import pages

ROOT = Path(__file__).resolve().parents[2]
HTML = (ROOT / os.environ.get("BOOK_HTML", "_build/html")).resolve()
ENTRIES = sorted(rules.toc_entries(yaml.safe_load((ROOT / "_toc.yml").read_text())))


@pytest.fixture(scope="session", autouse=True)
def book():
    if not (HTML / "index.html").is_file():
        pytest.fail(f"no built book in {HTML}: make book", pytrace=False)


def page_of(entry: str) -> Path:
    return HTML / f"{entry}.html"


@pytest.mark.parametrize("entry", ENTRIES)
def test_every_page_of_the_toc_is_built(entry):
    assert page_of(entry).is_file()


def test_no_other_page_is_built():
    built = {path.relative_to(HTML).with_suffix("").as_posix() for path in HTML.rglob("*.html")}
    built = {name for name in built if not name.startswith("_static/")}
    assert built - set(ENTRIES) == {"index", "genindex", "search"}


@pytest.mark.parametrize("check", pages.CHECKS, ids=lambda check: check.__name__)
@pytest.mark.parametrize("entry", ENTRIES)
def test_page(entry, check):
    assert list(check(pages.read(page_of(entry)))) == []


@pytest.mark.parametrize("name", ["index", "genindex", "search"])
def test_other_pages_ask_for_nothing_outside(name):
    assert list(pages.asks_for_nothing_outside(pages.read(page_of(name)))) == []


def test_no_stylesheet_asks_for_anything_outside():
    styles = {path: path.read_text(errors="replace") for path in HTML.rglob("*.css")}
    assert "_static/book.css" in {path.relative_to(HTML).as_posix() for path in styles}
    found = {path.name: list(pages.requests_in_css(css)) for path, css in styles.items()}
    assert {name: urls for name, urls in found.items() if urls} == {}


@pytest.mark.parametrize("entry", [e for e in ENTRIES if (ROOT / f"{e}.ipynb").is_file()])
def test_every_declared_figure_is_on_its_page(entry):
    """A cell that promises a figure and draws none leaves a reference without a target."""
    notebook = nbformat.read(ROOT / f"{entry}.ipynb", as_version=4)
    promised = {
        cell.metadata["mystnb"]["figure"]["name"]
        for _, cell in rules.code_cells(notebook)
        if "figure" in cell.metadata.get("mystnb", {})
    }
    drawn = {figure.get("id") for figure in pages.read(page_of(entry)).article.find_all("figure")}
    assert promised - drawn == set()


@pytest.mark.parametrize("entry", [e for e in ENTRIES if (ROOT / f"{e}.ipynb").is_file()])
def test_every_chapter_says_on_which_machine_it_ran(entry):
    outputs = pages.read(page_of(entry)).article.select(".cell_output")
    assert "torch" in outputs[-1].get_text()
