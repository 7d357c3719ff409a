import gc

import pytest
import torch
from torch import mps

MIB = 1 << 20


def minor() -> int:
    return int(torch.__version__.split(".")[1])


@pytest.fixture
def before():
    gc.collect()
    return mps.current_allocated_memory()


@pytest.fixture
def small_limit():
    mps.set_per_process_memory_fraction(0.001)  # of 12 GiB
    yield
    mps.set_per_process_memory_fraction(1.7)


def test_counters_count_live_bytes(before):
    x = torch.zeros(1024, 1024, device="mps")
    assert mps.current_allocated_memory() - before == 4 * MIB
    y = x @ x
    assert mps.current_allocated_memory() - before == 8 * MIB
    view = x.t()
    assert mps.current_allocated_memory() - before == 8 * MIB
    assert mps.driver_allocated_memory() >= 8 * MIB
    del x, y, view
    assert mps.current_allocated_memory() == before


def test_a_copy_from_the_cpu_counts(before):
    x = torch.zeros(MIB, dtype=torch.uint8).to("mps")
    assert mps.current_allocated_memory() - before == MIB
    del x


def test_sizes_are_rounded_up_to_256_bytes(before):
    x = torch.zeros(1, device="mps")
    assert mps.current_allocated_memory() - before == 256
    del x


def test_resizing_counts(before):
    x = torch.zeros(MIB, dtype=torch.uint8, device="mps")
    x.resize_(3 * MIB)
    assert mps.current_allocated_memory() - before == 3 * MIB
    out = torch.empty(0, device="mps")
    torch.add(torch.zeros(MIB // 4, device="mps"), 1, out=out)
    assert mps.current_allocated_memory() - before == 4 * MIB
    del x, out
    assert mps.current_allocated_memory() == before


def test_the_driver_keeps_memory_until_empty_cache():
    mps.empty_cache()
    start = mps.driver_allocated_memory()
    x = torch.zeros(64 * MIB, dtype=torch.uint8, device="mps")
    del x
    assert mps.driver_allocated_memory() >= start + 56 * MIB
    mps.empty_cache()
    assert mps.driver_allocated_memory() <= start + 8 * MIB


def test_recommended_memory_is_three_quarters_of_16_gib():
    assert mps.recommended_max_memory() == 12 << 30


def test_out_of_memory_has_the_text_and_units_of_mps(small_limit):
    pool = "private" if minor() < 12 else "shared"
    expected = (
        r"MPS backend out of memory \(MPS allocated: [\d.]+ (bytes|[KMG]iB), other allocations: "
        r"[\d.]+ (bytes|[KMG]iB), max allowed: 12.29 MiB\). Tried to allocate 256.00 MiB on "
        rf"{pool} pool. Use PYTORCH_MPS_HIGH_WATERMARK_RATIO=0.0 to disable upper limit for memory "
        r"allocations \(may cause system failure\)\."
    )
    with pytest.raises(RuntimeError, match=expected) as caught:
        torch.empty(64 * MIB, device="mps")
    assert not isinstance(caught.value, torch.OutOfMemoryError)


def test_out_of_memory_names_small_sizes_in_bytes_and_kib(small_limit):
    fill = [torch.empty(4 * MIB - 1024, dtype=torch.uint8, device="mps") for _ in range(3)]
    with pytest.raises(RuntimeError, match=r"Tried to allocate 512.00 KiB on"):
        [torch.empty(512 * 1024, dtype=torch.uint8, device="mps") for _ in range(2)]
    with pytest.raises(RuntimeError, match=r"Tried to allocate 1024 bytes on"):
        [torch.empty(256, device="mps") for _ in range(1000)]
    del fill


def test_results_of_ops_can_run_out_of_memory(small_limit, before):
    x = torch.ones(MIB, device="mps")
    with pytest.raises(RuntimeError, match="MPS backend out of memory"):
        [x + 1 for _ in range(50)]
    gc.collect()
    assert mps.current_allocated_memory() - before == 4 * MIB  # nothing leaks from the failure


def test_memory_is_usable_after_out_of_memory():
    torch.empty(16 * MIB, device="mps").fill_(1)


def test_one_tensor_can_be_too_large_for_a_buffer():
    with pytest.raises(RuntimeError, match=r"Invalid buffer size: 16.00 GiB"):
        torch.empty(4 << 30, device="mps")


def test_the_fraction_must_be_a_float_from_0_to_2():
    with pytest.raises(TypeError):
        mps.set_per_process_memory_fraction(1)
    with pytest.raises(ValueError, match="Allowed range"):
        mps.set_per_process_memory_fraction(3.0)


@pytest.mark.skipif(minor() < 13, reason="MPS has the accelerator's memory from 2.13")
def test_the_accelerator_api_knows_the_peak(before):
    torch.accelerator.reset_peak_memory_stats()
    x = torch.zeros(8 * MIB, dtype=torch.uint8, device="mps")
    del x
    assert torch.accelerator.max_memory_allocated() - before == 8 * MIB
    assert torch.accelerator.memory_allocated() == before
    free, total = torch.accelerator.get_memory_info()
    assert (free, total) == ((12 << 30) - before, 12 << 30)


@pytest.mark.skipif(minor() >= 13, reason="MPS has the accelerator's memory API")
def test_the_accelerator_api_has_no_memory_before_2_13():
    with pytest.raises(RuntimeError, match="Allocator for mps is not a DeviceAllocator"):
        torch.accelerator.memory_allocated()
