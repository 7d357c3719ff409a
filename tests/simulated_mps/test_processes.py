"""What needs a process of its own: variables, children, workers, the command, the kernel."""

import json
import sys

import pytest

from . import chapters, kernel
from .build import SimulationError, library
from .session import ROOT, clean_environment, simulated

EIG = "import torch; torch.linalg.eigvals(torch.eye(2, device='mps'))"


def output(*arguments, **variables):
    done = simulated(*arguments, **variables)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def error(*arguments, **variables):
    done = simulated(*arguments, **variables)
    assert done.returncode != 0, done.stdout
    return done.stderr


@pytest.mark.parametrize("value", ["1", "false", "", "00"])
def test_fallback_is_on_when_set_to_anything_but_0(value):
    done = simulated("-c", EIG, PYTORCH_ENABLE_MPS_FALLBACK=value)
    assert done.returncode == 0, done.stderr
    assert "will fall back to run on the CPU" in done.stderr


def test_fallback_is_off_when_set_to_0():
    assert "NotImplementedError" in error("-c", EIG, PYTORCH_ENABLE_MPS_FALLBACK="0")


def test_fallback_set_after_import_is_too_late():
    late = f"import os, torch; os.environ['PYTORCH_ENABLE_MPS_FALLBACK'] = '1'; {EIG}"
    assert "NotImplementedError" in error("-c", late)


def test_only_the_first_op_that_falls_back_warns():
    code = f"""
import warnings
warnings.simplefilter("always")
{EIG}
torch.ones(3, device="mps").mode()
assert torch.linalg.eig(torch.eye(2, device="mps"))[0].is_mps
"""
    done = simulated("-c", code, PYTORCH_ENABLE_MPS_FALLBACK="1")
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("is not currently supported on the MPS backend") == 1
    assert "The operator 'aten::_linalg_eigvals'" in done.stderr


def test_fallback_does_not_cover_float64():
    code = "import torch; torch.zeros(2, dtype=torch.float64, device='mps')"
    assert "TypeError: Cannot convert" in error("-c", code, PYTORCH_ENABLE_MPS_FALLBACK="1")


def test_memory_is_as_large_as_the_variable_says():
    code = "import torch; print(torch.mps.recommended_max_memory())"
    assert output("-c", code, SIMULATED_MPS_MEMORY="8G") == str(6 << 30)
    assert output("-c", code, SIMULATED_MPS_MEMORY="512MiB") == str(384 << 20)


def test_a_bad_memory_size_is_one_clear_line():
    message = error("-c", "pass", SIMULATED_MPS_MEMORY="much")
    assert message == "SIMULATED_MPS_MEMORY is 'much'; write a size such as 8G or 512M.\n"


HOLD = """
import torch
tensors = [torch.empty(32 << 20, dtype=torch.uint8, device="mps") for _ in range(4)]
"""


def test_the_hard_limit_is_1_7_times_the_recommended_memory():
    message = error("-c", HOLD, SIMULATED_MPS_MEMORY="64M")
    assert "max allowed: 81.60 MiB). Tried to allocate 32.00 MiB on" in message


@pytest.mark.parametrize("ratio", ["0.0", "2.0"])
def test_a_high_watermark_moves_the_limit(ratio):
    memory = "64M" if ratio == "0.0" else "86M"
    assert simulated("-c", HOLD, SIMULATED_MPS_MEMORY=memory).returncode != 0
    output("-c", HOLD, SIMULATED_MPS_MEMORY=memory, PYTORCH_MPS_HIGH_WATERMARK_RATIO=ratio)


@pytest.mark.parametrize(
    ("variables", "problem"),
    [
        ({"PYTORCH_MPS_HIGH_WATERMARK_RATIO": "0.5"}, "invalid low watermark ratio 1.4"),
        ({"PYTORCH_MPS_HIGH_WATERMARK_RATIO": "3"}, "invalid high watermark ratio 3"),
        ({"PYTORCH_MPS_LOW_WATERMARK_RATIO": "1.9"}, "invalid low watermark ratio 1.9"),
    ],
)
def test_contradictory_watermarks_fail_the_first_allocation(variables, problem):
    code = "import torch; print('imported', flush=True); torch.ones(1, device='mps')"
    done = simulated("-c", code, **variables)
    assert done.stdout == "imported\n"
    assert f"RuntimeError: {problem}" in done.stderr


def test_both_watermarks_can_be_lowered_together():
    ratios = {"PYTORCH_MPS_HIGH_WATERMARK_RATIO": "0.5", "PYTORCH_MPS_LOW_WATERMARK_RATIO": "0.4"}
    assert "max allowed: 24.00 MiB" in error("-c", HOLD, SIMULATED_MPS_MEMORY="64M", **ratios)


def test_a_script_sees_its_own_name_arguments_and_folder(tmp_path):
    (tmp_path / "beside.py").write_text("VALUE = 7")
    script = tmp_path / "script.py"
    script.write_text(
        "import sys, beside, torch\n"
        "assert __name__ == '__main__'\n"
        "print(sys.argv[1:], beside.VALUE, torch.ones(1, device='mps').device)"
    )
    assert output(str(script), "--size", "3") == "['--size', '3'] 7 mps:0"


def test_a_module_runs_with_m(tmp_path):
    (tmp_path / "program.py").write_text("import sys, torch; print(sys.argv[1:], torch.mps.seed())")
    path = f"{ROOT}:{tmp_path}"
    assert output("-m", "program", "a", PYTHONPATH=path) == "['a'] None"


def test_exit_codes_pass_through():
    assert simulated("-c", "raise SystemExit(7)").returncode == 7


def test_without_arguments_the_command_explains_itself():
    assert "python -m tests.simulated_mps script.py" in error()


def test_child_processes_are_simulated_too():
    code = """
import subprocess, sys
print(subprocess.check_output(
    [sys.executable, "-c", "import torch; print(torch.ones(2, device='mps').sum().item())"],
    text=True))
"""
    assert output("-c", code) == "2.0"


def test_workers_are_spawned_and_simulated(tmp_path):
    script = tmp_path / "script.py"
    script.write_text("""
import multiprocessing
import torch
from torch.utils.data import DataLoader, Dataset

class OnDevice(Dataset):
    def __len__(self):
        return 4
    def __getitem__(self, i):
        return int(torch.full((2,), i, device="mps").sum().item())  # workers have the device, too

if __name__ == "__main__":
    assert multiprocessing.get_start_method() == "spawn"
    torch.ones(1, device="mps")
    print([batch.tolist() for batch in DataLoader(OnDevice(), batch_size=2, num_workers=2)])
""")
    assert output(str(script)) == "[[0, 2], [4, 6]]"


def test_mps_tensors_cannot_be_sent_to_another_process():
    code = """
import torch
from multiprocessing.reduction import ForkingPickler
ForkingPickler.dumps(torch.ones(2, device="mps"))
"""
    assert "only available on CPU" in error("-c", code)


def test_mps_after_a_fork_is_refused():
    code = """
import multiprocessing, torch
torch.ones(1, device="mps")
fork = multiprocessing.get_context("fork")
worker = fork.Process(target=torch.ones, args=(1,), kwargs={"device": "mps"})
worker.start()
worker.join()
raise SystemExit(worker.exitcode)
"""
    assert "forked from one that had used MPS" in error("-c", code)


def test_a_missing_compiler_is_one_clear_line():
    message = error("-c", "pass", CXX="no-such-compiler")
    assert message.startswith("Simulated MPS needs the compiler CXX=no-such-compiler, and none is")
    assert "apt-get install g++" in message
    assert message.count("\n") == 1


def test_the_kernel_runs_notebooks_on_the_device(tmp_path):
    from nbclient import NotebookClient
    from nbformat.v4 import new_code_cell, new_notebook

    kernel.install(str(tmp_path))
    spec = json.loads((tmp_path / "share/jupyter/kernels/simulated-mps/kernel.json").read_text())
    assert spec["argv"][0] == sys.executable
    assert spec["env"]["BOOK_DEVICE"] == "mps"
    # The test must not change the environment that it runs in, so Jupyter is told where to look.
    cell = new_code_cell("from helpers import pick_device, stamp\nprint(stamp(pick_device()))")
    notebook = new_notebook(cells=[cell])
    client = NotebookClient(notebook, kernel_name=kernel.NAME, timeout=120)
    client.create_kernel_manager()
    client.km.kernel_spec_manager.kernel_dirs.insert(0, str(tmp_path / "share/jupyter/kernels"))
    client.execute(env=clean_environment())
    assert "simulated mps" in notebook.cells[0].outputs[0].text


def test_on_a_mac_nothing_is_simulated(monkeypatch, capsys):
    monkeypatch.setattr(sys, "platform", "darwin")
    with pytest.raises(SimulationError, match="A Mac has MPS"):
        library()
    assert chapters.main([]) == 0
    assert "BOOK_DEVICE=mps" in capsys.readouterr().out


def test_nothing_is_simulated_by_default():
    import torch

    from . import is_simulated

    assert not is_simulated()
    assert sys.platform == "darwin" or not torch.backends.mps.is_available()
