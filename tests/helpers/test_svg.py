"""Figures as parts of a page: in its colours, with ids of their own, described, reproducible."""

import re
from pathlib import Path

import matplotlib.pyplot as plt
import pytest

from helpers.figures import COLORS, style
from helpers.svg import INK, VARIABLES, figure_to_svg, to_page

ALT = "A line that rises from one to three."


@pytest.fixture
def svg():
    style()
    axes = plt.subplots()[1]
    axes.plot([1, 2, 3], label="rising")
    axes.legend()
    made = figure_to_svg(axes.get_figure())
    plt.close("all")
    return made


def test_every_colour_of_the_style_follows_the_page(svg):
    made = to_page(svg, name="f", alt=ALT)
    assert f"var(--figure-ink, {INK})" in made
    assert f"var(--figure-series-1, {COLORS[0]})" in made
    bare = re.sub(r"var\([^)]*\)", "", made)
    assert set(re.findall(r"#[0-9a-f]{6}", bare)) == set()


def test_text_without_a_colour_of_its_own_is_no_exception(svg):
    texts = re.findall(r"<text[^>]*>", to_page(svg, name="f", alt=ALT))
    assert texts
    assert [text for text in texts if "var(--figure-ink" not in text] == []


def test_a_stylesheet_for_the_whole_page_is_left_out(svg):
    assert "<style" in svg
    assert "<style" not in to_page(svg, name="f", alt=ALT)


def test_ids_of_two_figures_differ_and_references_follow(svg):
    one, two = (to_page(svg, name=name, alt=ALT) for name in ("one", "two"))
    ids = [set(re.findall(r'\bid="([^"]+)"', made)) for made in (one, two)]
    assert ids[0]
    assert not ids[0] & ids[1]
    assert set(re.findall(r'(?:url\(#|href="#)([^")]+)', one)) == ids[0]


def test_the_same_picture_is_the_same_bytes():
    def draw():
        axes = plt.subplots()[1]
        axes.plot([1, 2, 3])
        made = to_page(figure_to_svg(axes.get_figure()), name="f", alt=ALT)
        plt.close("all")
        return made

    style()
    assert draw() == draw()


def test_places_are_rounded_and_what_is_written_is_not():
    made = to_page('<svg><text x="1.23456">0.0123 s</text></svg>', name="f", alt=ALT)
    assert '<text x="1.23">0.0123 s</text>' in made


def test_it_is_one_picture_with_one_description(svg):
    made = to_page(svg, name="f", alt='says "this"\n and that')
    assert 'role="img" aria-label="says &quot;this&quot; and that"' in made


def test_it_keeps_its_proportions_and_says_its_width(svg):
    opening = re.search(r"<svg[^>]*>", to_page(svg, name="f", alt=ALT))[0]
    assert 'width="672"' in opening  # 7 inches of 96 pixels
    assert "viewBox" in opening
    assert "height=" not in opening


@pytest.mark.parametrize(("svg_text", "alt"), [("no drawing", ALT), ("<svg></svg>", " ")])
def test_without_drawing_or_description_it_is_refused_by_name(svg_text, alt):
    with pytest.raises(ValueError, match="fig-name"):
        to_page(svg_text, name="fig-name", alt=alt)


def luminance(color):
    parts = [int(color[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    linear = [p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one, two):
    light, dark = sorted((luminance(one), luminance(two)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


def themes():
    """Return the figures' colours by variable, for light and for dark, as book.css has them."""
    css = (Path(__file__).resolve().parents[2] / "_static/book.css").read_text()
    found = re.findall(r"--figure-([\w-]+): (#[0-9a-f]{6})", css)
    half = len(found) // 2
    return dict(found[:half]), dict(found[half:])


def test_the_stylesheet_knows_every_colour_in_both_themes():
    light, dark = themes()
    assert set(light) == set(dark) == set(VARIABLES.values())
    drawn = {name: color for color, name in VARIABLES.items() if color != "#000000"}
    assert light == drawn


@pytest.mark.parametrize("theme", themes(), ids=["light", "dark"])
def test_colours_stand_out_from_the_paper(theme):
    paper = theme["paper"]
    for name, color in theme.items():
        least = {"paper": 1, "grid": 1, "ink": 7, "quiet": 4.5}.get(name, 3)  # WCAG 1.4.3, 1.4.11
        assert contrast(color, paper) >= least, name
