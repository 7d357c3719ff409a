import copy
import threading

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint
from torch.utils.data import DataLoader, TensorDataset

OPTIMIZERS = [
    (name, options)
    for name in ("SGD", "Adam", "AdamW", "RMSprop", "Adagrad")
    for options in ({}, {"foreach": True}, {"fused": True})
    if not (options.get("fused") and name in ("RMSprop", "Adagrad"))
]


@pytest.mark.parametrize(("name", "options"), OPTIMIZERS)
def test_optimizers_do_what_they_do_on_the_cpu(mps, name, options):
    ours = nn.Linear(4, 2)
    reference = copy.deepcopy(ours)
    ours.to(mps)
    settings = {"lr": 0.01, **({"momentum": 0.9, "nesterov": True} if name == "SGD" else {})}
    optimizer = getattr(torch.optim, name)(ours.parameters(), **settings, **options)
    expected = getattr(torch.optim, name)(reference.parameters(), **settings)
    x = torch.randn(8, 4)
    for _ in range(3):
        for model, step, inputs in ((ours, optimizer, x.to(mps)), (reference, expected, x)):
            step.zero_grad()
            model(inputs).pow(2).mean().backward()
            step.step()
    torch.testing.assert_close(ours.weight.cpu(), reference.weight)
    optimizer.load_state_dict(copy.deepcopy(optimizer.state_dict()))
    nn.utils.clip_grad_norm_(ours.parameters(), 1.0)


def test_autocast_knows_mps(mps):
    model, x = nn.Linear(4, 4).to(mps), torch.randn(2, 4, device=mps)
    with torch.autocast("mps"):
        assert model(x).dtype == torch.float16
        assert model(x).softmax(-1).dtype == torch.float32
    with torch.autocast("mps", dtype=torch.bfloat16):
        assert model(x).dtype == torch.bfloat16


def test_grad_scaler_trains_and_backs_off(mps):
    scaler = torch.amp.GradScaler("mps")
    model = nn.Linear(4, 4).to(mps)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    before = model.weight.detach().clone()
    for _ in range(3):
        optimizer.zero_grad()
        with torch.autocast("mps", torch.float16):
            loss = model(torch.randn(8, 4, device=mps)).pow(2).mean()
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
    assert not torch.equal(before, model.weight)
    scale = scaler.get_scale()
    model.weight.grad.fill_(float("inf"))
    scaler.step(optimizer)
    scaler.update()
    assert scaler.get_scale() < scale


@pytest.mark.parametrize("kind", [nn.RNN, nn.LSTM, nn.GRU])
def test_recurrent_layers(mps, kind):
    model = kind(4, 8, 2, batch_first=True).to(mps)
    outputs, _ = model(torch.randn(2, 5, 4, device=mps))
    outputs.sum().backward()
    assert model.weight_ih_l0.grad.is_mps


def test_transformer_and_attention(mps):
    embedding = nn.Embedding(10, 16).to(mps)
    model = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True).to(mps)
    tokens = torch.randint(0, 10, (2, 5), device=mps)
    model(embedding(tokens)).mean().backward()
    assert embedding.weight.grad.is_mps
    with torch.no_grad():
        assert model.eval()(embedding(tokens)).is_mps
    q = torch.randn(1, 2, 4, 8, device=mps, requires_grad=True)
    F.scaled_dot_product_attention(q, q, q, is_causal=True).sum().backward()
    assert q.grad.is_mps


LAYERS = [
    nn.Conv2d(3, 4, 3, padding=1),
    nn.ConvTranspose2d(3, 4, 2, 2),
    nn.BatchNorm2d(3),
    nn.GroupNorm(3, 3),
    nn.InstanceNorm2d(3),
    nn.LayerNorm(16),
    nn.AvgPool2d(2),
    nn.MaxPool2d(2),
    nn.AdaptiveAvgPool2d(1),
    nn.AdaptiveMaxPool2d((1, 1)),
    nn.Upsample(scale_factor=2),
    nn.Upsample(scale_factor=2, mode="bilinear"),
    nn.PixelShuffle(1),
    nn.ReflectionPad2d(1),
    nn.ZeroPad2d(1),
    nn.Unfold(2),
    nn.Flatten(),
    nn.GELU(),
    nn.SiLU(),
    nn.ELU(),
    nn.LeakyReLU(),
    nn.Hardswish(),
    nn.Sigmoid(),
    nn.Tanh(),
    nn.PReLU(),
    nn.Softplus(),
    nn.Softmax(1),
    nn.LogSoftmax(1),
]


@pytest.mark.parametrize("layer", LAYERS, ids=lambda layer: type(layer).__name__)
def test_layers_do_what_they_do_on_the_cpu(mps, layer):
    results = []
    for device in ("cpu", mps):
        model = copy.deepcopy(layer).to(device)
        generator = torch.Generator().manual_seed(0)
        x = torch.randn(2, 3, 16, 16, generator=generator).to(device).requires_grad_()
        y = model(x)
        y.sum().backward()
        results.append((y.detach().cpu(), x.grad.cpu()))
    torch.testing.assert_close(*results)


def test_convolutions_in_one_and_three_dimensions(mps):
    nn.Conv1d(3, 4, 3).to(mps)(torch.randn(2, 3, 20, device=mps)).sum().backward()
    nn.Conv3d(1, 2, 3).to(mps)(torch.randn(1, 1, 5, 5, 5, device=mps)).sum().backward()


def test_losses(mps):
    p = torch.randn(4, 3, device=mps, requires_grad=True)
    t = torch.tensor([0, 1, 2, 0], device=mps)
    log_p = p.log_softmax(1)
    losses = [
        F.cross_entropy(p, t),
        F.nll_loss(log_p, t),
        F.mse_loss(p, p * 0),
        F.l1_loss(p, p * 0 + 1),
        F.smooth_l1_loss(p, p * 0 + 1),
        F.binary_cross_entropy_with_logits(p, torch.ones_like(p)),
        F.kl_div(log_p, p.softmax(1), reduction="batchmean"),
    ]
    sum(losses).backward()
    assert p.grad.isfinite().all()


def test_higher_order_gradients(mps):
    x = torch.randn(3, device=mps, requires_grad=True)
    (g,) = torch.autograd.grad((x**3).sum(), x, create_graph=True)
    g.sum().backward()
    torch.testing.assert_close(x.grad, 6 * x.detach())


def test_vmap_and_grad(mps):
    squares = torch.func.vmap(torch.func.grad(lambda v: (v**2).sum()))
    assert squares(torch.ones(4, 3, device=mps)).is_mps


@pytest.mark.parametrize("reentrant", [True, False])
def test_checkpointing(mps, reentrant):
    x = torch.randn(3, device=mps, requires_grad=True)
    checkpoint(nn.Linear(3, 3).to(mps), x, use_reentrant=reentrant).sum().backward()
    assert x.grad.is_mps


def test_a_backward_pass_in_a_thread(mps):
    errors = []

    def train():
        try:
            nn.Linear(3, 3).to(mps)(torch.ones(1, 3, device=mps)).sum().backward()
        except Exception as error:
            errors.append(error)

    thread = threading.Thread(target=train)
    thread.start()
    thread.join()
    assert not errors


@pytest.mark.parametrize("workers", [0, 2])
def test_data_loader_workers(mps, workers):
    dataset = TensorDataset(torch.arange(20.0), torch.arange(20))
    loader = DataLoader(dataset, batch_size=5, num_workers=workers)
    batches = [x.to(mps, non_blocking=True) for x, _ in loader]
    assert torch.cat(batches).tolist() == list(range(20))


def test_data_loader_warns_that_mps_does_not_pin(mps):
    loader = DataLoader(TensorDataset(torch.zeros(4)), pin_memory=True)
    with pytest.warns(UserWarning, match="not supported on MPS"):
        [x.to(mps) for (x,) in loader]


def test_data_parallel_is_a_pass_through(mps):
    model = nn.DataParallel(nn.Linear(2, 2).to(mps))
    assert model.device_ids == []
    assert model(torch.ones(1, 2, device=mps)).is_mps
