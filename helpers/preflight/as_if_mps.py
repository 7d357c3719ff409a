"""Run code written for a GPU on the CPU, and take note of where it would be and what it asks for.

Devices named "mps" or "cuda" become the CPU, with a mark on the tensors that would be there; code
that asks such a tensor for its device is told "mps". Calls that only CUDA answers are noted.
"""

import contextlib
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor
from torch.nn.parameter import is_lazy
from torch.overrides import TorchFunctionMode, _get_current_function_mode_stack
from torch.utils._device import _device_constructors
from torch.utils._pytree import tree_leaves, tree_map

from helpers.preflight.live_memory import address_of
from helpers.preflight.trace import WIDE, Trace

MPS = torch.device("mps:0")
_CPU = torch.device("cpu")
_GPUS = ("mps", "cuda")

# What a tensor on MPS answers, and what it refuses to do.
_QUESTIONS: dict[Any, Any] = {
    torch.Tensor.device.__get__: MPS,
    torch.Tensor.is_mps.__get__: True,  # type: ignore[attr-defined]
    torch.Tensor.is_cpu.__get__: False,  # type: ignore[attr-defined]
}
# A device from a device, and from the arguments of Module.to(): nothing is put there yet.
_ONLY_READ_DEVICES = (torch.device, torch._C._nn._parse_to)
# Functions whose operator PyTorch may run on the CPU by itself (mps_ops.always_on_cpu).
_ON_CPU_BY_FUNCTION = {"linalg_svd": "linalg_svd", "svd": "linalg_svd"}
_MOVE_ARGUMENTS = ("ctc_loss",)  # to where they need them, whichever device they come from
_LENGTHS_SECOND = ("_pack_padded_sequence", "_pad_packed_sequence")  # which are on the CPU
_REFUSED = (torch.Tensor.numpy, torch.Tensor.__array__)


class AsIfMps(TorchFunctionMode):
    """Put on the CPU what a program puts on "mps" or "cuda", and mark it for ``trace``."""

    def __init__(self, trace: Trace) -> None:
        super().__init__()
        self.trace = trace
        self.named: set[str] = set()  # the types of the devices that the program named
        self.default: torch.device | None = None  # set by torch.set_default_device()

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        """Run one function of PyTorch's, with devices replaced, and look at what it returns."""
        kwargs = dict(kwargs or {})
        if func is torch.device and args and type(args[0]) is int:
            return MPS  # the number of an accelerator
        if func in _ONLY_READ_DEVICES:
            return func(*args, **kwargs)
        if func is torch.Tensor.pin_memory:  # there is no CUDA driver to ask for such memory
            return args[0]
        kwargs.pop("pin_memory", None)
        if func is torch.Tensor.to and len(args) > 1 and type(args[1]) is int:
            args = (args[0], MPS, *args[2:])
        # Of what is made of others before autograd sees it, only its name here tells the whole.
        with self.trace.whole(f"aten::{_ON_CPU_BY_FUNCTION.get(func.__name__, '')}"):
            result = self._run(func, args, kwargs)
        self._note_wide(func, args, kwargs, result)
        return result

    def _run(self, func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
        if func in _QUESTIONS and self.trace.on_gpu(args[0]):
            return _QUESTIONS[func]
        if func in _REFUSED and self.trace.on_gpu(args[0]) and not kwargs.get("force"):
            self.note("refused", "Tensor.numpy()")
        if func is torch.Tensor.cuda:
            self.note("cuda", "Tensor.cuda()")
            self.named.add("cuda")
            return self._move(args[0], func=torch.Tensor.to, args=("cpu",), here=True)
        if func is torch.Tensor.cpu:
            return self._move(args[0], func=func, args=args[1:], here=False)
        device = self._device(func, args, kwargs)
        if device is None:
            return self._run_here(func, args, kwargs) if self.named else func(*args, **kwargs)
        if device.type == "cuda":
            self.note("cuda", 'device="cuda"')
        args, kwargs = tree_map(to_cpu, (args, kwargs))
        here = device.type in _GPUS
        self.named.add(device.type)
        if func in (torch.Tensor.to, torch.Tensor.type_as):
            return self._move(args[0], func=func, args=args[1:], kwargs=kwargs, here=here)
        with self.placing(here):
            return func(*args, **kwargs)

    def _note_wide(self, func: Any, args: Any, kwargs: Any, result: Any) -> None:
        """Note where a dtype that MPS lacks begins: in a result, not in what was given.

        What PyTorch's own C++ code makes inside (a threshold, say) does not count: there it
        chooses dtypes by device.
        """
        made = [leaf for leaf in tree_leaves(result) if isinstance(leaf, Tensor)]
        wide = [tensor for tensor in made if tensor.dtype in WIDE]
        given = tree_leaves((args, kwargs)) if wide else []
        if not any(isinstance(leaf, Tensor) and leaf.dtype in WIDE for leaf in given):
            for tensor in wide:
                tally = self.trace.tally(self.trace.on_gpu(tensor))
                tally.add("wide", tensor.dtype, self.trace.use(func.__name__))

    @contextlib.contextmanager
    def on(self) -> Iterator[None]:
        """Let Python code that PyTorch's C++ calls be answered as the rest of the program is."""
        if self in _get_current_function_mode_stack():
            yield
        else:
            with self:
                yield

    def note(self, category: str, name: str) -> None:
        """Note a call that a Mac does not answer as the program wants."""
        self.trace.on_device.add(category, name, self.trace.use(name))

    @contextlib.contextmanager
    def placing(self, here: bool) -> Iterator[None]:
        """Let what the block makes be on a GPU, or not."""
        outer, self.trace.placing = self.trace.placing, here
        try:
            yield
        finally:
            self.trace.placing = outer

    def _run_here(self, func: Any, args: Any, kwargs: Any) -> Any:
        """Run a function that names no device: what it makes is where its first tensor is.

        The trace learns which tensors the program hands over; others are PyTorch's own.
        """
        leaves = tree_leaves((args, kwargs))
        tensors = [leaf for leaf in leaves if isinstance(leaf, Tensor)]
        addresses = {address_of(tensor) for tensor in tensors}
        outer = self.trace.handed_over
        self.trace.handed_over = outer | (
            set() if func.__name__ in _MOVE_ARGUMENTS else addresses - {0}
        )
        try:
            result = func(*args, **kwargs)
        finally:
            self.trace.handed_over = outer
        # A gradient is where the tensor is that it is of.
        elsewhere = func in _device_constructors() or func is torch.autograd.grad
        if tensors and self.trace.on_gpu(tensors[0]) and not elsewhere:
            made = tree_leaves(result)
            for leaf in made[:1] if func.__name__ in _LENGTHS_SECOND else made:
                if isinstance(leaf, Tensor) and address_of(leaf) not in addresses:
                    self.trace.put_on_gpu(leaf)
        return result

    def _move(
        self, tensor: Tensor, *, func: Any, args: Any = (), kwargs: Any = None, here: bool
    ) -> Tensor:
        """Return a tensor on the other side: a copy, as between a Mac's CPU and its GPU."""
        crosses = self.trace.on_gpu(tensor) != here
        with self.placing(here) if crosses else contextlib.nullcontext():
            moved: Tensor = func(tensor, *args, **(kwargs or {}))
            if crosses and here and moved.dtype in WIDE:  # allowed on the CPU, refused on MPS
                self.trace.on_device.add("wide", moved.dtype, self.trace.use(func.__name__))
            if not crosses or moved is not tensor:
                return moved
            if is_lazy(moved):  # it has no values yet that could be copied
                self.trace.put_on_gpu(moved, here)
                return moved
            return moved.clone()

    def _device(self, func: Any, args: Any, kwargs: dict[str, Any]) -> torch.device | None:
        """Return the device that a call names, by itself or through another tensor."""
        if func in (torch.Tensor.to, torch.Tensor.type_as) and len(args) > 1:
            if isinstance(args[1], Tensor):
                return MPS if self.trace.on_gpu(args[1]) else _CPU
            if isinstance(args[1], str):
                return torch.device(args[1])
        named = kwargs.get("device")
        if named is None:
            named = next((leaf for leaf in tree_leaves(args) if _is_device(leaf)), None)
        if named is None and self.default is not None and func in _device_constructors():
            named = kwargs["device"] = self.default
        return None if named is None else torch.device(named)


def _is_device(value: Any) -> bool:
    return isinstance(value, torch.device)


def to_cpu(value: Any) -> Any:
    """Return the CPU for a device, or its name, that is a GPU; anything else as it is."""
    if isinstance(value, str) and value.split(":")[0] in _GPUS:
        return "cpu"
    return _CPU if _is_device(value) and value.type in _GPUS else value
