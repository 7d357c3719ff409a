"""Fixtures that several test modules share."""

import pytest

from helpers import timing
from tests.helpers.fake_device import FakeDevice


@pytest.fixture
def fake_device(monkeypatch: pytest.MonkeyPatch) -> FakeDevice:
    """Put a fake asynchronous device and its clock under ``helpers.timing``."""
    device = FakeDevice()
    monkeypatch.setattr(timing, "synchronize", device.synchronize)
    monkeypatch.setattr(timing.time, "perf_counter", device.clock)
    return device
