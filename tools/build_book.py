"""Build the book with jupyter-book 1.x so that a page is never stale and an error never silent.

jupyter-book alone does not give that: a failing cell or a warning exits 0 on an unchanged second
run, the execution cache sees cells but not the helpers and data they use, and pages of removed
chapters stay. So: no build trusts the pages of an earlier one (only the cache of executed
notebooks is kept, and it is dropped when anything else that a notebook reads has changed), and
a stamp of all inputs, written last, says that the pages on disk are those of a complete build.
"""

from __future__ import annotations

import argparse
import hashlib
import html
import os
import platform
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TextIO

import yaml

ROOT = Path(__file__).resolve().parent.parent
PAGES = (
    "_config.yml",
    "_toc.yml",
    "chapters",
    "_static",
    "tools/build_book.py",
    "tools/book_icons.py",
    "tools/book_pages.py",
    "tools/templates",
)
READ_BY_NOTEBOOKS = ("helpers", "data", "constraints.txt", "requirements.txt", "pyproject.toml")
DATASETS = ("MNIST/raw/*", "cifar-10-batches-py/*")  # of the data folder, which may be a large one
EXECUTED = re.compile(r"([^/]+/[^/]+)\.ipynb: Executed notebook in ([\d.]+) s")
ENTRANCE = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<title>{title}</title>
<link rel="icon" href="data:,">
<meta http-equiv="refresh" content="0; url={first}">
</head>
<body><p><a href="{first}">{title}</a></p></body>
</html>
"""
COLOUR = re.compile(r"\x1b\[[0-9;]*m")


class BuildError(Exception):
    """What is wrong, and what to do about it, in words for the reader."""


@dataclass(frozen=True)
class Run:
    """What every notebook would otherwise find out for itself, found out once."""

    device: str
    scale: str
    datasets: str  # the full datasets on disk: a notebook uses them instead of the bundled digits

    @property
    def name(self) -> str:
        """Return what the run's cache is called."""
        return f"{self.device.replace(':', '-')}-{self.scale}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--root", type=Path, default=ROOT, help="the folder of _config.yml")
    parser.add_argument("--output", type=Path, help="where to put _build (default: the root)")
    parser.add_argument("--executed", type=Path, help="executed copies of the notebooks, to use")
    options = parser.parse_args()
    root = options.root.resolve()
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # to be ended is to be interrupted
    try:
        page = build(root, (options.output or root).resolve(), options.executed)
        print(f"The book is built: open {page}")
    except BuildError as problem:
        print(problem, file=sys.stderr)
        return 1
    except OSError as error:
        print(f"Cannot build the book: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print(
            "\nInterrupted. Run the same command again; executed chapters are kept.",
            file=sys.stderr,
        )
        return 130
    return 0


def build(root: Path, output: Path, executed: Path | None = None) -> Path:
    """Build root's book under output/_build unless it is there already; return its first page.

    ``executed`` holds copies of the notebooks that the tests ran: these are not run again.
    """
    refuse_other_jupyter_book()
    run = find_run()
    pages = output / "_build" / "html"
    page, stamp = pages / "index.html", pages / ".inputs"
    inputs = fingerprint(root, (*PAGES, *READ_BY_NOTEBOOKS), run)
    if page.is_file() and stamp.is_file() and stamp.read_text() == inputs:
        return page

    work = root / ".build"
    cache = prepare_cache(work / "cache", run, fingerprint(root, READ_BY_NOTEBOOKS, run))
    if executed is not None:
        from executed import hand_over  # beside this file

        hand_over(executed.resolve(), root, cache)
    for old in (pages, output / "_build" / ".doctrees", output / "_build" / "jupyter_execute"):
        shutil.rmtree(old, ignore_errors=True)
    config = write_config(root, work / f"{run.name}.yml", cache)
    log = work / "book.log"
    print(f"Building the book on {run.device}, {run.scale} sizes ...", flush=True)
    warm_font_cache()
    if run_jupyter_book(root, output, config, log, run) or not page.is_file():
        shutil.rmtree(pages, ignore_errors=True)
        raise BuildError(
            f"\n{failures(log.read_text(), cache)}\nThe book was not built. The whole log: {log}"
        )
    page.write_text(entrance(root))
    stamp.write_text(inputs)
    return page


def entrance(root: Path) -> str:
    """Return the page at the top, which leads to the book's first page.

    jupyter-book's own is one tag: no language, no title, and a browser asks the server for an icon
    that is not there. This one names an empty icon, as a request would be cut off at once.
    """
    title = html.escape(yaml.safe_load((root / "_config.yml").read_text())["title"])
    first = f"{yaml.safe_load((root / '_toc.yml').read_text())['root']}.html"
    return ENTRANCE.format(title=title, first=first)


def refuse_other_jupyter_book() -> None:
    """Raise BuildError unless jupyter-book 1.x is installed; 2.x is another engine and exits 0."""
    pin = 'pip install "jupyter-book>=1.0.4,<2"'
    try:
        found = version("jupyter-book")
    except PackageNotFoundError:
        raise BuildError(f"jupyter-book is not installed: {pin}") from None
    if not found.startswith("1."):
        raise BuildError(f"This book needs jupyter-book 1.x and {found} is installed: {pin}")


def find_run() -> Run:
    """Ask helpers which device, scale and datasets the notebooks will use.

    Asked here and passed on, so that what helpers warns about (a GPU that is there and does not
    work) is said once in the terminal and not on every page.
    """
    from helpers import data_root, pick_device, pick_scale

    try:
        device = pick_device()
        scale = pick_scale(device)
        folder = data_root()
    except (RuntimeError, ValueError) as error:  # DataError is a RuntimeError
        raise BuildError(str(error)) from error
    files = sorted(path for places in DATASETS for path in folder.glob(places) if path.is_file())
    datasets = "\n".join(f"{path.relative_to(folder)} {path.stat().st_size}" for path in files)
    return Run(str(device), scale, datasets)


def fingerprint(root: Path, names: Iterable[str], run: Run) -> str:
    """Return a hash of the named files and folders, the run, and the Python that runs it."""
    digest = hashlib.sha256(f"{run} {platform.python_version()} {root}".encode())
    for name in names:
        for path in sorted(files_in(root / name)):
            digest.update(f"\0{path.relative_to(root)}\0".encode())
            digest.update(path.read_bytes())
    return digest.hexdigest()


def files_in(path: Path) -> list[Path]:
    if not path.is_dir():
        return [path] if path.is_file() else []
    ignored = {"__pycache__", ".ipynb_checkpoints", ".DS_Store"}
    return [file for file in path.rglob("*") if file.is_file() and not ignored & set(file.parts)]


def prepare_cache(folder: Path, run: Run, inputs: str) -> Path:
    """Return the folder of executed notebooks for this run, emptied if what they read changed."""
    cache, stamp = folder / run.name, folder / f"{run.name}.inputs"
    if not stamp.is_file() or stamp.read_text() != inputs:
        stamp.unlink(missing_ok=True)
        shutil.rmtree(cache, ignore_errors=True)
        cache.mkdir(parents=True)
        stamp.write_text(inputs)
    return cache


def write_config(root: Path, path: Path, cache: Path) -> Path:
    """Write _config.yml with the execution cache's folder, which has no command-line option."""
    config = yaml.safe_load((root / "_config.yml").read_text())
    config["execute"]["cache"] = str(cache)
    # Paths in a configuration count from its own folder, which is another one now.
    extensions = config["sphinx"]["local_extensions"]
    config["sphinx"]["local_extensions"] = {
        name: str(ROOT / extensions[name]) for name in extensions
    }
    path.write_text(yaml.safe_dump(config, sort_keys=False))
    return path


def warm_font_cache() -> None:
    """Let matplotlib list this computer's fonts now.

    The first time it can take a while, of which matplotlib tells on standard error; in a chapter
    that would count as a warning, and fail the build.
    """
    import matplotlib.font_manager  # noqa: F401


def run_jupyter_book(root: Path, output: Path, config: Path, log: Path, run: Run) -> int:
    """Run jupyter-book: all it says goes to the log, a line for each executed chapter is shown."""
    command = [str(Path(sys.executable).with_name("jupyter-book")), "build", str(root)]
    command += ["--path-output", str(output), "--config", str(config)]
    command += ["-W", "-n", "--keep-going"]
    with (
        log.open("w") as file,
        subprocess.Popen(
            command,
            cwd=root,
            env=notebook_environment(run),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
        ) as process,
    ):
        try:
            follow(process, file)
        except KeyboardInterrupt:
            process.terminate()
            raise
    return process.returncode


def follow(process: subprocess.Popen[str], log: TextIO) -> None:
    """Copy what a process says to the log; print a line for each executed chapter."""
    for line in process.stdout or ():
        log.write(COLOUR.sub("", line))
        if executed := EXECUTED.search(line):
            print(f"  {executed[1]}: {float(executed[2]):.0f} s", flush=True)


def notebook_environment(run: Run) -> dict[str, str]:
    """Return the environment that the notebooks run in."""
    environment = {
        **os.environ,
        "BOOK_DEVICE": run.device,
        "BOOK_SCALE": run.scale,
        "BOOK_STATIC": "1",  # explorers draw all their pictures now
        "TQDM_DISABLE": "1",  # every frame of a progress bar would land on the page
        "JUPYTER_PREFER_ENV_PATH": "1",  # the kernel of .venv, not one of the same name elsewhere
        "PYDEVD_DISABLE_FILE_VALIDATION": "1",  # a debugger's warning on standard error
    }
    environment.pop("MPLBACKEND", None)  # the kernel's inline backend puts figures on the page
    return environment


def failures(log: str, cache: Path) -> str:
    """Return what went wrong: warnings, then errors of cells with their source and traceback."""
    found = []
    for line in re.findall(
        r"^.*\b(?:WARNING|ERROR|CRITICAL): .*(?:\n[ \t]+.*)*", log, re.MULTILINE
    ):
        found.append(line.strip())
        if notebook := re.match(r"(.+\.ipynb)(?::\d+)?: WARNING: stderr was found", line):
            found += standard_error(Path(notebook[1]), cache)
    cell_error = r"^nbclient\.exceptions\.(.+?)(?=^The above exception was|\Z)"
    found += re.findall(cell_error, log, re.DOTALL | re.MULTILINE)
    return "\n".join(dict.fromkeys(found)) or "\n".join(log.splitlines()[-20:])


def standard_error(notebook: Path, cache: Path) -> list[str]:
    """Return what a notebook wrote to standard error (myst-nb only says that it did); forget it."""
    from jupyter_cache import get_cache

    try:
        found = get_cache(str(cache))
        record = found.match_cache_file(str(notebook))
        executed = found.get_cache_bundle(record.pk).nb
    except KeyError:  # not executed, so there is nothing to show
        return []
    # Run it again next time: what it complained of may lie outside the book and be mended by then.
    found.remove_cache(record.pk)
    outputs = [output for cell in executed.cells for output in cell.get("outputs", [])]
    return [output.text.rstrip() for output in outputs if output.get("name") == "stderr"]


if __name__ == "__main__":
    sys.exit(main())
