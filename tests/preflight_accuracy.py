"""``python -m tests.preflight_accuracy``: preflight against PyTorch's own list of what MPS lacks.

With ``--write`` it also writes ``data/preflight_accuracy.json``, which the book shows.

PyTorch's tests of MPS name the operators that they expect to fail
(``torch/testing/_internal/common_mps.py``, read with ast: it imports only on a Mac). Here every
operator of PyTorch's OpInfo database runs in float32, forward and backward, under preflight.
"""

import ast
import itertools
import json
import sys
import time
import warnings
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.testing._internal.common_methods_invocations import op_db
from torch.utils._pytree import tree_leaves

from helpers.preflight import Report, preflight

RESULT = Path(__file__).resolve().parent.parent / "data" / "preflight_accuracy.json"
SAMPLES = 4  # the first of each operator's sample inputs
# Entries of PyTorch's list that name no missing kernel, dtype or shape; the reason is ours.
OTHER_REASONS = {
    "svd_lowrank": "random, and its signs are arbitrary (as of pca_lowrank in the same file): "
    "other values, but all its kernels exist",
}
# Entries of OpInfo that are about the CPU's own kernels.
FOR_CPU = "_for_cpu"


@dataclass
class Accuracy:
    """Entries of OpInfo (``linalg.eig``) with what preflight said, by how PyTorch's list agrees."""

    missing: dict[str, str] = field(default_factory=dict)  # both say so
    wide: dict[str, str] = field(default_factory=dict)  # listed: float64 or complex128
    limits: dict[str, str] = field(default_factory=dict)  # listed: shapes
    other_reasons: dict[str, str] = field(default_factory=dict)
    overlooked: dict[str, str] = field(default_factory=dict)  # listed, and nothing was found
    asked_for_float64: dict[str, str] = field(default_factory=dict)  # by the sample, not listed
    false_alarms: dict[str, str] = field(default_factory=dict)
    only_in_backward: dict[str, str] = field(default_factory=dict)
    did_not_run: dict[str, str] = field(default_factory=dict)  # on this CPU
    clean: int = 0

    def to_json(self) -> str:
        """Return what data/preflight_accuracy.json holds: the torch release, and every group."""
        result = {"torch": torch.__version__.split("+")[0], **vars(self)}
        return json.dumps(result, indent=1) + "\n"


def expected_to_fail(name: str = "UNIMPLEMENTED_XFAILLIST") -> set[str]:
    """Return the OpInfo entries in one of PyTorch's lists for MPS, as far as it is on float32."""
    path = Path(str(torch.__file__)).parent / "testing" / "_internal" / "common_mps.py"
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.AnnAssign) and node.value is not None:
            target, value = node.target, node.value
        elif isinstance(node, ast.Assign):
            target, value = node.targets[0], node.value
        else:
            continue
        if isinstance(target, ast.Name) and target.id == name and isinstance(value, ast.Dict):
            for key, dtypes in zip(value.keys, value.values, strict=True):
                if isinstance(key, ast.Constant) and _covers(dtypes):
                    names.add(str(key.value))
    return names


def _covers(dtypes: ast.expr) -> bool:
    if isinstance(dtypes, ast.Constant) and dtypes.value is None:
        return True
    return any(
        isinstance(part, ast.Attribute) and part.attr == "float32" for part in ast.walk(dtypes)
    )


def sweep(ops: Iterable[Any] = op_db) -> Accuracy:
    """Run OpInfo entries under preflight and compare with PyTorch's list."""
    listed, accuracy = expected_to_fail(), Accuracy()
    for op in ops:
        if torch.float32 not in op.dtypes or op.name.endswith(FOR_CPU):
            continue
        name = op.name + op.variant_test_name
        try:
            report, asked = _run(op)
        except Exception as error:
            accuracy.did_not_run[name] = f"{type(error).__name__}: {error}".splitlines()[0][:120]
            continue
        said = _said(report, "forward")
        group = _group(report, listed=name in listed or _excused(op), asked=asked)
        if not said and name in listed:
            why = OTHER_REASONS.get(name, "")
            (accuracy.other_reasons if why else accuracy.overlooked)[name] = why
        elif group:
            getattr(accuracy, group)[name] = said
        elif _said(report, "backward"):
            accuracy.only_in_backward[name] = _said(report, "backward")
        else:
            accuracy.clean += 1
    return accuracy


def _group(report: Report, *, listed: bool, asked: bool) -> str:
    if any(found.forward for found in (*report.missing.values(), *report.unknown.values())):
        return "missing" if listed else "false_alarms"
    if any(found.forward for found in report.wide_dtypes.values()):
        return "wide" if listed else ("asked_for_float64" if asked else "false_alarms")
    if report.limits:
        return "limits" if listed else "false_alarms"
    return ""


def _excused(op: Any) -> bool:
    """Return whether OpInfo itself expects an entry to fail in TestConsistency, of test_mps.py."""
    return any(
        getattr(skip, "cls_name", None) == "TestConsistency"
        and getattr(skip, "test_name", None) is None
        and not getattr(skip, "dtypes", None)
        for skip in op.decorators
    )


def _run(op: Any) -> tuple[Report, bool]:
    """Return a report on an entry's first samples, and whether one of them asks for float64."""
    inputs = op.sample_inputs("cpu", torch.float32, requires_grad=op.supports_autograd)
    samples = list(itertools.islice(inputs, SAMPLES))

    def forward_and_backward() -> None:
        for sample in samples:
            output = op(sample.input, *sample.args, **sample.kwargs)
            leaves = [leaf for leaf in tree_leaves(output) if isinstance(leaf, Tensor)]
            roots = [leaf for leaf in leaves if leaf.requires_grad]
            if roots and all(root.layout == torch.strided for root in roots):
                torch.autograd.backward(roots, [torch.ones_like(root) for root in roots])

    given = [leaf for sample in samples for leaf in tree_leaves((sample.args, sample.kwargs))]
    return preflight(forward_and_backward, exact=True), torch.float64 in given


def _said(report: Report, phase: str) -> str:
    groups = (report.missing, report.unknown, report.wide_dtypes, report.limits)
    found = [(name, finding) for group in groups for name, finding in group.items()]
    return ", ".join(str(name) for name, finding in found if getattr(finding, phase))


def main() -> int:
    start = time.perf_counter()
    write, names = "--write" in sys.argv, [each for each in sys.argv[1:] if each != "--write"]
    if write and names:
        sys.exit("--write is for all operators, not for some of them")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        accuracy = sweep([op for op in op_db if not names or op.name in names])
    if write:
        RESULT.write_text(accuracy.to_json(), encoding="utf-8")
    print(f"torch {torch.__version__}: {time.perf_counter() - start:.0f} s")
    for name, entries in vars(accuracy).items():
        print(f"\n{name.replace('_', ' ')}: {entries if name == 'clean' else len(entries)}")
        for entry in entries if name != "clean" else ():
            print(f"  {entry:<40} {entries[entry]}")
    return int(bool(accuracy.false_alarms or accuracy.overlooked))


if __name__ == "__main__":
    sys.exit(main())
