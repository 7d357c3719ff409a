"""What every chapter has to be like. A rule looks at a notebook and returns messages; none is good.

Each rule is tested on the real chapters and on notebooks that break it (test_rules.py).
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import nbformat
import yaml

Notebook = nbformat.NotebookNode
Rule = Callable[[Notebook], Iterator[str]]

LONGEST_CELL = 25
MOST_SKIPPED = 0.30
LONGEST_TIMEOUT_S = 600
DEVICE_NAME = re.compile(r"(mps|cuda)(:\d+)?", re.IGNORECASE)
DEVICE_METHODS = ("cuda", "mps")
FIGURE_NAME = re.compile(r"fig-[a-z0-9]+(-[a-z0-9]+)+")
FENCE = re.compile(r"^(`{3,}|~{3,})[^\n]*\n(.*?)^\1", re.DOTALL | re.MULTILINE)
INSTALLS = re.compile(r"\b(pip3?|uv|conda|mamba|pipx)\b.*\b(install|add|create)\b")


def code_cells(notebook: Notebook) -> list[tuple[int, Notebook]]:
    return [(n, cell) for n, cell in enumerate(notebook.cells) if cell.cell_type == "code"]


def tags(cell: Notebook) -> list[str]:
    return list(cell.metadata.get("tags", []))


def markdown(notebook: Notebook) -> str:
    return "\n\n".join(cell.source for cell in notebook.cells if cell.cell_type == "markdown")


# ---------------------------------------------------------------- the file


def is_valid(notebook: Notebook) -> Iterator[str]:
    ids = [cell.get("id") for cell in notebook.cells]  # before validate, which repairs them
    if None in ids or len(set(ids)) < len(ids):
        yield "cells without an id, or with the same one"
        return
    if (notebook.nbformat, notebook.nbformat_minor) < (4, 5):
        yield "notebook format before 4.5: cells have no ids"
    try:
        nbformat.validate(notebook)
    except nbformat.ValidationError as error:
        yield f"not a valid notebook: {error.message}"


def has_no_outputs(notebook: Notebook) -> Iterator[str]:
    for n, cell in code_cells(notebook):
        if cell.outputs or cell.execution_count is not None:
            yield f"cell {n} has outputs or an execution count: make tidy"


def uses_the_python3_kernel(notebook: Notebook) -> Iterator[str]:
    name = notebook.metadata.get("kernelspec", {}).get("name")
    if name != "python3":
        yield f"kernel {name!r} instead of 'python3'"


def has_one_timeout_key(notebook: Notebook) -> Iterator[str]:
    """execution.timeout is the one key that nbmake and the book both obey."""
    timeout = notebook.metadata.get("execution", {}).get("timeout")
    if not isinstance(timeout, int) or not 0 < timeout <= LONGEST_TIMEOUT_S:
        yield f"metadata execution.timeout is {timeout!r}, not 1 to {LONGEST_TIMEOUT_S} seconds"
    if any(key.startswith("execution") for key in notebook.metadata.get("mystnb", {})):
        yield "metadata mystnb.execution_*: nbmake does not see it; use execution.timeout"


# ---------------------------------------------------------------- text and order


def has_one_title(notebook: Notebook) -> Iterator[str]:
    text = FENCE.sub("", markdown(notebook))
    titles = re.findall(r"^# .+", text, re.MULTILINE)
    if len(titles) != 1:
        yield f"{len(titles)} level-one titles instead of 1"
    if not notebook.cells or not re.search(r"^# ", notebook.cells[0].source, re.MULTILINE):
        yield "the first cell is not the title"


def has_head_and_foot(notebook: Notebook) -> Iterator[str]:
    first = "\n".join(cell.source for cell in notebook.cells[:2])
    if not re.search(r"^:class: head$", first, re.MULTILINE):
        yield "no admonition of class head in the first two cells"
    if not re.search(r"^:class: foot$", notebook.cells[-1].source, re.MULTILINE):
        yield "no admonition of class foot in the last cell"
    if not re.search(r"\bstamp\(", ([c.source for _, c in code_cells(notebook)] or [""])[-1]):
        yield "the last code cell does not print stamp(device): this page ran on ..."


def has_one_settings_cell(notebook: Notebook) -> Iterator[str]:
    found = sum("settings" in tags(cell) for _, cell in code_cells(notebook))
    if found != 1:
        yield f"{found} cells tagged settings instead of 1"


def has_exercises_with_solutions(notebook: Notebook) -> Iterator[str]:
    text = markdown(notebook)
    exercises = re.findall(r"^[`:]{3,}\{exercise\}.*\n:label: (\S+)$", text, re.MULTILINE)
    starts = re.findall(r"^[`:]{3,}\{solution-start\} (\S+)$", text, re.MULTILINE)
    folded = re.findall(r"^[`:]{3,}\{solution-start\} \S+\n:class: dropdown$", text, re.MULTILINE)
    ends = re.findall(r"^[`:]{3,}\{solution-end\}$", text, re.MULTILINE)
    if not 2 <= len(exercises) <= 4:
        yield f"{len(exercises)} exercises with a label instead of 2 to 4"
    for label in sorted(set(exercises) ^ set(starts)):
        yield f"{label}: an exercise and a solution-start do not match"
    if not len(starts) == len(ends) == len(folded):
        yield f"{len(starts)} solution-start, {len(folded)} dropdown, {len(ends)} solution-end"
    if "your Mac" not in text[text.find("{exercise}") :]:
        yield "no exercise to measure on your Mac"


# ---------------------------------------------------------------- code


def has_short_cells(notebook: Notebook) -> Iterator[str]:
    for n, cell in code_cells(notebook):
        if (lines := len(cell.source.splitlines())) > LONGEST_CELL:
            yield f"cell {n} has {lines} lines, more than {LONGEST_CELL}"


def is_plain_python(notebook: Notebook) -> Iterator[str]:
    for n, cell in code_cells(notebook):
        try:
            ast.parse(cell.source)
        except SyntaxError as error:
            yield f"cell {n} is not plain Python: {error.msg}"


def imports_helpers_first(notebook: Notebook) -> Iterator[str]:
    cells = code_cells(notebook)
    if cells and not re.search(r"^(from|import) helpers\b", cells[0][1].source, re.MULTILINE):
        yield f"the first code cell (cell {cells[0][0]}) does not import from helpers"


def names_no_device(notebook: Notebook) -> Iterator[str]:
    """C07: the device comes from pick_device; a name is for comparing, or for a labelled demo."""
    for n, cell in code_cells(notebook):
        if "mac-demo" in tags(cell):
            continue
        for found in device_literals(cell.source):
            yield f"cell {n} hard-codes {found}: use pick_device(), or tag the cell mac-demo"


def device_literals(source: str) -> Iterator[str]:
    """Yield device names in code, except in comparisons, subscripts, dict keys and match cases."""
    try:
        tree = ast.parse(source)
    except SyntaxError:  # is_plain_python reports it
        return
    allowed: set[int] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Compare | ast.MatchValue):
            allowed |= {id(child) for child in ast.walk(node)}
        elif isinstance(node, ast.Subscript):
            allowed.add(id(node.slice))
        elif isinstance(node, ast.Dict):
            allowed |= {id(key) for key in node.keys}
    called = {id(node.func) for node in ast.walk(tree) if isinstance(node, ast.Call)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            if DEVICE_NAME.fullmatch(node.value) and id(node) not in allowed:
                yield repr(node.value)
        elif isinstance(node, ast.Attribute) and id(node) in called and node.attr in DEVICE_METHODS:
            yield f".{node.attr}()"


def skips_few_cells(notebook: Notebook) -> Iterator[str]:
    """C57: a chapter that runs nothing would pass every test."""
    cells = [cell for _, cell in code_cells(notebook)]
    skipped = sum("skip-execution" in tags(cell) for cell in cells)
    if skipped > MOST_SKIPPED * len(cells):
        yield f"{skipped} of {len(cells)} code cells are skipped, more than {MOST_SKIPPED:.0%}"


def announces_errors(notebook: Notebook) -> Iterator[str]:
    for n, cell in code_cells(notebook):
        if "raises-exception" in tags(cell):
            above = notebook.cells[n - 1] if n else None
            if above is None or not re.search(r"\b(fail|error)", above.source, re.IGNORECASE):
                yield f"cell {n} raises an exception and the cell above does not say that it fails"


# ---------------------------------------------------------------- figures


def describes_figures(notebook: Notebook) -> Iterator[str]:
    for n, cell in code_cells(notebook):
        settings = cell.metadata.get("mystnb", {})
        if not draws(cell.source) and not {"figure", "image"} & settings.keys():
            continue
        caption, name = (settings.get("figure", {}).get(key, "") for key in ("caption", "name"))
        alt = settings.get("image", {}).get("alt", "")
        if len(caption) < 20:
            yield f"cell {n} draws a figure without a caption (mystnb.figure.caption)"
        if not FIGURE_NAME.fullmatch(name):
            yield f"cell {n} draws a figure named {name!r}, not fig-chapter-what"
        if len(alt) < 30 or alt == caption or re.search(r"\.(svg|png)$", alt):
            yield f"cell {n} draws a figure without alternative text (mystnb.image.alt)"


def draws(source: str) -> bool:
    """Tell whether code makes a figure itself; tests/book sees those that helpers draw."""
    return re.search(r"\bplt\.(subplots|figure|subplot_mosaic|imshow)\(", source) is not None


def repeats_no_figure_name(notebooks: Iterable[Notebook]) -> Iterator[str]:
    seen: set[str] = set()
    for notebook in notebooks:
        for _, cell in code_cells(notebook):
            name = cell.metadata.get("mystnb", {}).get("figure", {}).get("name")
            if name in seen:
                yield f"two figures are named {name}"
            seen |= {name} - {None}


# ---------------------------------------------------------------- install commands, in any text


def installs_the_right_thing(text: str) -> Iterator[str]:
    """C06 and C46, for Markdown: an index for CUDA is never for a Mac; jupyter-book has a bound."""
    for _, block in FENCE.findall(text):
        elsewhere = re.match(r"# (Linux|Windows)\b", block)
        for line in filter(INSTALLS.search, block.splitlines()):
            if "whl/macos" in line or ("/whl/cu" in line and not elsewhere):
                yield f"an index that has nothing for a Mac: {line.strip()}"
            if re.search(r"jupyter-book(?!\s*(\[.*\])?(==1\.|~=1\.|>=1[.\d]*,\s*<2))", line):
                yield f"jupyter-book without the bound <2: {line.strip()}"


def install_commands_are_right(notebook: Notebook) -> Iterator[str]:
    yield from installs_the_right_thing(markdown(notebook))
    for n, cell in code_cells(notebook):
        if INSTALLS.search(cell.source):
            yield f"cell {n} installs packages: say it in the text instead"


ALL_NOTEBOOKS: tuple[Rule, ...] = (
    is_valid,
    has_no_outputs,
    uses_the_python3_kernel,
    has_one_timeout_key,
    has_one_title,
    has_short_cells,
    is_plain_python,
    imports_helpers_first,
    names_no_device,
    skips_few_cells,
    announces_errors,
    describes_figures,
    install_commands_are_right,
)
CHAPTERS: tuple[Rule, ...] = (
    *ALL_NOTEBOOKS,
    has_head_and_foot,
    has_one_settings_cell,
    has_exercises_with_solutions,
)


# ---------------------------------------------------------------- the table of contents


def toc_matches_files(root: Path) -> Iterator[str]:
    """C49: jupyter-book alone exits 0 on a missing entry and on a chapter that nothing lists."""
    toc = yaml.safe_load((root / "_toc.yml").read_text())
    if not isinstance(toc, dict):
        yield "_toc.yml is not a mapping"
        return
    if "root" not in toc:
        yield "_toc.yml has no root"
    listed = set(toc_entries(toc))
    pages = [path for ext in ("ipynb", "md") for path in (root / "chapters").rglob(f"*.{ext}")]
    found = {
        path.relative_to(root).with_suffix("").as_posix()
        for path in pages
        if ".ipynb_checkpoints" not in path.parts
    }
    yield from (
        f"_toc.yml lists {name}, and there is no such file" for name in sorted(listed - found)
    )
    yield from (f"{name} is not in _toc.yml" for name in sorted(found - listed))


def toc_entries(toc: object) -> Iterator[str]:
    """Yield every file that a table of contents names, the root included."""
    if isinstance(toc, dict):
        for key, value in toc.items():
            if key in ("root", "file") and isinstance(value, str):
                yield re.sub(r"\.(ipynb|md)$", "", value)
            else:
                yield from toc_entries(value)
    elif isinstance(toc, list):
        for item in toc:
            yield from toc_entries(item)
