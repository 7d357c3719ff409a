"""The clock, on a device whose asynchrony and time are simulated."""

import pytest
import torch

from helpers import device as device_module
from helpers.timing import (
    Stopwatch,
    Timing,
    crossover,
    format_seconds,
    measure,
    most_flops_per_s,
    timed,
)
from tests.helpers.fake_device import FakeDevice

CPU = torch.device("cpu")


def test_c11_measures_the_work_not_the_launch(fake_device: FakeDevice):
    timing = measure(lambda: fake_device.launch(5e-3), device="mps")
    assert timing.median_s >= 5e-3
    assert timing.first_s >= 5e-3


def test_c11_synchronizes_before_both_readings(fake_device: FakeDevice):
    measure(lambda: fake_device.launch(5e-3), device="mps", max_samples=5)
    readings = [i for i, event in enumerate(fake_device.events) if event == "clock"]
    assert readings
    assert all(fake_device.events[i - 1] == "synchronize" for i in readings)


def test_c11_an_impossible_rate_is_noted():
    timing = Timing("matmul", CPU, 1e-3, (22e-6,) * 5, flops=2e12)
    assert any("impossible" in note for note in timing.notes)
    assert "impossible" in str(timing)
    assert "90,909 TFLOP/s" in str(timing)
    possible = Timing("matmul", CPU, 1e-3, (1.0,) * 5, flops=1e9)
    assert possible.notes == ()


def test_c11_work_queued_before_the_measurement_does_not_count(fake_device: FakeDevice):
    fake_device.launch(100.0)
    timing = measure(lambda: fake_device.launch(5e-3), device="mps")
    assert timing.first_s < 1


def test_c12_first_call_is_kept_apart_for_every_shape(fake_device: FakeDevice):
    seen = set()

    def call(shape):
        if shape not in seen:
            seen.add(shape)
            fake_device.busy(0.2)
        fake_device.launch(2e-3)

    for shape in (8, 16):
        timing = measure(lambda shape=shape: call(shape), device="mps")
        assert timing.first_s == pytest.approx(0.2, rel=0.05)
        assert timing.median_s == pytest.approx(2e-3, rel=0.05)


def test_short_calls_are_grouped_and_divided(fake_device: FakeDevice):
    timing = measure(lambda: fake_device.launch(9e-5), device="mps", min_time_s=0.01)
    assert timing.calls_per_sample == 10
    assert timing.median_s == pytest.approx(1e-4)


def test_sampling_stops_at_the_cap_and_reaches_the_minimum(fake_device: FakeDevice):
    quick = measure(lambda: fake_device.launch(2e-3), device="mps", min_time_s=99, max_samples=7)
    assert quick.n == 7
    slow = measure(lambda: fake_device.launch(60.0), device="mps", min_time_s=0.5, min_samples=2)
    assert slow.n == 2
    assert "only 2 sample(s)" in slow.notes


def test_errors_pass_through_and_bad_counts_are_refused(fake_device: FakeDevice):
    with pytest.raises(ZeroDivisionError):
        measure(lambda: 1 / 0, device="cpu")
    with pytest.raises(ValueError, match="min_samples"):
        measure(lambda: None, device="cpu", min_samples=9, max_samples=3)


def test_median_spread_and_rates():
    timing = Timing("", CPU, 9.0, (1.0, 2.0, 3.0, 4.0, 5.0), flops=6.0, bytes_moved=3.0)
    assert (timing.median_s, timing.iqr_s, timing.n) == (3.0, 2.0, 5)
    assert (timing.flops_per_s, timing.bytes_per_s) == (2.0, 1.0)
    assert Timing("", CPU, 1.0, (1.0,)).flops_per_s is None
    assert Timing("", CPU, 1.0, (1.0,)).iqr_s == 0.0


def test_wide_spread_and_slowing_down_are_noted():
    assert any("wide spread" in n for n in Timing("", CPU, 1.0, (1.0, 1.0, 2.0, 2.0)).notes)
    heating = Timing("", CPU, 1.0, tuple(1.0 + 0.1 * i for i in range(12)))
    assert any("slower while measured" in note for note in heating.notes)
    assert Timing("", CPU, 1.0, (1.0, 1.01, 0.99)).notes == ()


def test_a_timing_on_a_simulated_device_says_that_it_is_none(monkeypatch):
    timing = Timing("", torch.device("mps"), 1.0, (1.0, 1.0, 1.0))
    monkeypatch.setattr(device_module.platform, "system", lambda: "Linux")
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: True)
    assert timing.notes == ("simulated: not a timing",)
    assert "simulated: not a timing" in str(timing)
    monkeypatch.setattr(device_module.platform, "system", lambda: "Darwin")
    assert timing.notes == ()


def test_other_times_on_a_simulated_device_can_say_so_too(monkeypatch):
    monkeypatch.setattr(device_module.platform, "system", lambda: "Linux")
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: True)
    assert timed("ms per step", "mps") == "ms per step (simulated: not a timing)"
    assert timed("ms per step", CPU) == "ms per step"
    monkeypatch.setattr(device_module.platform, "system", lambda: "Darwin")
    assert timed("ms per step", "mps") == "ms per step"


def test_stopwatch_covers_the_queued_work_and_only_that(fake_device: FakeDevice):
    fake_device.launch(50.0)
    with Stopwatch("mps") as watch:
        fake_device.launch(5e-3)
        with pytest.raises(RuntimeError, match="after the with block"):
            _ = watch.elapsed_s
    assert watch.elapsed_s == pytest.approx(5e-3, rel=0.01)


def test_a_failed_block_has_no_time(fake_device: FakeDevice):
    watch = Stopwatch("mps")
    with pytest.raises(KeyError), watch:
        raise KeyError
    with pytest.raises(RuntimeError):
        _ = watch.elapsed_s


def test_c13_crossover_with_one_and_without_any():
    sizes = [64, 256, 1024, 4096]
    assert crossover(sizes, [1, 2, 30, 400], [5, 6, 7, 8]) == 1024
    assert crossover(sizes, [1, 2, 3, 4], [5, 6, 7, 8]) is None
    assert crossover(sizes, [9, 2, 30, 400], [5, 6, 7, 8]) == 1024  # a lucky early win is none
    assert crossover(sizes, [9, 9, 9, 9], [1, 1, 1, 9]) is None
    with pytest.raises(ValueError, match="zip"):
        crossover(sizes, [1], [2])


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0 ns"),
        (3.2e-9, "3.2 ns"),
        (1.234e-3, "1.23 ms"),
        (0.9999e-3, "1 ms"),
        (0.25, "250 ms"),
        (1, "1 s"),
        (2345.6, "2,346 s"),
        (99.97e-6, "100 µs"),
    ],
)
def test_format_seconds(seconds, text):
    assert format_seconds(seconds) == text


def test_ceiling_admits_real_devices(monkeypatch):
    monkeypatch.setattr(torch.backends.mps, "get_core_count", lambda: 8, raising=False)
    assert most_flops_per_s("mps") > 2.6e12  # an M1's published float32 rate
    assert most_flops_per_s("mps") < 1e14
    monkeypatch.delattr(torch.backends.mps, "get_core_count")
    assert most_flops_per_s("mps") > 28e12  # unknown count: still above an 80-core M3 Ultra
