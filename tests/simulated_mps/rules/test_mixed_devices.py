import pytest
import torch
import torch.nn.functional as F
from torch import nn

SAME_DEVICE = "Expected all tensors to be on the same device"


def here(*size):
    return torch.ones(*size, device="mps")


@pytest.mark.parametrize(
    "mix",
    [
        lambda: torch.ones(2) + here(2),
        lambda: here(2) + torch.ones(2),
        lambda: torch.ones(2, 2) @ here(2, 2),
        lambda: torch.cat([here(2), torch.ones(2)]),
        lambda: torch.equal(here(2), torch.ones(2)),
        lambda: torch.where(here(2) > 0, here(2), torch.ones(2)),
        lambda: F.cross_entropy(here(2, 3), torch.tensor([0, 1])),
        lambda: F.mse_loss(here(2), torch.ones(2)),
        lambda: torch.add(here(2), 1, out=torch.empty(2)),
        lambda: nn.Embedding(3, 2).to("mps")(torch.tensor([1])),
    ],
)
def test_mixed_devices_raise(mix):
    with pytest.raises(RuntimeError, match=SAME_DEVICE):
        mix()


@pytest.mark.parametrize(
    "mix",
    [
        lambda: nn.Linear(2, 2).to("mps")(torch.ones(1, 2)),
        lambda: nn.Linear(2, 2)(here(1, 2)),
        lambda: nn.Conv2d(1, 2, 3).to("mps")(torch.ones(1, 1, 8, 8)),
        lambda: nn.Conv2d(1, 2, 3)(here(1, 1, 8, 8)),
        lambda: nn.BatchNorm1d(2).to("mps")(torch.ones(3, 2)),
        lambda: nn.LSTM(2, 3).to("mps")(torch.ones(4, 1, 2)),
        lambda: torch.ones(3)[torch.tensor([1], device="mps")],
        lambda: here(3).index_put_((torch.tensor([0, 1]),), torch.ones(2)),
    ],
)
def test_a_model_and_its_input_must_be_together(mix):
    with pytest.raises(RuntimeError):
        mix()


def test_a_number_may_come_from_the_cpu():
    assert (here(2) * torch.tensor(3.0)).tolist() == [3, 3]


def test_indices_may_lie_on_the_cpu():
    x = torch.arange(10.0, device="mps")
    assert x[torch.tensor([1, 2])].tolist() == [1, 2]
    x[torch.tensor([9])] = 1.0
    assert x[9].item() == 1


def test_copies_go_both_ways():
    x, y = here(3), torch.zeros(3)
    y.copy_(x)
    assert y.device.type == "cpu"
    assert y.tolist() == [1, 1, 1]
    x.copy_(torch.full((3,), 5.0))
    assert x.tolist() == [5, 5, 5]
