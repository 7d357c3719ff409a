"""Does this training step teach the model anything? Asked before a long run, not after."""

import copy
import math
from itertools import islice

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from helpers.data import to_device
from helpers.device import as_device, synchronize
from helpers.training import Batches, LossFn


def check_learning(
    model: nn.Module,
    batches: Batches,
    optimizer: torch.optim.Optimizer,
    *,
    device: torch.device | str,
    steps: int = 3,
    loss_fn: LossFn = F.cross_entropy,
) -> list[str]:
    """Return what is wrong with the first ``steps`` training steps; an empty list is healthy.

    Finds gradients that are all zero or not finite, parameters that no step changes, and a first
    loss that differs from the CPU's. Works on copies of the model and the optimizer. Raises
    ``ValueError`` for no batches.
    """
    batches = [to_device(batch, device) for batch in islice(batches, steps)]
    if not batches:
        raise ValueError("there are no batches, or no steps, to check with")
    problems = _differs_from_cpu(model, batches[0], as_device(device), loss_fn)
    model, optimizer = copy.deepcopy((model, optimizer))
    before = {name: p.detach().clone() for name, p in model.named_parameters() if p.requires_grad}
    largest_gradient = dict.fromkeys(before, 0.0)
    model.train()
    for images, labels in batches:
        optimizer.zero_grad(set_to_none=True)
        loss_fn(model(images), labels).backward()
        for name, parameter in model.named_parameters():
            if name in before and parameter.grad is not None:
                size = parameter.grad.abs().max().item()
                if not math.isfinite(size):
                    return [*problems, f"the gradient of {name} is infinite or NaN"]
                largest_gradient[name] = max(largest_gradient[name], size)
        optimizer.step()
    synchronize(device)
    if not any(largest_gradient.values()):
        return [*problems, "gradients are all zero: nothing can be learned"]
    after = dict(model.named_parameters())
    frozen = [name for name, value in before.items() if torch.equal(value, after[name])]
    return [*problems, *(f"{name} did not change in {steps} steps" for name in frozen)]


@torch.no_grad()
def _differs_from_cpu(
    model: nn.Module, batch: tuple[Tensor, Tensor], device: torch.device, loss_fn: LossFn
) -> list[str]:
    """Compare one loss, dropout off, with the CPU's: 1% is far above float32 rounding."""
    if device.type == "cpu":
        return []
    here, there = copy.deepcopy(model).eval(), copy.deepcopy(model).cpu().eval()
    images, labels = batch
    ours = loss_fn(here(images), labels).item()
    cpu = loss_fn(there(images.cpu()), labels.cpu()).item()
    if math.isclose(ours, cpu, rel_tol=0.01, abs_tol=1e-4):
        return []
    return [f"the first loss is {ours:.4g} on {device.type} but {cpu:.4g} on the CPU"]
