"""Lighthouse on the built book: as a desk and as a phone, on three pages; a table, and 1 if below.

Usage: audit.py FOLDER, the folder of index.html. Node and npm have to be there; Lighthouse itself
comes from npm, at the versions that tools/audit/package-lock.json fixes, into .build/audit.

The pages come from this computer, compressed as web hosts do, through the network and the processor
that Lighthouse pretends to have: its "desktop" preset (40 ms, 10 Mbit/s) and its default, a phone
(150 ms, 1.6 Mbit/s, a processor four times slower). Whatever else this computer does can only make
a page look slower, so each page has up to three attempts and the best counts.
"""

from __future__ import annotations

import gzip
import json
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from http import HTTPStatus
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from browser import NoBrowserError, find_browser

ROOT = Path(__file__).resolve().parent.parent
SOURCE, WORK = ROOT / "tools/audit", ROOT / ".build/audit"
LANDING, MATMUL = "chapters/index.html", "chapters/measure/matmul.html"
CATEGORIES = ("performance", "accessibility", "best-practices", "seo")
LOWEST_SCORE = 95
MOST_SHIFT = 0.05
SLOWEST_PAINT_S = {"desktop": 1.0, "phone": None}  # a phone on slow 4G: the score says enough
OPTIONS = {"desktop": ("--preset=desktop",), "phone": ()}
ATTEMPTS = 3
COMPRESSED = {".html", ".css", ".js", ".svg", ".json"}


class AuditError(Exception):
    """What is wrong, and what to do about it, in words for the reader."""


@dataclass(frozen=True)
class Result:
    """What Lighthouse says of a page as seen by one device."""

    page: str
    device: str
    scores: tuple[int, ...]  # of 100, in the order of CATEGORIES
    first_paint_s: float
    largest_paint_s: float
    shift: float
    complaints: tuple[str, ...]

    @property
    def shortfalls(self) -> list[str]:
        """What is below the limits, in words."""
        limit = SLOWEST_PAINT_S[self.device]
        found = [
            f"{name} {score} < {LOWEST_SCORE}"
            for name, score in zip(CATEGORIES, self.scores, strict=True)
            if score < LOWEST_SCORE
        ]
        if limit is not None and self.largest_paint_s >= limit:
            found.append(f"largest paint {self.largest_paint_s:.2f} s >= {limit:.0f} s")
        if self.shift > MOST_SHIFT:
            found.append(f"layout shift {self.shift:.3f} > {MOST_SHIFT}")
        return found

    def __str__(self) -> str:
        scores = "".join(f"{score:>6}" for score in self.scores)
        times = f"{self.first_paint_s:>8.2f}{self.largest_paint_s:>8.2f}{self.shift:>8.3f}"
        return f"{self.page:<34}{self.device:<8}{scores}{times}"


def main() -> int:
    html = Path(sys.argv[1]).resolve()
    try:
        browser, lighthouse = find_browser(), install()
        with served(html) as address:
            results = [
                best(lighthouse, browser, address, page, device)
                for page in pages(html)
                for device in OPTIONS
            ]
    except (AuditError, NoBrowserError) as problem:
        print(problem, file=sys.stderr)
        return 1
    return report(results)


def pages(html: Path) -> list[str]:
    """Return the pages to look at: the landing page, the matmul chapter, the heaviest page."""
    sizes = {
        path.relative_to(html).as_posix(): len(gzip.compress(path.read_bytes()))
        for path in html.glob("chapters/**/*.html")
    }
    if missing := {LANDING, MATMUL} - set(sizes):
        raise AuditError(f"{html} lacks {', '.join(sorted(missing))}: run  make book")
    return list(dict.fromkeys((LANDING, MATMUL, max(sizes, key=sizes.__getitem__))))


def install() -> Path:
    """Bring Lighthouse to the locked version, at once if it is; return its program."""
    if not (shutil.which("node") and shutil.which("npm")):
        raise AuditError(
            "make audit runs Lighthouse, which needs Node 18 or newer with npm: "
            "brew install node, or on Debian: apt-get install nodejs npm"
        )
    lock = (SOURCE / "package-lock.json").read_bytes()
    program, stamp = WORK / "node_modules/.bin/lighthouse", WORK / "installed.json"
    if program.is_file() and stamp.is_file() and stamp.read_bytes() == lock:
        return program
    shutil.rmtree(WORK, ignore_errors=True)
    shutil.copytree(SOURCE, WORK)
    print("Installing Lighthouse into .build/audit ...", flush=True)
    npm = ["npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--silent"]
    done = subprocess.run(npm, cwd=WORK, capture_output=True, text=True, check=False)
    if done.returncode:
        raise AuditError(f"npm cannot install Lighthouse: {(done.stderr or done.stdout).strip()}")
    stamp.write_bytes(lock)
    return program


def best(lighthouse: Path, browser: Path, address: str, page: str, device: str) -> Result:
    """Return the first attempt that falls short of nothing, or the one that falls least short."""
    attempts: list[Result] = []
    while len(attempts) < ATTEMPTS and not (attempts and not attempts[-1].shortfalls):
        attempts.append(look_at(lighthouse, browser, address, page, device))
    return min(attempts, key=lambda result: (len(result.shortfalls), -sum(result.scores)))


def look_at(lighthouse: Path, browser: Path, address: str, page: str, device: str) -> Result:
    command = [str(lighthouse), address + page, "--quiet", "--output=json", *OPTIONS[device]]
    command += [f"--only-categories={','.join(CATEGORIES)}"]
    command += ["--chrome-flags=--headless=new --no-sandbox --disable-dev-shm-usage"]
    environment = {**os.environ, "CHROME_PATH": str(browser)}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    if done.returncode:
        raise AuditError(f"Lighthouse failed on {page}: {done.stderr.strip()[-500:]}")
    return read(json.loads(done.stdout), page, device)


def read(said: dict, page: str, device: str) -> Result:
    """Return a report of Lighthouse as a Result; raise AuditError if it could not see the page."""
    if error := said.get("runtimeError"):
        raise AuditError(f"Lighthouse failed on {page}: {error['message']}")
    audits = said["audits"]
    scores = tuple(round(100 * (said["categories"][name]["score"] or 0)) for name in CATEGORIES)
    failed = [
        f"{name}: {audits[reference['id']]['title']}"
        for name in CATEGORIES
        for reference in said["categories"][name]["auditRefs"]
        if reference["weight"] and (audits[reference["id"]]["score"] or 0) < 0.9
        if audits[reference["id"]]["scoreDisplayMode"] not in ("notApplicable", "informative")
    ]
    return Result(
        page,
        device,
        scores,
        audits["first-contentful-paint"]["numericValue"] / 1000,
        audits["largest-contentful-paint"]["numericValue"] / 1000,
        audits["cumulative-layout-shift"]["numericValue"],
        tuple(failed),
    )


def report(results: list[Result]) -> int:
    """Print the table and what falls short; return the exit status."""
    print(
        f"{'page':<34}{'seen by':<8}{'perf':>6}{'a11y':>6}{'best':>6}{'seo':>6}"
        f"{'FCP s':>8}{'LCP s':>8}{'CLS':>8}"
    )
    for result in results:
        print(result)
    short = [result for result in results if result.shortfalls]
    for result in short:
        print(f"\n{result.page} ({result.device}): {', '.join(result.shortfalls)}", file=sys.stderr)
        for complaint in result.complaints:
            print(f"  {complaint}", file=sys.stderr)
    return 1 if short else 0


class Compressing(SimpleHTTPRequestHandler):
    """Serve files as a web host does: compressed where that helps, over one connection."""

    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        """Send the file that is asked for."""
        path = Path(self.translate_path(self.path))
        if not path.is_file():
            self.send_error(HTTPStatus.NOT_FOUND)
            return
        body = path.read_bytes()
        self.send_response(HTTPStatus.OK)
        self.send_header("Content-Type", self.guess_type(str(path)))
        self.send_header("Cache-Control", "max-age=600")
        if path.suffix in COMPRESSED:
            body = gzip.compress(body, compresslevel=6)
            self.send_header("Content-Encoding", "gzip")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Say nothing about each request."""


@contextmanager
def served(html: Path) -> Iterator[str]:
    """Serve a folder on this computer alone; yield its address, which ends in a slash."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Compressing, directory=str(html)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://localhost:{server.server_port}/"
    finally:
        server.shutdown()


if __name__ == "__main__":
    sys.exit(main())
