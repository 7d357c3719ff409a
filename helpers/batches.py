"""Makes batches of a dataset, and moves them to the device."""

import copy
import io
import multiprocessing
import pickle
import warnings
from collections.abc import Callable, Mapping
from types import FunctionType
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.data import BatchSampler, DataLoader, Dataset, RandomSampler, SequentialSampler

from helpers.device import as_device
from helpers.images import Images

T = TypeVar("T")

# MPS refuses the types on the left: facts of the installed PyTorch's notes on MPS.
_MPS_SUBSTITUTES = {torch.float64: torch.float32, torch.complex128: torch.complex64}


def loader(
    dataset: Dataset[Any],
    batch_size: int,
    *,
    device: str | torch.device,
    shuffle: bool = False,
    drop_last: bool = False,
    workers: int = 0,
    seed: int = 0,
) -> DataLoader[Any]:
    """Return a DataLoader of (images, labels) batches on the CPU; to_device() moves them.

    With ``shuffle``, every epoch has another order, and ``seed`` fixes them all. Memory is
    pinned only for cuda; elsewhere DataLoader would warn. ``workers`` live on between epochs;
    the default is none, as Images has nothing to decode. If worker processes could not receive
    the dataset, it is loaded without them, with a warning that says why.

    A batch of Images is one indexing call (``batch_size=None``, and a sampler that yields lists
    of indices), which spares fetching and stacking the images one by one. Any other map-style
    dataset goes through PyTorch's default collation.
    """
    workers = _usable_workers(dataset, workers)
    # The order has a generator of its own: DataLoader seeds its workers from the other one, so
    # the number of workers does not change the order.
    order: Any = SequentialSampler(dataset)  # type: ignore[arg-type]
    if shuffle:
        order = RandomSampler(dataset, generator=torch.Generator().manual_seed(seed))  # type: ignore[arg-type]
    batches = BatchSampler(order, batch_size, drop_last)
    options: dict[str, Any] = {
        "num_workers": workers,
        "persistent_workers": workers > 0,
        "pin_memory": as_device(device).type == "cuda" and torch.cuda.is_available(),
        "generator": torch.Generator().manual_seed(seed),
    }
    if isinstance(dataset, Images):
        return DataLoader(dataset, batch_size=None, sampler=batches, **options)
    return DataLoader(dataset, batch_sampler=batches, **options)


def to_device(batch: T, device: str | torch.device) -> T:
    """Return ``batch`` with every tensor on ``device``, in the same structure.

    A batch is a tensor, or any nesting of mappings, lists, tuples and named tuples; whatever
    is not a tensor comes back as it is. For mps, float64 becomes float32 and complex128 becomes
    complex64, with one warning that names the places. The copy is asynchronous only from pinned
    memory to cuda: to MPS, such copies have delivered garbage (pytorch#139550, #189690).

    A model is moved in place, as by ``model.to(device)``. Raises TypeError with the name of
    every float64 parameter and buffer if the device is mps: narrowing a model is your decision.
    """
    device = as_device(device)
    if isinstance(batch, nn.Module):
        _refuse_wide_state(batch, device)
        return batch.to(device)
    narrowed: list[str] = []
    moved: T = _walk(batch, lambda tensor, path: _move(tensor, path, device, narrowed), "batch")
    if narrowed:
        warnings.warn(
            f"MPS has no float64 or complex128, so these were narrowed: {', '.join(narrowed)}. "
            "Make them float32 where they are created.",
            stacklevel=2,
        )
    return moved


class _Courier(pickle.Pickler):
    """Pickles a dataset as a worker would get it, without the data; notes what it cannot find."""

    def __init__(self) -> None:
        super().__init__(io.BytesIO())
        self.homeless: list[str] = []

    def persistent_id(self, item: Any) -> str | None:
        if isinstance(item, Tensor | np.ndarray):
            return "data"
        if isinstance(item, type | FunctionType) and item.__module__ == "__main__":
            self.homeless.append(item.__qualname__)
            return "homeless"
        return None


def _usable_workers(dataset: Dataset[Any], workers: int) -> int:
    # fork copies the whole process. The other ways, macOS's among them, start a new Python,
    # which knows neither what a notebook's cells define nor what cannot be pickled.
    method = multiprocessing.get_start_method(allow_none=True)
    method = method or multiprocessing.get_all_start_methods()[0]
    obstacle = _obstacle(dataset) if workers and method != "fork" else None
    if obstacle is None:
        return workers
    warnings.warn(
        f"Loading without workers, because {obstacle}, and worker processes are started by "
        f"{method!r} here. Define it in a module and import it to use workers.",
        stacklevel=3,
    )
    return 0


def _obstacle(dataset: Dataset[Any]) -> str | None:
    courier = _Courier()
    try:
        courier.dump(dataset)
    except (pickle.PicklingError, AttributeError, TypeError) as error:
        return f"the dataset cannot be pickled ({error})"
    return f"{courier.homeless[0]} is defined in a notebook or script" if courier.homeless else None


def _move(tensor: Tensor, path: str, device: torch.device, narrowed: list[str]) -> Tensor:
    if device.type == "mps" and tensor.dtype in _MPS_SUBSTITUTES:
        narrowed.append(f"{path} ({str(tensor.dtype).removeprefix('torch.')})")
        # Narrowed before it is moved: the move is what MPS refuses.
        tensor = tensor.to(_MPS_SUBSTITUTES[tensor.dtype])
    return tensor.to(device, non_blocking=device.type == "cuda" and tensor.is_pinned())


def _walk(item: Any, move: Callable[[Tensor, str], Tensor], path: str) -> Any:
    if isinstance(item, Tensor):
        return move(item, path)
    if isinstance(item, Mapping):
        moved = {key: _walk(value, move, f"{path}[{key!r}]") for key, value in item.items()}
        return _same_mapping(item, moved)
    if isinstance(item, list | tuple):
        values = [_walk(value, move, f"{path}[{i}]") for i, value in enumerate(item)]
        return type(item)(*values) if hasattr(item, "_fields") else type(item)(values)
    return item


def _same_mapping(original: Mapping[Any, Any], values: dict[Any, Any]) -> Any:
    # A copy keeps what a constructor would lose: a defaultdict's factory, the extras of a
    # tokenizer's batch. A mapping that cannot be written to comes back as a dict.
    if not hasattr(original, "update"):
        return values
    twin = copy.copy(original)
    twin.update(values)
    return twin


def _refuse_wide_state(model: nn.Module, device: torch.device) -> None:
    if device.type != "mps":
        return
    state: dict[str, Tensor] = {f"parameter {name}": p for name, p in model.named_parameters()}
    state |= {f"buffer {name}": buffer for name, buffer in model.named_buffers()}
    wide = [name for name, value in state.items() if value.dtype in _MPS_SUBSTITUTES]
    if wide:
        raise TypeError(
            f"MPS has no float64 or complex128, and this model holds them: {', '.join(wide)}. "
            "Register them as float32, or call model.float() before moving it."
        )
