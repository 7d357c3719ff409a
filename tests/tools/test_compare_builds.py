"""tools/compare_builds.py: numbers and dates are not a difference, everything else is."""

import importlib
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGE = """<!DOCTYPE html><html lang="en"><head><title>Speed</title></head><body>
<p class="stamp">Measured on 2026-11-30, torch 2.14.1</p>
<pre>ran in 1.23 ms *
took 850 kB, -3.5e-05</pre>
<svg class="figure" aria-label="Time rises to 4 s." viewbox="0 0 9 9">
<path d="M 0 1"/><text>0.5</text><text>time (s)</text></svg>
</body></html>"""


@pytest.fixture(scope="module")
def compare():
    sys.path.insert(0, str(ROOT / "tools"))
    try:
        return importlib.import_module("compare_builds")
    finally:
        sys.path.remove(str(ROOT / "tools"))


@pytest.fixture
def differences(compare, tmp_path):
    def of(*changes, **other_files):
        one, other = tmp_path / "one", tmp_path / "other"
        for folder in (one, other):
            folder.mkdir()
            (folder / "index.html").write_text(PAGE)
            (folder / "book.css").write_text("p { margin: 0 }")
        changed = PAGE
        for old, new in changes:
            assert old in changed
            changed = changed.replace(old, new)
        (other / "index.html").write_text(changed)
        for name, text in other_files.items():
            (other / name.replace("_", ".")).write_text(text)
        return list(compare.differences(one, other))

    return of


def test_measured_numbers_and_dates_are_no_difference(differences):
    assert not differences(
        ("2026-11-30", "2026-12-01"),
        ("1.23 ms *", "987 µs\n  note: wide spread: the middle half spans 40%"),
        ("850 kB, -3.5e-05", "1.2 MB, 4.25e-05"),
        ('<path d="M 0 1"/><text>0.5</text>', '<path d="M 3 1"/><text>2</text><text>4</text>'),
        ("rises to 4 s", "rises to 5 s"),
        ('viewbox="0 0 9 9"', 'viewbox="0 0 10 9"'),
    )


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("ran in", "run in"),
        ("1.23 ms *\n", "1.23 ms *</pre><pre>"),
        ('class="stamp"', 'class="stamp" id="a"'),
        ("time (s)", "time (ms)"),
        ("Time rises", "Time falls"),
        ("<title>Speed", "<title>Rate"),
    ],
)
def test_everything_else_is(differences, old, new):
    assert differences((old, new))


def test_so_are_other_files(differences):
    found = differences(book_css="p { margin: 1px }", extra_js="")
    assert [line.split(":")[0] for line in found] == [found[0].split(":")[0], "book.css"]
    assert found[0].endswith("extra.js")


def test_a_folder_without_a_book_is_refused(compare, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["compare_builds.py", str(tmp_path), str(tmp_path)])
    assert compare.main() == 2
    assert "make book" in capsys.readouterr().err
