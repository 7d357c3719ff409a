"""Fetches one file over HTTP: verified, resumable, and never under its name before it is whole."""

import time
from collections.abc import Sequence
from pathlib import Path

import requests
from tqdm import tqdm
from urllib3.exceptions import HTTPError, ReadTimeoutError

TIMEOUT_S = (10.0, 20.0)  # to connect, and between two pieces of data
ROUNDS = 3  # over all addresses of a file
PAUSE_S = 1.0  # between two attempts
CHUNK_BYTES = 1 << 16

_REASONS: tuple[tuple[type[Exception], str], ...] = (  # the first that fits, so narrow before wide
    (requests.TooManyRedirects, "it redirects in a loop"),
    (requests.Timeout, "no answer in time"),
    (ReadTimeoutError, "no answer in time"),
    (requests.exceptions.SSLError, "its certificate was not accepted"),
    (requests.exceptions.ProxyError, "the proxy refused"),
    (requests.ConnectionError, "no connection"),
    (HTTPError, "the connection broke off"),
)


class DataError(RuntimeError):
    """A dataset is missing, damaged, or cannot be fetched; the message says what to do."""


class _AttemptError(Exception):
    """One attempt at one address failed; the message says how."""


def fetch(urls: Sequence[str], target: Path, md5: str) -> None:
    """Put the file with this MD5 at ``target``, from the first of ``urls`` that delivers it.

    An intact target is left alone, and a damaged one replaced once the new one is verified.
    What arrives is kept in ``target.part``; the next attempt, or the next call, continues it.
    Every address is tried ROUNDS times, and none can hang longer than TIMEOUT_S. Raises
    DataError with every address and why it failed; OSError if the folder cannot be written.
    """
    from torchvision.datasets.utils import check_integrity

    part = target.with_name(target.name + ".part")
    if check_integrity(target, md5):
        return
    target.parent.mkdir(parents=True, exist_ok=True)
    failures: list[str] = []
    with requests.Session() as session:
        session.max_redirects = 5
        for url in [*urls] * ROUNDS:
            try:
                # A part can be whole already: the last run may have ended before the rename.
                if not check_integrity(part, md5):
                    _continue(session, url, part)
                if not check_integrity(part, md5):
                    received = part.stat().st_size
                    part.unlink()
                    raise _AttemptError(f"the {received:,} bytes it sent are not that file")
                part.replace(target)
                return
            except _AttemptError as error:
                failures.append(f"{url} ({error})")
                time.sleep(PAUSE_S)
    raise DataError(_failed(target, failures))


def _continue(session: requests.Session, url: str, part: Path) -> None:
    """Append to ``part`` what is missing, or write it anew if the server sends everything."""
    have = part.stat().st_size if part.exists() else 0
    # "identity", and raw bytes below: an archive must arrive packed, as it was checksummed.
    headers = {"Accept-Encoding": "identity"} | ({"Range": f"bytes={have}-"} if have else {})
    try:
        with session.get(url, headers=headers, stream=True, timeout=TIMEOUT_S) as answer:
            if answer.status_code == requests.codes.requested_range_not_satisfiable:
                part.unlink()  # longer than the file, so not a part of it
            answer.raise_for_status()
            _save(answer, part, have if answer.status_code == requests.codes.partial else 0)
    except requests.HTTPError as error:
        raise _AttemptError(f"HTTP {answer.status_code}") from error
    except (requests.RequestException, HTTPError) as error:
        reasons = [words for kind, words in _REASONS if isinstance(error, kind)]
        raise _AttemptError(next(iter(reasons), type(error).__name__)) from error


def _save(answer: requests.Response, part: Path, have: int) -> None:
    length = answer.headers.get("Content-Length", "")
    bar = tqdm(
        desc=part.name.removesuffix(".part"),
        initial=have,
        total=have + int(length) if length.isdigit() else None,
        unit="B",
        unit_scale=True,
        disable=None,  # no bar where nobody watches: a log, a pipe
    )
    with part.open("ab" if have else "wb") as file, bar:
        for chunk in answer.raw.stream(CHUNK_BYTES, decode_content=False):
            file.write(chunk)
            bar.update(len(chunk))


def _failed(target: Path, failures: list[str]) -> str:
    tried = "; ".join(dict.fromkeys(failures))
    return (
        f"{target.name} could not be fetched into {target.parent}: tried {tried}. Check the "
        "network and run `make data` again (it continues where it stopped), or put the file into "
        "that folder by hand, or set BOOK_DATA to a folder that has it."
    )
