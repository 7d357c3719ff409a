"""Memory reports, the out-of-memory texts of every device, and the batch finder."""

import gc
import weakref

import pytest
import torch
from torch import nn

from helpers import memory, out_of_memory
from helpers.footprint import saved_for_backward, tensor_bytes
from helpers.memory import PeakMemory, format_bytes, memory_report, release
from helpers.out_of_memory import BatchDoesNotFitError, find_batch_size, is_out_of_memory

GB = 1024**3
MPS_TEXTS = [
    "MPS backend out of memory (MPS allocated: 16.00 GB, other allocations: 3.31 GB, max allowed: "
    "18.13 GB). Tried to allocate 256 bytes on shared pool. Use "
    "PYTORCH_MPS_HIGH_WATERMARK_RATIO=0.0 to disable upper limit for memory allocations (may cause "
    "system failure).",
    "MPS backend out of memory (MPS allocated: 0 bytes, other allocations: 0 bytes, max allowed: "
    "7.93 GB). Tried to allocate 256 bytes on private pool.",
    "MPS backend out of memory (MPS allocated: 1024.00 MiB). "
    "Tried to allocate 2.00 GiB on shared pool",
    "mps BACKEND Out Of Memory",
    "Invalid buffer size: 37.25 GB",
]
OTHER_TEXTS = [
    "CUDA error: out of memory",
    "[enforce fail at alloc_cpu.cpp:121] . DefaultCPUAllocator: can't allocate memory: you tried "
    "to allocate 40000000000000 bytes. Error code 12 (Cannot allocate memory)",
    "CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`",
]


@pytest.fixture
def fake_mps(monkeypatch):
    """The counters of torch.mps with settable values, and a log of the calls."""
    state = {"current": 3.3 * GB, "driver": 32 * GB, "log": []}

    def log(name, value=None):
        def call(*_):
            state["log"].append(name)
            return state.get(value)

        return call

    monkeypatch.setattr(torch.mps, "synchronize", log("synchronize"))
    monkeypatch.setattr(torch.mps, "empty_cache", log("empty_cache"))
    monkeypatch.setattr(torch.mps, "current_allocated_memory", log("current", "current"))
    monkeypatch.setattr(torch.mps, "driver_allocated_memory", log("driver", "driver"))
    monkeypatch.setattr(torch.mps, "recommended_max_memory", lambda: 24 * GB)
    monkeypatch.setattr(torch.accelerator, "max_memory_allocated", lambda: 5 * GB)
    return state


@pytest.mark.parametrize("text", MPS_TEXTS + OTHER_TEXTS)
def test_c33_out_of_memory_is_recognised(text):
    assert is_out_of_memory(RuntimeError(text))
    assert not is_out_of_memory(ValueError(text))


def test_c33_typed_errors_are_recognised_and_others_are_not():
    assert is_out_of_memory(torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 MiB"))
    assert is_out_of_memory(MemoryError())
    assert not is_out_of_memory(RuntimeError("mat1 and mat2 shapes cannot be multiplied"))


def test_a_real_cpu_allocation_that_cannot_succeed_is_recognised():
    with pytest.raises(RuntimeError) as caught:
        torch.empty(2**50, dtype=torch.uint8)
    assert is_out_of_memory(caught.value)


@pytest.mark.parametrize("text", MPS_TEXTS)
def test_c33_finder_returns_the_last_batch_that_fits(text):
    tried = []

    def step(batch_size):
        tried.append(batch_size)
        if batch_size > 8:
            raise RuntimeError(text)

    assert find_batch_size(step, device="cpu") == 8
    assert tried == [1, 2, 4, 8, 16]


def test_c33_finder_stops_at_the_limit():
    assert find_batch_size(lambda n: None, device="cpu", start=3, limit=20) == 12
    with pytest.raises(ValueError, match="limit=4"):
        find_batch_size(lambda n: None, device="cpu", start=8, limit=4)
    with pytest.raises(ValueError, match="whole number"):
        find_batch_size(lambda n: None, device="cpu", start=1.5)


@pytest.mark.parametrize(
    "error", [RuntimeError("shape mismatch"), ValueError("bad"), KeyError("k")]
)
def test_c33_unrelated_errors_pass_through(error):
    def step(_):
        raise error

    with pytest.raises(type(error)) as caught:
        find_batch_size(step, device="cpu")
    assert caught.value is error


def test_c33_nothing_fits_is_one_clear_error():
    def step(_):
        raise RuntimeError(MPS_TEXTS[0])

    with pytest.raises(BatchDoesNotFitError, match="batch of 4 does not fit on cpu"):
        find_batch_size(step, device="cpu", start=4)


def test_c33_memory_of_a_failed_try_is_dropped_before_releasing(monkeypatch):
    alive, dropped = [], []

    def step(batch_size):
        tensor = torch.zeros(batch_size)
        alive.append(weakref.ref(tensor))
        if batch_size > 2:
            raise RuntimeError(MPS_TEXTS[0])

    monkeypatch.setattr(
        out_of_memory, "release", lambda device: dropped.append(alive[-1]() is None)
    )
    find_batch_size(step, device="cpu")
    assert dropped == [True, True, True]


def test_c35_report_on_mps_keeps_the_counters_apart(fake_mps):
    report = memory_report("mps")
    assert report.current_bytes == 3.3 * GB
    assert report.cached_bytes == 32 * GB - 3.3 * GB
    assert report.peak_bytes == 5 * GB
    rows = dict(report.rows())
    assert rows["cached or other (driver - current)"] == "28.7 GiB"
    assert rows["recommended maximum"] == "24 GiB"
    assert rows["this process, resident (not GPU memory)"] == format_bytes(report.process_bytes)


def test_c35_cleanup_collects_then_waits_then_empties(fake_mps, monkeypatch):
    monkeypatch.setattr(memory.gc, "collect", lambda: fake_mps["log"].append("collect"))
    assert release("mps") == 0
    order = [name for name in fake_mps["log"] if name in ("collect", "synchronize", "empty_cache")]
    assert order[0] == "collect"
    assert order[order.index("empty_cache") - 1] == "synchronize"


def test_c08_off_a_mac_nothing_raises_and_nothing_is_zero(monkeypatch):
    monkeypatch.delattr(torch, "mps")
    report = memory_report("cpu")
    assert (report.current_bytes, report.driver_bytes, report.cached_bytes) == (None, None, None)
    assert "not applicable on cpu" in str(report)
    assert "0 B" not in str(report)
    assert report.process_bytes > 0
    assert release("cpu") is None
    with PeakMemory("cpu") as peak:
        torch.ones(3)
    assert peak.bytes is None


def test_peak_before_torch_2_13_is_unknown_on_mps(fake_mps, monkeypatch):
    def refuse():
        raise RuntimeError("Allocator for mps is not a DeviceAllocator.")

    monkeypatch.setattr(torch.accelerator, "max_memory_allocated", refuse)
    assert memory_report("mps").peak_bytes is None
    assert "this PyTorch does not count it" in str(memory_report("mps"))
    with PeakMemory("mps") as peak:
        pass
    assert peak.bytes is None


def test_peak_is_reset_on_entry_and_read_on_exit(fake_mps, monkeypatch):
    calls = []
    monkeypatch.setattr(torch.accelerator, "reset_peak_memory_stats", lambda: calls.append("reset"))
    with PeakMemory("mps") as peak:
        assert calls == ["reset"]
    assert peak.bytes == 5 * GB


def test_saved_for_backward_counts_each_storage_once_without_parameters():
    layer = nn.Linear(4, 4, bias=False)
    images = torch.ones(2, 4)
    # linear keeps its input (32 bytes); relu keeps its output (32 bytes); sum keeps nothing
    assert saved_for_backward(lambda: layer(images).relu().sum()) == 64
    assert saved_for_backward(lambda: (images * layer.weight[:2]).sum()) == 32
    with torch.no_grad():
        assert saved_for_backward(lambda: layer(images).sum()) == 0


def test_saved_for_backward_leaves_out_views_of_parameters():
    layer = nn.Linear(4, 4, bias=False)
    images = torch.ones(2, 4, requires_grad=True)  # so that the transposed weight is kept as well
    assert saved_for_backward(lambda: layer(images).sum()) == 32


def test_saved_for_backward_keeps_nothing_alive():
    alive = []

    def fn():
        hidden = torch.ones(2, 4, requires_grad=True).exp()  # its graph keeps its own output
        alive.append(weakref.ref(hidden))
        return hidden.sum()

    saved_for_backward(fn)
    gc.collect()
    assert alive[0]() is None


def test_tensor_bytes_of_module_list_and_optimizer_state():
    model = nn.BatchNorm1d(8)  # 2 x 8 parameters, 2 x 8 statistics, one int64 counter
    assert tensor_bytes(model) == 4 * 32 + 8
    assert tensor_bytes(model.parameters()) == 64
    optimizer = torch.optim.Adam(model.parameters())
    model(torch.ones(2, 8)).sum().backward()
    optimizer.step()
    assert tensor_bytes(optimizer.state_dict()["state"]) == 2 * 64 + 2 * 4


@pytest.mark.parametrize(
    ("n", "text"),
    [
        (0, "0 B"),
        (1023, "1023 B"),
        (1536, "1.5 KiB"),
        (-3 * 1024, "-3 KiB"),
        (100 * GB, "100 GiB"),
        (3000 * GB, "2.93 TiB"),
        (2.5 * 1024**2, "2.5 MiB"),
    ],
)
def test_format_bytes(n, text):
    assert format_bytes(n) == text
