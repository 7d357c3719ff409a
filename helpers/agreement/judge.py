"""How far apart two right results may be: the limits, and each tensor held against them.

The reference is the same computation in float64 on the CPU. How far the CPU's own result in the
type of the run is away from it says how much rounding alone costs *this* model on *this* batch;
the device's distance is held against that, so that a tolerance follows the model and the batch.

Gradients need one more allowance. Where a ReLU's input is all but zero, or two inputs of a
max-pooling all but equal, rounding decides which way the gradient goes: a jump, not a small error.
Of N such places a share of about eps is that close, and each moves a gradient that N of them add up
to by about 1 / sqrt(N): in the mean square, sqrt(N · eps) / sqrt(N) = sqrt(eps). By Markov's
inequality, a batch is off by more than k times that with a probability of at most 1 / k².
"""

import math
import statistics

import torch
from torch import Tensor

from helpers.agreement.report import Difference
from helpers.agreement.runs import Values

# The device adds up in another order than the CPU, so it errs differently, not equally. In 16 bits
# both round the same results, and order matters less. The chapter on correctness tries out how far
# right ways to compute are apart.
FACTOR = {torch.float16: 3, torch.bfloat16: 3}
FACTOR_ELSE = 10
# How many times sqrt(eps) a gradient may always be off. In float32 jumps are rare, so that a large
# one must be allowed for; in 16 bits every batch has many, and they average.
JUMPS = {torch.float16: 3, torch.bfloat16: 3}
JUMPS_ELSE = 100
# Where the CPU happens to be exact, one or two roundings per operation must still be allowed.
FLOOR_EPS = 8
# Above this, rounding has eaten so much of the answer that a comparison says nothing.
UNCLEAR = {torch.float16: 0.3, torch.bfloat16: 0.3}
UNCLEAR_ELSE = 0.03
# A tensor of zeros is off by 1 (its whole length). No limit may let that pass.
LARGEST_LIMIT = 0.9


def differences(exact: Values, cpu: Values, device: Values, dtype: torch.dtype) -> list[Difference]:
    """Judge every tensor of the three runs; ``dtype`` is the type of the run."""
    found = []
    eps = torch.finfo(dtype).eps
    for kind, group in exact.items():
        # A tensor that is zero but for rounding (a bias before batch normalization) is measured
        # against the others of its kind: against itself, any rounding would be infinite.
        smallest = math.sqrt(eps) * _size(torch.cat([v.flatten() for v in group.values()] or [_0]))
        scales = {name: max(_size(value), smallest) for name, value in group.items()}
        rounding = {n: _distance(cpu[kind].get(n), v, scales[n]) for n, v in group.items()}
        # The CPU may be lucky with a tensor of few numbers; then the typical error counts.
        usual = statistics.median(rounding.values()) if rounding else 0.0
        jump = JUMPS.get(dtype, JUMPS_ELSE) * math.sqrt(eps)
        floor = jump if kind == "gradient" else FLOOR_EPS * eps
        for name, value in group.items():
            error = _distance(device[kind].get(name), value, scales[name])
            own = max(rounding[name], usual)
            factor = FACTOR.get(dtype, FACTOR_ELSE)
            limit = min(max(factor * own, floor), LARGEST_LIMIT)
            spoilt = not rounding[name] <= UNCLEAR.get(dtype, UNCLEAR_ELSE)
            unclear = spoilt or not finite(value)
            found.append(Difference(name, error, rounding[name], limit, unclear))
    return found


_0 = torch.zeros(1, dtype=torch.float64)


def _distance(value: Tensor | None, exact: Tensor, scale: float) -> float:
    """Return the root mean square of the difference, by ``scale``; infinite if NaNs differ."""
    if value is None or value.shape != exact.shape:
        return math.inf
    finite = exact.isfinite()
    if not torch.equal(finite, value.isfinite()):
        return math.inf
    difference = _size((value - exact)[finite])
    return difference / scale if difference else 0.0


def _size(value: Tensor) -> float:
    """Return the root of the mean square of what is finite; 0 for nothing."""
    value = value[value.isfinite()]
    return value.abs().square().mean().sqrt().item() if value.numel() else 0.0


def finite(value: Tensor) -> bool:
    """Return whether every number is finite."""
    return bool(value.isfinite().all())
