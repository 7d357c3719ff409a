"""How much tensor memory is alive at every moment of a run, and what it is for."""

import weakref
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch._C import _functorch as functorch
from torch.nn.parameter import is_lazy
from torch.utils._pytree import tree_leaves
from torch.utils.weak import WeakIdKeyDictionary

KINDS = ("parameters", "gradients", "optimizer_state", "inputs", "activations")
ROUNDING = 512  # bytes: CUDA's allocator hands out multiples of it; MPS's rounding is not published


@dataclass(eq=False)
class Block:
    """One storage, whichever tensors share it; its kind is settled while the run goes on."""

    bytes: int
    kind: str
    given: bool  # it was there before the run
    on_device: bool = False  # the program put it on a GPU, or computed it from what is there
    reported: bool = False  # as having a dtype that MPS lacks
    side_unknown: bool = False  # it came from a file that does not say where it belongs
    saved: bool = False  # its first content is kept, to be put back


@dataclass
class LiveMemory:
    """Every block that a run saw, and when it came and went.

    The peak is worked out at the end, because what a block is for is often learned late: that
    a result is a gradient, for instance, shows when autograd hands it to its parameter.
    """

    at_start: list[tuple[Block, int]] = field(default_factory=list)  # (block, its bytes then)
    events: list[tuple[Block, int]] = field(default_factory=list)  # (block, bytes gained or lost)
    _blocks: dict[int, Block] = field(default_factory=dict)  # by the address of their storage
    _hooks: WeakIdKeyDictionary = field(default_factory=WeakIdKeyDictionary)
    _first_gradients: WeakIdKeyDictionary = field(default_factory=WeakIdKeyDictionary)

    def given(self, tensor: Tensor, stand_in: Tensor, *, new: bool = False) -> Block:
        """Return the block of a tensor that an operator is given.

        ``stand_in`` is what the operator gets instead of it, and owns the storage; a ``new``
        tensor was not there before the run, though no operator made it.
        """
        block = self._find(stand_in, given=not new)
        if isinstance(tensor, nn.Parameter):
            block.kind = "parameters"
        if tensor.is_leaf and tensor.requires_grad and tensor not in self._hooks:
            self._first_gradients[tensor] = tensor.grad
            self._hooks[tensor] = tensor.register_post_accumulate_grad_hook(self._is_gradient)
        return block

    def made(self, tensor: Tensor) -> Block:
        """Return the block of a tensor that an operator returned, at the size it has now."""
        block = self._find(tensor, given=False)
        size = _size(tensor)
        if size != block.bytes:  # resize_(), or an `out` argument that was too small
            self.events.append((block, size - block.bytes))
            block.bytes = size
        return block

    def on_gpu(self, tensor: Tensor) -> bool:
        """Return whether a tensor is marked as being on a GPU that the program named."""
        block = self.block_of(tensor)
        return block is not None and block.on_device

    def block_of(self, tensor: Tensor) -> Block | None:
        """Return the block of a tensor that an operator was given or returned."""
        return self._blocks.get(address_of(tensor))

    def learn_optimizer_state(self, optimizer: torch.optim.Optimizer) -> None:
        """Learn which blocks hold an optimizer's state."""
        for leaf in tree_leaves(list(optimizer.state.values())):
            if isinstance(leaf, Tensor):
                self._find(leaf, given=True).kind = "optimizer_state"

    def restore_gradients(self) -> None:
        """Give every leaf the gradient back that it had when it was first used."""
        for tensor, gradient in self._first_gradients.items():
            tensor.grad = gradient

    def close(self) -> None:
        """Stop listening to gradients."""
        for hook in self._hooks.values():
            hook.remove()
        self._hooks.clear()

    def live_bytes(self) -> int:
        """Return the bytes that are alive now."""
        return sum(block.bytes for block in self._blocks.values())

    def peak(self, on_device: bool = False) -> dict[str, int]:
        """Return the bytes by kind, and their ``total``, at the moment when most were alive.

        With ``on_device`` only blocks that are there count.
        """
        live = dict.fromkeys(KINDS, 0)
        for block, size in self.at_start:
            live[block.kind] += size if block.on_device or not on_device else 0
        best, total = dict(live), sum(live.values())
        most = total
        for block, gained in self.events:
            if block.on_device or not on_device:
                live[block.kind] += gained
                total += gained
                if total > most:
                    most, best = total, dict(live)
        return {**best, "total": most}

    def _find(self, tensor: Tensor, *, given: bool) -> Block:
        storage = tensor.untyped_storage()
        address = storage._cdata
        block = self._blocks.get(address)
        if block is None:
            block = Block(_size(tensor), "inputs" if given else "activations", given)
            self._blocks[address] = block
            (self.at_start if given else self.events).append((block, block.bytes))
            weakref.finalize(storage, self._gone, address).atexit = False
        return block

    def _gone(self, address: int) -> None:
        block = self._blocks.pop(address)
        self.events.append((block, -block.bytes))

    def _is_gradient(self, parameter: Tensor) -> None:
        gradient: Any = parameter.grad
        if gradient is not None and gradient.layout == torch.strided:
            block = self._find(gradient, given=False)
            block.kind = "gradients"
            # It may come from a step done on the other side: autograd brings it back without an
            # operator.
            block.on_device = self.on_gpu(parameter)


def address_of(tensor: Tensor) -> int:
    """Return the address of a tensor's storage; 0 for a sparse one, which has none."""
    while functorch.is_functorch_wrapped_tensor(tensor):  # inside vmap or grad
        tensor = functorch.get_unwrapped(tensor)
    if tensor.layout != torch.strided:
        return 0
    address: int = (tensor.data if is_lazy(tensor) else tensor).untyped_storage()._cdata
    return address


def _size(tensor: Tensor) -> int:
    return -(-tensor.untyped_storage().nbytes() // ROUNDING) * ROUNDING
