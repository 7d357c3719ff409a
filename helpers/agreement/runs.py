"""One batch, run in the type of the run or in float64, and every tensor that came of it."""

import copy
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.dropout import _DropoutNd

from helpers.device import first_line
from helpers.precision import autocast

# As GradScaler does, so that small float16 gradients do not become zero; a power of two is exact.
LOSS_SCALE = {torch.float16: 2.0**12}

Values = dict[str, dict[str, Tensor]]  # "forward" and "gradient" -> name -> value, float64


@dataclass(frozen=True)
class Run:
    """Forward, loss and backward of one batch, and what came out."""

    loss_fn: Callable[[Any, Any], Tensor]
    dtype: torch.dtype | None

    def __call__(self, model: nn.Module, batch: Any, device: torch.device) -> Values:
        """Return outputs, loss, buffers and gradients in float64 on the CPU."""
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
            run = Run(self.loss_fn, None)
            return run(model.double(), _map_floats(batch), torch.device("cpu"))
        except RuntimeError as error:
            raise ValueError(
                "The reference needs the model in float64 on the CPU, and there it fails: "
                f"{first_line(str(error))}"
            ) from error
        finally:
            torch.set_default_dtype(before)


def prepared(model: nn.Module, training: bool) -> nn.Module:
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
def no_random_numbers() -> Iterator[None]:
    """Raise ValueError if the block drew random numbers on the CPU."""
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


def plain_float32(device: torch.device) -> AbstractContextManager[object]:
    """Keep cuDNN from rounding float32 inputs of convolutions to TF32's 10 bits."""
    if device.type != "cuda":
        return nullcontext()
    return torch.backends.cudnn.flags(
        enabled=torch.backends.cudnn.enabled,
        benchmark=torch.backends.cudnn.benchmark,
        deterministic=torch.backends.cudnn.deterministic,
        allow_tf32=False,
    )


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
