"""The built book in a real browser; `make test` builds the book and finds the browser first.

BOOK_HTML names another folder than the one that `make book` fills.
"""

from __future__ import annotations

import importlib.util

import pytest
from playwright.sync_api import sync_playwright

from helpers import explore as explore_module
from helpers.explore import explore

from .browsing import (
    COLOUR_RULES,
    OUT_OF_REACH,
    PHONE,
    TOO_WIDE,
    WIDE,
    announced,
    explorers,
    served,
    start,
    unfold,
    values,
    visit,
    wcag_violations,
)
from .test_pages import HTML, ROOT

spec = importlib.util.spec_from_file_location("book_browser", ROOT / "tools/browser.py")
browser_tool = importlib.util.module_from_spec(spec)
spec.loader.exec_module(browser_tool)


def built_pages() -> list[str]:
    paths = [path.relative_to(HTML).as_posix() for path in sorted(HTML.rglob("*.html"))]
    # without a built book: one page, which fails
    return [path for path in paths if not path.startswith("_static/")] or ["index.html"]


def has_explorer(path: str) -> bool:
    return (HTML / path).is_file() and 'class="explore"' in (HTML / path).read_text()


PAGES = built_pages()
EXPLORERS = ["tiny", *filter(has_explorer, PAGES)]
every_page = pytest.mark.parametrize("path", PAGES)


@pytest.fixture(scope="session")
def browser():
    try:
        executable = browser_tool.find_browser()
    except browser_tool.NoBrowserError as problem:
        pytest.fail(str(problem), pytrace=False)
    with sync_playwright() as playwright:
        yield start(playwright, executable)


@pytest.fixture(scope="session")
def contexts(browser):
    """Return a function that makes one context for each set of options, and keeps it."""
    made = {}

    def context(**options):
        key = repr(sorted(options.items()))
        if key not in made:
            made[key] = browser.new_context(**{"viewport": WIDE, **options})
        return made[key]

    return context


@pytest.fixture(scope="session")
def files():
    assert (HTML / "index.html").is_file(), f"no built book in {HTML}: make book"
    return HTML.as_uri() + "/"


@pytest.fixture(scope="session")
def web(tmp_path_factory):
    with served(HTML, tmp_path_factory.mktemp("web")) as address:
        yield address


@pytest.fixture(scope="module", params=PAGES)
def opened(contexts, files, request):
    """Each page as a file, open for several tests."""
    with visit(contexts(reduced_motion="reduce"), files, request.param) as seen:
        yield seen


def wear(page, theme):
    page.emulate_media(color_scheme=theme)
    page.wait_for_selector(f"html[data-theme={theme}]")


def test_a_file_asks_for_nothing_outside_and_nothing_fails(opened):
    assert opened.page.locator("h1").count() > 0
    assert opened.outside == []
    assert opened.troubles == []


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_a_page_fits_on_a_desk_and_on_a_phone(opened, theme):
    wear(opened.page, theme)
    for size in (PHONE, WIDE):
        opened.page.set_viewport_size(size)
        assert opened.page.evaluate(TOO_WIDE) == [], size


def test_a_page_has_no_violation_of_wcag_in_light_or_dark(opened):
    wear(opened.page, "light")
    unfold(opened.page)
    assert opened.page.evaluate(OUT_OF_REACH) == []  # of the keyboard
    assert wcag_violations(opened.page) == []
    wear(opened.page, "dark")
    assert wcag_violations(opened.page, rules=COLOUR_RULES) == []


@every_page
def test_from_a_web_server_a_page_asks_for_nothing_outside_and_nothing_fails(contexts, web, path):
    with visit(contexts(), web, path) as seen:
        assert seen.page.locator("h1").count() > 0
    assert seen.outside == []
    assert seen.troubles == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_page_opens_in_the_theme_of_the_system_without_a_flash(browser, files, scheme):
    """Before the first paint, not when the theme's script has come."""
    context = browser.new_context(color_scheme=scheme)
    context.add_init_script(
        "document.addEventListener('readystatechange', () => {"
        "  if (document.readyState === 'interactive')"
        "    window.early = document.documentElement.dataset.theme; })"
    )
    with visit(context, files, "chapters/index.html") as seen:
        assert seen.page.evaluate("window.early") == scheme
    context.close()


def test_search_finds_a_chapter(contexts, web):
    with visit(contexts(), web, "search.html?q=torch") as seen:
        seen.page.locator("#search-results li a").first.wait_for()
    assert seen.outside == []
    assert seen.troubles == []


@every_page
def test_without_script_a_page_shows_its_text_and_first_pictures(contexts, files, path):
    with visit(contexts(java_script_enabled=False), files, path) as seen:
        page = seen.page
        for explorer in explorers(page):
            assert len(explorer.shown) == 1
            assert [slider.is_visible() for slider in explorer.sliders].count(True) == 0
        if path.startswith("chapters/"):
            assert len(page.locator("article").inner_text()) > 200
            pictures = page.locator("article figure :is(svg.figure, img)").all()
            folded = page.locator("article .toggle-hidden figure").count()
            assert [picture.is_visible() for picture in pictures].count(False) == folded


# ---------------------------------------------------------------- that these tests can fail

BAD = {
    "a request beyond the site": '<img alt="" src="https://example.org/a.png">',
    "a file that is not there": '<img alt="" src="a.png">',
    "an error in a script": "<script>nothing.here</script>",
    "an error in the console": "<script>console.error('a')</script>",
    "too wide": '<main><p style="width: 2000px">a</p></main>',
    "pale text": '<p style="color: #aaa">pale words</p>',
    "an image without description": '<img src="data:image/gif;base64,R0lGODlhAQABAAAAACw=">',
    "code that keys cannot scroll": '<article><pre tabindex="-1" style="overflow: auto">'
    f"{'a' * 2000}</pre></article>",
}


def faults(seen):
    yield from seen.outside
    yield from seen.troubles
    yield from seen.page.evaluate(TOO_WIDE)
    yield from seen.page.evaluate(OUT_OF_REACH)
    yield from wcag_violations(seen.page)


@pytest.mark.parametrize("what", ["nothing", *BAD])
def test_what_is_wrong_with_a_page_is_seen(contexts, tmp_path, what):
    (tmp_path / "page.html").write_text(
        '<!doctype html><html lang="en" style="background: white"><meta charset="utf-8">'
        f"<title>t</title><h1>t</h1>{BAD.get(what, '')}"
    )
    with visit(contexts(), tmp_path.as_uri() + "/", "page.html") as seen:
        assert bool(list(faults(seen))) == (what in BAD)


# ---------------------------------------------------------------- explorers


def draw(axes, n, kind):
    axes.plot([0, 1], [0, n], linestyle=kind)
    return f"A {kind} line up to {n} rows."


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    """Return the address of a page with one explorer, in the book's style."""
    shown = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(explore_module, "display", lambda html: shown.append(html.data))
        patch.setenv("BOOK_STATIC", "1")
        explore(
            draw,
            name="explore-tiny",
            labels={"n": "matrix side", "kind": "line"},
            units={"n": "rows"},
            n=[1, 2, 1024],
            kind=["solid", "dashed"],
        )
    css, folder = (ROOT / "_static/book.css").as_uri(), tmp_path_factory.mktemp("tiny")
    (folder / "tiny.html").write_text(
        '<!doctype html><html lang="en"><meta charset="utf-8"><title>t</title>'
        '<meta name="viewport" content="width=device-width">'
        f'<link rel="stylesheet" href="{css}"><article class="bd-article">{shown[0]}</article>'
    )
    return folder.as_uri() + "/"


@pytest.fixture(scope="module")
def address(files, request):
    """Return a function: where a page with an explorer lies, of the book or the tiny one."""
    return lambda path: (
        (request.getfixturevalue("tiny"), "tiny.html") if path == "tiny" else (files, path)
    )


@pytest.fixture(scope="module", params=EXPLORERS)
def desk(contexts, address, request):
    """Each page with an explorer, for keys and mouse."""
    with visit(contexts(), *address(request.param)) as seen:
        yield seen.page


@pytest.fixture(scope="module", params=EXPLORERS)
def phone(contexts, address, request):
    """Each page with an explorer, on a phone."""
    with visit(contexts(has_touch=True, viewport=PHONE), *address(request.param)) as seen:
        yield seen.page


def every_slider(page):
    pairs = [(explorer, slider) for explorer in explorers(page) for slider in explorer.sliders]
    assert pairs
    return pairs


def test_arrow_keys_move_an_explorer_and_the_value_is_announced(desk):
    for explorer, slider in every_slider(desk):
        slider.press("Home")
        said, picture = announced(slider), explorer.picture
        assert said == values(slider)[0]
        slider.press("ArrowRight")
        assert announced(slider) == values(slider)[1] != said
        assert explorer.picture != picture
        slider.press("ArrowLeft")
        assert (announced(slider), explorer.picture) == (said, picture)
        slider.press("End")
        assert announced(slider) == values(slider)[-1]


def test_a_screen_reader_finds_each_slider_under_its_label(desk):
    for explorer, slider in every_slider(desk):
        label = explorer.box.locator(f"label[for='{slider.get_attribute('id')}']")
        assert f'slider "{label.inner_text()}"' in explorer.box.aria_snapshot()


def click_both_ends(explorer, slider, point):
    slider.scroll_into_view_if_needed()
    size = slider.bounding_box()
    point(position={"x": size["width"] - 3, "y": size["height"] / 2})
    assert announced(slider) == values(slider)[-1]
    last = explorer.picture
    point(position={"x": 3, "y": size["height"] / 2})
    assert announced(slider) == values(slider)[0]
    assert explorer.picture != last


def test_a_mouse_moves_an_explorer(desk):
    for explorer, slider in every_slider(desk):
        click_both_ends(explorer, slider, slider.click)


def test_a_finger_moves_an_explorer(phone):
    for explorer, slider in every_slider(phone):
        click_both_ends(explorer, slider, slider.tap)


def test_an_explorer_stays_within_a_phone(phone):
    assert phone.evaluate(TOO_WIDE) == []
    for _, slider in every_slider(phone):
        box = slider.bounding_box()
        assert 0 <= box["x"] < box["x"] + box["width"] <= PHONE["width"]
        assert box["height"] >= 24  # a target for a finger: WCAG 2.2, 2.5.8


def test_without_script_the_tiny_explorer_shows_its_first_picture(contexts, tiny):
    with visit(contexts(java_script_enabled=False), tiny, "tiny.html") as seen:
        (explorer,) = explorers(seen.page)
        assert explorer.shown == [0]
        assert not any(slider.is_visible() for slider in explorer.sliders)
