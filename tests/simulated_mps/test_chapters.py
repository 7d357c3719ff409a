"""A chapter that breaks a rule of MPS fails, and the report names the cell and the remedy."""

import subprocess
import sys

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_notebook

from .session import ROOT, clean_environment

SETUP = """import torch
from helpers import pick_device

device = pick_device()
assert device.type == "mps"
"""
VIOLATIONS = {
    "float64": (
        "torch.zeros(2, dtype=torch.float64, device=device)",
        "TypeError: Cannot convert a MPS Tensor to float64",
        "Make it float32 on the CPU first",
    ),
    "missing-op": (
        "torch.linalg.eig(torch.eye(2, device=device))",
        "NotImplementedError: The operator 'aten::linalg_eig' is not currently implemented",
        "This PyTorch has no MPS kernel for it",
    ),
    "cuda-call": (
        "torch.ones(2).cuda()",
        "AssertionError: Torch not compiled with CUDA enabled",
        "Take the device from `pick_device()`",
    ),
    "numpy": (
        "torch.ones(2, device=device).numpy()",
        "TypeError: can't convert mps:0 device type tensor to numpy",
        "`x.cpu().numpy()`",
    ),
}


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    """Return the output of one run over a chapter for each violation, and one that is fine."""
    folder = tmp_path_factory.mktemp("chapters")
    codes = {name: code for name, (code, _, _) in VIOLATIONS.items()}
    for name, code in {**codes, "fine": "torch.ones(2, device=device)"}.items():
        cells = [new_code_cell(SETUP, id="setup"), new_code_cell(code, id=f"{name}-cell")]
        kernel = {"name": "python3", "display_name": "Python 3"}
        notebook = new_notebook(cells=cells, metadata={"kernelspec": kernel})
        nbformat.write(notebook, folder / f"{name}.ipynb")
    done = subprocess.run(
        [
            *(sys.executable, "-m", "tests.simulated_mps.chapters", "--color=no"),
            *(str(path) for path in sorted(folder.glob("*.ipynb"))),
        ],
        cwd=ROOT,
        env=clean_environment(BOOK_DEVICE="cpu"),  # as make test sets it
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 1, done.stdout + done.stderr
    return done.stdout


@pytest.mark.parametrize("name", VIOLATIONS)
def test_a_violation_fails_with_cell_error_and_remedy(name, report):
    _, error, remedy = VIOLATIONS[name]
    section = report.split(f"simulated MPS: {name}.ipynb", 1)[1]
    cell, message, advice = section.strip("- \n").splitlines()[:3]
    assert cell.endswith(f"{name}-cell")
    assert error in message
    assert remedy in advice


def test_only_the_violations_fail(report):
    assert "4 failed, 1 passed" in report
