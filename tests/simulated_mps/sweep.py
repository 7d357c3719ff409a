"""PyTorch's own database of operators (OpInfo) on the simulated device, against the CPU.

    python -m tests.simulated_mps.sweep [--samples 4] [name ...]

Every operator of `op_db` that takes float32 is run forward and backward on its sample inputs, in
two processes. Results must be equal. An operator that does not run must be explained by a table of
the installed PyTorch (its lists of operators that fail on a Mac, in `common_mps.py`, or the mark in
OpInfo itself), or be one of the two things that README.md names. Else the exit code is 1.
"""

import argparse
import collections
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import types
import unittest
import warnings
from pathlib import Path
from typing import Any, NamedTuple

from . import xfail_lists

PROCESSES = 2
SECONDS_PER_OP = 60
TOLERANCE = {"rtol": 1e-3, "atol": 1e-4}  # same kernels, but threads may sum in another order
# Samples of these have tensors and devices that are meant to stay on the CPU.
LEFT_ALONE = {"tensor_split", "to"}
# Their values are whatever was in memory.
UNINITIALIZED = re.compile(r"(new_)?empty(_like|_strided|_permuted)?$|resize(_as)?_$")


class Outcome(NamedTuple):
    """What became of one operator: "ok", or what failed and the error's text."""

    key: str  # as PyTorch's lists have it: name and variant
    result: str  # ok, mismatch, missing, float64, sparse, cpu, error
    stage: str  # forward, backward
    detail: str
    marked: bool  # OpInfo itself expects it to fail on MPS in float32


class MismatchError(AssertionError):
    """The simulated device gave something else than the CPU."""


# ------------------------------------------------------------------------------ one process


def run_part(part: int, samples: int, names: list[str]) -> list[Outcome]:
    """Run every ``PROCESSES``-th operator, starting with ``part``; in the simulation only."""
    import torch

    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    _seed_like_the_cpu()
    signal.signal(signal.SIGALRM, _too_long)
    chosen = [op for op in op_database() if torch.float32 in op.dtypes]
    if names:
        chosen = [op for op in chosen if op.name in names]
    return [run_op(op, samples) for op in chosen[part::PROCESSES]]


def op_database() -> list[Any]:
    """Return PyTorch's `op_db`."""
    # Its test utilities import a package for expected outputs, which nothing here uses.
    stand_in = types.ModuleType("expecttest")
    stand_in.TestCase = unittest.TestCase  # type: ignore[attr-defined]
    sys.modules.setdefault("expecttest", stand_in)
    from torch.testing._internal.common_methods_invocations import op_db

    return list(op_db)


def run_op(op: Any, samples: int) -> Outcome:
    """Run one operator on its first sample inputs; the first that fails decides."""
    import torch

    key = op.name + op.variant_test_name
    stage = ["forward"]
    signal.alarm(SECONDS_PER_OP)
    try:
        torch.manual_seed(0)
        inputs = op.sample_inputs("cpu", torch.float32, requires_grad=op.supports_autograd)
        for _, sample in zip(range(samples), inputs, strict=False):
            compare(op, sample, stage)
        return Outcome(key, "ok", stage[0], "", marked(op))
    except MismatchError as error:
        return Outcome(key, "mismatch", stage[0], str(error), marked(op))
    except Exception as error:
        detail = re.sub(r"\s+", " ", f"{type(error).__name__}: {error}")
        return Outcome(key, classify(detail), stage[0], detail[:300], marked(op))
    finally:
        signal.alarm(0)


def compare(op: Any, sample: Any, stage: list[str]) -> None:
    """Run one sample input on both devices.

    Raises what the simulated device raises, and ``MismatchError``.
    """
    stage[0] = "forward"
    on_cpu, on_mps = (_move(sample, device, op.name) for device in ("cpu", "mps"))
    try:
        expected = _leaves(_call(op, on_cpu))
    except Exception:
        return  # the CPU refuses this sample: nothing to compare
    actual = _leaves(_call(op, on_mps))
    if not UNINITIALIZED.match(op.name):
        for one, other in zip(expected, actual, strict=True):
            _same(one, other, asked_for_cpu=op.name in LEFT_ALONE)
    if op.supports_autograd:
        stage[0] = "backward"
        if _backward(expected, on_cpu):
            _backward(actual, on_mps)
            for one, other in zip(_tensors(on_cpu), _tensors(on_mps), strict=True):
                if one.grad is not None:
                    _same(one.grad, other.grad)


def classify(detail: str) -> str:
    """Say of which sort an error is, by its text."""
    if "is not currently implemented for the MPS" in detail:
        return "missing"
    if "doesn't support float64" in detail or "ComplexDouble" in detail:
        return "float64"
    if "Simulated MPS does not cover" in detail:
        return "sparse"
    return "error"


def marked(op: Any) -> bool:
    """Say whether OpInfo marks the operator as failing in PyTorch's MPS tests in float32."""
    import torch

    return any(
        unittest.expectedFailure in mark.decorators
        and (
            mark.device_type == "mps" or mark.cls_name == "TestConsistency"
        )  # the MPS tests' class
        and (mark.dtypes is None or torch.float32 in mark.dtypes)
        for mark in op.decorators
        if hasattr(mark, "cls_name")
    )


def _seed_like_the_cpu() -> None:
    """Undo what hides that the simulated device's generator is the CPU's: here they must agree."""
    import torch

    from .enable import SEED_MASK

    original = torch.mps.manual_seed
    torch.mps.manual_seed = lambda seed: original(int(seed) ^ SEED_MASK)


def _call(op: Any, sample: Any) -> Any:
    import torch

    torch.manual_seed(1)
    return op(sample.input, *sample.args, **sample.kwargs)


def _move(sample: Any, device: str, name: str) -> Any:
    import torch

    def move(value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            copy = value.detach().clone() if device == "cpu" else value.detach().to(device)
            return copy.requires_grad_(value.requires_grad)
        return torch.device(device) if isinstance(value, torch.device) else value

    moved = sample.transform(move)
    if name in LEFT_ALONE:
        moved.args, moved.kwargs = sample.args, sample.kwargs
    elif "device" in moved.kwargs:
        moved.kwargs["device"] = device
    return moved


def _leaves(value: Any) -> list[Any]:
    from torch.utils._pytree import tree_leaves

    return list(tree_leaves(value))


def _tensors(sample: Any) -> list[Any]:
    import torch

    leaves = _leaves([sample.input, sample.args, sample.kwargs])
    return [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]


def _same(expected: Any, actual: Any, asked_for_cpu: bool = False) -> None:
    import torch

    if not isinstance(expected, torch.Tensor):
        return
    if not isinstance(actual, torch.Tensor):
        raise MismatchError(f"is no tensor: {actual}")
    if expected.device.type == "cpu" and actual.device.type != "mps" and not asked_for_cpu:
        raise MismatchError(f"is on {actual.device}")
    try:
        torch.testing.assert_close(
            actual.detach().cpu(), expected.detach(), equal_nan=True, **TOLERANCE
        )
    except AssertionError as error:
        raise MismatchError(re.sub(r"\s+", " ", str(error))[:200]) from None


def _backward(outputs: list[Any], sample: Any) -> bool:
    """Backpropagate the sum of the outputs; False where the CPU has no gradient for it."""
    import torch

    chosen = [
        leaf
        for leaf in outputs
        if isinstance(leaf, torch.Tensor)
        and leaf.requires_grad
        and leaf.layout == torch.strided
        and not leaf.is_complex()
    ]
    if not chosen:
        return False
    total = sum(leaf.sum() for leaf in chosen)
    if total.device.type == "mps":
        total.backward()
        return True
    try:
        total.backward()
    except Exception:
        return False
    return True


def _too_long(*_: Any) -> None:
    raise TimeoutError(f"took more than {SECONDS_PER_OP} s")


# ---------------------------------------------------------------------------- all of them


def sweep(samples: int = 4, names: list[str] | None = None) -> list[Outcome]:
    """Run the sweep in ``PROCESSES`` processes and return the outcomes in alphabetical order."""
    with tempfile.TemporaryDirectory() as folder:
        files = [Path(folder) / f"{part}.json" for part in range(PROCESSES)]
        running = [
            subprocess.Popen(
                [
                    *(
                        sys.executable,
                        "-m",
                        "tests.simulated_mps",
                        "-m",
                        "tests.simulated_mps.sweep",
                    ),
                    *(f"--part={part}", f"--samples={samples}", f"--json={file}"),
                    *(names or []),
                ],
                cwd=Path(__file__).parents[2],
                env={**os.environ, "OMP_NUM_THREADS": "1"},
            )
            for part, file in enumerate(files)
        ]
        codes = [process.wait() for process in running]
        if any(codes):
            raise RuntimeError(f"a part of the sweep ended with {codes}")
        found = [Outcome(*row) for file in files for row in json.loads(file.read_text())]
    return sorted(found)


def explanation(outcome: Outcome, lists: dict[str, set[str]]) -> str | None:
    """Return what expects this failure, or None; a wrong result is never explained."""
    if outcome.result == "mismatch":
        return None
    if outcome.result == "sparse":
        return "README: sparse tensors are not simulated"
    if outcome.key.endswith("_for_cpu"):
        return "README: a kernel of the CPU's own"
    listed = next((name for name, keys in lists.items() if outcome.key in keys), None)
    return listed or ("OpInfo" if outcome.marked else None)


def report(outcomes: list[Outcome], lists: dict[str, set[str]]) -> str:
    """Return the outcomes as text: counts, then each operator that does not run, and why."""
    lines = [f"{len(outcomes)} operators: {dict(collections.Counter(o.result for o in outcomes))}"]
    for outcome in outcomes:
        if outcome.result != "ok":
            reason = explanation(outcome, lists) or "NOT EXPLAINED"
            lines.append(f"{outcome.result:9}{outcome.stage:9}{outcome.key:45}{reason}")
            if reason == "NOT EXPLAINED":
                lines.append(f"         {outcome.detail}")
    return "\n".join(lines)


def main() -> int:
    """Run the command line; the two processes of a sweep come here as well."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", help="only these operators")
    parser.add_argument("--samples", type=int, default=4, help="sample inputs of each operator")
    parser.add_argument("--part", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--json", type=Path, help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.part is not None:
        chosen.json.write_text(json.dumps(run_part(chosen.part, chosen.samples, chosen.names)))
        return 0
    outcomes, lists = sweep(chosen.samples, chosen.names), xfail_lists.float32()
    print(report(outcomes, lists))
    return int(any(o.result != "ok" and explanation(o, lists) is None for o in outcomes))


if __name__ == "__main__":
    sys.exit(main())
