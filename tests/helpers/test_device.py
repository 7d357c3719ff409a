"""Device selection: explicit is honoured or refused, auto probes, nothing is swapped silently."""

import warnings
from types import SimpleNamespace

import pytest
import torch

import helpers
from helpers import device as device_module
from helpers.device import (
    DeviceUnavailableError,
    pick_device,
    pick_scale,
    probe,
    seed_everything,
    synchronize,
)

ZERO_BYTES = (
    "MPS backend out of memory (MPS allocated: 0 bytes, other allocations: 0 bytes, "
    "max allowed: 7.93 GB). Tried to allocate 256 bytes on private pool. Use "
    "PYTORCH_MPS_HIGH_WATERMARK_RATIO=0.0 to disable upper limit for memory allocations (may cause "
    "system failure)."
)
ONE_GB = (
    "MPS backend out of memory (MPS allocated: 1024.00 MB). "
    "Tried to allocate 256 bytes on shared pool."
)


@pytest.fixture(autouse=True)
def _clean_environment(monkeypatch):
    monkeypatch.delenv("BOOK_DEVICE", raising=False)
    monkeypatch.delenv("BOOK_SCALE", raising=False)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: False)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)


@pytest.fixture
def fake_mps(monkeypatch):
    """A Mac that says MPS is available; assign to ``failure`` to make the probe fail."""

    mac = SimpleNamespace(failure=None, probed=[])

    def fake_probe(device):
        mac.probed.append(str(device))
        if torch.device(device).type == "mps" and mac.failure is not None:
            raise mac.failure

    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: True)
    monkeypatch.setattr(torch.backends.mps, "is_built", lambda: True)
    monkeypatch.setattr(device_module, "probe", fake_probe)
    return mac


def test_auto_prefers_mps_and_probes_it(fake_mps):
    assert pick_device() == torch.device("mps")
    assert fake_mps.probed == ["mps"]


def test_auto_prefers_mps_to_cuda_to_cpu(fake_mps, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    assert pick_device("auto").type == "mps"
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: False)
    assert pick_device("auto").type == "cuda"
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert pick_device("auto").type == "cpu"


def test_probe_computes_and_reads_back(monkeypatch):
    probe("cpu")
    monkeypatch.setattr(torch.Tensor, "__matmul__", lambda a, b: torch.zeros(2, 2))
    with pytest.raises(RuntimeError, match=r"summed to 0\.0, not 8\.0"):
        probe("cpu")


@pytest.mark.parametrize("text", [ZERO_BYTES, ONE_GB])
def test_c05_auto_skips_a_virtual_mac_with_one_warning(fake_mps, text):
    fake_mps.failure = RuntimeError(text)
    with pytest.warns(UserWarning, match="virtual machine or a hosted runner") as caught:
        assert pick_device().type == "cpu"
    assert len(caught) == 1
    message = str(caught[0].message)
    assert "batch" not in message
    assert "WATERMARK" not in message


def test_c05_explicit_mps_on_a_virtual_mac_is_an_error(fake_mps):
    fake_mps.failure = RuntimeError(ZERO_BYTES)
    with pytest.raises(DeviceUnavailableError, match="virtual machine") as caught:
        pick_device("mps")
    assert "WATERMARK" not in str(caught.value)


def test_c09_unavailable_explicit_device_names_what_is_available():
    for name in ("mps", "cuda", "MPS:0"):
        with pytest.raises(DeviceUnavailableError, match="Available here: cpu") as caught:
            pick_device(name)
        assert "the argument" in str(caught.value)


@pytest.mark.parametrize(
    "name", ["gpu", "", "  ", "mps0", "xpu", "meta", "cpu:1", "mps:1", "cuda:x"]
)
def test_c09_no_device_is_a_value_error(name, monkeypatch):
    with pytest.raises(ValueError, match="the argument is"):
        pick_device(name)
    monkeypatch.setenv("BOOK_DEVICE", name)
    with pytest.raises(ValueError, match="BOOK_DEVICE"):
        pick_device()


def test_c09_argument_beats_variable_beats_auto(fake_mps, monkeypatch):
    monkeypatch.setenv("BOOK_DEVICE", "cpu")
    assert pick_device().type == "cpu"
    assert pick_device("mps").type == "mps"
    assert pick_device("auto").type == "mps"


def test_c09_the_variable_is_named_in_its_error(monkeypatch):
    monkeypatch.setenv("BOOK_DEVICE", "cuda")
    with pytest.raises(DeviceUnavailableError, match="the variable BOOK_DEVICE asks for 'cuda'"):
        pick_device()


def test_spelling_is_forgiving_and_result_is_canonical(fake_mps):
    assert pick_device(" MPS:0 ") == torch.device("mps")
    assert pick_device(torch.device("cpu")) == torch.device("cpu")


def test_c08_synchronize_is_harmless_without_mps(monkeypatch):
    monkeypatch.delattr(torch.mps, "is_available", raising=False)
    synchronize("cpu")
    monkeypatch.delattr(torch, "mps")
    synchronize(torch.device("cpu"))
    assert pick_device().type == "cpu"


def test_synchronize_waits_for_each_gpu(monkeypatch):
    calls = []
    monkeypatch.setattr(torch.mps, "synchronize", lambda: calls.append("mps"))
    monkeypatch.setattr(torch.cuda, "synchronize", lambda device: calls.append(str(device)))
    synchronize("mps")
    synchronize("cuda:0")
    assert calls == ["mps", "cuda:0"]


def test_same_seed_same_numbers():
    seed_everything(7)
    first = torch.rand(3)
    seed_everything(7)
    assert torch.equal(first, torch.rand(3))


@pytest.mark.parametrize(
    ("variable", "device", "expected"),
    [
        (None, "cpu", "quick"),
        (None, "cuda", "full"),
        (None, "mps", "full"),
        ("full", "cpu", "full"),
        (" Quick ", "cuda", "quick"),
    ],
)
def test_scale(monkeypatch, variable, device, expected):
    if variable is not None:
        monkeypatch.setenv("BOOK_SCALE", variable)
    assert pick_scale(device) == expected


def test_unknown_scale_is_refused(monkeypatch):
    monkeypatch.setenv("BOOK_SCALE", "fast")
    with pytest.raises(ValueError, match="'quick' or 'full'"):
        pick_scale("cpu")


def test_auto_on_a_healthy_cpu_does_not_warn():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert pick_device().type == "cpu"


@pytest.mark.parametrize(
    "use",
    [
        lambda device: helpers.measure(lambda: None, device=device),
        helpers.memory_report,
        lambda device: helpers.loader(helpers.fake_images(2, side=4), 2, device=device),
        lambda device: helpers.to_device(torch.ones(1), device),
        lambda device: helpers.make_scaler(device, torch.float16),
        helpers.stamp,
    ],
)
def test_c09_every_helper_answers_a_name_that_is_no_device_with_the_choices(use):
    with pytest.raises(ValueError, match="'gpu' is no device: choose 'mps', 'cuda', 'cpu'"):
        use("gpu")
