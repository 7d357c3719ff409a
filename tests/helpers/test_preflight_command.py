import json
import subprocess
import sys
import textwrap

import pytest

from helpers import __main__ as command
from helpers.preflight import preflight_script
from helpers.preflight.command import check

HARD_CODED = """
    import sys

    import numpy as np
    import torch
    import torch.nn.functional as F
    from torch import nn

    assert torch.backends.mps.is_available()
    host = torch.from_numpy(np.random.rand(64, 16)).float()  # float64 on the host is no finding
    labels = torch.randint(0, 4, (64,))
    model = nn.Linear(16, 4, device="mps")
    optimizer = torch.optim.AdamW(model.parameters())
    scaler = torch.amp.GradScaler("mps")
    generator = torch.Generator(device="mps").manual_seed(0)
    for _ in range(2):
        x, y = host.to("mps"), labels.to(torch.device("mps:0"))
        x = x + torch.randn(x.shape, device=x.device, generator=generator)
        with torch.autocast("mps", dtype=torch.float16):
            out = model(x)
            assert out.dtype == torch.float16
            loss = F.cross_entropy(out, y)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        torch.mps.synchronize()
        print("loss", loss.item(), torch.mps.current_allocated_memory() > 0)
    torch.save(model.state_dict(), sys.argv[1])
    model.load_state_dict(torch.load(sys.argv[1], map_location="mps"))
    torch.mps.empty_cache()
"""


def run(*arguments, folder="."):
    return subprocess.run(
        [sys.executable, "-m", "helpers", "preflight", *map(str, arguments)],
        cwd=folder, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip


@pytest.fixture
def script(tmp_path):
    def write(source):
        path = tmp_path / "train.py"
        path.write_text(textwrap.dedent(source))
        return path

    return write


def test_a_program_that_hard_codes_mps_runs_clean(script, tmp_path):
    done = run(script(HARD_CODED), tmp_path / "model.pt", "--json")
    assert done.returncode == 0, done.stderr + done.stdout
    report = json.loads(done.stdout)  # what the program prints is not in it
    assert report["clean"]
    assert report["flops"] == 2 * 2 * (2 * 64 * 16 * 4)
    assert report["peak_bytes"]["optimizer_state"] > 0
    assert report["chips"]["M1"]["fits"] is True
    assert done.stderr.count("loss") == 2
    assert done.stderr.count("True") == 2


def test_findings_give_exit_code_1_and_name_the_line(script):
    path = script(
        """
        import torch
        x = torch.ones(3, 3, device="mps")
        torch.linalg.eig(x)
        x.double()
        torch.cuda.synchronize()
        x.numpy()
        """
    )
    done = run("--json", path)
    report = json.loads(done.stdout)
    assert done.returncode == 1
    lines = {
        group: [use["line"] for found in report[group].values() for use in found["uses"]]
        for group in ("missing", "wide_dtypes", "cuda_calls", "refused_calls")
    }
    assert lines == {
        "missing": [4], "wide_dtypes": [5], "cuda_calls": [6], "refused_calls": [7]
    }  # fmt: skip


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("raise KeyError('mine')", "KeyError: 'mine'.*train.py, line 1"),
        ("import sys; sys.exit(3)", "exit code 3"),
        ("import no_such_module", "No module named 'no_such_module'"),
    ],
)
def test_a_program_that_fails_gives_exit_code_2(script, capsys, source, said):
    assert command.main(["preflight", str(script(source))]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    import re

    assert re.search(said, captured.err)


@pytest.mark.parametrize(
    "target", ["absent.py", "json", "no_such_module:f", "json:no_such_function", "json:__name__"]
)
def test_what_is_not_there_gives_exit_code_2(capsys, target):
    assert command.main(["preflight", target]) == 2
    assert f"Could not run {target}" in capsys.readouterr().err


def test_sys_exit_0_is_the_end_of_a_program(script, capsys):
    assert command.main(["preflight", str(script("import sys; sys.exit(0)"))]) == 0
    assert "Nothing to check" in capsys.readouterr().out


def test_a_function_of_a_module_with_values_and_with_shapes(tmp_path):
    (tmp_path / "mine.py").write_text(
        "import torch\n\ndef step():\n    return torch.randn(64, 64) @ torch.randn(64, 64)\n"
    )
    done = run("mine:step", folder=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "Nothing found that MPS lacks" in done.stdout
    shapes = run("--json", "--device", "meta", "mine:step", folder=tmp_path)
    assert json.loads(shapes.stdout)["flops"] == 2 * 64**3
    assert json.loads(shapes.stdout)["device"] == "meta"


def test_arguments_after_a_double_dash_are_the_programs(script):
    path = script("import sys; assert sys.argv[1:] == ['a', '--json'], sys.argv")
    done = run("--json", path, "a", "--", "--json")
    assert done.returncode == 0, done.stderr


def test_a_notebook_is_refused_with_what_to_do(tmp_path, capsys):
    notebook = tmp_path / "a.ipynb"
    notebook.write_text("{}")
    assert check(str(notebook), [], as_json=False, shapes=False) == 2
    assert "jupyter nbconvert --to script" in capsys.readouterr().err


MIXED = [
    "torch.ones(2) + there",
    "torch.ones(2, 2) @ torch.ones(2, 2, device='mps')",
    "torch.cat([there, torch.ones(2)])",
    "torch.where(there > 0, there, torch.ones(2))",
    "F.cross_entropy(torch.ones(2, 3, device='mps'), torch.tensor([0, 1]))",
    "nn.Linear(2, 2).to('mps')(torch.from_numpy(np.ones((1, 2), 'float32')))",
    "nn.Linear(2, 2)(torch.ones(1, 2, device='mps'))",
    "nn.Embedding(3, 2, device='mps')(torch.tensor([1]))",
    "torch.ones(3)[torch.tensor([1], device='mps')]",
    "there.index_put_((torch.tensor([0, 1]),), torch.ones(2))",
    "there.masked_fill(torch.tensor([True, False]), 0.0)",
    "torch.ones(3) + there.sum()",
    "with torch.autocast('mps'): nn.Linear(2, 2).to('mps')(torch.ones(1, 2))",
    "nn.Linear(2, 2).to('mps')(torch.ones(2, 3, 4)[..., :2].transpose(0, 1))",
    "F.scaled_dot_product_attention(there[None], torch.ones(1, 2), there[None])",
    "F.scaled_dot_product_attention(*[there[None, None]] * 3, torch.ones(1, 1) > 0)",
    "F.cosine_similarity(there, torch.ones(2), dim=0)",
]
TOGETHER = [
    "there * torch.tensor(3.0)",
    "there[torch.tensor([1])]",
    "there[torch.tensor([True, False])]",
    "there.copy_(torch.ones(2))",
    "torch.ones(2).copy_(there)",
    "there + torch.ones(2).to(there.device)",
    "there.cpu() + torch.ones(2)",
    "i = torch.tensor([1]); there[i]; i + torch.tensor([2])",
    "torch.zeros(2).type_as(there) + there",
    "there.new_zeros(3, 2) + there",
    "F.one_hot(torch.tensor([0, 1], device='mps'), 2) + there",
    "torch.func.vmap(lambda x: x * x.new_ones(2))(torch.ones(3, 2, device='mps'))",
    "nn.Sequential(nn.Linear(2, 2)).to(torch.device('mps'))(there)",
    "torch.set_default_device('mps'); nn.Linear(2, 2)(torch.ones(2)) + there",
    "there.new_tensor([1.0, 2.0]) + there.new(2).zero_() + there",
    "torch.distributions.Exponential(there).rsample() + there",
    "nn.utils.rnn.pad_sequence([there, there]) + there",
    "torch.ones(2).to(0) + there",
    "torch.ones(2).pin_memory().to('mps') + torch.ones(2, pin_memory=True).to('mps')",
    "file = io.BytesIO(); torch.save(there, file); file.seek(0); torch.load(file) + there",
    "there.numpy(force=True)",
    "event: torch.cuda.Event | None = None; isinstance(event, torch.cuda.Stream)",
    "torch.Event(device=there.device).record(); torch.mps.event.Event().record()",
    "with torch.random.fork_rng(device_type='mps'): torch.rand(2)",
    "torch.amp.GradScaler('cuda', enabled=False); torch.autocast('cuda', enabled=False)",
    "import torchvision; torch.ops.torchvision._cuda_version()",
    "nn.Sequential(nn.LazyLinear(4), nn.LazyLinear(2)).to('mps')(there[None])",
    "two_devices(nn.Linear(2, 2), nn.Linear(2, 2).to('mps'))",
    "lengths(nn.LSTM(4, 4, device='mps'), torch.ones(3, 2, 4, device='mps'))",
    "nn.GRU(4, 4, device='mps')(nn.utils.rnn.pack_padded_sequence("
    "torch.ones(3, 2, 4, device='mps'), torch.tensor([3, 2])))",
    "F.ctc_loss(torch.rand(5, 1, 3, device='mps'), torch.ones(1, 2, device='mps').long(), "
    "torch.tensor([5]), torch.tensor([2]))",
    "nn.utils.rnn.pack_padded_sequence(torch.ones(3, 2, 4, device='mps'), torch.tensor([3, 2]))",
    "nn.Linear(2, 2).to('mps')(torch.from_numpy(np.ones((1, 2), 'float32')).to('mps'))",
]


def mixing(expression):
    return f"""
        import io
        import numpy as np, torch
        import torch.nn.functional as F
        from torch import nn
        def two_devices(a, b):
            parameters = [*a.parameters(), *b.parameters()]
            optimizer = torch.optim.Adam(parameters)
            for _ in range(2):
                b(a(torch.ones(3, 2)).to("mps")).sum().backward()
                nn.utils.clip_grad_norm_(parameters, 1.0)
                optimizer.step()
        def lengths(lstm, x):
            n = torch.tensor([2, 3])
            packed = nn.utils.rnn.pack_padded_sequence(x, n, enforce_sorted=False)
            out, n = nn.utils.rnn.pad_packed_sequence(lstm(packed)[0])
            assert n.device.type == "cpu"
            return out + x
        there = torch.ones(2, device="mps")
        {expression}
        """


@pytest.mark.parametrize("expression", MIXED)
def test_tensors_of_two_devices_are_found(script, expression):
    report = preflight_script(script(mixing(expression)))
    assert len(report.mixed_devices) == 1, report
    (finding,) = report.mixed_devices.values()
    assert finding.places == ["train.py:20"]
    assert not report.clean


@pytest.mark.parametrize("expression", TOGETHER)
def test_what_mps_takes_from_the_cpu_is_no_finding(script, expression):
    report = preflight_script(script(mixing(expression)))
    assert report.clean, report


def test_a_higher_order_operator_is_unknown_not_fine(script):
    branches = "lambda x: x + 1, lambda x: torch.linalg.eig(x)"
    report = preflight_script(script(mixing(f"torch.cond(there.sum() > 0, {branches}, (there,))")))
    assert list(report.unknown) == ["cond"]
    assert not report.clean


def test_a_program_that_fails_after_a_while_is_reported_up_to_there(script, capsys):
    path = script(
        """
        import torch
        torch.linalg.eig(torch.ones(3, 3, device="mps"))
        raise KeyError("mine")
        """
    )
    assert command.main(["preflight", str(path), "--json"]) == 2
    captured = capsys.readouterr()
    report = json.loads(captured.out)
    assert "aten::linalg_eig" in report["missing"]
    assert "KeyError: 'mine'" in report["stopped"]
    assert "to its end: KeyError: 'mine'" in captured.err
    assert not report["clean"]
    assert command.main(["preflight", str(path)]) == 2
    assert "What comes after was not checked" in capsys.readouterr().out


def test_a_function_that_fails_after_a_while_is_reported_up_to_there(tmp_path):
    (tmp_path / "mine.py").write_text(
        "import torch\n\ndef step():\n    torch.linalg.eig(torch.ones(3, 3))\n    raise OSError\n"
    )
    done = run("mine:step", folder=tmp_path)
    assert done.returncode == 2, done.stderr
    assert "aten::linalg_eig" in done.stdout
    assert "OSError" in done.stderr


@pytest.mark.parametrize(
    "forward",
    [
        "checkpoint(model, x, use_reentrant=False)",
        "checkpoint(model, x, use_reentrant=True)",
        "checkpoint_sequential(model, 2, x, use_reentrant=False)",
        "on_cpu(x)",
    ],
)
def test_checkpoints_and_saving_on_the_cpu(script, forward):
    path = script(
        f"""
        import torch
        from torch import nn
        from torch.utils.checkpoint import checkpoint, checkpoint_sequential
        device = torch.device("mps")
        model = nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 8)).to(device)
        x = torch.randn(3, 8, device=device, requires_grad=True)
        def on_cpu(x):
            with torch.autograd.graph.save_on_cpu():
                return model(x)
        {forward}.sum().backward()
        assert model[0].weight.grad.device.type == "mps"
        """
    )
    report = preflight_script(path)
    assert report.clean, report
