"""``python -m tests.preflight_memory_on_cuda``: preflight's peak memory against a CUDA GPU's.

Needs a CUDA GPU and torch; no network and no torchvision. Each step runs on the GPU in eager mode
and under preflight on the CPU (shapes only). Two things that no operator asks for are named: the
workspaces that cuBLAS keeps for its own use, measured before and after, which the comparison
leaves out; and those of cuDNN, freed before the peak can be read, which it does not.
"""

import gc
import itertools
import sys
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from helpers.memory import format_bytes
from helpers.models import mnist_cnn
from helpers.preflight import preflight

TOLERANCE = 0.10
Step = Callable[[], None]


class Block(nn.Module):
    """The residual block of ResNet-18 (He et al., 2016), as torchvision has it."""

    def __init__(self, before: int, after: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(before, after, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(after)
        self.relu = nn.ReLU(inplace=True)
        self.conv2 = nn.Conv2d(after, after, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(after)
        self.shortcut: nn.Module | None = None
        if stride != 1:
            convolution = nn.Conv2d(before, after, 1, stride, bias=False)
            self.shortcut = nn.Sequential(convolution, nn.BatchNorm2d(after))

    def forward(self, x: Tensor) -> Tensor:
        inner = self.bn2(self.conv2(self.relu(self.bn1(self.conv1(x)))))
        inner += x if self.shortcut is None else self.shortcut(x)
        return self.relu(inner)


def resnet18(classes: int = 1000) -> nn.Module:
    """Return ResNet-18 without torchvision: 11,689,512 parameters for 1,000 classes."""
    widths = (64, 64, 128, 256, 512)
    blocks: list[nn.Module] = []
    for before, after in itertools.pairwise(widths):
        blocks += [Block(before, after, 1 if before == after else 2), Block(after, after, 1)]
    stem = [nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU(inplace=True)]
    head = [nn.AdaptiveAvgPool2d((1, 1)), nn.Flatten(), nn.Linear(512, classes)]
    return nn.Sequential(*stem, nn.MaxPool2d(3, 2, 1), *blocks, *head)


class Encoder(nn.Module):
    """A small transformer encoder that classifies sequences of tokens; no dropout."""

    def __init__(self, vocabulary: int = 10_000, width: int = 256, classes: int = 10) -> None:
        super().__init__()
        self.embed = nn.Embedding(vocabulary, width)
        layer = nn.TransformerEncoderLayer(width, 8, 4 * width, dropout=0.0, batch_first=True)
        self.layers = nn.TransformerEncoder(layer, 4, enable_nested_tensor=False)
        self.head = nn.Linear(width, classes)

    def forward(self, tokens: Tensor) -> Tensor:
        return self.head(self.layers(self.embed(tokens)).mean(1))


def training_step(model: nn.Module, inputs: Tensor, classes: int) -> Step:
    labels = torch.randint(0, classes, (len(inputs),), device=inputs.device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9, foreach=False)

    def step() -> None:
        optimizer.zero_grad()
        F.cross_entropy(model(inputs), labels).backward()
        optimizer.step()

    return step


def resnet_step(batch: int, device: str) -> Step:
    model = resnet18().to(device)
    return training_step(model, torch.randn(batch, 3, 224, 224, device=device), 1000)


def mnist_step(batch: int, device: str) -> Step:
    return training_step(mnist_cnn().to(device), torch.randn(batch, 1, 28, 28, device=device), 10)


def encoder_step(batch: int, device: str) -> Step:
    tokens = torch.randint(0, 10_000, (batch, 128), device=device)
    return training_step(Encoder().to(device), tokens, 10)


CASES: list[tuple[str, Callable[[int, str], Step], int]] = [
    ("ResNet-18, 224x224", resnet_step, 32),
    ("ResNet-18, 224x224", resnet_step, 256),
    ("MNIST CNN, 28x28", mnist_step, 128),
    ("transformer encoder, 128 tokens", encoder_step, 32),
]


def on_cuda(make: Callable[[int, str], Step], batch: int) -> tuple[int, int]:
    """Return the peak bytes of the second step, as a third would be, and cuBLAS's among them."""
    gc.collect()
    torch._C._cuda_clearCublasWorkspaces()
    torch.cuda.empty_cache()
    before = torch.cuda.memory_allocated()
    step = make(batch, "cuda")
    with sdpa_kernel(SDPBackend.MATH):  # as MPS does in training
        step()
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
        step()
        torch.cuda.synchronize()
    peak = torch.cuda.max_memory_allocated() - before
    held = torch.cuda.memory_allocated()
    torch._C._cuda_clearCublasWorkspaces()
    return peak, held - torch.cuda.memory_allocated()


def on_paper(make: Callable[[int, str], Step], batch: int) -> dict[str, int]:
    """Return preflight's peak of two steps, by kind."""
    step = make(batch, "cpu")

    def twice() -> None:  # the optimizer's state is there from the second on
        step()
        step()

    return preflight(twice, device="meta").peak_bytes


def main() -> int:
    if not torch.cuda.is_available():
        print("This compares with a CUDA GPU, and there is none.")
        return 2
    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}")
    heads = f"{'CUDA':>10} {'cuBLAS':>9} {'preflight':>10} {'off by':>7}"
    print(f"{'training step':<32} {'batch':>5} {heads}")
    worst = 0.0
    for name, make, batch in CASES:
        peak, workspace = on_cuda(make, batch)
        ours = on_paper(make, batch)
        off = ours["total"] / (peak - workspace) - 1
        worst = max(worst, abs(off))
        numbers = f"{format_bytes(peak):>10} {format_bytes(workspace):>9}"
        print(f"{name:<32} {batch:>5} {numbers} {format_bytes(ours['total']):>10} {off:>+7.1%}")
        print(f"    {', '.join(f'{kind} {format_bytes(size)}' for kind, size in ours.items())}")
    print(f"worst: {worst:.1%}, within {TOLERANCE:.0%}: {worst <= TOLERANCE}")
    return int(worst > TOLERANCE)


if __name__ == "__main__":
    sys.exit(main())
