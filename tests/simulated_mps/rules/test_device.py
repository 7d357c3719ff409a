import time

import pytest
import torch
from torch import nn

from tests.simulated_mps import is_simulated


def test_mps_is_built_available_and_the_only_accelerator():
    assert torch.backends.mps.is_built()
    assert torch.backends.mps.is_available()
    assert torch.accelerator.is_available()
    assert torch.accelerator.current_accelerator() == torch.device("mps")
    assert torch.accelerator.device_count() == torch.mps.device_count() == 1


def test_the_macos_version_is_known():
    assert torch.backends.mps.is_macos_or_newer(14, 0)
    assert not torch.backends.mps.is_macos_or_newer(99, 0)


def test_the_name_says_that_it_is_simulated():
    assert is_simulated()
    assert torch.backends.mps.get_name() == "Apple M1 (simulated)"
    assert torch.backends.mps.get_core_count() == 8


def test_tensors_are_ordinary_tensors_on_mps_0(mps):
    x = torch.ones(2, device=mps)
    assert type(x) is torch.Tensor
    assert str(x.device) == "mps:0"
    assert x.is_mps
    assert x.get_device() == 0
    assert "device='mps:0'" in repr(x)


def test_moving_to_mps_copies_and_moving_again_does_not(mps):
    x = torch.zeros(3)
    y = x.to(mps)
    y += 1
    assert x.tolist() == [0, 0, 0]
    assert y.to(mps) is y
    assert torch.equal(y.cpu(), torch.ones(3))


def test_a_module_moves_in_place(mps):
    model = nn.Linear(2, 2)
    weight = model.weight
    assert model.to(mps).weight is weight
    assert weight.is_mps
    assert model.cpu().weight.device.type == "cpu"


def test_values_can_be_read_back(mps):
    x = torch.arange(4, device=mps)
    assert x.sum().item() == 6
    assert x.tolist() == [0, 1, 2, 3]
    assert bool((x >= 0).all())
    assert f"{x[1]}" == "1"


def test_default_device():
    torch.set_default_device("mps")
    try:
        assert torch.ones(2).is_mps
        assert nn.Linear(2, 2).weight.is_mps
    finally:
        torch.set_default_device(None)
    with torch.device("mps"):
        assert torch.zeros(1).is_mps


@pytest.mark.parametrize(
    "use",
    [
        lambda x: torch.ones(2, device="mps:1"),
        lambda x: x.to("mps:1"),
        lambda x: torch.ones(2).to("mps:1"),
        lambda x: torch.randperm(3, device="mps:1"),
        lambda x: nn.Linear(2, 2).to("mps:1"),
    ],
)
def test_mps_1_is_refused(mps, use):
    with pytest.raises(RuntimeError, match="There is one MPS device"):
        use(torch.ones(2, device=mps))


def test_there_is_no_cuda(mps):
    assert not torch.cuda.is_available()
    assert torch.cuda.device_count() == 0
    assert not torch.backends.cuda.is_built()
    with pytest.raises(AssertionError, match="Torch not compiled with CUDA enabled"):
        torch.ones(2, device=mps).cuda()
    with pytest.raises(AssertionError, match="Torch not compiled with CUDA enabled"):
        torch.ones(2, device="cuda")


def test_synchronize_events_and_profiler():
    torch.mps.synchronize()
    torch.accelerator.synchronize()
    with torch.mps.profiler.profile(mode="interval", wait_until_completed=False):
        pass
    start, end = (torch.mps.Event(enable_timing=True) for _ in range(2))
    start.record()
    time.sleep(0.01)
    end.record()
    assert start.elapsed_time(end) >= 9


def test_pytorch_profiler_sees_the_host_side(mps):
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        torch.ones(3, device=mps) @ torch.ones(3, device=mps)
    assert "aten::dot" in str(profile.key_averages().table())


def test_there_is_no_metal():
    with pytest.raises(NotImplementedError, match="no Metal"):
        torch.mps.compile_shader("kernel void f() {}")
    assert not torch.mps.profiler.is_metal_capture_enabled()


def test_compile_with_inductor_is_refused(mps):
    model = torch.compile(nn.Linear(3, 3).to(mps))
    with pytest.raises(RuntimeError, match=r"Simulated MPS cannot run torch\.compile"):
        model(torch.ones(1, 3, device=mps))


def test_compile_with_inductor_is_refused_for_tensors_made_inside():
    with pytest.raises(RuntimeError, match=r"Simulated MPS cannot run torch\.compile"):
        torch.compile(lambda: torch.ones(3, device="mps") * 2)()


def test_compile_with_backend_eager_runs(mps):
    model = torch.compile(nn.Linear(3, 3).to(mps), backend="eager")
    assert model(torch.ones(1, 3, device=mps)).is_mps
