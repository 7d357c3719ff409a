"""A pytest plugin for nbmake runs on the simulated device: where a chapter failed, and the remedy.

PyTorch's messages say what is wrong; some do not say what to write instead.
"""

import re
from collections.abc import Generator
from typing import Any

import pytest

REMEDIES = {
    r"doesn't support float64|ComplexDouble": "MPS has no float64 and no complex128. Make it "
    "float32 on the CPU first: `x.float()`, or `dtype=torch.float32` where it is made.",
    r"The operator '([^']+)' is not currently implemented for the MPS": "This PyTorch has no MPS "
    "kernel for it. Do this step on the CPU (`x.cpu()`), or use another operator. A chapter must "
    "not rely on PYTORCH_ENABLE_MPS_FALLBACK.",
    r"not compiled with CUDA": "A Mac has no CUDA. Take the device from `pick_device()` and write "
    "`.to(device)`; for waiting and memory use the helpers.",
    r"can't convert mps:0 device type tensor to numpy": "NumPy reads the CPU's memory only. Write "
    "`x.cpu().numpy()`, with `.detach()` first if it has gradients.",
    r"Expected all tensors to be on the same device": "Move model, inputs and targets to one "
    "`device`.",
    r"Simulated MPS cannot run torch\.compile": "Call torch.compile only where "
    "`is_simulated(device)` is false, and say so on the page.",
    r"Can't get attribute .* on <module '__main__'": "On macOS, workers are spawned and cannot see "
    "what a cell defines. Move it to a module, or use `workers=0`.",
}


def remedy(text: str) -> str | None:
    """Return what to do about the first known error in ``text``, or None if it has none."""
    for pattern, advice in REMEDIES.items():
        if re.search(pattern, text):
            return advice
    return None


def failed_cell(notebook: Any) -> tuple[str, str] | None:
    """Return id and error text of the cell that failed in an executed notebook, or None."""
    for cell in notebook.cells:
        for output in cell.get("outputs", []):
            if output.output_type == "error" and "raises-exception" not in cell.metadata.get(
                "tags", []
            ):
                return cell.get("id", "?"), f"{output.ename}: {output.evalue}"
    return None


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Add a section with cell, error and remedy to the report of a chapter that failed."""
    report = yield
    result = call.excinfo.value.args[0] if call.excinfo and call.excinfo.value.args else None
    failure = failed_cell(result.nb) if hasattr(result, "nb") else None
    if failure:
        cell, error = failure
        lines = [f"cell:   {cell}", f"error:  {error}", f"remedy: {remedy(error) or 'not known'}"]
        report.sections.append((f"simulated MPS: {item.name}", "\n".join(lines)))
    return report
