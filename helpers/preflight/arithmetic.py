"""Large convolutions and matrix products, computed for one item and repeated for the others.

A check of shapes, operators and memory needs values only where the program looks at them (a loss
that it prints, a test for NaN), and there any plausible value does. These few operators are
nearly all the arithmetic of a network, so that doing a batch's first item alone makes the check
many times faster. What else a program computes is computed in full.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

LARGE_FLOPS = 5e8  # a few milliseconds of a laptop's CPU; what takes less is computed in full

Shortcut = Callable[..., Any]
_aten = torch.ops.aten


def shortcut(func: Any, args: tuple[Any, ...]) -> Shortcut | None:
    """Return what to call instead of an operator, with its arguments; None to call it itself."""
    if func not in _SHORTCUTS:
        return None
    replacement, batched, flops = _SHORTCUTS[func]
    if any(isinstance(arg, Tensor) and arg.layout != torch.strided for arg in args):
        return None
    large = args[batched].shape[0] > 1 and flops(*args) > LARGE_FLOPS
    return replacement if large else None


def _convolution(image: Tensor, *rest: Any) -> Tensor:
    return _repeat(_aten.convolution.default(image[:1], *rest), image.shape[0])


def _convolution_backward(gradient: Tensor, image: Tensor, *rest: Any) -> tuple[Any, ...]:
    to_image, *others = _aten.convolution_backward.default(gradient[:1], image[:1], *rest)
    if to_image is not None:
        to_image = _repeat(to_image, image.shape[0])
    return to_image, *others


def _mm(left: Tensor, right: Tensor) -> Tensor:
    return _repeat(_aten.mm.default(left[:1], right), left.shape[0])


def _addmm(bias: Tensor, left: Tensor, right: Tensor, **factors: Any) -> Tensor:
    first = bias[:1] if bias.dim() == 2 else bias
    return _repeat(_aten.addmm.default(first, left[:1], right, **factors), left.shape[0])


def _bmm(left: Tensor, right: Tensor) -> Tensor:
    return _repeat(_aten.bmm.default(left[:1], right[:1]), left.shape[0])


def _baddbmm(bias: Tensor, left: Tensor, right: Tensor, **factors: Any) -> Tensor:
    first = bias[:1] if bias.dim() == 3 else bias
    return _repeat(_aten.baddbmm.default(first, left[:1], right[:1], **factors), left.shape[0])


def _repeat(first: Tensor, n: int) -> Tensor:
    """Return (n, ...) of new memory, in the memory format of (1, ...)."""
    channels_last = first.dim() == 4 and first.is_contiguous(memory_format=torch.channels_last)
    plain = first.is_contiguous() or not channels_last
    layout = torch.contiguous_format if plain else torch.channels_last
    size = (n, *first.shape[1:])
    result = torch.empty(size, dtype=first.dtype, device=first.device, memory_format=layout)
    return result.copy_(first.expand_as(result))


def _products(left: Tensor, right: Tensor) -> float:
    return 2 * left.numel() * right.shape[-1]


# What to call, which argument has the batch, and about how many FLOPs the whole would take.
_SHORTCUTS: dict[Any, tuple[Shortcut, int, Callable[..., float]]] = {
    _aten.convolution.default: (
        _convolution,
        0,
        lambda image, weight, *_: 2 * image.numel() * weight.numel() / weight.shape[1],
    ),
    _aten.convolution_backward.default: (
        _convolution_backward,
        0,
        lambda gradient, _, weight, *__: 4 * gradient.numel() * weight.numel() / weight.shape[0],
    ),
    _aten.mm.default: (_mm, 0, _products),
    _aten.addmm.default: (_addmm, 1, lambda _, left, right: _products(left, right)),
    _aten.bmm.default: (_bmm, 0, _products),
    _aten.baddbmm.default: (_baddbmm, 1, lambda _, left, right: _products(left, right)),
}
