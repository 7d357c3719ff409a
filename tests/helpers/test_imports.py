"""Imports go one way: a module of helpers imports only modules above it in this list."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

HELPERS = Path(__file__).resolve().parents[2] / "helpers"
# fmt: off
ORDER = [
    "environment", "device", "machine", "timing", "memory", "footprint", "out_of_memory",
    "fetch", "on_disk", "images", "batches", "data",
    "models", "precision", "training", "learning",
    "figures",
    "diagnosis", "remedies", "mps_checks", "openmp_check", "doctor",
]
# fmt: on


def imported(module: str) -> set[str]:
    """Return the modules of helpers that ``module`` imports, at the top or inside a function."""
    found = set()
    for node in ast.walk(ast.parse((HELPERS / f"{module}.py").read_text())):
        if isinstance(node, ast.ImportFrom) and node.module == "helpers":
            found |= {name.name for name in node.names}
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("helpers."):
            found.add(str(node.module).split(".")[1])
    return found


def test_every_module_has_its_place():
    modules = {path.stem for path in HELPERS.glob("*.py")} - {"__init__", "__main__"}
    assert modules == set(ORDER)


@pytest.mark.parametrize("module", ORDER)
def test_a_module_imports_only_what_stands_above_it(module):
    assert imported(module) <= set(ORDER[: ORDER.index(module)])


def test_importing_helpers_leaves_the_heavy_libraries_alone():
    program = (
        "import sys, torch; before = set(sys.modules); import helpers; "
        "heavy = {'torchvision', 'pandas', 'matplotlib.pyplot', 'rich', 'IPython'}; "
        "print(sorted(heavy & (set(sys.modules) - before)))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stdout.strip() == "[]", done.stderr
