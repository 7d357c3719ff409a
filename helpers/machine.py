"""What this computer is, and the one line that says so under every figure."""

import os
import platform
import re
import subprocess
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any

import psutil
import torch

from helpers.device import as_device, is_simulated

CPU_INFO = Path("/proc/cpuinfo")


@dataclass(frozen=True)
class Machine:
    """This computer. ``None`` stands for what cannot be found out; it is never 0 or ""."""

    chip: str | None  # "Apple M2 Pro", "Intel Xeon Platinum 8488C"
    gpu: str | None  # the GPU that PyTorch can use
    gpu_cores: int | None  # Apple GPUs only
    memory_bytes: int | None
    cpu_cores: int | None  # those that this process may use
    os: str  # "macOS 15.2", "Linux 6.1"
    python: str
    torch: str
    power: str | None  # "mains" or "battery", with ", low power mode" where macOS says so


def describe_machine() -> Machine:
    """Describe this computer. Raises nothing: what cannot be found out is ``None``.

    The slow answers are remembered, and the power source is read anew each time.
    """
    return Machine(
        chip=_chip(),
        gpu=_gpu(),
        gpu_cores=_gpu_cores(),
        memory_bytes=psutil.virtual_memory().total or None,
        cpu_cores=_cpu_cores(),
        os=_os(),
        python=platform.python_version(),
        torch=str(torch.__version__),
        power=_power(),
    )


def stamp(device: torch.device | str) -> str:
    """Return one line that says where and when something was measured on ``device``.

    For example "Apple M2 Pro (19 GPU cores) · mps · torch 2.14.1 · macOS 15.2 · 2026-11-30". It
    names no user and no host. The date is ``SOURCE_DATE_EPOCH``'s (UTC) where that is set; a value
    of it that is no whole number of seconds is a ``ValueError``.
    """
    device = as_device(device)
    machine = describe_machine()
    parts = [
        _what_computes(device, machine),
        _device_name(device),
        f"torch {machine.torch.split('+')[0]}",
        machine.os,
        _today(),
    ]
    if machine.power not in (None, "mains"):  # speed depends on it
        parts.insert(-1, f"power: {machine.power}")
    return " · ".join(parts)


@cache
def sysctl(name: str) -> str | None:
    """Return what macOS's ``sysctl -n name`` prints, or ``None`` where it has no answer."""
    return _command_output("sysctl", "-n", name)


def macos_version() -> str | None:
    """Return the version of macOS, such as "15.2", or ``None`` on another system."""
    if platform.system() != "Darwin":
        return None
    version = platform.mac_ver()[0]
    # Programs built against an old SDK are told "10.16" by every newer macOS.
    return (sysctl("kern.osproductversion") if version.startswith("10.16") else version) or None


def is_translated() -> bool:
    """Return whether this Python is Intel code that Rosetta translates on an Apple chip."""
    if platform.system() != "Darwin" or platform.machine() != "x86_64":
        return False
    # platform.processor() says "i386" on both, so it cannot decide this.
    return sysctl("sysctl.proc_translated") == "1" or "Apple" in (_chip() or "")


def _command_output(*command: str) -> str | None:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=5, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip() or None


def _chip() -> str | None:
    if platform.system() == "Darwin":
        name = sysctl("machdep.cpu.brand_string")
    elif CPU_INFO.exists():
        line = re.search(r"^model name\s*:\s*(\S.*)$", CPU_INFO.read_text(errors="replace"), re.M)
        name = line[1] if line else None
    else:
        name = None
    if not name:
        return None
    return " ".join(re.sub(r"\((R|TM)\)|\bCPU\b|@.*", " ", name).split()) or None


def _gpu() -> str | None:
    if torch.cuda.is_available():
        return str(torch.cuda.get_device_name(0))
    return str(_ask_mps("get_name") or "") or None


def _gpu_cores() -> int | None:
    return int(_ask_mps("get_core_count") or 0) or None


def _ask_mps(question: str) -> Any:
    """Return ``torch.backends.mps.<question>()``; these functions raise where there is no MPS."""
    try:
        mps = torch.backends.mps
        return getattr(mps, question)() if mps.is_available() else None
    except (AttributeError, RuntimeError):
        return None


def _cpu_cores() -> int | None:
    if hasattr(os, "sched_getaffinity"):  # Linux: the process may be confined to some of them
        return len(os.sched_getaffinity(0))
    cores: int | None = psutil.cpu_count()
    return cores


def _os() -> str:
    if platform.system() == "Darwin":
        return f"macOS {macos_version() or '(unknown version)'}"
    release = re.match(r"\d+(\.\d+)?", platform.release())
    return " ".join(filter(None, (platform.system() or "unknown OS", release and release[0])))


def _power() -> str | None:
    try:
        battery = psutil.sensors_battery()
    except (AttributeError, OSError, RuntimeError):  # psutil lacks it on some systems
        battery = None
    plugged = getattr(battery, "power_plugged", None)
    source = None if plugged is None else "mains" if plugged else "battery"
    if platform.system() == "Darwin" and _low_power_mode():
        return f"{source}, low power mode" if source else "low power mode"
    return source


def _low_power_mode() -> bool:
    settings = _command_output("pmset", "-g") or ""
    return re.search(r"^\s*lowpowermode\s+1\b", settings, re.M) is not None


def _what_computes(device: torch.device, machine: Machine) -> str:
    if device.type == "cuda" and torch.cuda.is_available():
        return torch.cuda.get_device_name(device)
    chip = machine.chip or f"unknown {platform.machine()} chip"
    if device.type == "mps" and not is_simulated(device):
        return f"{chip} ({machine.gpu_cores} GPU cores)" if machine.gpu_cores else chip
    return f"{chip} ({machine.cpu_cores} cores)" if machine.cpu_cores else chip


def _device_name(device: torch.device) -> str:
    return f"simulated {device.type}" if is_simulated(device) else device.type


def _today() -> str:
    epoch = os.environ.get("SOURCE_DATE_EPOCH", "").strip()
    if not epoch:
        return datetime.now().astimezone().date().isoformat()
    if not epoch.isdecimal():
        raise ValueError(f"SOURCE_DATE_EPOCH is '{epoch}', not a whole number of seconds.")
    return datetime.fromtimestamp(int(epoch), UTC).date().isoformat()
