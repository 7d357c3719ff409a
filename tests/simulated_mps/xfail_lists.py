"""PyTorch's own lists of operators that fail on a Mac, from its test utilities.

`torch/testing/_internal/common_mps.py` ships in every wheel, but builds its lists only where MPS is
available, and imports much. Its dictionaries are literals, so they are read with `ast`.
"""

import ast
import importlib.util
from pathlib import Path

# Lists of operators that cannot run; the others are about values, and about old macOS.
LISTS = ("UNIMPLEMENTED_XFAILLIST", "XFAILLIST_GRAD", "UNDEFINED_XFAILLIST", "SKIPLIST")


def float32() -> dict[str, set[str]]:
    """Return, for each list, the keys (name and variant) of the operators that fail in float32."""
    found: dict[str, set[str]] = {}
    for node in ast.walk(ast.parse(_path().read_text())):
        if isinstance(node, ast.Assign):
            target, value = node.targets[0], node.value
        elif isinstance(node, ast.AnnAssign) and node.value is not None:
            target, value = node.target, node.value
        else:
            continue
        if isinstance(target, ast.Name) and target.id in LISTS and isinstance(value, ast.Dict):
            found.setdefault(target.id, set()).update(_failing(value))
    return found


def _path() -> Path:
    spec = importlib.util.find_spec("torch")  # finds it without importing it
    assert spec is not None
    assert spec.origin is not None
    return Path(spec.origin).parent / "testing" / "_internal" / "common_mps.py"


def _failing(dtypes_by_key: ast.Dict) -> set[str]:
    # None stands for every dtype.
    return {
        str(ast.literal_eval(key))
        for key, dtypes in zip(dtypes_by_key.keys, dtypes_by_key.values, strict=True)
        if key is not None and (ast.unparse(dtypes) == "None" or "float32" in ast.unparse(dtypes))
    }
