"""The computations: each returns what a device made of it, and what is right.

The data are small whole numbers wherever possible: every partial sum is then exact in float32 (and
in bfloat16 where that is used), in whatever order a device adds, so a right result is the
reference, to the last bit. The reference never runs the operator in question: it is written out
in float64 on the CPU.
"""

# ruff: noqa: D103 (reports.py says of each function what it is about)

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

from helpers.device import synchronize

Pairs = list[tuple[Tensor, Tensor]]  # what the device computed, and what is right


def _whole(*shape: int, most: int = 3) -> Tensor:
    """Return whole numbers from -``most`` to ``most`` in float32, always the same ones."""
    generator = torch.Generator().manual_seed(sum(shape))
    return torch.randint(-most, most + 1, shape, generator=generator).float()


def _linear(x: Tensor, weight: Tensor, bias: Tensor | None, device: torch.device) -> Pairs:
    """Compare F.linear with a product and a sum, written out in float64."""
    got = F.linear(x.to(device), weight.to(device), None if bias is None else bias.to(device))
    right = x.double() @ weight.double().T + (0.0 if bias is None else bias.double())
    return [(got, right)]


def linear_3d(device: torch.device) -> Pairs:
    return _linear(_whole(2, 64, 128), _whole(384, 128), _whole(384), device)


def linear_vector(device: torch.device) -> Pairs:
    return _linear(_whole(80, 1, 2), _whole(192, 2), _whole(192), device)


def linear_large_batch(device: torch.device) -> Pairs:
    return _linear(_whole(65_537, 2, 16), _whole(32, 16), _whole(32), device)


def linear_strided_weight(device: torch.device) -> Pairs:
    x, weight = _whole(2, 8), _whole(12, 8)
    square = _whole(8, 8)
    rows = F.linear(x.to(device), weight.to(device)[::2])
    transposed = F.linear(x.to(device), square.to(device).t())
    wide = x.double()
    return [(rows, wide @ weight[::2].double().T), (transposed, wide @ square.double())]


def linear_twice(device: torch.device) -> Pairs:
    # Sums of 634 signs stay below 256, where bfloat16 still has every whole number.
    x, weight = _whole(6, 6, 634).sign(), _whole(634, 634).sign()
    right = x.double() @ weight.double().T
    x, weight = (t.to(device, torch.bfloat16) for t in (x, weight))
    return [(F.linear(x, weight).clone(), right) for _ in range(2)]


def long_bmm(device: torch.device) -> Pairs:
    # What lies behind the operands in memory is not zero, so that reading too far shows.
    length, side, behind = 32_769, 33, 1_000.0
    left, right = _whole(2, side, length), _whole(2, length, side)

    def placed(values: Tensor) -> Tensor:
        room = torch.full((values.numel() + 4_096,), behind, device=device)
        room[: values.numel()] = values.flatten().to(device)
        return room[: values.numel()].view(values.shape)

    product = torch.bmm(placed(left), placed(right))
    exact = [a.double() @ b.double() for a, b in zip(left, right, strict=True)]
    return [(product, torch.stack(exact))]


def conv2d_strided_weight(device: torch.device) -> Pairs:
    x, kernels = _whole(2, 16, 12, 20), _whole(3, 16, 3, 3, 3)
    got = F.conv2d(x.to(device), kernels.to(device)[:, :, 1])
    patches = F.unfold(x.double(), kernel_size=3)  # (batch, channels · 9, places)
    right = kernels[:, :, 1].double().reshape(3, -1) @ patches
    return [(got, right.view(2, 3, 10, 18))]


def addcdiv_strided(device: torch.device) -> Pairs:
    value, step = _whole(2, 3).t(), _whole(2, 3, most=4).t()
    divisor = torch.tensor([[1.0, 2.0], [4.0, 8.0], [0.5, 0.25]])
    got = value.to(device, copy=True).addcdiv_(step.to(device), divisor.to(device))
    return [(got, value.double() + step.double() / divisor.double())]


def where_strided(device: torch.device) -> Pairs:
    condition = torch.tensor([[True, False, True], [True, True, False]]).t()
    values = torch.arange(1, 7).reshape(3, 2)
    got = torch.where(condition.to(device), values.to(device), 0)
    return [(got, values * condition)]


def activations_strided(device: torch.device) -> Pairs:
    x = torch.linspace(-1, 1, 6).view(2, 3)
    moved, wide = x.to(device).movedim(0, 1), x.double().t()
    return [
        (F.softplus(moved), wide.exp().log1p()),
        (F.elu(moved), torch.where(wide > 0, wide, wide.exp() - 1)),
    ]


def adaptive_max_pool(device: torch.device) -> Pairs:
    x = torch.arange(25.0, device=device).reshape(1, 1, 5, 5)
    right = torch.tensor([6.0, 8, 9, 16, 18, 19, 21, 23, 24])
    return [(F.adaptive_max_pool2d(x, 3).flatten(), right)]


def slice_assignment(device: torch.device) -> Pairs:
    x = torch.zeros(3, device=device)
    x[1] = 1
    x[2] = 3
    return [(x, torch.tensor([0.0, 1.0, 3.0]))]


def many_sums(device: torch.device) -> Pairs:
    x, repeats = _whole(16, 210, 64), 200
    here, values = x.to(device), x.flatten().tolist()
    sums = torch.stack([here.sum() for _ in range(repeats)])
    counts = torch.stack([here.count_nonzero() for _ in range(repeats)])
    count = sum(value != 0 for value in values)
    return [
        (sums, torch.tensor(repeats * [sum(values)])),
        (counts, torch.tensor(repeats * [count])),
    ]


def scaled_bfloat16(device: torch.device) -> Pairs:
    right = torch.tensor([1.0, 2.0, -3.0, 4.0])
    parameter = torch.zeros(4, device=device, dtype=torch.bfloat16, requires_grad=True)
    scaler = torch.amp.GradScaler(device.type, init_scale=2.0)
    scaler.scale((parameter * right.to(device, torch.bfloat16)).sum()).backward()
    scaler.unscale_(torch.optim.SGD([parameter], lr=0.1))
    assert parameter.grad is not None
    return [(parameter.grad, right)]


def embedding_out_of_range(device: torch.device) -> Pairs:
    weight, rows = torch.ones(3, 5, device=device), torch.tensor([0, 3], device=device)
    return _must_be_refused(lambda: F.embedding(rows, weight).sum(), device)


def index_copy_out_of_range(device: torch.device) -> Pairs:
    # Five numbers in the middle of sixty-four that are ours: a write that goes astray by three
    # lands among them, and in nobody else's memory.
    storage = torch.zeros(64, device=device)
    view, row = storage[8:13], torch.tensor([8], device=device)
    one = torch.ones(1, device=device)
    return _must_be_refused(lambda: view.index_copy_(0, row, one).sum(), device)


def _must_be_refused(attempt: Callable[[], Tensor], device: torch.device) -> Pairs:
    """Return a wrong pair unless ``attempt`` raises: here silence is the error."""
    raised = torch.zeros(1)
    try:
        attempt().item()
        synchronize(device)  # an error may come only now
    except (IndexError, RuntimeError):
        raised = torch.ones(1)
    return [(raised, torch.ones(1))]


def unwaited_copies(device: torch.device) -> Pairs:
    # Each source is dropped right after its copy was asked for, as in a loop over batches.
    sources = [_whole(1_000 + i) for i in range(20)]
    moved = [source.clone().to(device, non_blocking=True) for source in sources]
    synchronize(device)
    return [(there, source) for there, source in zip(moved, sources, strict=True)]


def strided_copy_back(device: torch.device) -> Pairs:
    parent, every_second = torch.zeros(20), torch.arange(20.0, device=device)[::2]
    parent[::2].copy_(every_second)
    synchronize(device)
    right = torch.arange(20.0)
    right[1::2] = 0
    return [(parent, right)]


def narrowing_copy_back(device: torch.device) -> Pairs:
    right = torch.arange(8.0) + 0.25
    source = right.to(device, copy=True)
    torch.empty(10, dtype=torch.float16)[2:].copy_(source)
    synchronize(device)
    return [(source, right)]


def random_stream(device: torch.device) -> Pairs:
    # Own generators: the reader's random numbers stay where they are.
    streams = [torch.Generator(device).manual_seed(2**31 + 11) for _ in range(2)]
    first, again = (torch.randn(64, generator=g, device=device) for g in streams)
    later = torch.randn(64, generator=streams[0], device=device)
    moves_on = (later != first).any().float().cpu()
    return [(first, again.cpu()), (moves_on, torch.ones(()))]
