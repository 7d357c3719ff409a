"""Each check of pages.py passes a good page and fails on one that breaks it."""

import pytest
from bs4 import BeautifulSoup

from . import pages

GOOD = """
<html><head><link rel="stylesheet" href="a.css"><script src="a.js"></script></head>
<body><article>
<p id="here">See <a href="#here">here</a>,
<a href="https://example.org">outside</a>, <code>:::</code>.</p>
<div class="cell tag_raises-exception">
<div class="cell_output">Traceback (most recent call last)</div></div>
<div class="cell"><div class="cell_output"><figure><img alt="A curve that rises." src="a.svg">
<figcaption><span class="caption-number">Figure 1</span> Rising.</figcaption></figure></div></div>
<figure><svg class="figure" role="img" aria-label="A curve that rises."></svg>
<figcaption><span class="caption-number">Figure 2</span> Rising.</figcaption></figure>
<div class="cell"><div class="cell_output"><div class="explore" id="e">
<div class="controls" hidden><label for="e-n">n</label><input id="e-n"></div>
<div class="frame"><img alt="A curve that rises." src="a.svg"></div><div class="frame" hidden></div>
</div></div></div>
<div class="exercise admonition"></div><div class="solution admonition dropdown"></div>
<div class="cell"><div class="cell_output">100%|###| done</div></div>
<script type="application/vnd.jupyter.widget-state+json">{"state": {"m1": {}}}</script>
<script type="application/vnd.jupyter.widget-view+json">{"model_id": "m1"}</script>
</article></body></html>
"""
OUTPUT = '<div class="cell"><div class="cell_output">{}</div></div>'
FIGURE = OUTPUT.format('<figure><img alt="{}" src="a.svg"><figcaption>{}</figcaption></figure>')
NUMBER = '<span class="caption-number">Figure 2</span>'
VIEW = '<script type="application/vnd.jupyter.widget-view+json">{"model_id": "m2"}</script>'
CONTROLS = '<div class="controls" {}><label for="n">n</label><input id="n"></div>'
EXPLORER = '<div class="explore"><div class="frame" {}></div><div class="frame" {}></div>{}</div>'

BREAKS = [
    (pages.figures_are_described, FIGURE.format("", NUMBER)),
    (pages.figures_are_described, FIGURE.format("_images/bbb1a06684e3e003116bc77efce.svg", NUMBER)),
    (pages.figures_are_described, FIGURE.format("A curve that rises.", "")),
    (pages.figures_are_described, OUTPUT.format('<img alt="A curve that rises." src="a.svg">')),
    (pages.figures_are_described, '<p><img src="a.png"></p>'),
    (pages.figures_are_described, '<svg class="figure" role="img"></svg>'),
    (pages.figures_are_described, '<svg class="figure" aria-label="A curve that rises."></svg>'),
    (pages.explorers_work_without_a_kernel, EXPLORER.format("", "", CONTROLS.format("hidden"))),
    (pages.explorers_work_without_a_kernel, EXPLORER.format("hidden", "", CONTROLS.format(""))),
    (pages.explorers_work_without_a_kernel, EXPLORER.format("hidden", "", "")),
    (
        pages.explorers_work_without_a_kernel,
        EXPLORER.format("hidden", "", '<div class="controls" hidden><input id="n"></div>'),
    ),
    (pages.ids_are_unique, '<p id="twice"></p><p id="twice"></p>'),
    (pages.errors_are_announced, OUTPUT.format("Traceback (most recent call last)")),
    (pages.errors_are_announced, '<div class="output stderr">a warning</div>'),
    (pages.asks_for_nothing_outside, '<script src="https://cdn.example/a.js"></script>'),
    (pages.asks_for_nothing_outside, '<script src="//cdn.example/a.js"></script>'),
    (pages.asks_for_nothing_outside, '<link rel="stylesheet" href="https://cdn.example/a.css">'),
    (pages.asks_for_nothing_outside, '<iframe src="https://example.org"></iframe>'),
    (
        pages.asks_for_nothing_outside,
        '<img alt="A curve that rises." src="http://example.org/a.png">',
    ),
    (pages.asks_for_nothing_outside, '<script>load("https://cdn.example/a.js")</script>'),
    (pages.asks_for_nothing_outside, "<style>@import 'https://fonts.example/a.css';</style>"),
    (pages.asks_for_nothing_outside, '<p style="background: url(https://example.org/a.png)">x</p>'),
    (pages.has_no_progress_flood, OUTPUT.format("  3%|#  | 1/30\n  6%|## | 2/30")),
    (pages.has_no_progress_flood, OUTPUT.format("a\rb\rc")),
    (pages.has_no_unresolved_markup, "<p>See {ref}`there`.</p>"),
    (pages.has_no_unresolved_markup, "<p>:::{note}</p>"),
    (pages.has_no_unresolved_markup, '<p><span class="xref">there</span></p>'),
    (pages.has_no_unresolved_markup, '<p class="system-message">x</p>'),
    (pages.widgets_have_state, VIEW),
    (pages.exercises_are_solved, '<div class="exercise admonition"></div>'),
    (pages.links_lead_somewhere, '<a href="nowhere.html">x</a>'),
    (pages.links_lead_somewhere, '<a href="#nowhere">x</a>'),
]


@pytest.fixture
def page_with(tmp_path):
    def make(html):
        path = tmp_path / "page.html"
        return pages.Page(path, BeautifulSoup(html, "html.parser"))

    (tmp_path / "page.html").write_text(GOOD)
    return make


@pytest.mark.parametrize("check", pages.CHECKS)
def test_a_good_page_passes(check, page_with):
    assert list(check(page_with(GOOD))) == []


@pytest.mark.parametrize(("check", "html"), BREAKS)
def test_a_broken_page_is_reported(check, html, page_with):
    assert list(check(page_with(GOOD.replace("</article>", f"{html}</article>")))) != []


def test_every_check_was_seen_to_fail():
    assert {check for check, _ in BREAKS} == set(pages.CHECKS)


def test_an_import_in_a_stylesheet_is_reported():
    assert list(pages.requests_in_css("@import url('https://fonts.example/a.css');")) != []
    assert list(pages.requests_in_css("a { background: url(local.svg) }")) == []
