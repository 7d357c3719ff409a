"""A Mac as Python sees it, on any computer: what the doctor asks is answered as a Mac would."""

import os
import platform
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest
import torch
import torch._dynamo  # looks into the functions that are replaced here, so it must come before
import torchvision  # noqa: F401  (likewise)

from helpers import machine

OOM_ZERO_BYTES = (
    "MPS backend out of memory (MPS allocated: 0 bytes, other allocations: 0 bytes, max allowed: "
    "7.93 GB). Tried to allocate 256 bytes on private pool. Use "
    "PYTORCH_MPS_HIGH_WATERMARK_RATIO=0.0 to disable upper limit for memory allocations "
    "(may cause system failure)."
)
OOM_ONE_GB = (
    "MPS backend out of memory (MPS allocated: 1024.00 MB). "
    "Tried to allocate 256 bytes on shared pool."
)
WRONG_OS = (
    "The MPS backend is supported on macOS 14.0+. Current OS version can be queried using `sw_vers`"
)


@dataclass
class FakeMac:
    """A working M2 Pro, unless told otherwise; ``install`` puts it in place for one test."""

    arch: str = "arm64"
    macos: str = "15.2"
    sysctl: dict[str, str] = field(default_factory=dict)
    pmset: str = ""
    built: bool = True
    available: bool = True
    first_allocation: Exception | None = None  # what a tensor on mps raises

    def install(self, monkeypatch: pytest.MonkeyPatch) -> "FakeMac":
        answers = {"machdep.cpu.brand_string": "Apple M2 Pro"} | self.sysctl
        mps = torch.backends.mps
        for owner, name, value in (
            (platform, "system", lambda: "Darwin"),
            (platform, "machine", lambda: self.arch),
            (platform, "processor", lambda: "arm" if self.arch == "arm64" else "i386"),
            (platform, "mac_ver", lambda: (self.macos, ("", "", ""), self.arch)),
            (machine, "sysctl", answers.get),
            (machine, "_command_output", lambda *command: self.pmset or None),
            (mps, "is_built", lambda: self.built),
            (mps, "is_available", lambda: self.available),
            (mps, "get_name", lambda: "Apple M2 Pro"),
            (mps, "get_core_count", lambda: 19),
            (torch.cuda, "is_available", lambda: False),
            (torch, "ones", self._factory(torch.ones)),
        ):
            monkeypatch.setattr(owner, name, value)
        monkeypatch.delattr(os, "sched_getaffinity", raising=False)
        monkeypatch.delenv("BOOK_DEVICE", raising=False)
        return self

    def _factory(self, real: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
        """Make tensors on the CPU when asked for mps, or fail as this Mac does."""

        def make(*size: Any, device: Any = None, **options: Any) -> torch.Tensor:
            on_mps = device is not None and torch.device(device).type == "mps"
            if on_mps and self.first_allocation is not None:
                raise self.first_allocation
            return real(*size, device="cpu" if on_mps else device, **options)

        return make


def rosetta() -> FakeMac:
    """Intel Python on an Apple chip."""
    return FakeMac(arch="x86_64", sysctl={"sysctl.proc_translated": "1"}, available=False)


def intel_mac() -> FakeMac:
    chip = {"machdep.cpu.brand_string": "Intel(R) Core(TM) i7-9750H CPU @ 2.60GHz"}
    return FakeMac(arch="x86_64", macos="13.6", sysctl=chip, available=False)
