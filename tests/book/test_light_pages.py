"""book_icons.py and templates/layout.html: what is taken off the theme's pages, what stays."""

import shutil

import pytest
from bs4 import BeautifulSoup
from fontTools.ttLib import TTFont

from .test_build import Book


@pytest.fixture(scope="module")
def html(tmp_path_factory):
    book = Book(tmp_path_factory.mktemp("book"))
    book.write("page")
    built = book.build()
    assert built.returncode == 0, built.stdout
    yield book.root / "_build/html"
    shutil.rmtree(book.root)


@pytest.fixture(scope="module")
def page(html):
    return BeautifulSoup((html / "chapters/page.html").read_text(), "html.parser")


def test_used_icons_are_in_the_font_and_the_stylesheet_and_others_are_not(html):
    css = (html / "_static/styles/pydata-sphinx-theme.css").read_text()
    assert ".fa-bars:before" in css
    assert ".fa-motorcycle:before" not in css
    font = html / "_static/vendor/fontawesome/webfonts/fa-solid-900.woff"
    characters = TTFont(font).getBestCmap()
    bell = 0xF0F3  # of an admonition, which a stylesheet draws
    assert {0xF0C9, bell} <= set(characters)
    assert 0xF21C not in characters
    assert font.stat().st_size < 20_000
    assert font.name in css
    assert "woff2" not in css


def test_scripts_wait_and_the_icon_script_is_gone(html, page):
    scripts = [script for script in page.find_all("script") if script.get("src")]
    assert scripts
    assert [script["src"] for script in scripts if not script.has_attr("defer")] == []
    assert "fontawesome.js" not in str(page)
    assert not (html / "_static/scripts/fontawesome.js").exists()


def test_only_the_search_page_loads_the_search_index(html, page):
    assert "searchindex.js" not in str(page)
    assert "searchindex.js" in (html / "search.html").read_text()
