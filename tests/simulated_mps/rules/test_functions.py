import pytest
import torch

A = torch.tensor([[4.0, 1, 0], [1, 3, 1], [0, 1, 2]])
FUNCTIONS = {
    "einsum": lambda a: torch.einsum("ij,jk->ik", a, a),
    "bmm": lambda a: torch.bmm(a[None], a[None]),
    "norm": lambda a: torch.linalg.norm(a),
    "inv": lambda a: torch.linalg.inv(a),
    "fft": lambda a: torch.fft.fft(a).abs(),
    "topk": lambda a: torch.topk(a, 2)[0],
    "std": lambda a: a.std(),
    "cumsum": lambda a: a.cumsum(0),
    "meshgrid": lambda a: torch.meshgrid(a[0], a[0], indexing="ij")[0],
    "linspace": lambda a: torch.linspace(0, 1, 5, device=a.device),
    "stack": lambda a: torch.stack([a, a]),
    "unique": lambda a: a.unique(),
    "bincount": lambda a: torch.bincount(a[0].long()),
    "histc": lambda a: torch.histc(a),
    "roll": lambda a: a.roll(1),
    "tril": lambda a: torch.tril(a),
    "eye": lambda a: torch.eye(3, device=a.device),
    "nonzero": lambda a: torch.nonzero(a > 0),
    "median": lambda a: a.median(),
    "argmax": lambda a: a.argmax(1),
    "cdist": lambda a: torch.cdist(a, a),
    "scatter_add": lambda a: torch.zeros_like(a).scatter_add(0, a.long() % 3, a),
}


@pytest.mark.parametrize("function", FUNCTIONS.values(), ids=FUNCTIONS)
def test_functions_give_what_they_give_on_the_cpu(mps, function):
    result = function(A.to(mps))
    assert result.is_mps
    torch.testing.assert_close(result.cpu(), function(A))
