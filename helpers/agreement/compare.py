"""The comparison itself: the same batch here, there, and in float64."""

import copy
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from helpers.agreement.judge import differences, finite
from helpers.agreement.report import Agreement
from helpers.agreement.runs import Run, Values, no_random_numbers, plain_float32, prepared
from helpers.data import to_device
from helpers.device import as_device


def compare_with_cpu(
    model: nn.Module,
    inputs: Any,
    targets: Any,
    *,
    device: torch.device | str,
    loss_fn: Callable[[Any, Any], Tensor] = F.cross_entropy,
    dtype: torch.dtype | None = None,
    training: bool = False,
) -> Agreement:
    """Compare outputs, loss and every parameter's gradient of one batch with the CPU's.

    ``inputs`` is a tensor, a tuple of arguments or a mapping of keyword arguments; the model may
    return any nesting of tensors, which ``loss_fn(outputs, targets)`` turns into a number.
    ``dtype`` float16 or bfloat16 compares under autocast. On the CPU itself there is nothing to
    compare: the table then shows what rounding costs.

    The model is copied, never changed. It is compared in evaluation mode, or with ``training`` in
    training mode without its dropout layers: equal seeds give other numbers on another device.
    Raises ``ValueError`` if the model draws random numbers nevertheless, or cannot run in float64,
    and ``TypeError`` for float64 parameters or buffers if the device is mps.
    """
    device = as_device(device)
    batch = to_device((inputs, targets), "cpu")
    model = prepared(model, training)
    ours = copy.deepcopy(model)
    moved = None if _is_cpu(device) else to_device(copy.deepcopy(model), device)
    kind = dtype or next((p.dtype for p in model.parameters()), torch.float32)
    run = Run(loss_fn, dtype)
    with no_random_numbers():
        cpu = run(ours, batch, torch.device("cpu"))
    if moved is None:
        theirs = cpu
    else:
        with plain_float32(device):
            theirs = run(moved, to_device(batch, device), device)
    exact = run.in_float64(model, batch)
    found = differences(exact, cpu, theirs, kind)
    return Agreement(device, kind, found, compared=moved is not None, notes=_notes(exact, device))


def _notes(exact: Values, device: torch.device) -> list[str]:
    notes = []
    bad = [n for group in exact.values() for n, value in group.items() if not finite(value)]
    if bad:
        notes.append(f"Not finite even in float64 on the CPU: {bad[0]}. Look at the batch first.")
    if device.type == "cuda" and torch.backends.cudnn.allow_tf32:
        notes.append("TF32 was off here; your convolutions use it, and lose 13 of 23 bits.")
    return notes


def _is_cpu(device: torch.device) -> bool:
    return device.type == "cpu"
