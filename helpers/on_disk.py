"""The full MNIST and CIFAR-10 on disk: where they are, whether they are intact, how they come.

Addresses, checksums and file names are torchvision's own. Its downloader is not used: it takes
any file that exists for a good one, and starts every interrupted download afresh.
"""

import gzip
import math
import os
import shutil
import struct
import tarfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import IO

from filelock import FileLock, Timeout
from platformdirs import user_cache_path

from helpers.fetch import DataError, fetch

MISSING = "is missing"

# An IDX file begins with a magic number and the lengths of its dimensions, so the shape fixes
# the first bytes and the size.
_MNIST_SHAPES: dict[str, tuple[int, ...]] = {
    "train-images-idx3-ubyte": (60_000, 28, 28),
    "train-labels-idx1-ubyte": (60_000,),
    "t10k-images-idx3-ubyte": (10_000, 28, 28),
    "t10k-labels-idx1-ubyte": (10_000,),
}


@dataclass(frozen=True)
class Archive:
    """A file to fetch and what it holds; paths are relative to the data folder."""

    urls: tuple[str, ...]
    path: str
    md5: str
    contents: tuple[str, ...]


def data_root() -> Path:
    """Return the folder of the full datasets: BOOK_DATA, else the user's cache folder.

    Nothing is created. Raises DataError if BOOK_DATA is a relative path: every chapter runs in
    its own folder, so it would name another place in each.
    """
    chosen = os.environ.get("BOOK_DATA", "").strip()
    if not chosen:
        return user_cache_path("pytorch-on-apple-silicon", appauthor=False)
    root = Path(chosen).expanduser()
    if not root.is_absolute():
        raise DataError(
            f"BOOK_DATA is {chosen!r}, which is another folder in every chapter. "
            f"Give the full path, for example BOOK_DATA={root.absolute()}."
        )
    return root


def archives(name: str) -> list[Archive]:
    """Return what must be fetched for "mnist" or "cifar10", as the installed torchvision has it."""
    from torchvision.datasets import CIFAR10, MNIST

    if name == "mnist":
        return [
            Archive(
                urls=tuple(mirror + file for mirror in MNIST.mirrors),
                path=f"MNIST/raw/{file}",
                md5=md5,
                contents=(f"MNIST/raw/{file.removesuffix('.gz')}",),
            )
            for file, md5 in MNIST.resources
        ]
    if name == "cifar10":
        return [Archive((CIFAR10.url,), CIFAR10.filename, CIFAR10.tgz_md5, tuple(_cifar10_md5()))]
    raise ValueError(f"no dataset is called {name!r}: choose 'mnist' or 'cifar10'")


def check_files(name: str, root: Path) -> dict[Path, str | None]:
    """Return each file of a dataset with its fault ("is missing", ...), or None if intact.

    MNIST's unpacked files have no published checksum, so their size and header are checked.
    CIFAR-10's are checked by MD5, which is needed: they are pickles, and loading one runs it.
    """
    checks: dict[str, Callable[[Path], str | None]]
    if name == "mnist":
        checks = {
            f"MNIST/raw/{file}": partial(_idx_fault, shape=shape)
            for file, shape in _MNIST_SHAPES.items()
        }
    else:
        checks = {file: partial(_md5_fault, md5=md5) for file, md5 in _cifar10_md5().items()}
    return {root / file: _fault(root / file, check) for file, check in checks.items()}


def download(name: str, root: Path | None = None) -> Path:
    """Fetch "mnist" or "cifar10" into ``root`` (by default data_root()); return its folder.

    Intact files are left alone; if all are, neither the network nor the disk is touched. A file
    gets its name only when it is whole and verified; the next call continues an interrupted
    download. Raises DataError: one line with the folder, the file, what was tried, the remedy.
    """
    wanted = archives(name)
    root = data_root() if root is None else Path(root)
    if any(check_files(name, root).values()):
        with _writing_to(root), _alone(root, name):
            faults = check_files(name, root)  # again: another process may have just fetched them
            for archive in wanted:
                if any(faults[root / file] for file in archive.contents):
                    fetch(archive.urls, root / archive.path, archive.md5)
                    _extract(archive, root)
    return (root / wanted[0].contents[0]).parent


def _cifar10_md5() -> dict[str, str]:
    from torchvision.datasets import CIFAR10

    files = [*CIFAR10.train_list, *CIFAR10.test_list]
    files.append([CIFAR10.meta["filename"], CIFAR10.meta["md5"]])
    return {f"{CIFAR10.base_folder}/{file}": md5 for file, md5 in files}


def _fault(path: Path, check: Callable[[Path], str | None]) -> str | None:
    try:
        return check(path)
    except (FileNotFoundError, NotADirectoryError):
        return MISSING
    except OSError as error:
        return f"cannot be read ({error.strerror})"


def _idx_fault(path: Path, shape: tuple[int, ...]) -> str | None:
    unsigned_byte = 0x08
    header = struct.pack(f">{len(shape) + 1}I", unsigned_byte << 8 | len(shape), *shape)
    size = len(header) + math.prod(shape)
    with path.open("rb") as file:
        start = file.read(len(header))
    if (found := path.stat().st_size) != size:
        return f"has {found:,} bytes instead of {size:,}"
    return None if start == header else "does not begin as an MNIST file does"


def _md5_fault(path: Path, md5: str) -> str | None:
    from torchvision.datasets.utils import calculate_md5

    if (found := calculate_md5(path)) == md5:
        return None
    return f"has {path.stat().st_size:,} bytes with MD5 {found} instead of {md5}"


@contextmanager
def _writing_to(root: Path) -> Iterator[None]:
    try:
        root.mkdir(parents=True, exist_ok=True)
        yield
    except OSError as error:
        raise DataError(
            f"The data folder {root} cannot be written: {error.strerror or error}. "
            "Set BOOK_DATA to the full path of a folder that can."
        ) from error


@contextmanager
def _alone(root: Path, name: str) -> Iterator[None]:
    # Two downloads at once would append to the same partial file. The system drops this lock
    # with the process that holds it, so it cannot go stale.
    lock = FileLock(root / f".{name}.lock")
    try:
        lock.acquire(timeout=0)
    except Timeout:
        print(f"Another process is fetching {name} into {root}; waiting for it.")
        lock.acquire()
    try:
        yield
    finally:
        lock.release()


def _extract(archive: Archive, root: Path) -> None:
    packed = root / archive.path
    if packed.name.endswith(".tar.gz"):
        with tarfile.open(packed, "r|gz") as tar:
            # Only files known by name are taken out, so no archive can write anywhere else.
            for member in tar:
                if member.name in archive.contents and (stream := tar.extractfile(member)):
                    _write(root / member.name, stream)
    else:
        with gzip.open(packed) as unpacked:
            _write(root / archive.contents[0], unpacked)


def _write(target: Path, stream: IO[bytes] | gzip.GzipFile) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    part = target.with_name(target.name + ".part")
    try:
        with part.open("wb") as file:
            shutil.copyfileobj(stream, file)
        part.replace(target)
    finally:
        part.unlink(missing_ok=True)
