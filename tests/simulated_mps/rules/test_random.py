import pytest
import torch
import torch.nn.functional as F


def draw(generator=None):
    return torch.randn(4, device="mps", generator=generator)


def test_one_seed_repeats_a_run():
    torch.manual_seed(3)
    first = draw()
    torch.mps.manual_seed(3)
    assert torch.equal(draw(), first)
    assert torch.mps.seed() is None
    assert not torch.equal(draw(), first)


def test_the_same_seed_gives_other_numbers_than_on_the_cpu():
    torch.manual_seed(3)
    assert not torch.equal(draw().cpu(), torch.randn(4))


def test_the_state_can_be_saved_and_restored():
    state = torch.mps.get_rng_state()
    first = draw()
    torch.mps.set_rng_state(state)
    assert torch.equal(draw(), first)


def test_generators():
    one, two = (torch.Generator(device="mps").manual_seed(1) for _ in range(2))
    assert one.device.type == "mps"
    assert one.initial_seed() == 1
    assert torch.equal(draw(one), draw(two))
    with pytest.raises(RuntimeError, match="generator"):
        draw(torch.Generator())


def test_fork_rng_leaves_the_stream_alone():
    torch.manual_seed(5)
    with torch.random.fork_rng(devices=[0], device_type="mps"):
        first = draw()
    assert torch.equal(draw(), first)


def test_dropout_and_permutations():
    x = torch.ones(1000, device="mps")
    torch.manual_seed(0)
    first = F.dropout(x)
    torch.manual_seed(0)
    assert torch.equal(F.dropout(x), first)
    assert 300 < (first == 0).sum().item() < 700
    assert torch.randperm(9, device="mps").sort()[0].tolist() == list(range(9))
    assert torch.multinomial(torch.ones(3, device="mps"), 2).is_mps
