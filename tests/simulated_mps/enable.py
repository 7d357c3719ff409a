"""Turn the simulated MPS device on in this process, right after `import torch`.

It cannot be turned off again, and not be turned on once PyTorch has been asked about MPS: PyTorch
asks once and remembers the answer. `startup/sitecustomize.py` calls `enable` at the right moment.
"""

import ctypes
import multiprocessing
import os
import re
from collections.abc import Callable
from typing import Any

from .build import SimulationError, library
from .ops import table

NAME = "Apple M1 (simulated)"
CORES = 8
MEMORY = "SIMULATED_MPS_MEMORY"  # of the simulated Mac, such as "8G"
DEFAULT_MEMORY = "16G"
RECOMMENDED = 0.75  # of the memory: Metal's recommended working set, as MPSAllocator.h has it
SEED_MASK = 0x4D5053  # kSeedMask of simulated_mps.cpp

_loaded: ctypes.CDLL | None = None


def enable() -> None:
    """Make `torch` see one MPS device, whose memory is this machine's.

    Raises ``SimulationError`` on a Mac, where no C++ compiler is found, for a bad
    ``SIMULATED_MPS_MEMORY``, and when it comes too late.
    """
    global _loaded
    if _loaded is not None:
        return
    recommended = int(RECOMMENDED * memory_bytes(os.environ.get(MEMORY, DEFAULT_MEMORY)))
    _loaded = _load(recommended)
    _hide_cuda()
    _complete_bindings()
    _check()
    _allow_storages()
    _refuse_compile()
    _behave_like_macos()


def memory_bytes(text: str) -> int:
    """Return the number of bytes of "8G", "512M" or "1.5GiB"; else raise ``SimulationError``."""
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([KMGT])(?:i?B)?\s*", text, re.IGNORECASE)
    if not match or not float(match[1]):
        raise SimulationError(f"{MEMORY} is '{text}'; write a size such as 8G or 512M.")
    return int(float(match[1]) * 1024 ** (1 + "KMGT".index(match[2].upper())))


def _load(recommended: int) -> ctypes.CDLL:
    loaded = ctypes.CDLL(str(library()))
    for function in (loaded.simulated_mps_add_op, loaded.simulated_mps_enable):
        function.restype = ctypes.c_char_p
    for op in table():
        _succeed(loaded.simulated_mps_add_op(op.name.encode(), int(op.kind), int(op.registered)))
    _succeed(loaded.simulated_mps_enable(ctypes.c_int64(recommended)))
    return loaded


def _succeed(error: bytes | None) -> None:
    if error:
        raise SimulationError(f"Simulated MPS does not fit this PyTorch: {error.decode()}")


def _hide_cuda() -> None:
    """Make a CUDA build say what a Mac's says: "Torch not compiled with CUDA enabled"."""
    import torch

    if hasattr(torch._C, "_cuda_getDeviceCount"):
        del torch._C._cuda_getDeviceCount  # torch.cuda takes its absence for a build without CUDA
    torch._C._has_cuda = False
    torch.version.cuda = None


def _complete_bindings() -> None:
    """Add the functions that Linux builds leave out of `torch._C`."""
    import torch

    def no_metal(*_: Any, **__: Any) -> Any:
        raise NotImplementedError("Simulated MPS has no Metal: shaders and captures need a Mac.")

    torch._C._has_mps = True
    missing: dict[str, Callable[..., Any]] = {
        "_mps_get_name": lambda: NAME,
        "_mps_get_core_count": lambda: CORES,
        "_mps_isCaptureEnabled": lambda: False,
        "_mps_isCapturing": lambda: False,
        "_mps_startCapture": no_metal,
        "_mps_stopCapture": no_metal,
        "_mps_compileShader": no_metal,
        "_mps_loadMetalllib": no_metal,  # the three l are PyTorch's
        "_mps_loadMetallibFromPath": no_metal,
        "_mps_host_alias_storage": no_metal,
    }
    for name, function in missing.items():
        if not hasattr(torch._C, name):
            setattr(torch._C, name, function)
    for function in vars(torch.backends.mps).values():
        getattr(function, "cache_clear", lambda: None)()
    # Until 2.12 a Mac's `import torch` registers group_norm from Python in this function.
    getattr(torch.backends.mps, "_init", lambda: None)()


def _check() -> None:
    import torch

    if not torch.backends.mps.is_available():
        raise SimulationError("Simulated MPS came too late: PyTorch had been asked about MPS.")
    if torch._C._accelerator_getAccelerator() != torch.device("mps"):
        raise SimulationError("Simulated MPS came too late: PyTorch has chosen an accelerator.")
    # Autograd would start a thread for the device. When the process ends, that thread may drop a
    # last reference to a Python object after the interpreter is gone, which aborts the process.
    torch.autograd.set_multithreading_enabled(False)


def _allow_storages() -> None:
    """Make `torch.UntypedStorage(n, device="mps")` work: `torch.load` needs it.

    Linux builds have it for the devices that they are built for.
    """
    import torch

    original = torch.UntypedStorage.__new__

    def new(cls: type, *arguments: Any, device: Any = None, **options: Any) -> Any:
        if device is not None and torch.device(device).type == "mps":
            size = arguments[0] if arguments else 0
            return torch.empty(size, dtype=torch.uint8, device=device).untyped_storage()
        if device is not None:
            options["device"] = device
        return original(cls, *arguments, **options)

    torch.UntypedStorage.__new__ = new


def _refuse_compile() -> None:
    """Refuse inductor, which writes Metal code for mps; other backends run what they are given."""
    import torch

    wrapper = torch._TorchCompileInductorWrapper
    original = wrapper.__call__

    def call(self: Any, graph: Any, inputs: Any) -> Any:
        values = [*inputs, *(node.meta.get("example_value") for node in graph.graph.nodes)]
        if any(isinstance(v, torch.Tensor) and v.device.type == "mps" for v in values):
            raise NotImplementedError(
                "Simulated MPS cannot run torch.compile: on mps it generates Metal code, which "
                "only a Mac can run. Call the model without it, or use backend='eager'."
            )
        return original(self, graph, inputs)

    wrapper.__call__ = call


def _behave_like_macos() -> None:
    """Start worker processes as macOS does, so that what cannot be sent to them fails here too."""
    if multiprocessing.get_start_method(allow_none=True) is None:
        multiprocessing.set_start_method("spawn")
