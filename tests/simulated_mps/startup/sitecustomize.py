"""Python imports this at its start where this folder is on PYTHONPATH, in children as well.

It turns the simulated MPS device on as soon as `torch` has been imported, before the program can
ask PyTorch about MPS.
"""

import importlib.abc
import importlib.machinery
import importlib.util
import os
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent


def load_package():
    """Load tests/simulated_mps under its own name: `tests` may be another package here."""
    folder = HERE.parent
    spec = importlib.util.spec_from_file_location(
        "simulated_mps", folder / "__init__.py", submodule_search_locations=[str(folder)]
    )
    package = sys.modules["simulated_mps"] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(package)
    return package


class AfterTorch(importlib.abc.MetaPathFinder):
    """Finds `torch` as usual, and has the device enabled when its import is done."""

    def find_spec(self, name, path=None, target=None):
        if name != "torch":
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec("torch")
        if spec is not None:
            execute = spec.loader.exec_module

            def execute_then_enable(module):
                execute(module)
                load_package().enable()

            spec.loader.exec_module = execute_then_enable
        return spec


def run_shadowed() -> None:
    """Run the sitecustomize that Python would have imported if this folder came not first."""
    elsewhere = [entry for entry in sys.path if Path(entry or ".").resolve() != HERE]
    spec = importlib.machinery.PathFinder.find_spec("sitecustomize", elsewhere)
    if spec is not None and spec.loader is not None:
        spec.loader.exec_module(importlib.util.module_from_spec(spec))


if os.environ.get("SIMULATED_MPS") == "1":
    sys.meta_path.insert(0, AfterTorch())
run_shadowed()
