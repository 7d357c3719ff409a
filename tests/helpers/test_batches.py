"""Loaders, their worker processes, and the way to the device."""

import multiprocessing
import pickle
import subprocess
import sys
import textwrap
import types
import warnings
from collections import OrderedDict, UserDict, defaultdict, namedtuple
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import Dataset, TensorDataset
from torchvision.datasets import FakeData
from torchvision.transforms import ToTensor

from helpers.batches import loader, to_device
from helpers.data import mnist
from helpers.images import Images, fake_images

REPOSITORY = Path(__file__).resolve().parents[2]


@pytest.fixture
def start_method() -> Iterator[Callable[[str], None]]:
    """Set how worker processes start, for one test."""
    before = multiprocessing.get_start_method(allow_none=True)
    yield lambda method: multiprocessing.set_start_method(method, force=True)
    multiprocessing.set_start_method(before, force=True)


@pytest.fixture
def fake_mps(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """Keep every tensor on the CPU when it is sent to mps; list what Tensor.to was told."""
    calls: list[dict[str, Any]] = []
    real = torch.Tensor.to

    def to(tensor: torch.Tensor, target: Any, **options: Any) -> torch.Tensor:
        if not isinstance(target, torch.device):
            return real(tensor, target, **options)
        calls.append({"device": target.type, "dtype": tensor.dtype, **options})
        if target.type == "mps" and tensor.dtype in (torch.float64, torch.complex128):
            raise TypeError("Cannot convert a MPS Tensor to float64 dtype")
        return tensor

    monkeypatch.setattr(torch.Tensor, "to", to)
    return calls


def labels_of(batches: Any) -> list[list[int]]:
    return [labels.tolist() for _, labels in batches]


def test_a_loader_covers_every_image_once() -> None:
    digits = mnist(train=False, full=False)
    batches_of_300 = loader(digits, 300, device="cpu")
    sizes = [len(labels) for _, labels in batches_of_300]
    assert sizes == [300, 300, 300, 100]
    assert len(batches_of_300) == 4
    assert torch.equal(
        torch.cat([labels for _, labels in batches_of_300]), mnist(False, full=False).labels
    )
    assert len(list(loader(mnist(train=False, full=False), 300, device="cpu", drop_last=True))) == 3


def test_a_batch_of_images_is_one_indexing_call(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []
    real = Images.__getitem__
    monkeypatch.setattr(
        Images, "__getitem__", lambda self, index: asked.append(index) or real(self, index)
    )
    images, labels = next(iter(loader(mnist(full=False), 16, device="cpu")))
    assert asked == [list(range(16))]
    assert images.shape == (16, 1, 28, 28)
    assert labels.shape == (16,)


def test_shuffling_repeats_with_its_seed_and_differs_between_epochs() -> None:
    digits = fake_images(50, channels=1, side=2, classes=1000)
    one, same, other = (
        loader(digits, 8, device="cpu", shuffle=True, seed=seed) for seed in (3, 3, 4)
    )
    first, second = labels_of(one), labels_of(one)
    torch.manual_seed(123)  # the order must not depend on the global generator
    assert [first, second] == [labels_of(same), labels_of(same)]
    assert first != second
    assert first != labels_of(other)
    assert sorted(label for batch in first for label in batch) == sorted(digits.labels.tolist())


class Squares(Dataset[tuple[torch.Tensor, int]]):
    """A reader's own dataset, imported from a module."""

    def __len__(self) -> int:
        return 10

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        return torch.tensor([float(index)]), index**2


@pytest.mark.parametrize(
    "dataset",
    [
        Squares(),
        FakeData(10, (3, 8, 8), 4, ToTensor()),
        TensorDataset(torch.zeros(10, 3), torch.arange(10)),
    ],
)
def test_any_map_style_dataset_can_be_loaded(dataset: Dataset[Any]) -> None:
    shuffled = loader(dataset, 4, device="cpu", shuffle=True)
    sizes = [(len(inputs), len(labels)) for inputs, labels in shuffled]
    assert sizes == [(4, 4), (4, 4), (2, 2)]


@pytest.mark.parametrize("method", ["spawn", "forkserver"])
def test_c24_loaders_work_with_workers_that_start_afresh(
    start_method: Callable[[str], None], method: str
) -> None:
    start_method(method)
    digits = mnist(train=False, full=False)
    parallel = loader(digits, 500, device="cpu", shuffle=True, workers=1 + (method == "spawn"))
    assert parallel.num_workers > 0
    alone = loader(digits, 500, device="cpu", shuffle=True)
    for _ in range(2):  # epochs: the second one finds the workers still alive
        assert labels_of(parallel) == labels_of(alone)


@pytest.mark.parametrize("dataset", [mnist(full=False), Squares()])
def test_c24_everything_a_worker_gets_can_be_pickled(dataset: Dataset[Any]) -> None:
    batches_of_4 = loader(dataset, 4, device="cpu", shuffle=True)
    for part in (batches_of_4.dataset, batches_of_4.collate_fn, batches_of_4.worker_init_fn):
        pickle.dumps(part)


def test_c24_a_lambda_is_explained_instead_of_killing_workers(
    start_method: Callable[[str], None],
) -> None:
    start_method("spawn")
    fake = FakeData(4, (3, 8, 8), transform=lambda image: image)
    with pytest.warns(UserWarning, match=r"cannot be pickled .*lambda") as caught:
        assert loader(fake, 2, device="cpu", workers=2).num_workers == 0
    assert "\n" not in str(caught[0].message)
    assert caught[0].filename == __file__


def test_c23_a_dataset_from_a_notebook_cell_is_loaded_without_workers() -> None:
    cell = textwrap.dedent("""
        import multiprocessing, torch
        from torch.utils.data import Dataset, Subset
        from helpers.data import loader

        class Cell(Dataset):
            def __len__(self): return 4
            def __getitem__(self, i): return torch.ones(1), i

        multiprocessing.set_start_method("spawn")
        for dataset in (Cell(), Subset(Cell(), [1, 2])):
            batches = loader(dataset, 2, device="cpu", workers=2)
            print(batches.num_workers, [labels.tolist() for _, labels in batches])
    """)
    done = subprocess.run(
        [sys.executable, "-c", cell], capture_output=True, text=True, cwd=REPOSITORY, timeout=60
    )
    assert done.stdout == "0 [[0, 1], [2, 3]]\n0 [[1, 2]]\n"
    assert "Cell is defined in a notebook or script" in done.stderr
    assert "Traceback" not in done.stderr


def test_c23_fork_needs_no_such_care(
    start_method: Callable[[str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Squares, "__module__", "__main__")
    start_method("fork")
    assert loader(Squares(), 2, device="cpu", workers=1).num_workers == 1
    start_method("spawn")
    with pytest.warns(UserWarning, match="Squares is defined in a notebook"):
        assert loader(Squares(), 2, device="cpu", workers=1).num_workers == 0


def test_the_system_decides_when_no_start_method_was_chosen(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Squares, "__module__", "__main__")
    monkeypatch.setattr(multiprocessing, "get_start_method", lambda allow_none: None)
    monkeypatch.setattr(multiprocessing, "get_all_start_methods", lambda: ["spawn", "fork"])
    with pytest.warns(UserWarning, match="'spawn'"):
        loader(Squares(), 2, device="cpu", workers=1)


@pytest.mark.parametrize("device", ["cpu", "mps", "cuda"])
@pytest.mark.parametrize("dataset", [mnist(train=False, full=False), Squares()])
def test_c25_no_pin_memory_warning_anywhere(dataset: Dataset[Any], device: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        batches_of_4 = loader(dataset, 4, device=device)
        next(iter(batches_of_4))
    assert batches_of_4.pin_memory is (device == "cuda" and torch.cuda.is_available())


def test_memory_is_pinned_for_cuda_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    assert loader(Squares(), 4, device="cuda:0").pin_memory
    assert not loader(Squares(), 4, device="mps").pin_memory
    assert not loader(Squares(), 4, device="cpu").pin_memory


Pair = namedtuple("Pair", ["inputs", "labels"])


def nested() -> dict[str, Any]:
    return {
        "x": [torch.ones(2), (torch.ones(1), "text")],
        "pair": Pair(torch.ones(1), torch.arange(3)),
        "more": OrderedDict(a=torch.ones(1)),
        "none": None,
        "count": 7,
        "array": np.ones(2),
    }


@pytest.mark.parametrize("device", ["cpu", "mps"])
def test_c17_no_copy_but_a_pinned_one_to_cuda_is_asynchronous(
    fake_mps: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch, device: str
) -> None:
    monkeypatch.setattr(torch.Tensor, "is_pinned", lambda tensor: True)
    to_device(nested(), device)
    assert [call["device"] for call in fake_mps] == [device] * 5
    assert not any(call["non_blocking"] for call in fake_mps)


@pytest.mark.parametrize("pinned", [True, False])
def test_c17_to_cuda_the_copy_is_asynchronous_from_pinned_memory_only(
    fake_mps: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch, pinned: bool
) -> None:
    monkeypatch.setattr(torch.Tensor, "is_pinned", lambda tensor: pinned)
    to_device([torch.ones(1)], "cuda")
    assert [call["non_blocking"] for call in fake_mps] == [pinned]


def test_every_container_keeps_its_type_and_the_original_its_tensors() -> None:
    batch = nested()
    moved = to_device(batch, "meta")  # a device that exists everywhere
    assert moved["x"][0].device.type == "meta"
    assert moved["x"][1][0].device.type == "meta"
    assert moved["x"][1][1] == "text"
    assert isinstance(moved["pair"], Pair)
    assert moved["pair"].labels.device.type == "meta"
    assert type(moved["more"]) is OrderedDict
    assert moved["more"]["a"].device.type == "meta"
    assert moved["array"] is batch["array"]
    assert (moved["none"], moved["count"]) == (None, 7)
    assert batch["x"][0].device.type == "cpu"


def test_mappings_that_are_not_dicts_are_moved_too() -> None:
    tokens = UserDict(ids=torch.ones(1))
    factory = defaultdict(list, {"a": [torch.ones(1)]})
    fixed = types.MappingProxyType({"a": torch.ones(1)})
    assert to_device(tokens, "meta")["ids"].device.type == "meta"
    assert tokens["ids"].device.type == "cpu"
    moved = to_device(factory, "meta")
    assert moved["a"][0].device.type == "meta"
    assert moved["new"] == []
    assert to_device(fixed, "meta")["a"].device.type == "meta"


def test_c18_float64_is_narrowed_for_mps_with_one_warning_that_names_it(
    fake_mps: list[dict[str, Any]],
) -> None:
    batch = {
        "x": [torch.ones(1), torch.from_numpy(np.ones(2))],
        "z": torch.ones(1, dtype=torch.complex128),
        "half": torch.ones(1, dtype=torch.float16),
        "label": torch.tensor([2**40]),
    }
    with pytest.warns(UserWarning, match="no float64") as caught:
        moved = to_device(batch, "mps")
    assert len(caught) == 1
    assert """batch['x'][1] (float64), batch['z'] (complex128)""" in str(caught[0].message)
    assert caught[0].filename == __file__
    assert moved["x"][1].dtype == torch.float32
    assert moved["z"].dtype == torch.complex64
    assert moved["half"].dtype == torch.float16
    assert moved["label"].dtype == torch.int64
    assert moved["label"].item() == 2**40
    assert batch["x"][1].dtype == torch.float64


def test_c18_float64_stays_where_it_is_legal(recwarn: pytest.WarningsRecorder) -> None:
    assert to_device(torch.ones(1, dtype=torch.float64), "cpu").dtype == torch.float64
    assert not recwarn


def test_c18_a_float64_buffer_is_named_before_the_model_is_moved() -> None:
    class Scale(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.ones(1))
            self.register_buffer("mean", torch.from_numpy(np.ones(2)))

    model = nn.Sequential(nn.Linear(1, 1), Scale())
    with pytest.raises(TypeError, match=r"buffer 1\.mean.*model\.float\(\)"):
        to_device(model, "mps")
    assert to_device(model, "cpu") is model
    assert to_device(model, "meta")[1].mean.device.type == "meta"
