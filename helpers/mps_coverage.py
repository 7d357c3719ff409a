"""Which functions of PyTorch have a kernel for MPS, release by release: a table to search in.

The data are ``data/mps_coverage.json``, read from the official macOS wheels. What the *installed*
PyTorch has is a question for ``helpers.mps_ops``, and what a program needs one for preflight.
"""

import functools
import itertools
import json
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any

TABLE = Path(__file__).resolve().parent.parent / "data" / "mps_coverage.json"
KERNEL, COMPOSED, MISSING, ABSENT = "kcm-"  # one letter a release, in the order of the releases
_BEST_FIRST = KERNEL + COMPOSED + MISSING + ABSENT


@dataclass(frozen=True)
class Function:
    """A public function, with one letter a release: k has a kernel, c is made of others,
    m has none, - has no entry under today's name. ``backward`` is empty where it has no operator
    of its own.
    """

    name: str
    forward: str
    backward: str


@functools.cache
def kernel_counts() -> dict[str, int]:
    """Return how many operators name an MPS kernel of their own, for each release read."""
    return dict(_table()["releases"])


def releases() -> tuple[str, ...]:
    """Return the releases that were read, oldest first: ``2.14.1`` stands for all of 2.14."""
    return tuple(kernel_counts())


@functools.cache
def functions() -> tuple[Function, ...]:
    """Return the functions that need a kernel of their own in the newest release read."""
    forms: dict[str, list[str]] = {}
    for operator, letters in _table()["operators"].items():
        forms.setdefault(operator.split(".")[0], []).append(letters)
    best = {
        base: "".join(min(each, key=_BEST_FIRST.index) for each in zip(*rows, strict=True))
        for base, rows in forms.items()
    }
    return tuple(
        Function(name, best[forward], best[backward] if backward else "")
        for name, (forward, backward) in _table()["functions"].items()
    )


def operator_status(operator: str, release: str) -> str:
    """Return the letter of an operator such as ``linalg_eig`` or ``add.out`` in a release read.

    Raises KeyError for an operator that never had a kernel on CPU, CUDA or MPS.
    """
    letters: str = _table()["operators"][operator]
    return letters[releases().index(release)]


def since(letters: str) -> str:
    """Return in words when there was a kernel: ``2.3``, ``1.12 to 1.13, 2.15`` or ``none``."""
    spans, place = [], 0
    for letter, run in itertools.groupby(letters):
        first, place = place, place + len(list(run))
        if letter == KERNEL:
            last = "" if place == len(letters) else f" to {_minor(releases()[place - 1])}"
            spans.append(_minor(releases()[first]) + last)
    return ", ".join(spans) or "none"


def coverage_html(release: str = "", name: str = "coverage") -> str:
    """Return the table as HTML that needs no kernel, and without script shows every row.

    ``release`` is the one chosen first, ``2.14.1+cpu`` say; the newest one read unless it is among
    them. ``name`` begins the ids of the controls.
    """
    chosen = next((r for r in releases() if _minor(r) == _minor(release)), releases()[-1])
    options = "".join(
        f'<option value="{place}"{" selected" if r == chosen else ""}>{_minor(r)}</option>'
        for place, r in reversed(list(enumerate(releases())))
    )
    rows = "".join(_row(function) for function in functions())
    controls = _CONTROLS.format(name=name, options=options)
    return f'<div class="coverage" id="{name}">{_STYLE}{controls}{_HEAD}{rows}{_FOOT}</div>'


def _row(function: Function) -> str:
    backward = since(function.backward) if function.backward else "none of its own"
    return (
        f'<tr data-f="{function.forward}" data-b="{function.backward}">'
        f'<th scope="row"><code>{escape(function.name)}</code></th>'
        f"<td>{since(function.forward)}</td><td>{backward}</td><td hidden></td></tr>"
    )


@functools.cache
def _table() -> dict[str, Any]:
    content: dict[str, Any] = json.loads(TABLE.read_text(encoding="utf-8"))
    return content


def _minor(release: str) -> str:
    return ".".join(release.split(".")[:2])


# The variables are those of the book's pages and of JupyterLab; the last value is for neither.
_STYLE = """<style>
.coverage .controls {display: flex; flex-wrap: wrap; gap: .4rem 1.2rem; align-items: center}
.coverage .controls[hidden] {display: none}
.coverage .controls label {margin: 0}
.coverage input[type=search] {width: 12rem; max-width: 100%}
.coverage input, .coverage select {font: inherit; color: inherit; background: transparent;
 border: 1px solid var(--book-quiet, #777); border-radius: 4px; padding: .15rem .4rem}
.coverage option {color: #000; background: #fff}
.coverage .rows {max-height: 26rem; overflow: auto; margin-top: .5rem;
 border: 1px solid var(--book-line, #aaa); border-radius: 6px}
.coverage .rows table {width: 100%; margin: 0; text-align: left}
.coverage thead th {position: sticky; top: 0;
 background: var(--pst-color-background, var(--jp-layout-color0, #fff)) !important}
.coverage td, .coverage th {text-align: left !important}
.coverage tbody th {font-weight: normal; overflow-wrap: anywhere}
@media print {.coverage .rows {max-height: none} .coverage .controls {display: none}}
</style>"""
_CONTROLS = """<div class="controls" hidden>
<label for="{name}-text">Function <input type="search" id="{name}-text" placeholder="pool"></label>
<label for="{name}-release">torch <select id="{name}-release">{options}</select></label>
<label for="{name}-only"><input type="checkbox" id="{name}-only"> only without a kernel</label>
<output for="{name}-text {name}-release {name}-only" aria-live="polite"></output></div>"""
_HEAD = """<div class="rows" tabindex="0" role="region" aria-label="MPS kernels by function">
<table><thead><tr><th scope="col">Function</th><th scope="col">Kernel since</th>
<th scope="col">Backward since</th><th scope="col" hidden></th></tr></thead><tbody>"""
_FOOT = """</tbody></table></div>
<script>(() => {
const box = document.currentScript.parentElement;
const [text, release, only] = box.querySelectorAll(".controls input, .controls select");
const rows = [...box.querySelectorAll("tbody tr")];
const head = box.querySelector("thead th:last-child");
const words = {k: "kernel", c: "made of others", m: "none", "-": "no entry"};
const show = () => {
  const at = release.value, wanted = text.value.trim().toLowerCase();
  let shown = 0;
  for (const row of rows) {
    const forward = row.dataset.f[at], backward = row.dataset.b[at];
    const found = row.cells[0].textContent.toLowerCase().includes(wanted);
    const half = forward === "k" && backward === "m";
    row.cells[3].textContent = half ? "none for backward" : words[forward];
    row.hidden = !found || (only.checked && !half && forward !== "m");
    shown += !row.hidden;
  }
  head.textContent = "In " + release.selectedOptions[0].textContent;
  box.querySelector("output").textContent = shown + " of " + rows.length + " functions" +
    (shown || !wanted ? "" : ": what has no row is made of other operators; ask preflight");
};
for (const control of [text, release, only]) control.addEventListener("input", show);
for (const cell of box.querySelectorAll("[hidden]")) cell.hidden = false;
show();
})()</script>"""
