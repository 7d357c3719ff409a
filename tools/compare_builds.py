"""Compare two builds of one commit: measured numbers and dates may differ, and nothing else.

Usage: compare_builds.py FOLDER OTHER, each the folder of an index.html. Prints what differs, and
exits with 1 if anything does.

A number and its unit are read as "some number", a drawing as its description and its words: where
its lines run, and how many marks its axes have, follows from what was measured, as the notes on a
time's spread do. (That the same
numbers give the same bytes is a test of its own, tests/book/test_reproducible.py.)
"""

from __future__ import annotations

import difflib
import re
import sys
from collections.abc import Iterator
from pathlib import Path

from bs4 import BeautifulSoup, NavigableString, Tag
from bs4.element import PreformattedString

# Made from the pages' texts, numbers and all, or of what went into the build.
NOT_COMPARED = {"searchindex.js", ".inputs", ".buildinfo"}
NUMBER = re.compile(
    r"[-+−]?(?:\d[\d,.]*(?:e[-+]?\d+)?|\binf\b|\bnan\b)"
    r"(?:\s?(?:[nµm]?s|min|h|[kKMGTP](?:i?B|FLOP)?|B|FLOP)\b)?(?:\s?\*)?"
)
SEVERAL = re.compile(r"#(?:, #(?:/s)?)+")
# What matmul.ipynb says of a size that would take this machine too long, and puts in its place.
LEFT_OUT = re.compile(r"^–$|not started, it would have taken too long")
NOTE = re.compile(r"note: (wide spread|only|it became)\b")  # helpers.timing.Timing.notes
PICTURE = re.compile(r"data:image/[^\"']+")
SHOWN = 40  # lines of differences


def main() -> int:
    folders = Path(sys.argv[1]), Path(sys.argv[2])
    for folder in folders:
        if not (folder / "index.html").is_file():
            print(f"{folder} holds no built book: run  make book", file=sys.stderr)
            return 2
    found = list(differences(*folders))
    for line in found[:SHOWN]:
        print(line)
    if len(found) > SHOWN:
        print(f"... and {len(found) - SHOWN} lines more")
    pages = sum(1 for name in files(folders[0]) if name.endswith(".html"))
    print(f"{pages} pages: {'not the same' if found else 'the same but for numbers and dates'}")
    return 1 if found else 0


def differences(one: Path, other: Path) -> Iterator[str]:
    """Yield a line for each file that only one build has, and for each place that differs."""
    ours, theirs = files(one), files(other)
    for name in sorted(ours.keys() ^ theirs.keys()):
        yield f"only in {one if name in ours else other}: {name}"
    for name in sorted(ours.keys() & theirs.keys()):
        before, after = ours[name], theirs[name]
        if before.read_bytes() == after.read_bytes():
            continue
        if not name.endswith(".html"):
            yield f"{name}: other bytes"
            continue
        lines = [list(outline(path.read_text(encoding="utf-8"))) for path in (before, after)]
        changes = difflib.unified_diff(*lines, lineterm="", n=0)
        yield from (f"{name}: {line}" for line in changes if line[:3] not in ("---", "+++"))


def files(folder: Path) -> dict[str, Path]:
    """Return every file that counts, by its name without the hash of its content."""
    return {
        re.sub(r"[0-9a-f]{32,}", "#", path.relative_to(folder).as_posix()): path
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.name not in NOT_COMPARED
    }


def outline(html: str) -> Iterator[str]:
    """Yield a page tag by tag and text by text, without its numbers."""
    yield from _outline(BeautifulSoup(html, "html.parser"))


def _outline(tag: Tag) -> Iterator[str]:
    for child in tag.children:
        if isinstance(child, Tag):
            yield f"<{child.name} {_without_numbers(str(_attributes(child)))}>"
            if child.name == "svg":
                yield from sorted(set(_texts(child)))
            else:
                yield from _outline(child)
        elif isinstance(child, NavigableString) and not isinstance(child, PreformattedString):
            yield from _lines(child)


def _attributes(tag: Tag) -> dict[str, str]:
    """Return a tag's attributes; a drawing's size follows from its labels."""
    return {
        name: PICTURE.sub("a picture", " ".join(value) if isinstance(value, list) else value)
        for name, value in tag.attrs.items()
        if not (tag.name == "svg" and name in ("viewbox", "width", "style"))
    }


def _texts(drawing: Tag) -> Iterator[str]:
    """Yield the words in a drawing; its numbers alone are marks on an axis."""
    for text in drawing.find_all("text"):
        words = _without_numbers(text.get_text(" ", strip=True))
        if re.search(r"[^\W_]", words):
            yield words


def _lines(text: str) -> Iterator[str]:
    for line in text.splitlines():
        words = " ".join(_without_numbers(line).split())
        if words and not NOTE.match(words):
            yield words


def _without_numbers(text: str) -> str:
    return SEVERAL.sub("#", LEFT_OUT.sub("#", NUMBER.sub("#", text)))


if __name__ == "__main__":
    sys.exit(main())
