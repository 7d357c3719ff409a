"""The comparison with the CPU finds what is wrong, and does not cry wolf.

There is no second device here: a module that is moved with ``.to`` may do wrong from then on,
which stands for a device that computes wrongly.
"""

import math

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from helpers import resnet18
from helpers.agreement import compare as comparison
from helpers.agreement import compare_with_cpu, judge, report


class Moved(nn.Module):
    """A layer that knows whether it was moved to "the device", and then spoils its output."""

    def __init__(self, spoil):
        super().__init__()
        self.spoil, self.on_device = spoil, False

    def forward(self, x):
        return self.spoil(x) if self.on_device else x


class Network(nn.Sequential):
    """Passes the news of a move on to its layers; `copy.deepcopy` and `.cpu()` are no move."""

    def to(self, *arguments, **options):
        for layer in self.modules():
            layer.on_device = True
        return super().to(*arguments, **options)


@pytest.fixture
def second_device(monkeypatch):
    """Make the CPU count as a device of its own, so that it is compared with itself."""
    monkeypatch.setattr(comparison, "_is_cpu", lambda device: False)


def classifier(*extra):
    torch.manual_seed(0)
    return Network(nn.Linear(20, 30), nn.Tanh(), *extra, nn.Linear(30, 5))


def batch(n=16):
    generator = torch.Generator().manual_seed(1)
    return torch.randn(n, 20, generator=generator), torch.arange(n) % 5


def compare(model, **options):
    return compare_with_cpu(model, *batch(), device="cpu", **options)


def backwards(change):
    """A spoiler that leaves the forward pass alone and changes the gradient."""

    class Change(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x.view_as(x)

        @staticmethod
        def backward(ctx, gradient):
            return change(gradient)

    return Change.apply


@pytest.mark.parametrize("dtype", [None, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("training", [False, True])
def test_a_right_device_agrees(second_device, dtype, training):
    found = compare(classifier(nn.BatchNorm1d(30), nn.Dropout(0.5)), dtype=dtype, training=training)
    assert found.agrees, str(found)


def test_another_order_of_additions_agrees(second_device):
    def reordered(x):
        return (x + 4) - 4

    found = compare(classifier(Moved(reordered)))
    assert found.worst.error > 1.5 * found.worst.rounding
    assert found.agrees, str(found)


@pytest.mark.parametrize(
    ("dtype", "spoil"),
    [
        (None, lambda x: x * 1.0001),
        (None, lambda x: torch.cat([x[:1] + 0.001, x[1:]])),
        (None, lambda x: x.to(torch.bfloat16).float()),
        (None, torch.zeros_like),
        (None, lambda x: x / 0 * 0),
        (torch.bfloat16, lambda x: x * 1.2),
        (torch.float16, lambda x: x * 1.1),
    ],
)
def test_a_wrong_forward_pass_is_found(second_device, dtype, spoil):
    found = compare(classifier(Moved(spoil)), dtype=dtype)
    assert not found.agrees
    assert found.worst.error > found.worst.limit
    by_name = {d.name: d.verdict for d in found.differences}
    assert by_name["output"] == "DISAGREES"


@pytest.mark.parametrize("dtype", [None, torch.bfloat16])
def test_a_choice_that_rounding_makes_is_no_alarm(second_device, dtype):
    # On the device, one gradient in a million stops at a unit where the CPU's goes on.
    def flip_some(gradient):
        generator = torch.Generator().manual_seed(0)
        flipped = torch.rand(gradient.shape, generator=generator) < 1e-6
        return torch.where(flipped, torch.zeros_like(gradient), gradient)

    torch.manual_seed(0)
    wide = Network(nn.Linear(20, 4000), Moved(backwards(flip_some)), nn.ReLU(), nn.Linear(4000, 5))
    images, labels = batch(512)
    found = compare_with_cpu(wide, images, labels, device="cpu", dtype=dtype)
    changed = found.differences[2]
    assert changed.error > 10 * changed.rounding or dtype
    assert found.agrees, str(found)


def test_one_wrong_number_of_many_is_found(second_device):
    def one_wrong(x):
        x = x.clone()
        x[3, 7] += 0.1
        return x

    assert not compare(classifier(Moved(one_wrong))).agrees


@pytest.mark.parametrize(
    "change", [lambda g: g * 0, lambda g: g * 1.1, lambda g: g / 0, lambda g: -g]
)
def test_c22_a_wrong_gradient_is_found_though_the_output_is_right(second_device, change):
    found = compare(classifier(Moved(backwards(change))))
    verdicts = {d.name: d.verdict for d in found.differences}
    assert verdicts["output"] == verdicts["loss"] == "agrees"
    assert verdicts["gradient of 0.weight"] == "DISAGREES"
    assert verdicts["gradient of 3.weight"] == "agrees"
    assert found.worst.name in ("gradient of 0.weight", "gradient of 0.bias")


@pytest.mark.parametrize("dtype", [None, torch.bfloat16, torch.float16])
def test_c22_gradients_that_are_all_zero_never_agree(second_device, dtype):
    found = compare(classifier(Moved(backwards(torch.zeros_like))), dtype=dtype)
    assert not found.agrees
    (lost,) = [d for d in found.differences if d.name == "gradient of 0.weight"]
    assert lost.error == pytest.approx(1.0)


def test_c21_nan_on_the_device_alone_disagrees(second_device):
    found = compare(classifier(Moved(lambda x: x * math.nan)))
    assert not found.agrees
    assert math.isinf(found.worst.error)


def test_c21_nan_in_the_batch_is_blamed_on_the_batch():
    images, labels = batch()
    images[2, 3] = math.nan
    found = compare_with_cpu(classifier(), images, labels, device="cpu")
    assert not found.agrees
    assert "Look at the batch first" in found.summary
    assert {d.verdict for d in found.differences} == {"unclear"}


def test_a_gradient_that_is_zero_but_for_rounding_is_no_alarm(second_device):
    # Batch normalization takes away what the bias before it adds: its true gradient is zero.
    def noise(gradient):
        return gradient * (1 + 1e-7)

    model = classifier(nn.BatchNorm1d(30), Moved(backwards(noise)))
    model[0], model[1] = model[0], nn.Identity()
    found = compare(model, training=True)
    assert found.agrees, str(found)


def test_the_model_is_not_changed():
    model = classifier(nn.BatchNorm1d(30), nn.Dropout(0.5)).train()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    compare(model, training=True)
    assert all(torch.equal(before[n], v) for n, v in model.state_dict().items())
    assert all(p.grad is None and p.dtype == torch.float32 for p in model.parameters())
    assert model.training
    assert model[3].training
    assert torch.get_default_dtype() == torch.float32


def test_the_readers_random_numbers_are_left_alone():
    torch.manual_seed(3)
    expected = torch.rand(3)
    model = classifier()
    torch.manual_seed(3)
    compare(model)
    assert torch.equal(torch.rand(3), expected)


def test_dropout_layers_are_off_and_hidden_dropout_is_refused():
    class Hidden(nn.Module):
        def forward(self, x):
            return F.dropout(x, training=self.training)

    assert compare(classifier(nn.Dropout(0.5)), training=True).agrees
    assert compare(classifier(Hidden())).agrees
    with pytest.raises(ValueError, match="random numbers"):
        compare(classifier(Hidden()), training=True)


def test_training_mode_compares_running_statistics():
    names = [d.name for d in compare(classifier(nn.BatchNorm1d(30)), training=True).differences]
    assert "buffer 2.running_var" in names
    names = [d.name for d in compare(classifier(nn.BatchNorm1d(30))).differences]
    assert not any(name.startswith("buffer") for name in names)


class TwoHeads(nn.Module):
    def __init__(self):
        super().__init__()
        self.body, self.heads = nn.Linear(20, 8), nn.ModuleList([nn.Linear(8, 5), nn.Linear(8, 1)])

    def forward(self, x, shift=0.0):
        hidden = self.body(x).tanh()
        label, value = (head(hidden) for head in self.heads)
        return {"label": label + shift, "more": (value, hidden)}


def test_several_outputs_have_names():
    images, labels = batch()

    def loss_fn(outputs, targets):
        value = outputs["more"][0].square().mean()
        return F.cross_entropy(outputs["label"], targets) + value

    found = compare_with_cpu(TwoHeads(), images, labels, device="cpu", loss_fn=loss_fn)
    names = [d.name for d in found.differences]
    assert names[:3] == ["output['label']", "output['more'][0]", "output['more'][1]"]
    assert found.agrees
    same = compare_with_cpu(TwoHeads(), {"x": images}, labels, device="cpu", loss_fn=loss_fn)
    assert same.agrees
    shifted = (images, torch.ones(5))
    assert compare_with_cpu(TwoHeads(), shifted, labels, device="cpu", loss_fn=loss_fn).agrees


def test_integer_inputs_stay_integers():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Embedding(10, 6), nn.Flatten(), nn.Linear(24, 5))
    rows = torch.randint(0, 10, (8, 4))
    found = compare_with_cpu(model, rows, torch.arange(8) % 5, device="cpu")
    assert found.agrees
    assert "gradient of 0.weight" in [d.name for d in found.differences]


def test_a_frozen_parameter_has_no_gradient_to_compare():
    model = classifier()
    model[0].requires_grad_(False)
    names = [d.name for d in compare(model).differences]
    assert names == ["output", "loss", "gradient of 2.weight", "gradient of 2.bias"]
    assert [d.name for d in compare(model.requires_grad_(False)).differences] == ["output", "loss"]


def test_non_contiguous_weights_reach_the_device_as_they_are(second_device):
    seen = []

    class Spy(Network):
        def forward(self, x):
            seen.append(self[0].weight.is_contiguous())
            return super().forward(x)

    model = Spy(*classifier())
    model[0].weight = nn.Parameter(torch.randn(20, 30).t())
    assert compare(model).agrees
    assert seen[:2] == [False, False]


def test_c18_float64_buffers_are_refused_for_mps_by_name():
    model = classifier()
    model[0].register_buffer("scale", torch.ones(2, dtype=torch.float64))
    with pytest.raises(TypeError, match=r"buffer 0\.scale"):
        compare_with_cpu(model, *batch(), device="mps")


def test_a_model_that_cannot_run_in_float64_is_named_as_such():
    class Single(nn.Module):
        def forward(self, x):
            return x @ torch.ones(30, 30, dtype=torch.float32)

    with pytest.raises(ValueError, match="float64"):
        compare(classifier(Single()))


def test_what_a_model_makes_itself_is_float64_in_the_reference():
    class Adds(nn.Module):
        def forward(self, x):
            return x @ torch.eye(x.shape[-1])

    assert compare(classifier(Adds())).agrees


def test_without_a_gpu_it_says_that_nothing_was_compared():
    found = compare(classifier())
    assert found.summary.startswith("No GPU here: the CPU in float32 against the CPU in float64")
    assert "error on the CPU" not in found.table().columns
    assert "bfloat16" in compare(classifier(), dtype=torch.bfloat16).summary


def test_a_wrong_cpu_is_unclear_rather_than_right():
    class Coarse(nn.Module):
        def forward(self, x):
            return x if x.dtype == torch.float64 else x * 1.5

    found = compare(classifier(Coarse()))
    assert not found.agrees
    assert "unclear" in {d.verdict for d in found.differences}


def test_it_shows_and_prints_the_verdict(second_device):
    found = compare(classifier(Moved(torch.zeros_like)))
    assert "DISAGREES" in str(found)
    assert "<table" in found._repr_html_()
    assert found.worst.name in found.summary


def test_a_long_table_shows_what_is_nearest_to_its_limit():
    images = torch.randn(2, 3, 32, 32)
    found = compare_with_cpu(
        resnet18(small_images=True), images, torch.tensor([0, 1]), device="cpu"
    )
    shown = str(found).splitlines()
    assert len(found.differences) > 60
    assert len(shown) == report.SHOWN + 3
    assert any(line.startswith(found.worst.name) for line in shown)
    assert found.agrees


def test_c22_zeros_disagree_even_where_rounding_is_large():
    exact = {"gradient": {"weight": torch.ones(8, dtype=torch.float64)}}
    cpu = {"gradient": {"weight": torch.full((8,), 0.5, dtype=torch.float64)}}
    zeros = {"gradient": {"weight": torch.zeros(8, dtype=torch.float64)}}
    (lost,) = judge.differences(exact, cpu, zeros, torch.bfloat16)
    assert lost.verdict == "DISAGREES"
