"""Every operator that a run calls: which MPS lacks, what it moves and computes, what stays alive.

A ``TorchDispatchMode`` sees each operator below autograd, forward and backward, as it would
reach a device. Where MPS has no kernel but PyTorch composes the operator of others, it is run as
that composition here too, so that what is seen is what a Mac would run.
"""

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch._ops import HigherOrderOperator
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map_only

from helpers import mps_ops
from helpers.preflight import operators
from helpers.preflight.arithmetic import shortcut
from helpers.preflight.live_memory import Block, LiveMemory, address_of
from helpers.preflight.places import Place, caller
from helpers.preflight.shapes import Shapes
from helpers.preflight.tally import Tally, Use

WIDE = (torch.float64, torch.complex128)  # dtypes that MPS does not have
# What PyTorch asks or notes for itself, with no work on any device.
_BOOKKEEPING = ("prim::", "profiler::")
_PACKS = "aten::_pack_padded_sequence"  # its second result is on the CPU in any case
_CROSSING = ("aten::copy_", "aten::_copy_from")  # from one device to another
_ANY_DEVICES = (*_CROSSING, "aten::_foreach_", "aten::is_same_size")  # take each tensor by itself


@contextlib.contextmanager
def onednn(*, enabled: bool) -> Iterator[None]:
    """Turn the CPU's fused kernels on or off (torch.backends.mkldnn.flags() warns of its own)."""
    before = torch._C._get_mkldnn_enabled()
    torch._C._set_mkldnn_enabled(enabled)
    try:
        yield
    finally:
        torch._C._set_mkldnn_enabled(before)


@dataclass(frozen=True)
class _Inputs:
    tensors: list[Tensor]
    on_device: bool
    layout: str  # the dispatch key that MPS would use


class Trace(TorchDispatchMode):
    """Record what the operators in a block do, and run them.

    With ``shapes`` nothing is computed: all tensors are its fakes. Otherwise operators run
    on the CPU, large convolutions and products only for a batch's first item unless ``exact``.
    ``whole_program`` says that nothing was there before, so that what the program did not put on
    a device is on the CPU.
    """

    supports_higher_order_operators = True

    def __init__(
        self, memory: LiveMemory, shapes: Shapes | None, *, exact: bool, whole_program: bool
    ) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.memory, self.shapes = memory, shapes
        self.exact, self.whole_program = exact, whole_program
        self.on_device, self.elsewhere = Tally(), Tally()
        self.placing: bool | None = None  # whether results are on a device, if they name one
        self.handed_over: set[int] = set()  # by the program to the function that runs
        self.not_followed: set[str] = set()  # made of others and was not looked into
        self._following: list[str] = []
        self._covered = False  # inside an operator for which MPS has a kernel of its own
        self._forward_places: dict[int, Place | None] = {}  # by autograd's sequence number
        self._forward_sides: dict[int, bool] = {}  # whether on a device, by the same number
        self._saved: list[tuple[torch.UntypedStorage, torch.UntypedStorage]] = []

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        """Record one operator and run it."""
        kwargs = kwargs or {}
        if func.name().startswith(_BOOKKEEPING):
            return func(*args, **kwargs)
        if isinstance(func, HigherOrderOperator):  # torch.cond, say: what it runs is not seen
            self.tally(True).add("unknown", func.name(), self.use(func.name()))
            return func(*args, **kwargs)
        with torch._C.DisableTorchFunction():
            self._remember_place()
            inputs = self._see_inputs(func, args, kwargs)
            if self.shapes:
                args, kwargs = tree_map_only(Tensor, self.shapes.stand_in, (args, kwargs))
            else:
                self._save_what_is_written(func, args, kwargs)
            return self._run(func, args, kwargs, inputs)

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # True wraps __torch_dispatch__ in torch._dynamo, which takes seconds to load

    def use(self, operator: str) -> Use:
        """Return where the program is now; in backward, the line of the forward operator."""
        if not _in_backward():
            return Use(caller(), "forward", operator)
        place = self._forward_places.get(_forward_number())
        return Use(place or caller(), "backward", operator)

    @contextlib.contextmanager
    def whole(self, operator: str) -> Iterator[None]:
        """Look at the block as one operator if PyTorch runs that on the CPU by itself."""
        always, perhaps = mps_ops.always_on_cpu()
        name = operator.removeprefix("aten::")
        if name not in always | perhaps:
            yield
            return
        category = "on cpu" if name in always else "unknown"
        self.tally(bool(self.placing)).add(category, operator, self.use(operator))
        outer, self._covered = self._covered, True
        try:
            yield
        finally:
            self._covered = outer

    def tally(self, on_device: bool) -> Tally:
        """Return the count of one side."""
        return self.on_device if on_device else self.elsewhere

    def on_gpu(self, tensor: Tensor) -> bool:
        """Return whether the program put a tensor on a GPU, or computed it from what is there."""
        known = self.shapes.known(tensor) if self.shapes else tensor
        return known is not None and self.memory.on_gpu(known)

    def put_on_gpu(self, tensor: Tensor, there: bool = True) -> None:
        """Mark a tensor as being on a GPU, or not."""
        known = self.shapes.known(tensor) if self.shapes else tensor
        if known is not None and (block := self.memory.block_of(known)):
            block.on_device = there

    def side_unknown(self, loaded: Any) -> None:
        """Mark the tensors of a file that does not say on which device they were."""
        for leaf in tree_leaves(loaded):
            if isinstance(leaf, Tensor) and (block := self._see(leaf, given=True, new=True)):
                block.side_unknown = True

    def restore(self) -> None:
        """Put back what the tensors that were there before the run held."""
        for storage, content in self._saved:
            storage.copy_(content)
        self._saved.clear()

    # Running

    def _run(self, func: Any, args: Any, kwargs: Any, inputs: _Inputs) -> Any:
        operator = func.name()
        verdict = mps_ops.verdict(operator, inputs.layout)
        key = self._key_to_follow(func, verdict, inputs.layout)
        if key is not None:
            with self._inside(operator, inputs, covered=verdict == "kernel"):
                return operators.call(func, partial(func._op_dk, key), args, kwargs)
        outputs = self._execute(func, args, kwargs)
        tally = self.tally(self._see_outputs(func, inputs, outputs))
        on_a_device = inputs.tensors or any(isinstance(x, Tensor) for x in tree_leaves(outputs))
        if verdict not in ("kernel", "composite") and on_a_device and not self._covered:
            tally.add(verdict, operator, self.use(operator))
        if limit := mps_ops.limit(operator, args):
            tally.add("limits", f"{operator}: {limit}", self.use(operator))
        tally.operators += 1
        tally.flops += operators.flops(func, args, kwargs, outputs)
        tally.bytes_moved += operators.bytes_moved(func, inputs.tensors, outputs)
        return outputs

    def _key_to_follow(self, func: Any, verdict: str, layout: str) -> Any:
        """Return the key under which to run an operator as the others it is made of, or None.

        What is made of others before autograd sees it, as linear is, is followed even where MPS
        has a kernel for the whole: what it computes shows in its parts.
        """
        operator = func.name()
        key = mps_ops.composite_key(operator)
        whole = verdict == "kernel" and key == "CompositeImplicitAutograd"
        if not (whole or verdict == "composite"):
            return None
        if operator in self._following or operators.is_view(func) or operator == _PACKS:
            return None
        if layout != "MPS" or (self.shapes and key != "CompositeImplicitAutograd"):
            # On the CPU such code may read what is not there: a fake's memory, a dense storage.
            self.not_followed.add(operator)
            return None
        return getattr(torch._C.DispatchKey, str(key))

    @contextlib.contextmanager
    def _inside(self, operator: str, inputs: _Inputs, *, covered: bool) -> Iterator[None]:
        outer = self._covered, self.placing
        self._covered = self._covered or covered
        if self.placing is None and inputs.on_device and not operator.startswith(_ANY_DEVICES):
            self.placing = True  # new tensors, too, which no input tells where to be
        self._following.append(operator)
        try:
            with self:
                yield
        finally:
            self._following.pop()
            self._covered, self.placing = outer

    def _execute(self, func: Any, args: Any, kwargs: Any) -> Any:
        if self.shapes:
            return self.shapes.run(func, args, kwargs)
        quick = None if self.exact else shortcut(func, args)
        if func.name().startswith("aten::convolution"):
            with onednn(enabled=True):
                return (quick or func)(*args, **kwargs)
        return operators.call(func, quick or func, args, kwargs)

    # Seeing

    def _see_inputs(self, func: Any, args: Any, kwargs: Any) -> _Inputs:
        tensors = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, Tensor)]
        new = func.name() == "aten::lift_fresh"  # what torch.tensor() has just made
        pairs = [(tensor, self._see(tensor, given=True, new=new)) for tensor in tensors]
        on_device = self._side(any(block.on_device for _, block in pairs if block))
        if on_device and not func.name().startswith(_ANY_DEVICES):
            self._bring_together(func, args, kwargs, pairs)
        for tensor, block in pairs:
            if block is None:
                continue
            if tensor.dtype in WIDE and (block.given or new) and not block.reported:
                block.reported = True
                self.tally(block.on_device).add("wide", tensor.dtype, self.use("given"))
        return _Inputs(tensors, on_device, operators.layout_key(tensors, kwargs))

    def _bring_together(
        self, func: Any, args: Any, kwargs: Any, pairs: list[tuple[Tensor, Block | None]]
    ) -> None:
        """Note an operator that is given tensors of both devices; take all to be on the GPU."""
        blocks = {id(tensor): block for tensor, block in pairs if block}
        together, free = operators.operands(func, args, kwargs)
        # A number on the CPU goes with any device; one on the GPU does not go with the CPU.
        together = [
            tensor
            for tensor in together
            if tensor.dim() > 0 or ((block := blocks.get(id(tensor))) and block.on_device)
        ]
        sides, free_sides = (
            {
                block.on_device
                for tensor in tensors
                if (block := blocks.get(id(tensor))) and self._side_is_known(tensor, block)
            }
            for tensors in (together, free)
        )
        refused = sides == {True, False} or (sides == {False} and True in free_sides)
        if refused and not _in_backward():
            self.on_device.add("mixed", func.name(), self.use("mixed"))
        for tensor in together:
            if block := blocks.get(id(tensor)):
                block.on_device = True

    def _side_is_known(self, tensor: Tensor, block: Block) -> bool:
        """Return whether a tensor that is not marked as being on the GPU is surely on the CPU.

        What PyTorch's own code made on the way it puts where it is needed. Of a part of a program,
        what was there before may be meant to be on the GPU.
        """
        if block.on_device:
            return True
        ours = address_of(tensor) in self.handed_over and not block.side_unknown
        return ours and (self.whole_program or not block.given)

    def _side(self, by_inputs: bool) -> bool:
        """Return whether an operator runs on a device: in backward, if its forward operator did.

        A gradient that comes back from the device to a step done on the CPU still bears its mark,
        since autograd hands it over without an operator.
        """
        if _in_backward():
            return self._forward_sides.get(_forward_number(), by_inputs)
        self._forward_sides.setdefault(_newest_number(), by_inputs)
        return by_inputs

    def _see_outputs(self, func: Any, inputs: _Inputs, outputs: Any) -> bool:
        """Note what an operator made; return whether it is on a device that the program named."""
        stays = func.name().startswith(_CROSSING)
        here = inputs.on_device if self.placing is None else self.placing
        for number, leaf in enumerate(tree_leaves(outputs)):
            if not isinstance(leaf, Tensor):
                continue
            block = self._see(leaf, given=False)
            if block is not None and not stays and (func.name(), number) != (_PACKS, 1):
                block.on_device = block.on_device or here
            # What is computed on the CPU from what the program left there is there as well.
            if not here and not self.handed_over.isdisjoint(map(address_of, inputs.tensors)):
                self.handed_over.add(address_of(leaf))
        return here

    def _see(self, tensor: Tensor, *, given: bool, new: bool = False) -> Block | None:
        if tensor.layout != torch.strided:
            return None
        if not given:
            return self.memory.made(tensor)
        stand_in = self.shapes.stand_in(tensor) if self.shapes else tensor
        return self.memory.given(tensor, stand_in, new=new)

    def _remember_place(self) -> None:
        if not _in_backward() and (number := _newest_number()) not in self._forward_places:
            self._forward_places[number] = caller()

    def _save_what_is_written(self, func: Any, args: Any, kwargs: Any) -> None:
        for tensor in operators.written_to(func, args, kwargs):
            block = self._see(tensor, given=True)
            if block is not None and block.given and not block.saved:
                block.saved = True
                storage = tensor.untyped_storage()
                if storage.device.type != "meta":
                    self._saved.append((storage, storage.clone()))


def _in_backward() -> bool:
    in_backward: bool = torch._C._current_graph_task_id() != -1
    return in_backward


def _newest_number() -> int:
    """Return the sequence number of the operator that runs now, in forward.

    Autograd makes an operator's node, and so takes its number, just before it runs it.
    """
    number: int = torch._C._autograd._get_sequence_nr()
    return number - 1


def _forward_number() -> int:
    """Return the number of the forward operator whose backward runs now; -1 if there is none."""
    node: Any = torch._C._current_autograd_node()
    return -1 if node is None else int(node._sequence_nr())
