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
    "models", "precision", "training", "learning", "agreement", "known_errors",
    "svg", "figures", "explore",
    "diagnosis", "remedies", "mps_checks", "openmp_check", "doctor",
    "csv_table", "chips", "mps_ops", "mps_coverage", "metal_source", "preflight",
    "published", "records", "record_work", "record_suite",
]
PREFLIGHT = [
    "places", "operators", "arithmetic", "live_memory", "shapes", "tally", "trace",
    "as_if_mps", "mac_answers", "report", "run", "command",
]
AGREEMENT = ["report", "runs", "judge", "compare"]
# fmt: on


def imported(path: Path, package: str) -> set[str]:
    """Return the modules of ``package`` that a file imports, at the top or inside a function."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module == package:
            found |= {name.name for name in node.names}
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith(f"{package}."):
            found.add(str(node.module).removeprefix(f"{package}.").split(".")[0])
    return found


def modules(folder: Path) -> set[str]:
    """Return the modules and packages in a folder, without those that only run."""
    files = {path.stem for path in folder.glob("*.py")} - {"__init__", "__main__"}
    return files | {path.parent.name for path in folder.glob("*/__init__.py")}


def test_every_module_has_its_place():
    assert modules(HELPERS) == set(ORDER)
    assert modules(HELPERS / "preflight") == set(PREFLIGHT)
    assert modules(HELPERS / "agreement") == set(AGREEMENT)


@pytest.mark.parametrize("module", ORDER)
def test_a_module_imports_only_what_stands_above_it(module):
    path = HELPERS / f"{module}.py"
    above = set(ORDER[: ORDER.index(module)])
    for file in [path] if path.is_file() else sorted((HELPERS / module).glob("*.py")):
        assert imported(file, "helpers") - {module} <= above, file.name


@pytest.mark.parametrize("package", ["preflight", "agreement"])
def test_so_do_the_parts_of_a_package(package):
    order = {"preflight": PREFLIGHT, "agreement": AGREEMENT}[package]
    for position, module in enumerate(order):
        found = imported(HELPERS / package / f"{module}.py", f"helpers.{package}")
        assert found <= set(order[:position]), module


def test_importing_helpers_leaves_the_heavy_libraries_alone():
    program = (
        "import sys, torch; before = set(sys.modules); import helpers; "
        "heavy = {'torchvision', 'pandas', 'matplotlib.pyplot', 'rich', 'IPython'}; "
        "print(sorted(heavy & (set(sys.modules) - before)))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stdout.strip() == "[]", done.stderr
