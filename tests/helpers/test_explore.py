"""Explorers: frames drawn beforehand for a page, drawn on demand in a notebook."""

import html
import json

import pytest
from bs4 import BeautifulSoup

from helpers import explore as module
from helpers.explore import explore


def draw(axes, n, kind="a"):
    axes.plot([0, 1], [0, n])
    return f"A line up to {n}, {kind}."


@pytest.fixture
def shown(monkeypatch):
    """What explore displays, one item a call."""
    items = []
    monkeypatch.setattr(module, "display", items.append)
    return items


@pytest.fixture
def page(shown, monkeypatch):
    monkeypatch.setenv("BOOK_STATIC", "1")

    def build(**options):
        explore(draw, **options)
        return BeautifulSoup(shown[-1].data, "html.parser")

    return build


def test_a_page_has_every_frame_and_shows_one(page):
    made = page(name="e", n=[1, 2, 3], kind=["a", "b"], start={"n": 2, "kind": "b"})
    frames = made.select(".explore > .frame")
    assert len(frames) == 6
    (visible,) = [frame for frame in frames if not frame.has_attr("hidden")]
    assert "up to 2, b." in str(visible)


def test_frames_are_in_the_order_in_which_the_script_counts(page):
    made = page(name="e", n=[1, 2], kind=["a", "b"])
    labels = [frame.svg["aria-label"] for frame in made.select(".frame")]
    assert labels == [f"A line up to {n}, {kind}." for n in (1, 2) for kind in ("a", "b")]


def test_sliders_are_labelled_and_say_value_and_unit(page):
    made = page(
        name="e", labels={"n": "batch size"}, units={"n": "images"}, start={"n": 2048}, n=[1, 2048]
    )
    (slider,) = made.find_all("input")
    assert made.find("label", attrs={"for": slider["id"]}).text == "batch size"
    assert slider["aria-valuetext"] == "2,048 images"
    assert json.loads(html.unescape(slider["data-values"])) == ["1 images", "2,048 images"]
    assert (slider["min"], slider["max"], slider["value"]) == ("0", "1", "1")


def test_without_script_no_slider_shows(page):
    assert page(name="e", n=[1, 2]).select_one(".controls").has_attr("hidden")


def test_the_same_explorer_is_the_same_bytes(shown, monkeypatch):
    monkeypatch.setenv("BOOK_STATIC", "1")
    explore(draw, name="e", n=[1, 2])
    explore(draw, name="e", n=[1, 2])
    assert shown[0].data == shown[1].data


def test_ids_are_unique_over_all_frames(page):
    ids = [tag["id"] for tag in page(name="e", n=[1, 2, 3]).find_all(id=True)]
    assert len(ids) == len(set(ids))


def test_nothing_is_asked_of_the_network(page):
    assert "http" not in str(page(name="e", n=[1, 2])).replace("http://www.w3.org", "")


def test_a_page_too_heavy_is_refused_with_what_to_do(page, monkeypatch):
    monkeypatch.setattr(module, "BUDGET_BYTES", 1000)
    with pytest.raises(ValueError, match="raster=True"):
        page(name="e", n=[1, 2, 3])


def test_a_raster_frame_is_a_picture_with_size_and_description(page):
    image = page(name="e", n=[1, 2], raster=True).select_one(".frame img")
    assert image["src"].startswith("data:image/webp;base64,")
    assert image["alt"] == "A line up to 1, a."
    assert (image["width"], image["height"]) == ("518", "326")


def test_a_notebook_gets_sliders_that_draw(shown, monkeypatch):
    monkeypatch.delenv("BOOK_STATIC", raising=False)
    explore(draw, name="e", labels={"n": "batch size"}, n=[1, 2, 3], start={"n": 2})
    slider, picture = shown[0].children
    assert slider.description == "batch size"
    assert "up to 2" in picture.value
    slider.value = 3
    assert "up to 3" in picture.value


@pytest.mark.parametrize(
    ("choices", "message"),
    [
        ({}, "one or two"),
        ({"n": [1], "kind": ["a"], "more": [1]}, "one or two"),
        ({"n": []}, "n has no values"),
        ({"n": [1, 2], "start": {"n": 3}}, "cannot start at 3"),
        ({"n": [1, 2], "units": {"m": "rows"}}, "m is none of its parameters, n"),
    ],
)
def test_bad_choices_are_refused(shown, choices, message):
    with pytest.raises(ValueError, match=message):
        explore(draw, name="e", **choices)
    assert shown == []


def test_a_drawing_that_does_not_say_what_it_shows_is_refused(page):
    with pytest.raises(ValueError, match="no sentence"):
        explore(lambda axes, n: None, name="e", n=[1])
