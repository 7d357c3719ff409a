"""Every rule on every chapter. What a rule means: rules.py; that each can fail: test_rules.py."""

from pathlib import Path

import nbformat
import pytest

from . import rules

ROOT = Path(__file__).resolve().parents[2]
NOTEBOOKS = sorted(
    path for path in (ROOT / "chapters").rglob("*.ipynb") if ".ipynb_checkpoints" not in path.parts
)
CASES = [
    pytest.param(path, rule, id=f"{path.parent.name}/{path.stem}-{rule.__name__}")
    for path in NOTEBOOKS
    for rule in (rules.ALL_NOTEBOOKS if path.stem == "index" else rules.CHAPTERS)
]


def read(path: Path) -> nbformat.NotebookNode:
    return nbformat.read(path, as_version=nbformat.NO_CONVERT)


def test_there_are_chapters():
    assert len(NOTEBOOKS) >= 7


@pytest.mark.parametrize(("path", "rule"), CASES)
def test_chapter(path, rule):
    assert list(rule(read(path))) == []


def test_figure_names_are_unique():
    assert list(rules.repeats_no_figure_name(map(read, NOTEBOOKS))) == []


def test_c49_toc_lists_every_chapter_and_nothing_else():
    assert list(rules.toc_matches_files(ROOT)) == []


@pytest.mark.parametrize("path", [*ROOT.glob("*.md"), *(ROOT / "chapters").rglob("*.md")], ids=str)
def test_c06_c46_install_commands(path):
    assert list(rules.installs_the_right_thing(path.read_text())) == []


def test_c46_requirements_pin_jupyter_book_1():
    assert "jupyter-book==1." in (ROOT / "requirements.txt").read_text()
