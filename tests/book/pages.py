"""What a built page has to be like. A check looks at a page and returns messages; none is good."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from urllib.parse import unquote, urlsplit

from bs4 import BeautifulSoup, Tag

OUTSIDE = re.compile(r"(https?:)?//")
WIDGET = "application/vnd.jupyter.widget"
FILE_NAME = re.compile(r"[0-9a-f]{16,}|\.(svg|png|jpe?g|gif|webp)\b", re.IGNORECASE)
BAR_FRAME = re.compile(r"\d+%\s*\|")
# attributes by which a page asks for something as it opens; <a href> asks only when it is followed
REQUESTS = {
    "src": ["script", "img", "iframe", "video", "audio", "source", "embed", "track"],
    "data": ["object"],
    "srcset": ["img", "source"],
    "poster": ["video"],
}


@dataclass(frozen=True)
class Page:
    """A built page: its path, its HTML, and its main text (the article)."""

    path: Path
    html: BeautifulSoup

    @property
    def article(self) -> Tag:
        return self.html.find("article") or self.html


@cache
def read(path: Path) -> Page:
    return Page(path, BeautifulSoup(path.read_text(encoding="utf-8"), "html.parser"))


def figures_are_described(page: Page) -> Iterator[str]:
    for image in page.article.find_all("img"):
        alt = str(image.get("alt", "")).strip()
        if len(alt) < 15 or FILE_NAME.search(alt):
            yield f"image {image.get('src')} has no alternative text (alt={alt!r})"
    for drawing in page.article.select("svg.figure"):
        if drawing.get("role") != "img" or len(str(drawing.get("aria-label", "")).strip()) < 15:
            yield f"a drawing has no alternative text: {drawing.get('aria-label')!r}"
    for image in page.article.select(".cell_output img, .cell_output svg"):
        if image.find_parent(class_="explore"):
            continue  # the text around it says what to move and what to look for
        figure = image.find_parent("figure")
        if figure is None or figure.select_one("figcaption .caption-number") is None:
            yield f"a picture from code has no numbered caption: {image.get('src', 'svg')}"


def errors_are_announced(page: Page) -> Iterator[str]:
    """A traceback may only stand where the cell is tagged raises-exception."""
    for output in page.article.select(".cell_output"):
        cell = output.find_parent(class_="cell")
        expected = cell is not None and "tag_raises-exception" in cell.get("class", [])
        if "Traceback (most recent call last)" in output.get_text() and not expected:
            yield f"an unexpected traceback: {output.get_text().strip()[-200:]}"
    for stderr in page.article.select(".output.stderr"):
        yield f"standard error on the page: {stderr.get_text().strip()[:200]}"


def asks_for_nothing_outside(page: Page) -> Iterator[str]:
    for attribute, names in REQUESTS.items():
        for tag in page.html.find_all(names):
            if OUTSIDE.match(str(tag.get(attribute, "")).strip()):
                yield f"<{tag.name}> asks for {tag[attribute]}"
    for link in page.html.find_all("link"):
        rel = {str(value).lower() for value in link.get("rel", [])}
        if OUTSIDE.match(str(link.get("href", ""))) and not rel & {
            "canonical",
            "author",
            "license",
        }:
            yield f"<link rel={' '.join(sorted(rel))}> asks for {link['href']}"
    for script in page.html.find_all("script", src=False):
        if urls := re.findall(r"https?://[^\s\"'`;]+", script.get_text()):
            yield f"a script on the page names {', '.join(urls)}"
    for style in [*page.html.find_all("style"), *page.html.find_all(style=True)]:
        yield from requests_in_css(style.get_text() if style.name == "style" else style["style"])


def requests_in_css(css: str) -> Iterator[str]:
    for url in re.findall(r"(?:url\(|@import)\s*[\"']?((?:https?:)?//[^\"')\s]+)", css):
        yield f"a style asks for {url}"


def has_no_progress_flood(page: Page) -> Iterator[str]:
    """C50: a progress bar redraws itself in a terminal; on a page every frame stays."""
    for output in page.article.select(".cell_output"):
        text = output.get_text()
        if max(len(BAR_FRAME.findall(text)), text.count("\r")) > 1:
            yield f"frames of a progress bar: {text.strip()[:80]!r}"


def has_no_unresolved_markup(page: Page) -> Iterator[str]:
    for tag in page.article.select(".problematic, .system-message"):
        yield f"unresolved: {tag.get_text().strip()[:120]}"
    for tag in page.article.find_all(class_="xref"):
        if tag.name != "a" and tag.find_parent("a") is None:
            yield f"a reference that leads nowhere: {tag.get_text()}"
    for tag in page.article.find_all(["p", "li", "td", "figcaption"]):
        if tag.find_parent("pre") is None:
            text = "".join(
                t for t in tag.find_all(string=True) if t.find_parent(["code", "pre"]) is None
            )
            if found := re.search(r":::|```|\{[a-z:-]+\}`|\$\$", text):
                yield f"markup shows as text: {text[max(0, found.start() - 30) :][:90]!r}"


def widgets_have_state(page: Page) -> Iterator[str]:
    """C47: a view without the state of its model shows nothing, and nobody is told."""
    known: set[str] = set()
    for script in page.html.find_all("script", type=f"{WIDGET}-state+json"):
        known |= set(json.loads(script.get_text()).get("state", {}))
    for script in page.html.find_all("script", type=f"{WIDGET}-view+json"):
        model = json.loads(script.get_text()).get("model_id")
        if model not in known:
            yield f"a widget without state: {model}"


def explorers_work_without_a_kernel(page: Page) -> Iterator[str]:
    """C47, C48: one frame shows, and no slider before the script has made it do something."""
    for box in page.article.select(".explore"):
        frames = box.select(":scope > .frame")
        if [frame.has_attr("hidden") for frame in frames].count(False) != 1:
            yield f"{box.get('id')}: not just one frame shows"
        controls = box.select_one(":scope > .controls")
        if controls is None or not controls.has_attr("hidden"):
            yield f"{box.get('id')}: its sliders show although they do nothing without script"
        for slider in box.find_all("input"):
            if box.find("label", attrs={"for": slider.get("id")}) is None:
                yield f"{box.get('id')}: a slider without label"


def ids_are_unique(page: Page) -> Iterator[str]:
    ids = [str(tag["id"]) for tag in page.html.find_all(id=True)]
    for twice in {name for name in ids if ids.count(name) > 1}:
        yield f"the id {twice} is on the page more than once"


def exercises_are_solved(page: Page) -> Iterator[str]:
    exercises = page.article.select(".exercise.admonition")
    solutions = page.article.select(".solution.admonition.dropdown")
    if len(exercises) != len(solutions):
        yield f"{len(exercises)} exercises and {len(solutions)} folded solutions"


def links_lead_somewhere(page: Page) -> Iterator[str]:
    for link in page.html.find_all("a", href=True):
        url = urlsplit(str(link["href"]))
        if url.scheme or url.netloc:
            continue
        target = (page.path.parent / unquote(url.path)).resolve() if url.path else page.path
        if not target.is_file():
            yield f"{link['href']} ({link.get_text().strip()}): no such file"
        elif url.fragment and target.suffix == ".html":
            name = unquote(url.fragment)
            if read(target).html.find(attrs={"id": name}) is None and name not in ("", "top"):
                yield f"{link['href']} ({link.get_text().strip()}): no such place on the page"


CHECKS = (
    figures_are_described,
    errors_are_announced,
    asks_for_nothing_outside,
    has_no_progress_flood,
    has_no_unresolved_markup,
    widgets_have_state,
    explorers_work_without_a_kernel,
    ids_are_unique,
    exercises_are_solved,
    links_lead_somewhere,
)
