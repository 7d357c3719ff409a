"""What holds in every test: nothing of the developer's own machine is read or written."""

import os

import pytest


@pytest.fixture(autouse=True)
def clean_environment(monkeypatch, tmp_path_factory):
    """Unset what steers the book and MPS, and look for datasets in an empty folder."""
    for name in list(os.environ):
        if name in ("BOOK_DEVICE", "BOOK_SCALE") or name.startswith("PYTORCH_"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("BOOK_DATA", str(tmp_path_factory.getbasetemp() / "no-datasets"))
