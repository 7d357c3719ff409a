"""A picture with a slider, in a notebook and on a page without Python.

``explore(draw, **choices)`` calls ``draw(axes, **values)`` for the values that the reader chooses.
In a notebook it is ipywidgets' sliders and draws at once. When the book is built (the environment
variable ``BOOK_STATIC`` is set) nobody will be there to draw, so every picture is drawn beforehand
and the page shows one of them: native range inputs, a few lines of script, nothing from elsewhere.
Without script the first picture stands there, and no slider that does nothing.
"""

import gzip
import html
import io
import itertools
import json
import os
from base64 import b64encode
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import matplotlib.pyplot as plt
from IPython.display import HTML, display

from helpers.svg import PAPER, figure_to_svg, to_page

BUDGET_BYTES = 150_000  # of one explorer's HTML, compressed as a web server sends it

# Runs where it stands, once a slider: it shows the frame of the sliders' places, and says their
# values to the eye (data-text) and to screen readers (aria-valuetext).
_SCRIPT = """<script>(() => {
const box = document.currentScript.parentElement;
const sliders = [...box.querySelectorAll("input")], frames = [...box.querySelectorAll(".frame")];
const show = () => {
  let place = 0;
  for (const slider of sliders) {
    const values = JSON.parse(slider.dataset.values), at = +slider.value;
    place = place * values.length + at;
    slider.setAttribute("aria-valuetext", values[at]);
    slider.nextElementSibling.textContent = values[at];
  }
  frames.forEach((frame, number) => { frame.hidden = number !== place; });
};
for (const slider of sliders) slider.addEventListener("input", show);
box.querySelector(".controls").hidden = false;
show();
})()</script>"""


@dataclass(frozen=True)
class Choice:
    """The values of one slider, how each is written, and where the slider starts."""

    label: str
    values: Sequence[Any]
    texts: tuple[str, ...]
    start: int


def explore(
    draw: Callable[..., str | None],
    *,
    name: str,
    labels: Mapping[str, str] | None = None,
    units: Mapping[str, str] | None = None,
    start: Mapping[str, Any] | None = None,
    size: tuple[float, float] = (5.4, 3.4),
    raster: bool = False,
    **choices: Sequence[Any],
) -> None:
    """Show ``draw(axes, **values)`` with a slider for each of one or two parameters.

    ``draw`` draws into the axes it is given and returns a sentence that says what the picture
    shows for these values: the alternative text. ``name`` is the explorer's, unique on its page.
    ``labels`` and ``units`` name each slider ("batch size", "images"), ``start`` says where a
    slider stands first, ``size`` is the picture's in inches. ``raster`` draws pixels instead of
    lines, for pictures of thousands of points. Raises ValueError for no or more than two
    parameters, one without values, a label, unit or start for another, a start that is not among
    the values, and, when the book is built, for an explorer of over 150 kB compressed.
    """
    if not 1 <= len(choices) <= 2:
        raise ValueError(f"explore takes one or two parameters, got {len(choices)}")
    given = {*(labels or {}), *(units or {}), *(start or {})}
    if unknown := sorted(given - set(choices)):
        raise ValueError(f"explore: {unknown[0]} is none of its parameters, {', '.join(choices)}")
    made = {
        key: _choice(key, values, labels or {}, units or {}, start or {})
        for key, values in choices.items()
    }
    picture = _Picture(draw, size, raster)
    if os.environ.get("BOOK_STATIC"):
        display(HTML(static_html(picture, name, made)))  # type: ignore[no-untyped-call]
    else:
        display(live_widget(picture, name, made))  # type: ignore[no-untyped-call]


def _choice(
    key: str,
    values: Sequence[Any],
    labels: Mapping[str, str],
    units: Mapping[str, str],
    start: Mapping[str, Any],
) -> Choice:
    values = list(values)
    if not values:
        raise ValueError(f"explore: {key} has no values to choose from")
    if start.get(key, values[0]) not in values:
        raise ValueError(f"explore: {key} cannot start at {start[key]}, which is not in {values}")
    unit = f" {units[key]}" if key in units else ""
    texts = tuple(
        f"{value:,}{unit}" if isinstance(value, int | float) else f"{value}{unit}"
        for value in values
    )
    first = values.index(start.get(key, values[0]))
    return Choice(labels.get(key, key.replace("_", " ")), values, texts, first)


@dataclass(frozen=True)
class _Picture:
    """Draws one frame: an element of HTML, with the sentence of ``draw`` as alternative text."""

    draw: Callable[..., str | None]
    size: tuple[float, float]
    raster: bool

    def frame(self, name: str, **values: Any) -> str:
        figure, axes = plt.subplots(figsize=self.size, layout="constrained")
        try:
            alt = self.draw(axes, **values)
            if not alt:
                raise ValueError(
                    f"explore: draw of {name} returned no sentence that says what is seen"
                )
            if not self.raster:
                return to_page(figure_to_svg(figure), name=name, alt=alt)
            buffer = io.BytesIO()
            figure.savefig(
                buffer, format="webp", dpi=144, facecolor=PAPER, pil_kwargs={"quality": 80}
            )
        finally:
            plt.close(figure)
        data = b64encode(buffer.getvalue()).decode()
        width, height = (round(inches * 96) for inches in self.size)
        return (
            f'<img alt="{html.escape(alt, quote=True)}" width="{width}" height="{height}" '
            f'src="data:image/webp;base64,{data}">'
        )


def static_html(picture: _Picture, name: str, choices: Mapping[str, Choice]) -> str:
    """Return the explorer as HTML: sliders, every frame drawn beforehand, and the script."""
    parts = [f'<div class="explore" id="{name}">', '<div class="controls" hidden>']
    parts += [_slider(f"{name}-{key}", choice) for key, choice in choices.items()]
    parts.append("</div>")
    places = [range(len(choice.values)) for choice in choices.values()]
    first = tuple(choice.start for choice in choices.values())
    for number, place in enumerate(itertools.product(*places)):
        values = {
            key: choice.values[at] for (key, choice), at in zip(choices.items(), place, strict=True)
        }
        hidden = "" if place == first else " hidden"
        frame = picture.frame(f"{name}-{number}", **values)
        parts.append(f'<div class="frame"{hidden}>{frame}</div>')
    made = "".join([*parts, _SCRIPT, "</div>"])
    size = len(gzip.compress(made.encode(), mtime=0))
    if size > BUDGET_BYTES:
        raise ValueError(
            f"explore: {name} is {size:,} bytes compressed, and {BUDGET_BYTES:,} is the most a "
            "page can bear. Give fewer values, draw fewer points, or set raster=True."
        )
    return made


def _slider(identity: str, choice: Choice) -> str:
    texts = html.escape(json.dumps(choice.texts, ensure_ascii=False), quote=True)
    text = html.escape(choice.texts[choice.start], quote=True)
    return (
        f'<label for="{identity}">{html.escape(choice.label)}</label>'
        f'<input type="range" id="{identity}" min="0" max="{len(choice.values) - 1}" step="1" '
        f'value="{choice.start}" data-values="{texts}" aria-valuetext="{text}">'
        # Hidden from screen readers, which say the slider's own value.
        f'<span class="value" aria-hidden="true">{text}</span>'
    )


def live_widget(picture: _Picture, name: str, choices: Mapping[str, Choice]) -> Any:
    """Return the explorer as a widget that draws when a slider moves.

    Made of sliders and an HTML box, without ipywidgets' ``interact``: that prints into an Output
    widget, which some executing clients wait for until they time out.
    """
    import ipywidgets

    sliders = {
        key: ipywidgets.SelectionSlider(
            options=list(zip(choice.texts, choice.values, strict=True)),
            index=choice.start,
            description=choice.label,
            style={"description_width": "initial"},
            layout={"width": "min(100%, 32rem)"},
        )
        for key, choice in choices.items()
    }
    picture_box = ipywidgets.HTML()

    def redraw(_change: object = None) -> None:
        values = {key: slider.value for key, slider in sliders.items()}
        picture_box.value = picture.frame(name, **values)

    for slider in sliders.values():
        slider.observe(redraw, names="value")
    redraw()
    return ipywidgets.VBox([*sliders.values(), picture_box])
