"""Does this device compute what the CPU computes? One batch, asked before a long run.

The reference is the same computation in float64 on the CPU. How far the CPU's own result in the
type of the run is away from it says how much rounding alone costs *this* model on *this* batch;
the device's distance is held against that, so that
a tolerance follows the model and the batch.

Gradients need one more allowance. Where a ReLU's input is all but zero, or two inputs of a
max-pooling all but equal, rounding decides which way the gradient goes: a jump, not a small error.
Of N such places a share of about eps is that close, and each moves a gradient that N of them add up
to by about 1 / sqrt(N): in the mean square, sqrt(N · eps) / sqrt(N) = sqrt(eps). By Markov's
inequality, a batch is off by more than k times that with a probability of at most 1 / k².
"""

import copy
import math
import statistics
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.modules.dropout import _DropoutNd

from helpers.data import to_device
from helpers.device import as_device, first_line
from helpers.precision import autocast

if TYPE_CHECKING:
    import pandas as pd

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
# As GradScaler does, so that small float16 gradients do not become zero; a power of two is exact.
LOSS_SCALE = {torch.float16: 2.0**12}
SHOWN = 12  # rows of a table that is printed; the report has them all

Values = dict[str, dict[str, Tensor]]  # "forward" and "gradient" -> name -> value, float64


@dataclass(frozen=True)
class Difference:
    """How far one tensor is from float64, as a share of its length (root of the mean square).

    ``rounding`` is the CPU's distance in the type of the run, ``error`` the device's, ``limit``
    what the device may reach.
    """

    name: str
    error: float
    rounding: float
    limit: float
    unclear: bool

    @property
    def verdict(self) -> str:
        """``"agrees"``, ``"DISAGREES"``, or ``"unclear"``: rounding alone spoils this tensor."""
        if not self.error <= self.limit:  # NaN is no agreement
            return "DISAGREES"
        return "unclear" if self.unclear else "agrees"


@dataclass(frozen=True)
class Agreement:
    """One batch on the CPU and on the device, tensor by tensor; prints and shows as a table."""

    device: torch.device
    dtype: torch.dtype
    differences: list[Difference]
    notes: list[str] = field(default_factory=list)

    @property
    def agrees(self) -> bool:
        """Whether every tensor agrees; an unclear one does not."""
        return all(difference.verdict == "agrees" for difference in self.differences)

    @property
    def worst(self) -> Difference:
        """The tensor that comes closest to its limit, or exceeds it most."""
        return max(self.differences, key=_share)

    def table(self, most: int | None = None) -> "pd.DataFrame":
        """Return one row a tensor, errors as a share of its length.

        With ``most``, only so many rows, those that come closest to their limits.
        """
        import pandas as pd

        nearest = sorted(self.differences, key=_share, reverse=True)[:most]
        rows = [
            {
                "tensor": difference.name,
                f"error on {self.device.type}": f"{difference.error:.1e}",
                "error on the CPU": f"{difference.rounding:.1e}",
                "limit": f"{difference.limit:.1e}",
                "verdict": difference.verdict,
            }
            for difference in (self.differences if most is None else nearest)
        ]
        table = pd.DataFrame(rows).set_index("tensor")
        return table if self._compares else table.drop(columns="error on the CPU")

    @property
    def summary(self) -> str:
        """The verdict and the worst tensor, in a sentence or two, with the notes."""
        worst, n = self.worst, len(self.differences)
        kind = str(self.dtype).removeprefix("torch.")
        bad = [d.name for d in self.differences if d.verdict != "agrees"]
        if not self._compares:
            head = f"No GPU here: the CPU in {kind} against the CPU in float64."
            state = f"{n - len(bad)} of {n} tensors are clear of rounding."
        else:
            head = f"{self.device.type} in {kind} against the CPU:"
            state = f"{n - len(bad)} of {n} tensors agree."
        at = f"Worst: {worst.name}, error {worst.error:.1e}, limit {worst.limit:.1e}."
        return " ".join([head, state, at, *self.notes])

    def __str__(self) -> str:
        return f"{self._shown().to_string()}\n{self.summary}"

    def _repr_html_(self) -> str:
        from html import escape

        return f"{self._shown().to_html()}<p><strong>{escape(self.summary)}</strong></p>"

    def _shown(self) -> "pd.DataFrame":
        return self.table(SHOWN if len(self.differences) > SHOWN else None)

    @property
    def _compares(self) -> bool:
        return not _is_cpu(self.device)


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
    model = _prepared(model, training)
    ours = copy.deepcopy(model)
    moved = None if _is_cpu(device) else to_device(copy.deepcopy(model), device)
    kind = dtype or next((p.dtype for p in model.parameters()), torch.float32)
    run = _Run(loss_fn, dtype)
    with _no_random_numbers():
        cpu = run(ours, batch, torch.device("cpu"))
    if moved is None:
        theirs = cpu
    else:
        with _plain_float32(device):
            theirs = run(moved, to_device(batch, device), device)
    exact = run.in_float64(model, batch)
    return Agreement(device, kind, _differences(exact, cpu, theirs, kind), _notes(exact, device))


@dataclass(frozen=True)
class _Run:
    """Forward, loss and backward of one batch, and what came out."""

    loss_fn: Callable[[Any, Any], Tensor]
    dtype: torch.dtype | None

    def __call__(self, model: nn.Module, batch: Any, device: torch.device) -> Values:
        scale = LOSS_SCALE.get(self.dtype, 1.0) if self.dtype else 1.0
        with autocast(device, self.dtype):
            outputs = _call(model, batch[0])
            loss = self.loss_fn(outputs, batch[1])
        if loss.requires_grad:
            (loss * scale).backward()
        forward = dict(_named_tensors("output", outputs)) | {"loss": loss}
        if model.training:  # batch normalization keeps running statistics
            buffers = model.named_buffers()
            forward |= {f"buffer {name}": b for name, b in buffers if b.is_floating_point()}
        gradients = {
            f"gradient of {name}": torch.zeros_like(p) if p.grad is None else p.grad / scale
            for name, p in model.named_parameters()
            if p.requires_grad
        }
        wide = {"forward": forward, "gradient": gradients}
        return {k: {name: _wide(t) for name, t in group.items()} for k, group in wide.items()}

    def in_float64(self, model: nn.Module, batch: Any) -> Values:
        """Run without autocast, everything in float64, and what the model makes as well."""
        before = torch.get_default_dtype()
        torch.set_default_dtype(torch.float64)
        try:
            run = _Run(self.loss_fn, None)
            return run(model.double(), _map_floats(batch), torch.device("cpu"))
        except RuntimeError as error:
            raise ValueError(
                "The reference needs the model in float64 on the CPU, and there it fails: "
                f"{first_line(str(error))}"
            ) from error
        finally:
            torch.set_default_dtype(before)


def _prepared(model: nn.Module, training: bool) -> nn.Module:
    """Return a copy on the CPU, without gradients, in the mode in which it is compared."""
    # Not .cpu(): parameters that are on the CPU keep their strides either way.
    prepared = copy.deepcopy(model).cpu().train(training)
    prepared.zero_grad(set_to_none=True)
    for layer in prepared.modules():
        if isinstance(layer, _DropoutNd):
            layer.eval()
    return prepared


def _call(model: nn.Module, inputs: Any) -> Any:
    if isinstance(inputs, Mapping):
        return model(**inputs)
    return model(*inputs) if isinstance(inputs, tuple) else model(inputs)


@contextmanager
def _no_random_numbers() -> Iterator[None]:
    before = torch.get_rng_state()
    yield
    drew = not torch.equal(before, torch.get_rng_state())
    torch.set_rng_state(before)
    if drew:
        raise ValueError(
            "The model draws random numbers in this mode (dropout inside of a layer or a function, "
            "or sampling), and another device draws others. Compare with training=False, or "
            "switch the randomness off."
        )


def _plain_float32(device: torch.device) -> AbstractContextManager[object]:
    """Keep cuDNN from rounding float32 inputs of convolutions to TF32's 10 bits."""
    if device.type != "cuda":
        return nullcontext()
    return torch.backends.cudnn.flags(
        enabled=torch.backends.cudnn.enabled,
        benchmark=torch.backends.cudnn.benchmark,
        deterministic=torch.backends.cudnn.deterministic,
        allow_tf32=False,
    )


def _notes(exact: Values, device: torch.device) -> list[str]:
    notes = []
    bad = [n for group in exact.values() for n, value in group.items() if not _finite(value)]
    if bad:
        notes.append(f"Not finite even in float64 on the CPU: {bad[0]}. Look at the batch first.")
    if device.type == "cuda" and torch.backends.cudnn.allow_tf32:
        notes.append("TF32 was off here; your convolutions use it, and lose 13 of 23 bits.")
    return notes


def _differences(
    exact: Values, cpu: Values, device: Values, dtype: torch.dtype
) -> list[Difference]:
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
            unclear = spoilt or not _finite(value)
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


def _share(difference: Difference) -> float:
    return difference.error / difference.limit


def _finite(value: Tensor) -> bool:
    return bool(value.isfinite().all())


def _wide(value: Tensor) -> Tensor:
    # First to the CPU: MPS has no float64.
    value = value.detach().cpu()
    return value.to(torch.complex128 if value.is_complex() else torch.float64)


def _named_tensors(name: str, item: Any) -> Iterator[tuple[str, Tensor]]:
    if isinstance(item, Tensor):
        yield name, item
    elif isinstance(item, Mapping):
        for key, value in item.items():
            yield from _named_tensors(f"{name}[{key!r}]", value)
    elif isinstance(item, list | tuple):
        for i, value in enumerate(item):
            yield from _named_tensors(f"{name}[{i}]", value)


def _map_floats(item: Any) -> Any:
    """Return a batch with its floating-point tensors in float64."""
    if isinstance(item, Tensor):
        return item.double() if item.is_floating_point() else item
    if isinstance(item, Mapping):
        return {key: _map_floats(value) for key, value in item.items()}
    if isinstance(item, list | tuple):
        values = [_map_floats(value) for value in item]
        return type(item)(*values) if hasattr(item, "_fields") else type(item)(values)
    return item


def _is_cpu(device: torch.device) -> bool:
    return device.type == "cpu"
