"""Tiny stand-ins for MNIST and CIFAR-10, and a server on this machine that can misbehave."""

import gzip
import hashlib
import io
import pickle
import struct
import tarfile
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import numpy as np
import pytest
from torchvision.datasets import CIFAR10, MNIST

from helpers import on_disk

MNIST_SHAPES = {
    "train-images-idx3-ubyte": (20, 28, 28),
    "train-labels-idx1-ubyte": (20,),
    "t10k-images-idx3-ubyte": (10, 28, 28),
    "t10k-labels-idx1-ubyte": (10,),
}
DEAD_MIRROR = "http://127.0.0.1:9/"  # the discard port: nobody listens


def md5(content: bytes) -> str:
    return hashlib.md5(content, usedforsecurity=False).hexdigest()


def idx(shape: tuple[int, ...], seed: int = 0) -> bytes:
    values = np.random.default_rng(seed).integers(0, 10, shape, dtype=np.uint8)
    return struct.pack(f">{len(shape) + 1}I", 0x0800 + len(shape), *shape) + values.tobytes()


def fake_mnist(patch: pytest.MonkeyPatch, *mirrors: str) -> dict[str, bytes]:
    """Make torchvision and helpers believe in a tiny MNIST; return its unpacked files."""
    files = {name: idx(shape) for name, shape in MNIST_SHAPES.items()}
    packed = {name: gzip.compress(content, mtime=0) for name, content in files.items()}
    patch.setattr(on_disk, "_MNIST_SHAPES", MNIST_SHAPES)
    patch.setattr(MNIST, "mirrors", list(mirrors))
    patch.setattr(MNIST, "resources", [(f"{n}.gz", md5(gz)) for n, gz in packed.items()])
    return files


def fake_cifar10(
    patch: pytest.MonkeyPatch, url: str = DEAD_MIRROR
) -> tuple[dict[str, bytes], bytes]:
    """Make torchvision believe in a tiny CIFAR-10; return its files and its archive."""
    rng = np.random.default_rng(0)
    batches = [*(f"data_batch_{i}" for i in range(1, 6)), "test_batch"]
    contents: dict[str, object] = {
        name: {"data": rng.integers(0, 256, (4, 3072), dtype=np.uint8), "labels": [0, 1, 2, 9]}
        for name in batches
    }
    contents["batches.meta"] = {"label_names": [f"class {i}" for i in range(10)]}
    files = {name: pickle.dumps(content) for name, content in contents.items()}
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w:gz") as tar:
        for name, content in [*files.items(), ("../escaped", b"evil"), ("readme.html", b"")]:
            member = tarfile.TarInfo(f"{CIFAR10.base_folder}/{name}")
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
    sums = [[name, md5(files[name])] for name in batches]
    patch.setattr(CIFAR10, "train_list", sums[:5])
    patch.setattr(CIFAR10, "test_list", sums[5:])
    patch.setattr(CIFAR10, "meta", {**CIFAR10.meta, "md5": md5(files["batches.meta"])})
    patch.setattr(CIFAR10, "tgz_md5", md5(archive.getvalue()))
    patch.setattr(CIFAR10, "url", url)
    return files, archive.getvalue()


class Handler(BaseHTTPRequestHandler):
    server: "Server"

    def do_GET(self) -> None:
        self.server.seen.append((self.path, self.headers.get("Range")))
        self.server.answer(self)

    def send(self, status: int, body: bytes, headers: dict[str, str] | None = None) -> None:
        self.send_response(status)
        for name, value in {"Content-Length": str(len(body)), **(headers or {})}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Stay quiet."""


class Server(ThreadingHTTPServer):
    """Serves ``files`` (by path) the way ``answer`` does it; ``seen`` lists path and Range."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.files: dict[str, bytes] = {}
        self.seen: list[tuple[str, str | None]] = []
        self.answer: Callable[[Handler], None] = self.properly
        self.stop = threading.Event()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/"

    def properly(self, request: Handler) -> None:
        body = self.files[request.path]
        wanted = request.headers.get("Range")
        if wanted is None:
            return request.send(200, body)
        start = int(wanted.removeprefix("bytes=").removesuffix("-"))
        if start >= len(body):
            return request.send(416, b"")
        place = f"bytes {start}-{len(body) - 1}/{len(body)}"
        return request.send(206, body[start:], {"Content-Range": place})

    def ignoring_range(self, request: Handler) -> None:
        request.send(200, self.files[request.path])

    def breaking_off(self, request: Handler) -> None:
        """Promise the whole file, and send half of it; the next time, behave."""
        body = self.files[request.path]
        self.answer = self.properly
        request.send(200, body[: len(body) // 2], {"Content-Length": str(len(body))})

    def hanging(self, request: Handler) -> None:
        self.stop.wait(10)

    def redirecting(self, request: Handler) -> None:
        request.send(302, b"", {"Location": request.path})

    def a_web_page(self, request: Handler) -> None:
        request.send(200, b"<!DOCTYPE html><title>Sign in to the network</title>")
