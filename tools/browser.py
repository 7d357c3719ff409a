"""Find a Chromium for the tests of the built pages, or fetch one.

In this order: the one that CHROME_PATH names; an installed Chrome or Chromium; Playwright's own
download, made now if it is not there; on Debian, as root, the system's package. As a program it
prints the browser's path, or says what to run and exits 1.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

COMMANDS = (
    "google-chrome",
    "google-chrome-stable",
    "chromium",
    "chromium-browser",
    "chrome",
    "microsoft-edge",
)
PLACES = (  # where installers put it without telling PATH
    "/Applications/Google Chrome.app/Contents/MacOS/Google Chrome",
    "~/Applications/Google Chrome.app/Contents/MacOS/Google Chrome",
    "/Applications/Chromium.app/Contents/MacOS/Chromium",
    "/Applications/Microsoft Edge.app/Contents/MacOS/Microsoft Edge",
    "/opt/google/chrome/chrome",
    "/snap/bin/chromium",
)
PLAYWRIGHT = (sys.executable, "-m", "playwright", "install", "chromium")
DEBIAN = (("apt-get", "update", "-qq"), ("apt-get", "install", "-y", "-qq", "chromium"))
FETCH_LIMIT_S = 600


class NoBrowserError(Exception):
    """What to run, in words for the reader."""


def find_browser() -> Path:
    """Return a browser that starts; raise NoBrowserError if there is none and none can be had."""
    if named := os.environ.get("CHROME_PATH"):
        if starts(Path(named)):
            return Path(named)
        raise NoBrowserError(f"CHROME_PATH={named} does not start: correct or unset it.")
    for look in (installed, downloaded, download, system_package):
        for browser in look():
            if starts(browser):
                return browser
    raise NoBrowserError(
        "The tests of the built pages need Chrome or Chromium, found none, and could not fetch one."
        f" Install Chrome, or run  {' '.join(PLAYWRIGHT)}  (on Linux, with --with-deps)."
    )


def installed() -> Iterator[Path]:
    for command in COMMANDS:
        if path := shutil.which(command):
            yield Path(path)
    for place in PLACES:
        yield Path(place).expanduser()


def downloaded() -> Iterator[Path]:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        path = playwright.chromium.executable_path
    yield Path(path)


def download() -> Iterator[Path]:
    print("Fetching a browser for the tests of the built pages, once ...", file=sys.stderr)
    if runs(*PLAYWRIGHT):
        yield from downloaded()


def system_package() -> Iterator[Path]:
    if os.geteuid() == 0 and shutil.which("apt-get") and all(runs(*step) for step in DEBIAN):
        yield from installed()


def starts(browser: Path) -> bool:
    """Return whether a browser says its version: a stub, or one without its libraries, does not."""
    return browser.is_file() and runs(str(browser), "--version", limit_s=30)


def runs(*command: str, limit_s: float = FETCH_LIMIT_S) -> bool:
    """Run a command in silence and with nobody to ask; return whether it succeeded in time."""
    try:
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, timeout=limit_s
        )
    except (OSError, subprocess.TimeoutExpired):
        return False
    return done.returncode == 0


if __name__ == "__main__":
    try:
        print(find_browser())
    except NoBrowserError as problem:
        sys.exit(str(problem))
