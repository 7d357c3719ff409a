"""The training loop: it learns, accumulates exactly, and stops when the loss is no number."""

import warnings

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from helpers import device as device_module
from helpers import precision, training
from helpers.learning import check_learning
from helpers.precision import autocast, autocast_dtype, make_scaler
from helpers.training import (
    Epoch,
    Evaluation,
    History,
    NonFiniteLossError,
    evaluate,
    fit,
    train_epoch,
)


def blobs(n=60, batch_size=10, seed=0):
    """Batches of three separable clouds in four dimensions."""
    generator = torch.Generator().manual_seed(seed)
    labels = torch.arange(n) % 3
    centers = 3 * torch.eye(3, 4)
    points = centers[labels] + torch.randn(n, 4, generator=generator)
    return list(zip(points.split(batch_size), labels.split(batch_size), strict=True))


def small_model():
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 3))


def sgd(model, lr=0.1):
    return torch.optim.SGD(model.parameters(), lr=lr)


def test_training_learns_and_reports():
    model = small_model()
    history = fit(model, blobs(), blobs(seed=5), sgd(model), device="cpu", epochs=12)
    table = history.table()
    assert list(table.index) == list(range(1, 13))
    assert table["train loss"].iloc[-1] < 0.3 * table["train loss"].iloc[0]
    assert table["test accuracy"].iloc[-1] > 0.9
    assert history.train[0].images == 60
    assert history.train[0].seconds > 0


def test_seconds_of_a_simulated_device_are_not_called_seconds_alone(monkeypatch):
    monkeypatch.setattr(device_module.platform, "system", lambda: "Linux")
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: True)
    nothing = torch.tensor([0])
    epochs = [Epoch(1.0, 0.5, 2.0, 10)], [Evaluation(1.0, 0.5, nothing, nothing)]
    assert History(*epochs, device="mps").table().columns[-1] == (
        "seconds (simulated: not a timing)"
    )
    assert History(*epochs, device="cpu").table().columns[-1] == "seconds"


def test_a_history_knows_the_device_that_it_trained_on():
    device, model = torch.device("cpu", 0), small_model()
    assert fit(model, blobs(), blobs(), sgd(model), device=device, epochs=1).device == device


def test_c50_a_build_can_silence_the_progress_bar(monkeypatch):
    seen = []

    def spy(epochs, *, disable, **_):
        seen.append(disable)
        return epochs

    monkeypatch.setattr(training, "tqdm", spy)
    for value in ("1", "0"):
        monkeypatch.setenv("TQDM_DISABLE", value)
        model = small_model()
        fit(model, blobs(), blobs(), sgd(model), device="cpu", epochs=1)
    assert seen == [True, False]


def test_mean_loss_weighs_a_short_last_batch_by_its_images():
    model = small_model()
    batches = blobs(n=25, batch_size=10)
    evaluation = evaluate(model, batches, device="cpu")
    images, labels = (torch.cat(part) for part in zip(*batches, strict=True))
    assert evaluation.loss == pytest.approx(F.cross_entropy(model(images), labels).item(), rel=1e-5)
    assert torch.equal(evaluation.labels, labels)
    epoch = train_epoch(model, batches, sgd(model, lr=0), device="cpu")
    assert epoch.loss == pytest.approx(evaluation.loss, rel=1e-5)
    assert epoch.accuracy == pytest.approx(evaluation.accuracy)


def test_evaluating_changes_nothing():
    model = nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3)).train()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    evaluate(model, blobs(), device="cpu")
    assert model.training
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())


@pytest.mark.parametrize("sizes", [[4] * 10, [4] * 9 + [1], [4, 3, 2, 1]])
def test_c36_every_group_equals_the_large_batch_and_the_rest_is_stepped(sizes):
    n = sum(sizes)
    images, labels = (torch.cat(part) for part in zip(*blobs(n, n), strict=True))
    parts = list(zip(images.split(sizes), labels.split(sizes), strict=True))
    model = small_model().double()
    images, parts = images.double(), [(x.double(), y) for x, y in parts]
    seen = []

    class Recorder(torch.optim.SGD):
        def step(self, closure=None):
            seen.append([p.grad.clone() for p in model.parameters()])

    train_epoch(model, parts, Recorder(model.parameters(), lr=0.0), device="cpu", accumulate=4)
    windows = [range(i, min(i + 4, len(parts))) for i in range(0, len(parts), 4)]
    assert len(seen) == len(windows)
    for gradients, window in zip(seen, windows, strict=True):
        model.zero_grad()
        x = torch.cat([parts[i][0] for i in window])
        y = torch.cat([parts[i][1] for i in window])
        F.cross_entropy(model(x), y).backward()
        for ours, p in zip(gradients, model.parameters(), strict=True):
            torch.testing.assert_close(ours, p.grad, rtol=1e-12, atol=1e-12)


def test_accumulating_less_than_one_batch_is_refused():
    with pytest.raises(ValueError, match="at least 1"):
        train_epoch(small_model(), blobs(), sgd(small_model()), device="cpu", accumulate=0)


def test_no_batches_is_an_error():
    model = small_model()
    with pytest.raises(ValueError, match="no batches"):
        train_epoch(model, [], sgd(model), device="cpu")
    with pytest.raises(ValueError, match="no batches"):
        evaluate(model, [], device="cpu")


def test_c21_bad_input_stops_at_its_step_and_is_blamed():
    batches = blobs()
    batches[4][0][0, 0] = float("inf")
    model = small_model()
    with pytest.raises(NonFiniteLossError, match=r"input .* at step 5 on cpu .*Look at the data"):
        train_epoch(model, batches, sgd(model), device="cpu")
    assert all(p.isfinite().all() for p in model.parameters())


def test_c21_bad_compute_is_told_apart():
    model = small_model()
    steps = iter(range(100))

    def loss_fn(logits, labels):
        return F.cross_entropy(logits, labels) * (float("nan") if next(steps) == 2 else 1.0)

    with pytest.raises(NonFiniteLossError, match=r"step 3 .*the computation made it"):
        train_epoch(model, blobs(), sgd(model), device="cpu", loss_fn=loss_fn)


def test_c21_a_gpu_is_looked_at_rarely_but_the_step_is_right(monkeypatch):
    monkeypatch.setattr(training, "LOOK_EVERY", {"cpu": 4})
    batches = blobs()
    batches[1][0][0, 0] = float("nan")
    model = small_model()
    with pytest.raises(NonFiniteLossError, match="step 2 "):
        train_epoch(model, batches, sgd(model), device="cpu")
    batches = blobs()
    batches[5][0][0, 0] = float("nan")  # after the last regular look
    model = small_model()
    with pytest.raises(NonFiniteLossError, match="step 6 "):
        train_epoch(model, batches, sgd(model), device="cpu")


def test_c22_healthy_training_raises_no_alarm_and_keeps_the_model():
    model = small_model()
    before = [p.clone() for p in model.parameters()]
    assert check_learning(model, blobs(), sgd(model), device="cpu") == []
    assert all(torch.equal(a, b) for a, b in zip(before, model.parameters(), strict=True))


class SkipsFirstLayer(torch.optim.SGD):
    """An optimizer with the bug that pytorch/pytorch#118115 looked like: it misses one tensor."""

    def step(self, closure=None):
        self.param_groups[0]["params"][0].grad = None
        return super().step(closure)


def test_c22_a_frozen_layer_is_named():
    model = small_model()
    problems = check_learning(
        model, blobs(), SkipsFirstLayer(model.parameters(), 0.1), device="cpu"
    )
    assert problems == ["0.weight did not change in 3 steps"]


def test_c22_zero_gradients_are_found():
    def loss_fn(logits, labels):
        return F.cross_entropy(logits, labels) * 0

    model = small_model()
    problems = check_learning(model, blobs(), sgd(model), device="cpu", loss_fn=loss_fn)
    assert problems == ["gradients are all zero: nothing can be learned"]


def test_c22_gradients_that_are_no_numbers_are_not_called_zero():
    batches = blobs()
    batches[0][0][0, 0] = float("nan")
    model = small_model()
    problems = check_learning(model, batches, sgd(model), device="cpu")
    assert problems == ["the gradient of 0.weight is infinite or NaN"]


@pytest.mark.parametrize(("batches", "steps"), [([], 3), (blobs(), 0)])
def test_nothing_to_check_with_is_an_error(batches, steps):
    model = small_model()
    with pytest.raises(ValueError, match="no batches, or no steps"):
        check_learning(model, batches, sgd(model), device="cpu", steps=steps)


def test_deliberately_frozen_parameters_are_no_alarm():
    model = small_model()
    model[0].weight.requires_grad_(False)
    assert check_learning(model, blobs(), sgd(model), device="cpu") == []


@pytest.mark.parametrize("device", ["cpu", "cuda", "mps"])
@pytest.mark.parametrize("dtype", [None, torch.float32, torch.bfloat16, torch.float16])
def test_c28_scaler_is_on_for_float16_only_and_never_warns(device, dtype, capsys):
    if device == "cuda" and not torch.cuda.is_available():
        pytest.skip("GradScaler('cuda') turns itself off without CUDA")
    precision._print_once.cache_clear()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        scalers = [make_scaler(device, dtype) for _ in range(2)]
    assert {scaler.is_enabled() for scaler in scalers} == {dtype == torch.float16}
    assert capsys.readouterr().out.count("gradient scaling is off") == (dtype != torch.float16)


def test_c29_autocast_refuses_what_it_cannot_lower_to():
    for dtype in (torch.float32, torch.float64, torch.int8):
        with pytest.raises(ValueError, match="float16 or bfloat16"):
            autocast("cpu", dtype)


def test_c29_the_dtype_really_used_is_reported():
    assert autocast_dtype("cpu", torch.bfloat16) == torch.bfloat16
    assert autocast_dtype("cpu", None) == torch.float32


def test_c29_unsupported_autocast_computes_in_float32_and_says_so(monkeypatch):
    monkeypatch.setattr(torch.amp, "is_autocast_available", lambda device_type: False)
    with pytest.warns(UserWarning, match="float32: this PyTorch has no autocast for cpu"):
        assert autocast_dtype("cpu", torch.bfloat16) == torch.float32


def test_c29_bfloat16_on_macos_13_computes_in_float32(monkeypatch):
    monkeypatch.setattr(precision.platform, "mac_ver", lambda: ("13.6", ("", "", ""), "arm64"))
    with (
        pytest.warns(UserWarning, match=r"needs macOS 14, this is 13\.6"),
        autocast("mps", torch.bfloat16),
    ):
        assert not torch.is_autocast_enabled("mps")


def test_amp_with_scaler_trains(monkeypatch):
    model = small_model()
    history = fit(
        model,
        blobs(),
        blobs(seed=5),
        sgd(model),
        device="cpu",
        epochs=12,
        dtype=torch.float16,
        accumulate=2,
    )
    assert history.table()["test accuracy"].iloc[-1] > 0.9
    assert all(p.dtype == torch.float32 for p in model.parameters())
