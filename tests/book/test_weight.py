"""How much a reader downloads: a page's own HTML, compressed as a web host sends it."""

import gzip
from statistics import median

from .test_pages import ENTRIES, page_of

MEDIAN_BYTES, MOST_BYTES = 150_000, 500_000


def test_pages_are_light():
    sizes = {entry: len(gzip.compress(page_of(entry).read_bytes())) for entry in ENTRIES}
    assert {entry: size for entry, size in sizes.items() if size > MOST_BYTES} == {}
    assert median(sizes.values()) < MEDIAN_BYTES
