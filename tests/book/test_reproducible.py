"""Two builds of the same commit: the same bytes, as nothing is measured in this small book."""

import shutil

import nbformat
import pytest

from .test_build import ROOT, Book

EXPLORER = """
from helpers.explore import explore
from helpers.figures import style

style()

def draw(axes, n):
    axes.plot([0, 1], [0, n], label="line")
    axes.legend()
    return f"A line up to {n} rows."

explore(draw, name="explore-line", units={"n": "rows"}, n=[1, 2, 3])
"""
FIGURE = """
import matplotlib.pyplot as plt

figure, axes = plt.subplots()
axes.scatter([1, 2, 3], [3, 1, 2])
axes.set(xlabel="time (s)");
"""


@pytest.fixture
def book(tmp_path):
    made = Book(tmp_path)
    shutil.copytree(ROOT / "helpers", tmp_path / "helpers", dirs_exist_ok=True)
    made.write("page", EXPLORER, FIGURE)
    path = tmp_path / "chapters/page.ipynb"
    notebook = nbformat.read(path, as_version=4)
    notebook.cells[-1].metadata["mystnb"] = {
        "figure": {"caption": "Three points.", "name": "fig-points"},
        "image": {"alt": "Three points against time."},
    }
    nbformat.write(notebook, path)
    return made


def contents(folder):
    """Every file of a built book; the stamp of its inputs is not part of it."""
    paths = [path for path in folder.rglob("*") if path.is_file() and path.name != ".inputs"]
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in paths}


def test_a_book_that_measures_nothing_is_the_same_when_built_again(book):
    html = book.root / "_build/html"
    built = []
    for _ in range(2):
        shutil.rmtree(book.root / "_build", ignore_errors=True)
        shutil.rmtree(book.root / ".build", ignore_errors=True)
        done = book.build(BOOK_DEVICE="cpu")
        assert done.returncode == 0, done.stdout
        built.append(contents(html))
    first, second = built
    assert "explore-line" in book.page.read_text()
    assert "Three points against time." in book.page.read_text()
    assert first.keys() == second.keys()
    assert [name for name in first if first[name] != second[name]] == []
