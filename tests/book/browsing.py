"""A real browser on the built pages: what it asked for, what went wrong, what it shows."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, BrowserContext, Locator, Page

# No name resolves: whatever is beyond the site cannot be had, and asking for it is noted.
OFFLINE = "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1"
WCAG = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa"]
COLOUR_RULES = ["color-contrast", "link-in-text-block"]  # all that a change of theme can change
WIDE, PHONE = (
    {"width": 1280, "height": 900},
    {"width": 360, "height": 740},
)

UNFOLD = """() => document.querySelectorAll(".toggle-hidden > .admonition-title").forEach(
    title => title.click())"""

# The theme's script gives boxes that scroll to the keyboard, 0.3 s after a change of size.
SETTLED_MS = 400
OUT_OF_REACH = """() => [...document.querySelectorAll("article *")]
  .filter(e => e.scrollWidth > e.clientWidth && e.tabIndex < 0 && e.hasAttribute("tabindex"))
  .map(e => `${e.tagName}.${e.className}: ${e.textContent.trim().slice(0, 60)}`)"""

# axe compares every word with its background, and a page of code has thousands: a few of a kind say
# the same in a tenth of the time. What is inside a drawing it cannot judge (and does not read).
ABRIDGE = """() => {
  const seen = {};
  const several = (kind, most) => (seen[kind] = (seen[kind] ?? 0) + 1) > most;
  for (const word of document.querySelectorAll("pre span[class]")) {
    const box = word.closest(".highlight").parentElement.parentElement;
    if (several(`${box.className} ${word.parentElement.className} ${word.className}`, 1))
      word.remove();
  }
  document.querySelectorAll("table").forEach((table, number) => {
    for (const row of table.querySelectorAll("tbody tr"))
      if (several(`${number} ${row.className}`, 3)) row.remove();
  });
  document.querySelectorAll("svg.figure").forEach(drawing => drawing.replaceChildren());
}"""

TOO_WIDE = """() => {
  const width = document.documentElement.clientWidth;
  if (document.scrollingElement.scrollWidth <= width) return [];
  const scrolls = element => element !== document.documentElement &&
    (getComputedStyle(element).overflowX !== "visible" || scrolls(element.parentElement));
  return [...document.querySelectorAll("main *")]
    .filter(e => e.getBoundingClientRect().right > width + 1 && !scrolls(e.parentElement))
    .map(e => `${e.tagName}.${e.className.baseVal ?? e.className}`).concat("the page").slice(0, 5);
}"""


@dataclass
class Visit:
    """A page in the browser, and what happened on the way to it."""

    page: Page
    base: str
    requests: list[str] = field(default_factory=list)
    troubles: list[str] = field(default_factory=list)

    @property
    def outside(self) -> list[str]:
        """Requests for anything that is not a file of the site."""
        return [url for url in self.requests if not url.startswith((self.base, "data:", "blob:"))]


@contextmanager
def visit(context: BrowserContext, base: str, path: str) -> Iterator[Visit]:
    """Open a page of the site and wait until it stands."""
    page = context.new_page()
    seen = Visit(page, base)
    page.on("request", lambda request: seen.requests.append(request.url))
    page.on("requestfailed", lambda request: seen.troubles.append(f"no {request.url}"))
    page.on("response", lambda response: response.ok or seen.troubles.append(_refusal(response)))
    page.on("pageerror", lambda error: seen.troubles.append(f"script: {error}"))
    page.on("console", lambda line: line.type == "error" and seen.troubles.append(line.text))
    try:
        page.goto(base + path)
        if path == "index.html":  # leads to the first page at once
            page.wait_for_url("**/chapters/index.html")
        yield seen
    finally:
        page.close()


def _refusal(response) -> str:
    return f"{response.status} for {response.url}"


class _Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        """Say nothing about each request."""


@contextmanager
def served(folder: Path, work: Path) -> Iterator[str]:
    """Serve a folder below a folder of a web server; yield the address, which ends in a slash."""
    (work / "below").mkdir()
    (work / "below/book").symlink_to(folder, target_is_directory=True)
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(_Quiet, directory=str(work)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/below/book/"
    finally:
        server.shutdown()
        server.server_close()


def start(playwright, executable: Path) -> Browser:
    """Start the browser; the sandbox stays off, because root (in a container) cannot have it."""
    return playwright.chromium.launch(
        executable_path=executable, args=[OFFLINE, "--no-sandbox", "--disable-dev-shm-usage"]
    )


def wcag_violations(page: Page, *, rules: list[str] | None = None) -> list[str]:
    """Return what axe-core finds on a page, which is abridged for it; ``rules`` limits it."""
    page.evaluate(ABRIDGE)
    only = {"type": "rule", "values": rules} if rules else {"type": "tag", "values": WCAG}
    options = {"runOnly": only, "resultTypes": ["violations"], "preload": False}
    found = Axe().run(page, options=options).response["violations"]
    return [
        f"{violation['id']}: {node['html'][:120]} ({_reason(node)})"
        for violation in found
        for node in violation["nodes"]
    ]


def unfold(page: Page) -> None:
    """Open every folded part of a page."""
    page.evaluate(UNFOLD)
    page.wait_for_timeout(SETTLED_MS)


def _reason(node: dict) -> str:
    return "; ".join(check["message"] for check in [*node["any"], *node["all"], *node["none"]])


@dataclass(frozen=True)
class Explorer:
    """One explorer on a page."""

    box: Locator

    @property
    def sliders(self) -> list[Locator]:
        return self.box.locator("input[type=range]").all()

    @property
    def shown(self) -> list[int]:
        """Which of its frames show."""
        frames = self.box.locator(":scope > .frame").all()
        return [number for number, frame in enumerate(frames) if frame.is_visible()]

    @property
    def picture(self) -> str:
        """Return the picture that shows, as HTML."""
        (number,) = self.shown
        return self.box.locator(":scope > .frame").nth(number).inner_html()


def announced(slider: Locator) -> str:
    """Return what a screen reader says of a slider."""
    return slider.get_attribute("aria-valuetext")


def values(slider: Locator) -> list[str]:
    """Return the texts of a slider's places."""
    return json.loads(slider.get_attribute("data-values"))


def explorers(page: Page) -> list[Explorer]:
    return [Explorer(box) for box in page.locator(".explore").all()]
