"""A figure as part of a page: SVG that takes its colours from the page, light or dark.

A picture that a page loads as a file cannot know the page's theme. Set into the page itself, its
colours can be CSS variables: ``book.css`` gives each one a value for light and for dark, and the
colour that stands in the file is the one for light, so the file alone looks right too.
"""

import html
import io
import re
from typing import Any

from matplotlib import rc_context
from matplotlib.figure import Figure

# The colours of the book's figures, as drawn (for light), by the name of their CSS variable. Data
# colours are Okabe and Ito's palette, which colour-blind readers can tell apart, without its pale
# yellow, and with its two lightest darkened until they stand out from white (3:1, WCAG 1.4.11).
INK, QUIET, GRID, PAPER = "#1b1f24", "#595959", "#e3e3e3", "#ffffff"
SERIES = ("#0072b2", "#d55e00", "#009e73", "#c0649b", "#b37700", "#3a8fc4", "#44484d")
VARIABLES = {
    INK: "ink",
    "#000000": "ink",  # matplotlib's "black"
    QUIET: "quiet",
    GRID: "grid",
    PAPER: "paper",
    **{color: f"series-{number}" for number, color in enumerate(SERIES, start=1)},
}

SVG_SETTINGS: dict[Any, str] = {
    # Text stays text: it takes a third of the bytes of outlines, and the page's own font.
    "svg.fonttype": "none",
    # Keeps ids the same from build to build.
    "svg.hashsalt": "pytorch-on-apple-silicon",
}
SCROLLS = "pst-scrollable-table-container"

_TAG = re.compile(r"<[^>]+>")  # numbers between tags are the reader's
_LONG_NUMBER = re.compile(r"(\d\.\d\d)\d+")  # a hundredth of a point is enough
_STYLE = re.compile(r'style="[^"]*"')
_COLOUR = re.compile("|".join(VARIABLES), re.IGNORECASE)
_SIZE = re.compile(r'(?<=\s)(?:width|height)="[^"]*"\s*')


def figure_to_svg(figure: Figure) -> str:
    """Return a matplotlib figure as SVG text: no date, the same bytes for the same picture."""
    buffer = io.StringIO()
    with rc_context(SVG_SETTINGS):
        figure.savefig(buffer, format="svg", metadata={"Date": None, "Creator": None})
    return buffer.getvalue()


def to_page(svg: str, *, name: str, alt: str) -> str:
    """Return an SVG file's drawing as HTML, made fit to stand in a page, in a box that may scroll.

    Its colours become CSS variables and its ids unique (``name`` goes before them); it keeps its
    proportions at any width; screen readers read ``alt`` and nothing else. Raises ValueError if
    the text holds no drawing or the alternative text is empty.
    """
    if not alt.strip():
        raise ValueError(f"the figure {name} needs a text that says what it shows")
    start = svg.find("<svg")
    if start < 0:
        raise ValueError(f"the figure {name} is no SVG")
    # matplotlib's style sheet would be the whole page's; book.css says the same for figures alone.
    off_page = r"<metadata>.*?</metadata>|<!--.*?-->|<style[^>]*>.*?</style>"
    element = re.sub(off_page, "", svg[start:], flags=re.DOTALL)
    element = _TAG.sub(lambda tag: _LONG_NUMBER.sub(r"\1", tag[0]), element)
    element = re.sub(r">\s+<", "><", element).strip()
    element = _STYLE.sub(lambda style: _COLOUR.sub(_variable, style[0]), element)
    opening, rest = element.split(">", 1)
    opening = _with_width_in_pixels(opening)
    label = html.escape(" ".join(alt.split()), quote=True)
    drawing = f'{opening} class="figure" role="img" aria-label="{label}">{rest}'
    # The theme's script lets the keyboard into boxes of this class when their content is wider.
    return f'<div class="{SCROLLS} drawing">{_scope_ids(drawing, name)}</div>'


def _variable(color: re.Match[str]) -> str:
    value = color[0].lower()
    return f"var(--figure-{VARIABLES[value]}, {value})"


def _with_width_in_pixels(opening: str) -> str:
    """Give the drawing its own width, as an attribute and for CSS; its height follows."""
    width = re.search(r'\swidth="([\d.]+)(pt)?"', opening)
    opening = _SIZE.sub("", opening)
    if width is None:
        return opening
    pixels = float(width[1]) * (4 / 3 if width[2] else 1)  # 96 pixels are 72 points
    return f'{opening} width="{pixels:.0f}" style="--own-width:{pixels:.0f}px"'


def _scope_ids(element: str, name: str) -> str:
    """Put ``name`` before the ids that the drawing itself refers to; drop the others."""
    used = set(re.findall(r'(?:url\(#|href="#)([^")]+)', element))
    element = re.sub(
        r'\sid="([^"]*)"', lambda m: f' id="{name}-{m[1]}"' if m[1] in used else "", element
    )
    return re.sub(r'(url\(#|href="#)', rf"\g<1>{name}-", element)
