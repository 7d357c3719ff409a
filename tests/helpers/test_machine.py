import dataclasses
import subprocess
from types import SimpleNamespace

import psutil
import pytest
import torch

from helpers import machine
from tests.helpers.fake_mac import FakeMac, intel_mac, rosetta


@pytest.fixture
def linux(monkeypatch, tmp_path):
    """A Linux computer with a known processor, without GPU and battery, on a known day."""
    info = tmp_path / "cpuinfo"
    info.write_text("processor\t: 0\nmodel name\t: Intel(R) Xeon(R) Platinum 8488C CPU @ 2.40GHz\n")
    monkeypatch.setattr(machine, "CPU_INFO", info)
    monkeypatch.setattr(machine.platform, "system", lambda: "Linux")
    monkeypatch.setattr(machine.platform, "release", lambda: "6.1.0-18-amd64")
    monkeypatch.setattr(machine, "_cpu_cores", lambda: 2)
    monkeypatch.setattr(torch, "__version__", "2.14.1+cu130")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(psutil, "sensors_battery", lambda: None, raising=False)
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1796000000")
    return info


def plugged(monkeypatch, state):
    battery = SimpleNamespace(power_plugged=state)
    monkeypatch.setattr(psutil, "sensors_battery", lambda: battery, raising=False)


def test_this_machine_is_described_without_zero_or_empty():
    here = machine.describe_machine()
    assert all(value not in (0, "") for value in dataclasses.asdict(here).values())
    assert here.memory_bytes == psutil.virtual_memory().total


def test_stamp_of_a_cpu(linux):
    assert machine.stamp("cpu") == (
        "Intel Xeon Platinum 8488C (2 cores) · cpu · torch 2.14.1 · Linux 6.1 · 2026-11-30"
    )


def test_stamp_of_a_mac(linux, monkeypatch):
    FakeMac().install(monkeypatch)
    plugged(monkeypatch, True)
    assert machine.stamp("mps:0") == (
        "Apple M2 Pro (19 GPU cores) · mps · torch 2.14.1 · macOS 15.2 · 2026-11-30"
    )
    assert machine.stamp("cpu").startswith("Apple M2 Pro (2 cores) · cpu")


def test_stamp_tells_low_power_and_battery(linux, monkeypatch):
    FakeMac(pmset=" lowpowermode         1\n sleep 1").install(monkeypatch)
    plugged(monkeypatch, False)
    assert "· power: battery, low power mode ·" in machine.stamp("mps")


def test_stamp_of_a_cuda_gpu(linux, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: "NVIDIA H200")
    assert machine.stamp("cuda").startswith("NVIDIA H200 · cuda · torch")
    assert machine.describe_machine().gpu == "NVIDIA H200"


def test_simulated_mps_is_called_simulated(linux, monkeypatch):
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: True)
    assert "· simulated mps ·" in machine.stamp("mps")


def test_stamp_names_neither_user_nor_host(monkeypatch):
    monkeypatch.setattr(machine.platform, "node", lambda: "secret-host")
    assert "secret-host" not in machine.stamp("cpu")


def test_stamp_without_epoch_is_dated_today(linux, monkeypatch):
    monkeypatch.delenv("SOURCE_DATE_EPOCH")
    today = machine.datetime.now().astimezone().date().isoformat()
    assert machine.stamp("cpu").endswith(today)


def test_bad_epoch_is_named(monkeypatch):
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "yesterday")
    with pytest.raises(ValueError, match="SOURCE_DATE_EPOCH is 'yesterday'"):
        machine.stamp("cpu")


def test_mac_is_described(monkeypatch):
    FakeMac(macos="26.3.1").install(monkeypatch)
    here = machine.describe_machine()
    assert (here.chip, here.gpu, here.gpu_cores) == ("Apple M2 Pro", "Apple M2 Pro", 19)
    assert here.os == "macOS 26.3.1"


def test_mac_without_mps_has_an_unknown_gpu(monkeypatch):
    FakeMac(available=False).install(monkeypatch)
    here = machine.describe_machine()
    assert (here.gpu, here.gpu_cores) == (None, None)


def test_unknown_chip_is_none_and_stamped_as_unknown(linux, monkeypatch):
    linux.write_text("processor\t: 0\nBogoMIPS\t: 48.00\n")
    monkeypatch.setattr(machine.platform, "machine", lambda: "aarch64")
    assert machine.describe_machine().chip is None
    assert machine.stamp("cpu").startswith("unknown aarch64 chip (2 cores)")


@pytest.mark.parametrize(("owner", "name"), [(torch.mps, "is_available"), (torch, "mps")])
def test_c08_missing_parts_of_torch_are_not_needed(monkeypatch, owner, name):
    monkeypatch.delattr(owner, name)
    assert machine.describe_machine()
    assert machine.stamp("cpu")


def test_c08_mps_without_get_core_count_has_unknown_cores(monkeypatch):
    FakeMac().install(monkeypatch)
    monkeypatch.delattr(torch.backends.mps, "get_core_count")
    assert machine.describe_machine().gpu_cores is None


@pytest.mark.parametrize("error", [RuntimeError("no MPS backend"), AttributeError("_mps_get_name")])
def test_c08_mps_that_cannot_tell_its_name(monkeypatch, error):
    def fail():
        raise error

    FakeMac().install(monkeypatch)
    monkeypatch.setattr(torch.backends.mps, "get_name", fail)
    here = machine.describe_machine()
    assert (here.gpu, here.gpu_cores) == (None, 19)


@pytest.mark.parametrize(("state", "expected"), [(True, "mains"), (False, "battery"), (None, None)])
def test_power_source(linux, monkeypatch, state, expected):
    plugged(monkeypatch, state)
    assert machine.describe_machine().power == expected


def test_power_is_unknown_where_psutil_cannot_ask(linux, monkeypatch):
    monkeypatch.delattr(psutil, "sensors_battery")
    assert machine.describe_machine().power is None


def test_c01_translated_python_is_told_from_a_real_intel_mac(monkeypatch):
    rosetta().install(monkeypatch)
    assert machine.is_translated()
    intel_mac().install(monkeypatch)
    assert not machine.is_translated()


def test_c01_apple_chip_gives_translation_away_without_the_flag(monkeypatch):
    FakeMac(arch="x86_64").install(monkeypatch)
    assert machine.is_translated()


def test_arm64_python_is_not_translated(monkeypatch):
    FakeMac().install(monkeypatch)
    assert not machine.is_translated()


def test_macos_that_old_programs_see_as_10_16(monkeypatch):
    FakeMac(macos="10.16", sysctl={"kern.osproductversion": "15.2"}).install(monkeypatch)
    assert machine.macos_version() == "15.2"


def test_no_macos_elsewhere(linux):
    assert machine.macos_version() is None


@pytest.mark.parametrize(
    "failure",
    [FileNotFoundError(), subprocess.TimeoutExpired("sysctl", 5), PermissionError()],
)
def test_command_that_fails_is_unknown(monkeypatch, failure):
    def fail(*arguments, **options):
        raise failure

    monkeypatch.setattr(subprocess, "run", fail)
    assert machine._command_output("sysctl", "-n", "hw.memsize") is None


def test_command_that_prints_nothing_is_unknown():
    assert machine._command_output("true") is None
    assert machine._command_output("false") is None
    assert machine._command_output("echo", "Apple M2") == "Apple M2"
