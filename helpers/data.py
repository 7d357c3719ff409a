"""Datasets without surprises: digits that ship with the book, the full sets once on disk.

Nothing here touches the network but download(), which `make data` runs.
"""

import hashlib
import io
import warnings
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from helpers.batches import loader, to_device
from helpers.fetch import DataError
from helpers.images import Images, fake_images
from helpers.on_disk import MISSING, check_files, data_root, download

__all__ = [
    "DataError",
    "Images",
    "cifar10",
    "data_root",
    "download",
    "fake_images",
    "has_cifar10",
    "loader",
    "mnist",
    "to_device",
]

BUNDLED = Path(__file__).resolve().parent.parent / "data" / "mnist-5k.npz"
BUNDLED_SHA256 = "ec56671eedea578fe38198d455616f721540adb79079f21462763a80602814a0"
BUNDLED_TRAIN = 4_000  # the first 400 of each digit; the last 100 of each are for testing

# Mean and standard deviation of the training pixels scaled to 0..1, the values in common use:
# MNIST's from pytorch/examples (the 4,000 bundled training digits have 0.1309 and 0.3080).
MNIST_MEAN_STD = (0.1307,), (0.3081,)
CIFAR10_MEAN_STD = (0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616)


def mnist(train: bool = True, full: bool | None = None) -> Images:
    """Return MNIST digits, (1, 28, 28) each: all of them, or the 5,000 that ship with the book.

    With ``full=None`` you get the 60,000 training or 10,000 test digits if they are on disk,
    else 4,000 or 1,000 bundled ones; ``.source`` says which. The full set counts only if both
    its halves are intact: the bundled test digits may be among the 60,000 training digits, so
    the two must not mix. Damaged files lead to a warning and the bundled digits; with
    ``full=True``, they and missing files raise DataError. Nothing is fetched.
    """
    if not isinstance(train, bool):
        raise TypeError(f"train must be True or False, not {train!r}")
    if full is False or not _on_disk("mnist", required=full is True):
        images, labels = _bundled_digits(train)
        source = f"bundled MNIST sample: {len(labels):,} of 5,000 digits"
    else:
        from torchvision.datasets import MNIST

        digits = MNIST(data_root(), train=train, download=False)
        images, labels = digits.data.unsqueeze(1), digits.targets
        source = f"MNIST: all {len(labels):,} {'training' if train else 'test'} digits"
    return Images(images, labels, tuple("0123456789"), source, *MNIST_MEAN_STD)


def cifar10(train: bool = True) -> Images:
    """Return CIFAR-10, (3, 32, 32) each: 50,000 training or 10,000 test photographs.

    Raises DataError if it is not on disk, or damaged. Nothing is fetched.
    """
    _on_disk("cifar10", required=True)
    from torchvision.datasets import CIFAR10

    photos = CIFAR10(data_root(), train=train, download=False)
    images = torch.from_numpy(photos.data).permute(0, 3, 1, 2).contiguous()
    labels = torch.tensor(photos.targets)
    source = f"CIFAR-10: all {len(labels):,} {'training' if train else 'test'} images"
    return Images(images, labels, tuple(photos.classes), source, *CIFAR10_MEAN_STD)


def has_cifar10() -> bool:
    """Return whether CIFAR-10 is on disk and intact; warns if it is there and damaged."""
    return _on_disk("cifar10", required=False)


def _on_disk(name: str, *, required: bool) -> bool:
    """Return whether the full set is usable; raises DataError if it is required and is not."""
    root = data_root()
    faults = check_files(name, root)
    if not any(faults.values()):
        return True
    remedy = f"`make data` (or `python -m helpers data {name}`)"
    absent = all(fault == MISSING for fault in faults.values())
    if absent:
        message = f"The full {name} is not in {root}: {remedy} fetches it."
    else:
        bad = "; ".join(f"{path} {fault}" for path, fault in faults.items() if fault)
        message = f"The full {name} on disk is not used: {bad}. {remedy} mends it."
    if required:
        raise DataError(f"{message} BOOK_DATA names another folder.")
    if not absent:
        warnings.warn(message, stacklevel=2)
    return False


def _bundled_digits(train: bool) -> tuple[Tensor, Tensor]:
    try:
        content = BUNDLED.read_bytes()
    except OSError as error:
        raise _bundled_error(error.strerror or str(error)) from error
    if hashlib.sha256(content).hexdigest() != BUNDLED_SHA256:
        raise _bundled_error(f"its {len(content):,} bytes fail their checksum")
    with np.load(io.BytesIO(content)) as arrays:
        images, labels = arrays["images"], arrays["labels"]
    part = slice(None, BUNDLED_TRAIN) if train else slice(BUNDLED_TRAIN, None)
    return torch.from_numpy(images[part]).unsqueeze(1), torch.from_numpy(labels[part]).long()


def _bundled_error(reason: str) -> DataError:
    return DataError(
        f"The bundled digits in {BUNDLED} cannot be used: {reason}. Restore the file with "
        "`git checkout data/mnist-5k.npz`."
    )
