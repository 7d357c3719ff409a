"""What a record's suite measures: the workloads, and the sizes of each."""

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import torch
import torch.nn.functional as F

from helpers.data import loader, mnist
from helpers.models import mnist_cnn, resnet18
from helpers.precision import autocast, autocast_dtype
from helpers.training import train_epoch

DTYPES = {"float32": torch.float32, "float16": torch.float16, "bfloat16": torch.bfloat16}
PROBE_SIDE = 96  # pixels, of 224: less than a fifth of the work

Work = Callable[[], object]


@dataclass(frozen=True)
class Ladder:
    """One workload in growing sizes."""

    workload: str
    dtype: str
    sizes: Sequence[int]
    prepare: Callable[[int], Work]  # makes the tensors of a size and returns what is timed
    growth: int  # a size twice as large is 2 ** growth times the work
    longest_s: float  # all together 145 s: what lies between and at the ends comes on top
    bytes_each: Callable[[int], float]  # roughly, of a size
    probe: Callable[[], Work] | None = (
        None  # the first size on a picture of PROBE_SIDE, where it may be slow
    )


def ladders(device: torch.device) -> list[Ladder]:
    """Return the suite. What all machines can do comes first."""
    suite = [
        Ladder(
            workload="copy",
            dtype="float32",
            sizes=[2**20, 2**24, 2**28],
            prepare=partial(_copy, device),
            growth=1,
            longest_s=6,
            bytes_each=lambda n: 2 * n,
        ),
        Ladder(
            workload="resnet18_image",
            dtype="float32",
            sizes=[224],
            prepare=partial(_image, device),
            growth=2,
            longest_s=10,
            bytes_each=lambda n: 1e8,
            probe=partial(_image, device, PROBE_SIDE),
        ),
    ]
    suite += [_matmul_ladder(name, device) for name in DTYPES]
    suite.append(
        Ladder(
            workload="mnist_epoch",
            dtype="float32",
            sizes=[256, 4_000],
            prepare=partial(_epoch, device),
            growth=1,
            longest_s=45,
            bytes_each=lambda n: 3e8,
        )
    )
    return suite + [_resnet_ladder(name, device) for name in DTYPES]


def _matmul_ladder(name: str, device: torch.device) -> Ladder:
    return Ladder(
        workload="matmul",
        dtype=name,
        sizes=[2**power for power in range(6, 14)],
        prepare=partial(_matmul, device, DTYPES[name]),
        growth=3,
        longest_s=12,
        bytes_each=lambda n: (3 * DTYPES[name].itemsize + 8) * n**2,
    )


def _resnet_ladder(name: str, device: torch.device) -> Ladder:
    return Ladder(
        workload="resnet18_step",
        dtype=name,
        sizes=[1, 4, 16, 64],
        prepare=partial(_step, device, DTYPES[name], 224),
        growth=1,
        longest_s=16,
        bytes_each=lambda n: 2e8 + 3e7 * n,
        probe=partial(_step, device, DTYPES[name], PROBE_SIDE, 1),
    )


def _matmul(device: torch.device, dtype: torch.dtype, n: int) -> Work:
    a, b = torch.randn(2, n, n).to(dtype).to(device)
    return lambda: a @ b


def _copy(device: torch.device, n_bytes: int) -> Work:
    source = torch.randn(n_bytes // 4, device=device)
    target = torch.empty_like(source)
    return lambda: target.copy_(source)


def _image(device: torch.device, side: int) -> Work:
    model = resnet18(classes=1000).eval().to(device)
    image = torch.randn(1, 3, side, side, device=device)

    def answer() -> torch.Tensor:
        with torch.inference_mode():
            logits: torch.Tensor = model(image)
            return logits.cpu()  # an answer that has arrived: the wait is part of it

    return answer


def _epoch(device: torch.device, n_images: int) -> Work:
    """An epoch of the MNIST article's network on bundled digits, in batches of 128."""
    batches = loader(mnist(full=False).subset(n_images), 128, device=device, shuffle=True)
    model = mnist_cnn().to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    return lambda: train_epoch(model, batches, optimizer, device=device)


def _step(device: torch.device, dtype: torch.dtype, side: int, n_images: int) -> Work:
    """A training step of ResNet-18 with momentum; 16 bits by autocast, float16 scaled."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the outcome is what counts
        lowered = None if dtype == torch.float32 else dtype
        if autocast_dtype(device, lowered) != dtype:
            raise TypeError(f"no autocast to {dtype} on {device.type}")
    model = resnet18().to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4, momentum=0.9)
    scaler = torch.amp.GradScaler(device.type, enabled=dtype == torch.float16)
    images = torch.randn(n_images, 3, side, side, device=device)
    labels = torch.zeros(n_images, dtype=torch.int64, device=device)

    def step() -> None:
        optimizer.zero_grad(set_to_none=True)
        with autocast(device, lowered):
            loss = F.cross_entropy(model(images), labels)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()

    return step
