"""Which operators have an MPS kernel in the installed PyTorch, by its own tables: no Mac needed.

Sources: ``native_functions.yaml``, which ships in every wheel; the operators that
``torch.backends.mps`` registers from Python; and ``data/mps_ops.json`` for what only the Mac's
binaries hold (a few operators that C++ code registers by hand, and torchvision's kernels). An
operator that none of these knows is "unknown", never "fine".
"""

import ast
import functools
import importlib.metadata
import json
import re
from pathlib import Path
from typing import Any, Literal

import torch

Verdict = Literal["kernel", "on cpu", "composite", "missing", "unknown"]
TABLE = Path(__file__).resolve().parent.parent / "data" / "mps_ops.json"

# MPS answers these with code of its own, which the tables do not name (_mps_convolution, say).
_SPECIAL = {"convolution", "convolution_backward", "_convolution", "copy_"}
_COMPOSITE_KEYS = (
    "CompositeExplicitAutogradNonFunctional",
    "CompositeExplicitAutograd",
    "CompositeImplicitAutograd",
)


@functools.cache
def verdict(operator: str, layout: str = "MPS") -> Verdict:
    """Return what MPS does with an operator such as ``aten::add.Tensor``.

    ``kernel``: it has one. ``on cpu``: PyTorch runs it on the CPU by itself, without an error.
    ``composite``: it is made of other operators, see ``composite_key``. ``missing``: it raises
    NotImplementedError (or runs on the CPU, with PYTORCH_ENABLE_MPS_FALLBACK). ``unknown``: the
    tables do not say. ``layout`` is ``MPS``, or ``SparseMPS`` or ``SparseCsrMPS`` for tensors of
    these layouts.
    """
    namespace, _, name = operator.partition("::")
    if namespace == "torchvision":
        return _torchvision_verdict(name)
    if namespace == "aten":
        if name in kernels(layout) or name in _SPECIAL:
            return "kernel"
        always, perhaps = always_on_cpu()
        if name in always | perhaps:
            return "on cpu" if name in always else "unknown"
    if composite_key(operator) is not None:
        return "composite"
    return "missing" if namespace == "aten" else "unknown"


def composite_key(operator: str) -> str | None:
    """Return the dispatch key under which an operator is made of others, or None if it is not."""
    has_kernel = torch._C._dispatch_has_kernel_for_dispatch_key
    return next((key for key in _COMPOSITE_KEYS if has_kernel(operator, key)), None)


@functools.cache
def kernels(layout: str = "MPS") -> frozenset[str]:
    """Return the aten operators, ``add.out`` say, with a kernel for a dispatch key.

    A structured operator needs one kernel, that of its ``out`` form, for all its forms. The file
    is read line by line, since parsing all of it with torchgen takes seconds; a test holds the
    two results equal.
    """
    listed: set[str] = set()
    delegates: dict[str, str] = {}
    name = ""
    for line in _yaml_path().read_text().splitlines():
        if func := re.match(r"- func: ([\w.]+)\(", line):
            name = func[1]
        elif delegate := re.match(r"  structured_delegate: ([\w.]+)", line):
            delegates[name] = delegate[1]
        elif (keys := re.match(r"    ([\w, ]+): \w", line)) and layout in keys[1].split(", "):
            listed.add(name)
    listed |= {name for name, out in delegates.items() if out in listed}
    return frozenset(listed | (python_registered() if layout == "MPS" else set()))


@functools.cache
def python_registered() -> frozenset[str]:
    """Return the operators that ``torch.backends.mps`` registers from Python on a Mac."""
    source = Path(str(torch.backends.mps.__file__)).read_text()
    calls = (node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Call))
    return frozenset(
        str(ast.literal_eval(call.args[0]))
        for call in calls
        if isinstance(call.func, ast.Attribute) and call.func.attr == "impl" and len(call.args) == 3
    )


def always_on_cpu(series: str = "") -> tuple[frozenset[str], frozenset[str]]:
    """Return operators that run on the CPU by themselves in a torch series, and those that may.

    The series, ``2.14``, is that of the installed torch unless you name another. One between two
    that were read and agree is taken to agree with them; where they differ, or past the newest
    one read, the differing operators are the second set.
    """
    table: dict[str, list[str]] = _table()["always_on_cpu"]
    series = series or _series(torch.__version__)
    if series in table:
        return frozenset(table[series]), frozenset()
    older = max((s for s in table if _order(s) < _order(series)), key=_order, default=None)
    newer = min((s for s in table if _order(s) > _order(series)), key=_order, default=None)
    before = set(table[older]) if older else set()
    after = set(table[newer]) if newer else set()
    return frozenset(before & after), frozenset(before ^ after)


def limit(operator: str, args: Any) -> str:
    """Return what an operator's MPS kernel refuses about these arguments; empty if nothing known.

    Only what PyTorch's own tests of MPS say (torch/testing/_internal/common_mps.py): an adaptive
    average pool needs sizes of which one divides the other.
    """
    if operator not in ("aten::_adaptive_avg_pool2d", "aten::adaptive_avg_pool2d.out"):
        return ""
    sizes = zip(args[0].shape[-2:], args[1], strict=True)
    if all(max(pair) % min(pair) == 0 for pair in sizes if min(pair)):
        return ""
    return "input sizes must be divisible by output sizes"


def alternative(operator: str) -> str:
    """Return what to use instead of an operator that MPS lacks; empty where nothing is known.

    Only what has its MPS kernels in the installed torch is proposed.
    """
    table: dict[str, list[dict[str, Any]]] = _table()["alternatives"]
    namespace, _, name = operator.partition("::")
    base = name.split(".")[0]
    names = (f"{namespace}::{base}", f"{namespace}::{base.removesuffix('_backward')}")
    known = (each for name in names for each in table.get(name, ()))
    return next((each["say"] for each in known if kernels().issuperset(each["needs"])), "")


def _torchvision_verdict(name: str) -> Verdict:
    try:
        series = _series(importlib.metadata.version("torchvision"))
    except importlib.metadata.PackageNotFoundError:
        return "unknown"
    table: dict[str, list[str]] = _table()["torchvision"]
    if series not in table:
        return "unknown"
    return "kernel" if name.split(".")[0] in table[series] else "missing"


@functools.cache
def _table() -> dict[str, Any]:
    content: dict[str, Any] = json.loads(TABLE.read_text(encoding="utf-8"))
    return content


def _yaml_path() -> Path:
    package = Path(torch.__file__).resolve().parent.parent / "torchgen"
    path = package / "packaged" / "ATen" / "native" / "native_functions.yaml"
    if not path.is_file():
        raise RuntimeError(
            f"This PyTorch has no {path}, which lists its MPS kernels: install an official wheel."
        )
    return path


def _series(version: str) -> str:
    return ".".join(version.split("+")[0].split(".")[:2])


def _order(series: str) -> tuple[int, ...]:
    return tuple(int(part) for part in series.split("."))
