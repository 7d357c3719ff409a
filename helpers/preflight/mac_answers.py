"""What torch.mps, torch.cuda and their like answer while a program runs as if on a Mac."""

import contextlib
import functools
import inspect
from collections.abc import Callable, Iterator
from typing import Any
from unittest import mock

import torch

from helpers.preflight.as_if_mps import MPS, AsIfMps, to_cpu
from helpers.preflight.places import called_by_torch

RECOMMENDED = 12 * 2**30  # bytes, 0.75 of a 16 GB Mac's memory: for programs that ask
# Questions that portable code asks, with a Mac's answer; seeding is harmless where CUDA is absent.
_CUDA = {
    "is_available": False,
    "device_count": 0,
    "is_initialized": False,
    "manual_seed": None,
    "manual_seed_all": None,
}


@contextlib.contextmanager
def mac_answers(mode: AsIfMps) -> Iterator[None]:
    """Let PyTorch answer as on a Mac inside the block; what only CUDA answers is noted."""
    with contextlib.ExitStack() as stack:
        for owner, name, stand_in in [*_mps(mode), *_cuda(mode), *_other(mode)]:
            original = getattr(owner, name, None)
            if original is None:  # these modules grow from one torch to the next
                continue
            if inspect.isfunction(stand_in):
                functools.update_wrapper(stand_in, inspect.unwrap(original))
            stack.enter_context(mock.patch.object(owner, name, stand_in))
        yield


def _mps(mode: AsIfMps) -> Iterator[tuple[Any, str, Any]]:
    live = mode.trace.memory.live_bytes
    backend = dict.fromkeys(("is_available", "is_built", "is_macos_or_newer"), _answer(True))
    yield from ((torch.backends.mps, name, answer) for name, answer in backend.items())
    numbers = {"device_count": 1, "is_available": True, "recommended_max_memory": RECOMMENDED}
    for name in ("synchronize", "empty_cache", "manual_seed", "seed", "set_rng_state"):
        yield torch.mps, name, _answer(None)
    yield from ((torch.mps, name, _answer(value)) for name, value in numbers.items())
    yield torch.mps, "set_per_process_memory_fraction", _answer(None)
    yield torch.mps, "get_rng_state", lambda *_: torch.get_rng_state()
    for owner in (torch, torch.mps, torch.mps.event):
        yield owner, "Event", _Event
    for name in ("current_allocated_memory", "driver_allocated_memory"):
        yield torch.mps, name, live
    for name in ("start", "stop"):
        yield torch.mps.profiler, name, _answer(None)
    for name in ("profile", "metal_capture"):
        yield torch.mps.profiler, name, lambda *_, **__: contextlib.nullcontext()
    accelerator = torch.accelerator
    for name in ("synchronize", "empty_cache", "reset_peak_memory_stats", "set_device_index"):
        yield accelerator, name, _answer(None)
    for name in ("memory_allocated", "max_memory_allocated", "memory_reserved"):
        yield accelerator, name, lambda *_: live()
    yield accelerator, "is_available", _answer(True)
    yield accelerator, "device_count", _answer(1)
    yield accelerator, "current_device_index", _answer(0)
    yield accelerator, "current_accelerator", _answer(torch.device(MPS.type))


def _cuda(mode: AsIfMps) -> Iterator[tuple[Any, str, Any]]:
    for name in torch.cuda.__all__:
        if name in _CUDA:
            yield torch.cuda, name, _answer(_CUDA[name])
        elif inspect.isfunction(getattr(torch.cuda, name, None)):
            yield torch.cuda, name, _noted(mode, f"torch.cuda.{name}()", _silent_value(name))
    for name in ("Event", "Stream"):
        yield torch.cuda, name, _noted_class(mode, f"torch.cuda.{name}()")


def _other(mode: AsIfMps) -> Iterator[tuple[Any, str, Any]]:
    load, get_default, set_default = (
        torch.load,
        torch.get_default_device,
        torch.set_default_device,
    )
    autocast, scaler = torch.autocast.__init__, torch.amp.GradScaler.__init__

    def start_autocast(
        self: Any, device_type: str, dtype: Any = None, *args: Any, **kw: Any
    ) -> None:
        if device_type == "cuda" and kw.get("enabled", True):
            _note_unless_torch(mode, 'torch.autocast("cuda")')
        if device_type == "mps":
            device_type, dtype = "cpu", dtype or torch.get_autocast_dtype("mps")
        autocast(self, device_type, dtype, *args, **kw)

    def start_scaler(self: Any, device: str = "cuda", *args: Any, **kw: Any) -> None:
        if device == "cuda" and kw.get("enabled", True):
            _note_unless_torch(mode, 'torch.amp.GradScaler("cuda")')
        scaler(self, device, *args, **kw)

    def load_here(file: Any, map_location: Any = None, *args: Any, **kw: Any) -> Any:
        if map_location is None:  # back to where they were saved from, which the file cannot say
            loaded = load(file, None, *args, **kw)
            mode.trace.side_unknown(loaded)
            return loaded
        places = map_location.values() if isinstance(map_location, dict) else [map_location]
        if not any(to_cpu(place) is not place for place in places):
            return load(file, map_location, *args, **kw)
        with mode.placing(True):
            return load(file, "cpu", *args, **kw)

    def set_default_here(device: Any) -> None:
        mode.default = None if device is None or to_cpu(device) is device else torch.device(device)
        set_default(None if device is None else to_cpu(device))

    yield torch.autocast, "__init__", start_autocast
    yield torch.amp.GradScaler, "__init__", start_scaler
    yield torch, "load", load_here
    yield torch, "set_default_device", set_default_here
    yield torch, "get_default_device", lambda: mode.default or get_default()
    engine = torch.autograd._engine_run_backward  # type: ignore[attr-defined]

    def run_backward(*args: Any, **kw: Any) -> Any:
        with mode.on():  # for the Python code that autograd calls
            return engine(*args, **kw)

    yield torch.autograd, "_engine_run_backward", run_backward
    hooks = torch.autograd.graph.saved_tensors_hooks
    start_hooks = hooks.__init__

    def start_hooks_here(self: Any, pack_hook: Any, unpack_hook: Any) -> None:
        def pack(tensor: Any) -> Any:  # a checkpoint, say, which compares devices later
            with mode.on():
                return pack_hook(tensor)

        start_hooks(self, pack, unpack_hook)

    yield hooks, "__init__", start_hooks_here
    yield torch, "compile", lambda model=None, **_: model or (lambda function: function)
    yield torch, "Generator", _Generator


def _answer(value: Any) -> Callable[..., Any]:
    return lambda *_, **__: value


def _noted(mode: AsIfMps, name: str, value: Any) -> Callable[..., Any]:
    def call(*_: Any, **__: Any) -> Any:
        _note_unless_torch(mode, name)
        return value

    return call


def _noted_class(mode: AsIfMps, name: str) -> type:
    """Return a class, as annotations and isinstance() want one, whose making is noted."""

    class Noted(_Event):
        def __init__(self, *_: Any, **__: Any) -> None:
            _note_unless_torch(mode, name)

    return Noted


def _note_unless_torch(mode: AsIfMps, name: str) -> None:
    if not called_by_torch():
        mode.note("cuda", name)


def _silent_value(name: str) -> Any:
    """Return a value of the type that a torch.cuda function has, for a program that prints it."""
    if name in ("mem_get_info", "get_device_capability"):
        return 0, 0
    if name.startswith(("get_device_name", "memory_summary")):
        return ""
    if name.endswith(("stats", "nested_dict")):
        return {}
    if name in ("stream", "use_mem_pool"):
        return contextlib.nullcontext()
    if name in ("current_stream", "default_stream"):
        return _Event()
    numbers = ("memory", "utilization", "temperature", "power_draw", "clock_rate", "current_device")
    return 0 if any(number in name for number in numbers) else None


class _Event:
    """Stands for an event or a stream: records nothing, and no time passes."""

    def __init__(self, *_: Any, **__: Any) -> None: ...

    def __call__(self, *_: Any, **__: Any) -> "_Event":
        return self

    def elapsed_time(self, _: Any) -> float:
        """Return 0 ms."""
        return 0.0

    def query(self) -> bool:
        """Return that all work is done."""
        return True

    def record(self, *_: Any) -> None:
        """Do nothing, as ``wait`` and ``synchronize`` do."""

    wait = synchronize = wait_event = wait_stream = record


class _CpuGenerators(type):
    def __instancecheck__(cls, instance: Any) -> bool:
        return isinstance(instance, _RealGenerator)


_RealGenerator = torch.Generator


class _Generator(metaclass=_CpuGenerators):
    """torch.Generator, on the CPU whatever device it is for."""

    def __new__(cls, device: Any = "cpu") -> Any:
        return _RealGenerator(to_cpu(device))
