"""Bytes that can be counted instead of measured: tensors, and what autograd keeps."""

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import nn


def saved_for_backward(fn: Callable[[], object]) -> int:
    """Return the bytes of tensors that autograd keeps for the backward pass of ``fn()``.

    ``fn`` must return what holds the graph, usually the loss, and must not run the backward pass
    itself. Each storage counts once; parameters and views of them are left out, since they exist
    anyway. This is a count of what the forward pass keeps, so it needs no memory counter and
    works on any device.
    """
    kept: dict[int, int] = {}

    def pack(tensor: torch.Tensor) -> torch.Tensor:
        owner = tensor if tensor._base is None else tensor._base
        if not isinstance(owner, nn.Parameter):
            storage = tensor.untyped_storage()
            kept[storage.data_ptr()] = storage.nbytes()
        # Detached, because an output that its own graph holds would never be freed.
        return tensor.detach()

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        result = fn()  # held until counted, so that no storage address is used twice
        total = sum(kept.values())
    del result
    return total


def tensor_bytes(tensors: nn.Module | Iterable[torch.Tensor] | dict[Any, Any]) -> int:
    """Return the bytes of a module's parameters and buffers, of tensors, or of nested dicts.

    ``tensor_bytes(optimizer.state_dict()["state"])`` is the size of the optimizer's state.
    """
    if isinstance(tensors, nn.Module):
        return tensor_bytes([*tensors.parameters(), *tensors.buffers()])
    values = tensors.values() if isinstance(tensors, dict) else tensors
    total = 0
    for value in values:
        if isinstance(value, torch.Tensor):
            total += value.nbytes
        elif isinstance(value, dict):
            total += tensor_bytes(value)
    return total
