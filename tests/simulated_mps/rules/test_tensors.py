import copy
import io
import pickle

import pytest
import torch
from torch import nn


def test_views_share_memory(mps):
    x = torch.zeros(4, 4, device=mps)
    x.t()[0, 3] = 5
    assert x[3, 0].item() == 5
    part = x[1:3, ::2]
    part.fill_(7)
    assert x.sum().item() == 5 + 4 * 7
    assert part._base is x
    assert part.untyped_storage().data_ptr() == x.untyped_storage().data_ptr()
    x.unfold(0, 2, 2).zero_()
    assert x.sum().item() == 0
    first, _ = x.chunk(2)
    first += 1
    assert x.sum().item() == 8
    assert x.permute(1, 0).contiguous().is_contiguous()
    assert x.reshape(-1).expand(3, 16).shape == (3, 16)


def test_in_place_out_and_resize(mps):
    out = torch.empty(0, device=mps)
    torch.add(torch.ones(3, device=mps), 1, out=out)
    assert out.tolist() == [2, 2, 2]
    assert out.resize_(5).shape == (5,)
    x = torch.ones(3, device=mps)
    x.add_(1).mul_(2)
    assert x.tolist() == [4, 4, 4]
    x.data = torch.zeros(7, device=mps)
    assert x.shape == (7,)


def test_several_results(mps):
    values, order = torch.sort(torch.tensor([3.0, 1, 2], device=mps))
    assert values.tolist() == [1, 2, 3]
    assert order.tolist() == [1, 2, 0]
    assert order.is_mps
    parts = torch.ones(4, device=mps).split(2)
    assert all(part.is_mps for part in parts)


def test_indexing_and_masks(mps):
    x = torch.arange(10.0, device=mps)
    assert x[torch.tensor([1, 2], device=mps)].tolist() == [1, 2]
    assert x[[0, 3]].tolist() == [0, 3]
    assert x[x > 7].tolist() == [8, 9]
    x[x < 5] = 0
    assert x.sum().item() == 5 + 6 + 7 + 8 + 9
    assert torch.where(x > 5, x, torch.zeros_like(x)).is_mps


def test_conjugates_and_real_views(mps):
    z = torch.tensor([1 + 2j, 3 - 1j], device=mps)
    assert (z.conj() * z).real.tolist() == [5, 10]
    assert torch.view_as_real(z).shape == (2, 2)


def test_save_and_load_with_map_location(mps):
    model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4)).to(mps)
    file = io.BytesIO()
    torch.save(model.state_dict(), file)
    for location, device_type in ((None, "mps"), ("cpu", "cpu"), ("mps", "mps"), (mps, "mps")):
        file.seek(0)
        state = torch.load(file, map_location=location, weights_only=True)
        assert state["0.weight"].device.type == device_type
        assert torch.equal(state["0.weight"].cpu(), model[0].weight.detach().cpu())
        copy.deepcopy(model).load_state_dict(state)


def test_a_checkpoint_of_the_cpu_loads_onto_mps(mps):
    file = io.BytesIO()
    torch.save({"w": torch.arange(3.0)}, file)
    file.seek(0)
    assert torch.load(file, map_location="mps")["w"].tolist() == [0, 1, 2]


def test_whole_models_pickle_and_deepcopy(mps):
    file = io.BytesIO()
    torch.save(nn.Linear(2, 2).to(mps), file)
    file.seek(0)
    assert next(torch.load(file, weights_only=False).parameters()).is_mps
    x = torch.randn(5, device=mps)
    assert torch.equal(pickle.loads(pickle.dumps(x)), x)
    assert torch.equal(copy.deepcopy(x), x)


@pytest.mark.parametrize(
    "make",
    [
        lambda: torch.eye(3, device="mps").to_sparse(),
        lambda: torch.eye(3).to_sparse().to("mps"),
        lambda: torch.sparse_coo_tensor([[0]], [1.0], device="mps"),
        lambda: torch.eye(3).to_sparse_csr().to("mps"),
        lambda: torch.empty(0, device="mps", layout=torch.sparse_coo),
        lambda: (
            nn.Embedding(3, 2, sparse=True)
            .to("mps")(torch.tensor([1], device="mps"))
            .sum()
            .backward()
        ),
    ],
)
def test_sparse_tensors_are_refused_and_never_become_cpu_tensors(make):
    with pytest.raises(NotImplementedError):
        make()


def test_the_refusal_of_sparse_tensors_says_that_a_mac_has_them():
    with pytest.raises(NotImplementedError, match=r"A Mac has sparse_coo and sparse_csr"):
        torch.eye(3, device="mps").to_sparse()


def test_inference_mode(mps):
    with torch.inference_mode():
        y = nn.Linear(2, 2).to(mps)(torch.ones(1, 2, device=mps))
    assert y.is_inference()
    assert y.is_mps
