import contextlib
import itertools
import threading
import warnings

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

from helpers import fake_images, loader, resnet18, train_epoch
from helpers.preflight import NoValueError, preflight

MIB = 2**20


def training_step(model, inputs, classes, make=torch.optim.AdamW):
    optimizer = make(model.parameters(), lr=0.1)
    labels = torch.randint(0, classes, (len(inputs),))

    def step():
        optimizer.zero_grad()
        loss = F.cross_entropy(model(inputs), labels)
        loss.backward()
        optimizer.step()
        return loss.item()

    return step, optimizer


def small_net():
    return nn.Sequential(
        nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.LazyLinear(10)
    )


def test_a_training_step_that_mps_can_run_is_clean():
    model = nn.Sequential(nn.Flatten(), nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10))
    step, _ = training_step(model, torch.randn(8, 1, 8, 8), 10)
    report = preflight(step)
    assert report.clean
    assert "Nothing found that MPS lacks" in str(report)


def test_missing_operator_is_named_with_its_line_and_what_to_use():
    def eigenvalues():
        return torch.linalg.eig(torch.eye(3))  # this line

    report = preflight(eigenvalues)
    assert list(report.missing) == ["aten::linalg_eig"]
    (use,) = report.missing["aten::linalg_eig"].uses
    assert use.place.file == __file__
    assert use.place.text.endswith("# this line")
    assert "on the CPU" in report.missing["aten::linalg_eig"].alternative
    assert not report.clean


def test_missing_backward_points_to_the_forward_line():
    torchvision = pytest.importorskip("torchvision")
    weight = nn.Parameter(torch.randn(4, 2, 3, 3))
    image, offset = torch.randn(1, 2, 8, 8), torch.randn(1, 18, 6, 6)

    def step():
        out = torchvision.ops.deform_conv2d(image, offset, weight)  # forward
        out.sum().backward()

    report = preflight(step)
    assert list(report.missing) == ["torchvision::_deform_conv2d_backward"]
    finding = report.missing["torchvision::_deform_conv2d_backward"]
    assert finding.backward
    assert not finding.forward
    (use,) = finding.uses
    assert use.place.text.endswith("# forward")


def test_missing_inside_what_pytorch_composes_of_other_operators():
    assert (
        "aten::segment_reduce"
        in preflight(
            lambda: torch.segment_reduce(torch.ones(4), "sum", lengths=torch.tensor([2, 2]))
        ).missing
    )
    assert (
        "aten::rrelu_with_noise" in preflight(lambda: F.rrelu(torch.ones(3), training=True)).missing
    )


def test_operator_of_an_unknown_library_is_unknown_not_fine():
    with torch.library._scoped_library("preflight_test", "FRAGMENT") as library:
        library.define("twice(Tensor x) -> Tensor")
        library.impl("twice", lambda x: x * 2, "CPU")
        report = preflight(lambda: torch.ops.preflight_test.twice(torch.ones(3)))
    assert list(report.unknown) == ["preflight_test::twice"]
    assert not report.clean


@pytest.mark.parametrize(
    ("make", "where"),
    [
        (lambda: torch.ones(3, dtype=torch.float64), "ones"),
        (lambda: torch.ones(3).double() + 1, "double"),
        (lambda: torch.from_numpy(np.zeros(3)) + 1, "given"),
        (lambda: torch.tensor(1.0, dtype=torch.float64), "tensor"),
    ],
)
def test_float64_is_found_where_it_begins(make, where):
    report = preflight(make)
    assert list(report.wide_dtypes) == [torch.float64]
    assert where in {use.operator for use in report.wide_dtypes[torch.float64].uses}


def test_float64_in_a_backward_written_in_python():
    class Square(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x * x

        @staticmethod
        def backward(ctx, gradient):
            return (gradient.double() * 2 * ctx.saved_tensors[0]).float()

    report = preflight(lambda: Square.apply(torch.ones(3, requires_grad=True)).sum().backward())
    assert report.wide_dtypes[torch.float64].backward


def test_dtypes_that_only_the_cpu_uses_inside_are_no_finding():
    x = torch.randn(4, 4, requires_grad=True)
    report = preflight(lambda: torch.linalg.pinv(x).sum() + torch.quantile(x, 0.5))
    assert not report.wide_dtypes


def test_cuda_only_calls_are_found_without_cuda():
    model = nn.Linear(3, 3)

    def port():
        torch.cuda.is_available()  # this question is portable
        torch.zeros(3, device="cuda:0")
        model.cuda()
        torch.cuda.synchronize()
        with warnings.catch_warnings(), torch.cuda.amp.autocast():
            torch.cuda.amp.GradScaler()

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        report = preflight(port)
    assert set(report.cuda_calls) == {
        'device="cuda"',
        "Tensor.cuda()",
        "torch.cuda.synchronize()",
        'torch.autocast("cuda")',
        'torch.amp.GradScaler("cuda")',
    }
    assert len(report.cuda_calls["Tensor.cuda()"].places) == 1


def test_a_function_that_names_mps_runs_and_only_what_is_there_counts():
    host = np.random.default_rng(0).random((4, 8))  # float64, and made float32 on the host

    def step():
        x = torch.from_numpy(host).float().to("mps")
        assert x.device.type == "mps"
        mask = torch.ones(4, 8, device=x.device)
        result = (x * mask).sum()
        assert result.is_mps
        assert result.cpu().device.type == "cpu"
        torch.mps.synchronize()

    report = preflight(step)
    assert report.clean
    assert report.peak_bytes["total"] == 4 * 512  # x, mask, their product, its sum


def test_numpy_of_a_tensor_on_mps_is_refused():
    report = preflight(lambda: torch.ones(3, device="mps").numpy())
    assert list(report.refused_calls) == ["Tensor.numpy()"]
    assert not preflight(lambda: torch.ones(3, device="mps").cpu().numpy()).refused_calls


def test_c18_float64_is_allowed_on_the_cpu_and_refused_when_moved_to_mps():
    table = torch.from_numpy(np.random.default_rng(0).random((4, 8)))

    def move(how):
        return how(table).sum()

    assert preflight(move, lambda x: x.float().to("mps")).clean
    assert preflight(move, lambda x: x.to("mps", torch.float32)).clean
    report = preflight(move, lambda x: x.to("mps"))  # this line
    (use,) = report.wide_dtypes[torch.float64].uses
    assert use.place.text.endswith("# this line")


def test_the_backward_of_a_step_that_is_done_on_the_cpu_is_not_on_mps():
    points = torch.randn(4, 3)

    def step(on_cpu):
        x = points.to("mps").requires_grad_()
        values = F.pdist(x.cpu()).to("mps") if on_cpu else F.pdist(x)
        values.mul(2).sum().backward()
        assert x.grad.is_mps

    assert preflight(step, on_cpu=True).clean
    missing = preflight(step, on_cpu=False).missing
    assert set(missing) == {"aten::_pdist_forward", "aten::_pdist_backward"}


def test_adaptive_pool_needs_sizes_that_divide():
    x = torch.randn(1, 2, 6, 6)
    assert "divisible" in next(iter(preflight(lambda: F.adaptive_avg_pool2d(x, 4)).limits))
    assert preflight(lambda: F.adaptive_avg_pool2d(x, 3)).clean


def test_embedding_with_max_norm_runs_on_the_cpu_by_itself():
    table = torch.randn(3, 3)
    report = preflight(lambda: F.embedding(torch.tensor([1]), table, max_norm=1.0))
    assert list(report.on_cpu) == ["aten::embedding_renorm_"]
    assert report.clean


# What it counts


def test_peak_by_kind_of_a_step_counted_by_hand():
    model = nn.Linear(1024, 1024, bias=False)  # 4 MiB
    x = torch.randn(256, 1024)  # 1 MiB
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)

    def step():
        model(x).square().sum().backward()
        optimizer.step()

    peak = preflight(step).peak_bytes
    # While the step runs: the weight, its gradient and its momentum; of activations none is left.
    assert peak["parameters"] == peak["gradients"] == peak["optimizer_state"] == 4 * MIB
    assert peak["inputs"] == MIB
    assert peak["activations"] < 8 * MIB
    assert peak["total"] == sum(size for kind, size in peak.items() if kind != "total")


def test_activations_live_until_backward_has_used_them():
    layers = nn.Sequential(*[nn.Sequential(nn.Linear(512, 512), nn.Sigmoid()) for _ in range(8)])
    x = torch.randn(1024, 512)  # 2 MiB, as every activation

    def train():
        layers(x).sum().backward()

    def predict():
        with torch.no_grad():
            layers(x)

    kept = 8 * 2 * MIB  # each sigmoid's result; a linear layer keeps its input, which is one
    assert kept <= preflight(train).peak_bytes["activations"] <= kept + 4 * MIB
    # A block's input, which its caller still holds, and what its two layers return.
    assert preflight(predict).peak_bytes["activations"] == 3 * 2 * MIB


def test_flops_and_bytes_of_a_product():
    a, b = torch.randn(64, 128), torch.randn(128, 32)
    for context in (contextlib.nullcontext, torch.no_grad, torch.inference_mode):
        with context():
            report = preflight(lambda: a @ b)
        assert report.flops == 2 * 64 * 128 * 32
        assert report.bytes_moved == 4 * (64 * 128 + 128 * 32 + 64 * 32)


def test_flops_of_linear_in_inference_mode_though_mps_has_a_kernel_for_the_whole():
    layer, x = nn.Linear(128, 32), torch.randn(64, 128)
    with torch.inference_mode():
        assert preflight(lambda: layer(x)).flops == 2 * 64 * 128 * 32


@pytest.mark.parametrize("make", [torch.optim.SGD, torch.optim.AdamW])
def test_shapes_alone_give_the_same_numbers(make):
    model, x = small_net(), torch.randn(4, 3, 16, 16)
    model(x)
    step, _ = training_step(model, x, 10, make)
    real, shapes = preflight(step), preflight(step, device="meta")
    assert shapes.peak_bytes == real.peak_bytes
    assert shapes.flops == real.flops > 0
    assert shapes.notes


def test_shapes_alone_suffice_for_what_no_machine_can_hold():
    def step():
        model = nn.Sequential(*[nn.Linear(50_000, 50_000, bias=False) for _ in range(20)])
        model(torch.randn(8, 50_000)).sum().backward()

    report = preflight(step, device="meta")
    assert report.peak_bytes["parameters"] == 20 * 50_000**2 * 4
    assert report.fits("M1") is False
    assert report.fits("M3 Ultra") is True
    assert report.flops == 8 * 20 * 50_000**2 * 6 - 8 * 50_000**2 * 2  # no gradient of the input


def test_a_model_that_is_on_the_meta_device_already():
    with torch.device("meta"):
        model, x = nn.Linear(100_000, 100_000), torch.empty(4, 100_000)
    report = preflight(lambda: model(x).sum().backward())
    assert report.peak_bytes["total"] > 2 * 100_000**2 * 4


def test_shapes_alone_cannot_know_how_many_are_nonzero():
    with pytest.raises(NoValueError, match=r"nonzero.*device='cpu'"):
        preflight(lambda: torch.randn(5).nonzero(), device="meta")


def test_large_work_is_done_for_one_item_and_reported_in_full():
    layer, images = nn.Conv2d(32, 64, 3), torch.randn(8, 32, 96, 96)
    values = []

    def step():
        out = layer(images)
        values.append(out.detach().clone())
        out.sum().backward()

    quick, exact = preflight(step), preflight(step, exact=True)
    assert quick.flops == exact.flops
    assert quick.peak_bytes == exact.peak_bytes
    # The first item is right, and stands for the others; with `exact` each is its own.
    assert torch.allclose(values[0][0], values[1][0], atol=1e-4)
    assert torch.equal(values[0][0], values[0][7])
    assert not torch.allclose(values[1][0], values[1][7], atol=1e-4)


# What it leaves behind


@pytest.mark.parametrize("device", ["cpu", "meta"])
def test_model_optimizer_and_random_numbers_are_as_before(device):
    torch.manual_seed(0)
    model, x = small_net(), torch.randn(4, 3, 16, 16)
    model(x)
    step, optimizer = training_step(model, x, 10)
    step()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    state = optimizer.state_dict()["state"]
    state = {(i, key): v.clone() for i, of in state.items() for key, v in of.items()}
    random = torch.get_rng_state()
    preflight(lambda: F.dropout(torch.randn(3)) + step(), device=device)
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    after = optimizer.state_dict()["state"]
    assert all(torch.equal(after[i][key], value) for (i, key), value in state.items())
    assert torch.equal(torch.get_rng_state(), random)
    assert type(next(model.parameters()).grad) in (type(None), torch.Tensor)
    step()  # trains on, with real tensors


def test_an_error_of_the_function_passes_and_nothing_stays_patched():
    before = torch.backends.mps.is_available, torch.cuda.synchronize, torch.load
    weight = torch.ones(3)

    def fail():
        weight.add_(1)
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        preflight(fail)
    assert (torch.backends.mps.is_available, torch.cuda.synchronize, torch.load) == before
    assert torch.equal(weight, torch.ones(3))
    assert torch._C._get_mkldnn_enabled()


def test_arguments_reach_the_function_and_it_runs_once():
    calls = []
    preflight(lambda a, b=None: calls.append((a, b)), 1, b=2)
    assert calls == [(1, 2)]


def test_another_device_is_refused():
    with pytest.raises(ValueError, match="'cpu' or 'meta', not 'mps'"):
        preflight(lambda: None, device="mps")


# Whole programs of the book


def test_recurrent_and_transformer_layers_are_clean():
    lstm, gru = nn.LSTM(8, 8), nn.GRU(8, 8)
    encoder = nn.TransformerEncoderLayer(8, 2, 16)
    x = torch.randn(5, 2, 8)
    for device in ("cpu", "meta"):
        report = preflight(
            lambda: (lstm(x)[0] + gru(x)[0] + encoder(x)).sum().backward(), device=device
        )
        assert report.clean, report


@pytest.mark.parametrize("device", ["cpu", "mps"])
def test_the_books_training_loop(device):
    def epoch():
        model = nn.Sequential(nn.Flatten(), nn.Linear(28 * 28, 10)).to(device)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        batches = loader(fake_images(64, channels=1, side=28), 32, device=device)
        train_epoch(model, batches, optimizer, device=torch.device(device))

    report = preflight(epoch)
    assert report.clean, report
    assert report.flops == 2 * 2 * 2 * 32 * 28 * 28 * 10  # 2 batches, forward and weight gradient


def test_resnet18_as_counted_elsewhere():
    step, _ = training_step(resnet18(), torch.randn(2, 3, 64, 64), 10)
    report = preflight(step, device="meta")
    assert report.clean
    assert report.peak_bytes["parameters"] == pytest.approx(11_181_642 * 4, rel=0.01)


# How it reads


def test_lower_bound_is_the_larger_of_the_two():
    a = torch.randn(512, 512)
    report = preflight(lambda: a @ a)  # 0.27 GFLOP, 3 MiB
    assert report.lower_bound_s("M1") == pytest.approx(2 * 512**3 / 2.6e12)
    moved = preflight(lambda: a + a)
    assert moved.lower_bound_s("Apple M1") == pytest.approx(3 * 512 * 512 * 4 / 68e9, rel=0.5)
    assert report.lower_bound_s("M2 Pro") is None  # its rate is not in the table
    with pytest.raises(ValueError, match="No chip is called 'M9'"):
        report.lower_bound_s("M9")


def test_fits_counts_three_quarters_of_the_memory():
    report = preflight(lambda: torch.empty(13 * 2**30, dtype=torch.uint8), device="meta")
    assert report.fits("M1") is False  # 0.75 x 16 GB = 12 GB
    assert report.fits("M2") is True
    assert report.fits("M2", memory_gb=16) is False
    assert report.fits("M3 Max (30-core GPU)") is None


def test_report_shows_as_tables():
    report = preflight(lambda: torch.linalg.eig(torch.eye(3)))
    lines = str(report).splitlines()
    assert all(len(line) <= 80 for line in lines)
    assert any(line.startswith("FAIL  no MPS kernel  aten::linalg_eig") for line in lines)
    assert any(line.startswith("M1 Pro") for line in lines)
    html = report._repr_html_()
    assert html.count("<table") == html.count("</table>") == 2
    assert "aten::linalg_eig" in html


def test_report_names_forward_and_backward_places_apart():
    weight = nn.Parameter(torch.ones(3))

    def step():
        for _ in itertools.repeat(None, 2):
            F.rrelu(weight, training=True).sum().backward()

    report = preflight(step)
    (finding,) = report.missing.values()
    assert finding.forward
    assert sum(finding.uses.values()) == 2
    assert len(finding.places) == 1


def test_a_program_without_tensors_is_not_called_fit_for_every_mac():
    text = str(preflight(lambda: None))
    assert "Nothing to check: no operator ran." in text
    assert "fits" not in text


def test_a_report_prints_as_text_in_a_notebook_too(monkeypatch):
    monkeypatch.setattr("rich.console._is_jupyter", lambda: True)
    text = str(preflight(lambda: torch.mode(torch.ones(3))))
    assert "aten::mode" in text
    assert "Takes at least" in text


def test_threads_are_not_followed_and_that_is_said():
    def program():
        thread = threading.Thread(target=lambda: torch.ones(2) + 1)
        thread.start()
        thread.join()

    assert "1 thread(s) were started" in " ".join(preflight(program).notes)
    assert preflight(lambda: torch.ones(2) + 1).notes == []
