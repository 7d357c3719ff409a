"""Fetching and checking the full datasets, against a server on this machine."""

import errno
import gzip
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from torchvision.datasets import CIFAR10, MNIST

from helpers import fetch, on_disk
from helpers.on_disk import DataError, check_files, data_root, download
from tests.helpers.fake_datasets import (
    DEAD_MIRROR,
    MNIST_SHAPES,
    Handler,
    Server,
    fake_cifar10,
    fake_mnist,
    md5,
)


@pytest.fixture(autouse=True)
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetch, "TIMEOUT_S", (0.5, 0.3))
    monkeypatch.setattr(fetch, "PAUSE_S", 0.0)
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")


@pytest.fixture
def server() -> Iterator[Server]:
    server = Server()
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    yield server
    server.stop.set()
    server.shutdown()
    server.server_close()


@pytest.fixture
def mnist_files(server: Server, monkeypatch: pytest.MonkeyPatch) -> dict[str, bytes]:
    """A tiny MNIST, which the server has."""
    files = fake_mnist(monkeypatch, server.url)
    server.files = {f"/{n}.gz": gzip.compress(content, mtime=0) for n, content in files.items()}
    return files


def put(raw: Path, files: dict[str, bytes]) -> None:
    raw.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        (raw / name).write_bytes(content)


def no_network(*_: object) -> None:
    raise AssertionError("the network was touched")


def assert_complete(folder: Path, files: dict[str, bytes]) -> None:
    assert {name: (folder / name).read_bytes() for name in files} == files
    assert not list(folder.rglob("*.part"))


def test_download_delivers_every_file_verified_and_leaves_no_part(
    tmp_path: Path, mnist_files: dict[str, bytes]
) -> None:
    folder = download("mnist", tmp_path)
    assert folder == tmp_path / "MNIST" / "raw"
    assert_complete(folder, mnist_files)
    assert not any(check_files("mnist", tmp_path).values())


def test_cifar10_takes_only_its_own_files_out_of_the_archive(
    tmp_path: Path, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    files, archive = fake_cifar10(monkeypatch, server.url + "cifar.tar.gz")
    server.files = {"/cifar.tar.gz": archive}
    folder = download("cifar10", tmp_path)
    assert folder == tmp_path / CIFAR10.base_folder
    assert {path.name for path in folder.iterdir()} == set(files)
    assert not (tmp_path / "escaped").exists()
    assert CIFAR10(tmp_path, download=False).data.shape == (20, 32, 32, 3)


def test_an_unknown_name_is_refused_with_the_choices(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"'imagenet'.*'mnist' or 'cifar10'"):
        download("imagenet", tmp_path)


def test_the_installed_torchvision_still_has_what_we_read() -> None:
    """Sizes and names are tied to torchvision's lists: a renamed file must not go unnoticed."""
    contents = [file for archive in on_disk.archives("mnist") for file in archive.contents]
    assert sorted(contents) == sorted(f"MNIST/raw/{name}" for name in MNIST_SHAPES)
    (archive,) = on_disk.archives("cifar10")
    assert len(archive.contents) == 7
    assert all(a.urls and re.fullmatch("[0-9a-f]{32}", a.md5) for a in on_disk.archives("mnist"))


def test_c37_intact_files_need_no_network(
    tmp_path: Path, mnist_files: dict[str, bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    put(tmp_path / "MNIST" / "raw", mnist_files)
    monkeypatch.setattr(socket.socket, "connect", no_network)
    assert download("mnist", tmp_path) == tmp_path / "MNIST" / "raw"
    assert {path.name for path in tmp_path.rglob("*") if path.is_file()} == set(mnist_files)


def test_c37_a_good_archive_put_there_by_hand_needs_no_network(
    tmp_path: Path, server: Server, mnist_files: dict[str, bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    put(tmp_path / "MNIST" / "raw", {path[1:]: body for path, body in server.files.items()})
    monkeypatch.setattr(socket.socket, "connect", no_network)
    assert_complete(download("mnist", tmp_path), mnist_files)


@pytest.mark.parametrize("status", [403, 404, 503])
def test_c37_a_refusing_server_gives_one_line_with_folder_file_and_remedy(
    tmp_path: Path, server: Server, mnist_files: dict[str, bytes], status: int
) -> None:
    server.answer = lambda request: request.send(status, b"no")
    with pytest.raises(DataError) as raised:
        download("mnist", tmp_path)
    message = str(raised.value)
    assert "\n" not in message
    assert message.count(f"HTTP {status}") == 1
    for part in (str(tmp_path / "MNIST" / "raw"), "train-images-idx3-ubyte.gz", server.url):
        assert part in message
    for remedy in ("make data", "by hand", "BOOK_DATA"):
        assert remedy in message
    assert len(server.seen) == fetch.ROUNDS


@pytest.mark.parametrize(
    ("misbehaviour", "reason"),
    [("hanging", "no answer in time"), ("redirecting", "redirects in a loop")],
)
def test_c37_a_hang_or_a_redirect_loop_ends_soon(
    tmp_path: Path, server: Server, mnist_files: dict[str, bytes], misbehaviour: str, reason: str
) -> None:
    server.answer = getattr(server, misbehaviour)
    start = time.monotonic()
    with pytest.raises(DataError, match=reason):
        download("mnist", tmp_path)
    assert time.monotonic() - start < 10


def test_c37_without_network_every_mirror_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_mnist(monkeypatch, DEAD_MIRROR, "http://127.0.0.1:10/")
    with pytest.raises(DataError, match=r"127.0.0.1:9/.*no connection.*127.0.0.1:10/"):
        download("mnist", tmp_path)


def test_c37_the_second_mirror_is_used_when_the_first_is_dead(
    tmp_path: Path, server: Server, mnist_files: dict[str, bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(MNIST, "mirrors", [DEAD_MIRROR, server.url])
    assert_complete(download("mnist", tmp_path), mnist_files)


def test_c38_a_broken_download_continues_where_it_stopped(
    tmp_path: Path, server: Server, mnist_files: dict[str, bytes]
) -> None:
    server.answer = server.breaking_off
    assert_complete(download("mnist", tmp_path), mnist_files)
    path = "/train-images-idx3-ubyte.gz"
    half = len(server.files[path]) // 2
    assert server.seen[:2] == [(path, None), (path, f"bytes={half}-")]


def test_c38_a_later_run_continues_what_an_earlier_one_left(
    tmp_path: Path, server: Server, mnist_files: dict[str, bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fetch, "ROUNDS", 1)
    server.answer = server.breaking_off
    with pytest.raises(DataError, match="broke off"):
        download("mnist", tmp_path)
    assert [path.suffix for path in (tmp_path / "MNIST" / "raw").iterdir()] == [".part"]
    assert_complete(download("mnist", tmp_path), mnist_files)
    assert server.seen[1][1] is not None


def test_c38_a_server_that_ignores_range_is_read_from_the_start(
    tmp_path: Path, server: Server, mnist_files: dict[str, bytes]
) -> None:
    put(tmp_path / "MNIST" / "raw", {"train-images-idx3-ubyte.gz.part": b"\x1f\x8b something"})
    server.answer = server.ignoring_range
    assert_complete(download("mnist", tmp_path), mnist_files)
    assert len(server.seen) == len(mnist_files)  # each at the first attempt


@pytest.mark.parametrize("surplus", [b"", b"x" * 10], ids=["same length", "longer"])
def test_c38_a_part_of_something_else_is_dropped(
    tmp_path: Path, server: Server, mnist_files: dict[str, bytes], surplus: bytes
) -> None:
    wrong = bytes(len(server.files["/train-images-idx3-ubyte.gz"])) + surplus
    put(tmp_path / "MNIST" / "raw", {"train-images-idx3-ubyte.gz.part": wrong})
    assert_complete(download("mnist", tmp_path), mnist_files)


def test_c38_a_web_page_sent_as_data_is_refused_and_not_kept(
    tmp_path: Path, server: Server, mnist_files: dict[str, bytes]
) -> None:
    server.answer = server.a_web_page
    with pytest.raises(DataError, match="bytes it sent are not that file"):
        download("mnist", tmp_path)
    assert not list((tmp_path / "MNIST" / "raw").iterdir())


@pytest.mark.parametrize(
    "damage",
    [lambda good: good[: len(good) // 2], lambda good: b"", lambda good: b"<html>" + good[6:]],
    ids=["halved", "empty", "web page"],
)
def test_c38_damaged_files_are_found_and_mended(
    tmp_path: Path, server: Server, mnist_files: dict[str, bytes], damage
) -> None:
    raw, name = tmp_path / "MNIST" / "raw", "t10k-images-idx3-ubyte"
    put(raw, mnist_files | {name: damage(mnist_files[name])})
    faults = {path.name: fault for path, fault in check_files("mnist", tmp_path).items() if fault}
    assert list(faults) == [name]
    assert_complete(download("mnist", tmp_path), mnist_files)
    assert {path for path, _ in server.seen} == {f"/{name}.gz"}


def test_c38_a_damaged_archive_is_fetched_again(
    tmp_path: Path, server: Server, mnist_files: dict[str, bytes]
) -> None:
    put(tmp_path / "MNIST" / "raw", {"train-images-idx3-ubyte.gz": b"\x1f\x8b half"})
    assert_complete(download("mnist", tmp_path), mnist_files)


def test_c38_offline_the_check_names_expected_and_found_size(tmp_path: Path) -> None:
    put(tmp_path / "MNIST" / "raw", {"train-images-idx3-ubyte": bytes(1_000)})
    faults = {path.name: fault for path, fault in check_files("mnist", tmp_path).items()}
    assert faults["train-images-idx3-ubyte"] == "has 1,000 bytes instead of 47,040,016"
    assert faults["t10k-labels-idx1-ubyte"] == "is missing"


def test_c38_a_killed_download_leaves_nothing_under_the_real_name(
    tmp_path: Path, server: Server, mnist_files: dict[str, bytes]
) -> None:
    path = "/train-images-idx3-ubyte.gz"
    whole, raw = server.files[path], tmp_path / "MNIST" / "raw"

    def stall_in_the_middle(request: Handler) -> None:
        request.send(200, whole[: len(whole) // 2], {"Content-Length": str(len(whole))})
        server.stop.wait(20)

    server.answer = stall_in_the_middle
    target = raw / path[1:]
    code = "import sys; from pathlib import Path; from helpers.fetch import fetch, CHUNK_BYTES\n"
    code += "import helpers.fetch; helpers.fetch.CHUNK_BYTES = 64\n"
    code += "fetch([sys.argv[1]], Path(sys.argv[2]), sys.argv[3])"
    arguments = [server.url + path[1:], str(target), md5(whole)]
    child = subprocess.Popen([sys.executable, "-c", code, *arguments])
    deadline = time.monotonic() + 30
    while not target.with_name(f"{target.name}.part").exists() and time.monotonic() < deadline:
        time.sleep(0.02)
    child.send_signal(signal.SIGKILL)
    child.wait()
    assert [file.name for file in raw.iterdir()] == [f"{target.name}.part"]
    server.answer = server.properly
    assert_complete(download("mnist", tmp_path), mnist_files)


def test_two_downloads_at_once_fetch_each_file_once(
    tmp_path: Path, server: Server, mnist_files: dict[str, bytes]
) -> None:
    def slowly(request: Handler) -> None:
        time.sleep(0.05)
        server.properly(request)

    server.answer = slowly
    results: list[Path] = []
    threads = [
        threading.Thread(target=lambda: results.append(download("mnist", tmp_path)))
        for _ in range(3)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert len(results) == 3
    assert_complete(results[0], mnist_files)
    assert sorted(server.seen) == sorted((path, None) for path in server.files)


def test_c41_a_folder_that_cannot_exist_is_named_with_the_option(
    mnist_files: dict[str, bytes],
) -> None:
    with pytest.raises(DataError, match=r"/dev/null/data cannot be written.*BOOK_DATA") as raised:
        download("mnist", Path("/dev/null/data"))
    assert "\n" not in str(raised.value)


def test_c41_a_read_only_file_system_is_named_with_the_option(
    tmp_path: Path, mnist_files: dict[str, bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    monkeypatch.setattr(Path, "mkdir", refuse)
    with pytest.raises(DataError, match=r"Read-only file system.*BOOK_DATA"):
        download("mnist", tmp_path / "new")


def test_c41_a_full_disk_is_one_line_and_leaves_nothing_half_written(
    tmp_path: Path, mnist_files: dict[str, bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fill(source: object, target: object) -> None:
        target.write(b"half")  # type: ignore[attr-defined]
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(on_disk.shutil, "copyfileobj", fill)
    with pytest.raises(DataError, match="No space left on device"):
        download("mnist", tmp_path)
    raw = tmp_path / "MNIST" / "raw"
    assert [file.name for file in raw.iterdir()] == ["train-images-idx3-ubyte.gz"]


def test_c41_complete_data_in_a_folder_that_cannot_be_written_is_enough(
    tmp_path: Path, mnist_files: dict[str, bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    put(tmp_path / "MNIST" / "raw", mnist_files)

    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("something was written")

    monkeypatch.setattr(Path, "mkdir", refuse)
    monkeypatch.setattr(on_disk, "FileLock", refuse)
    assert download("mnist", tmp_path) == tmp_path / "MNIST" / "raw"


def test_data_root_is_book_data_or_a_cache_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BOOK_DATA", str(tmp_path))
    assert data_root() == tmp_path
    monkeypatch.setenv("BOOK_DATA", "~/digits")
    assert data_root() == Path.home() / "digits"
    for unset in ("", "  "):
        monkeypatch.setenv("BOOK_DATA", unset)
        assert data_root().name == "pytorch-on-apple-silicon"
        assert data_root().is_absolute()


def test_a_relative_book_data_is_refused_with_the_full_path(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("BOOK_DATA", "digits")
    with pytest.raises(DataError, match=re.escape(str(Path.cwd() / "digits"))):
        data_root()
