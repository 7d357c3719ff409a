"""One run, watched as if it were on MPS: a function's or a script's."""

import contextlib
import copy
import runpy
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Literal

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.optim.optimizer import (
    register_optimizer_step_post_hook,
    register_optimizer_step_pre_hook,
)

from helpers import mps_ops
from helpers.preflight.as_if_mps import AsIfMps
from helpers.preflight.live_memory import LiveMemory
from helpers.preflight.mac_answers import mac_answers
from helpers.preflight.places import what_stopped
from helpers.preflight.report import Finding, Report
from helpers.preflight.shapes import Shapes
from helpers.preflight.tally import Uses
from helpers.preflight.trace import Trace, onednn


def preflight(
    fn: Callable[..., Any],
    *args: Any,
    device: Literal["cpu", "meta"] = "cpu",
    exact: bool = False,
    **kwargs: Any,
) -> Report:
    """Run ``fn(*args, **kwargs)`` once, on any machine, and report what MPS would make of it.

    ``fn`` is a training step, say. All its tensors count as being on MPS, unless it names "mps"
    as a device itself: then those that it puts there do, and what is computed from them. Devices
    named "mps" or "cuda" become the CPU.

    ``device="cpu"`` runs it with values; only convolutions and matrix products of more than half a
    GFLOP are computed for a batch's first item and repeated, unless ``exact``. ``device="meta"``
    computes and allocates nothing, for what is larger than this machine's memory: build the model
    inside ``fn`` (or hand over one that exists). There, a value that the program asks for is 1 or
    True, and operators that PyTorch composes of others below autograd are not looked into.

    Afterwards parameters, buffers, optimizer state and random generators are as they were before;
    gradients are None where ``fn`` cleared or made them. What ``fn`` does in Python stays done.

    Errors of ``fn`` pass through. Raises ValueError for another device, and NoValueError where
    the shape of a result depends on values and ``device`` is "meta".
    """
    if device not in ("cpu", "meta"):
        raise ValueError(f"device must be 'cpu' or 'meta', not {device!r}.")
    run = watch(
        lambda: fn(*args, **kwargs), whole_program=False, shapes=device == "meta", exact=exact
    )
    if run.error is not None:
        raise run.error
    return run.report()


def preflight_script(path: str | Path, arguments: Sequence[str] = ()) -> Report:
    """Run a program written for a GPU as its command line would, and report like ``preflight``.

    If it puts tensors on "mps" or "cuda", those count and what is computed from them, and its
    other tensors do not. Where an error ends it, the report is on what ran, and says so
    (``stopped``). Raises OSError for a file that cannot be read.
    """
    path = Path(path)
    path.open().close()
    before = sys.argv, sys.path[:]
    sys.argv = [str(path), *arguments]
    sys.path.insert(0, str(path.resolve().parent))
    try:
        run = watch(lambda: runpy.run_path(str(path), run_name="__main__"), whole_program=True)
    finally:
        sys.argv, sys.path[:] = before
    return run.report()


def watch(
    program: Callable[[], Any], *, whole_program: bool, shapes: bool = False, exact: bool = False
) -> "Run":
    """Run ``program``; return what was seen of it, with the error that ended it, if one did.

    ``whole_program``: it is not part of a larger one, whose state would have to be put back.
    """
    run = Run(shapes=shapes, exact=exact, whole_program=whole_program)
    try:
        with run:
            program()
    except SystemExit as end:
        run.error = None if whole_program and end.code in (None, 0) else end
    except Exception as error:
        run.error = error
    return run


class Run:
    """A block that is watched; what it changes is put back unless it is a ``whole_program``."""

    def __init__(self, *, shapes: bool, exact: bool, whole_program: bool) -> None:
        self.error: BaseException | None = None
        self.whole_program = whole_program
        self.shapes = Shapes() if shapes else None
        self.memory = LiveMemory()
        self.trace = Trace(self.memory, self.shapes, exact=exact, whole_program=whole_program)
        self.mode = AsIfMps(self.trace)
        self.threads: list[str] = []
        self._states: dict[torch.optim.Optimizer, dict[Any, Any]] = {}
        self._stack = contextlib.ExitStack()

    def __enter__(self) -> "Run":
        with contextlib.ExitStack() as stack:
            if not self.whole_program:
                stack.callback(self._put_back)
                stack.enter_context(torch.random.fork_rng(devices=[]))
            stack.callback(self.memory.close)
            stack.enter_context(_as_on_mps())
            stack.enter_context(_threads_noted(self.threads))
            for hook in (
                register_optimizer_step_pre_hook(self._before_step),
                register_optimizer_step_post_hook(self._after_step),
            ):
                stack.callback(hook.remove)
            stack.enter_context(mac_answers(self.mode))
            if self.shapes:
                stack.enter_context(self.shapes.mode)
            stack.enter_context(self.trace)
            stack.enter_context(self.mode)
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *error: Any) -> None:
        self._stack.__exit__(*error)

    def report(self) -> Report:
        """Return what was found; only of what is on a GPU if the program named one.

        For a part of a program, naming "cuda" is a finding, and does not tell what is on a GPU.
        """
        named = ("mps", "cuda") if self.whole_program else ("mps",)
        only = not self.mode.named.isdisjoint(named)
        here, there = self.trace.on_device, self.trace.elsewhere
        tallies = [here] if only else [here, there]

        def group(category: str) -> dict[Any, Finding]:
            found: dict[Any, Uses] = {}
            for tally in tallies:
                for name, uses in tally.findings.get(category, {}).items():
                    found.setdefault(name, {}).update(uses)
            return {name: Finding(uses, _instead(name)) for name, uses in found.items()}

        return Report(
            missing=group("missing"),
            unknown=group("unknown"),
            wide_dtypes=group("wide"),
            mixed_devices=group("mixed"),
            cuda_calls=group("cuda"),
            refused_calls=group("refused"),
            limits=group("limits"),
            on_cpu=group("on cpu"),
            peak_bytes=self.memory.peak(on_device=only),
            flops=sum(tally.flops for tally in tallies),
            bytes_moved=sum(tally.bytes_moved for tally in tallies),
            operators=sum(tally.operators for tally in tallies),
            device="meta" if self.shapes else "cpu",
            torch=torch.__version__,
            stopped=what_stopped(self.error) if self.error else "",
            notes=self._notes(),
        )

    def _notes(self) -> list[str]:
        notes = []
        if self.threads:
            notes.append(
                f"{len(self.threads)} thread(s) were started; what they computed was not checked."
            )
        if self.shapes and self.shapes.assumed_values:
            n = self.shapes.assumed_values
            notes.append(f"{n} values that the program asked for were taken to be 1 or True.")
        if self.trace.not_followed:
            names = ", ".join(sorted(self.trace.not_followed))
            notes.append(f"Made of other operators, and not looked into: {names}.")
        return notes

    def _before_step(self, optimizer: torch.optim.Optimizer, *_: Any) -> None:
        if optimizer not in self._states:
            self._states[optimizer] = {key: copy.copy(of) for key, of in optimizer.state.items()}
        self.memory.learn_optimizer_state(optimizer)

    def _after_step(self, optimizer: torch.optim.Optimizer, *_: Any) -> None:
        self.memory.learn_optimizer_state(optimizer)

    def _put_back(self) -> None:
        self.trace.restore()
        for optimizer, state in self._states.items():
            optimizer.state.clear()
            optimizer.state.update(state)
        self.memory.restore_gradients()


@contextlib.contextmanager
def _threads_noted(started: list[str]) -> Iterator[None]:
    """Note the threads that are started: the modes that watch operators see their own only."""
    start = threading.Thread.start

    def noted(thread: threading.Thread) -> None:
        started.append(thread.name)
        start(thread)

    threading.Thread.start = noted  # type: ignore[method-assign, assignment]
    try:
        yield
    finally:
        threading.Thread.start = start  # type: ignore[method-assign]


@contextlib.contextmanager
def _as_on_mps() -> Iterator[None]:
    """Switch off what the CPU does in its own way and MPS does not."""
    fast_path = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        with onednn(enabled=False), sdpa_kernel(SDPBackend.MATH), _uncompiled():
            yield
    finally:
        torch.backends.mha.set_fastpath_enabled(fast_path)


@contextlib.contextmanager
def _uncompiled() -> Iterator[None]:
    """Let compiled functions run as they were written: Metal code for MPS is not made here."""
    if "torch._dynamo" not in sys.modules:  # it takes seconds to load; without it none is compiled
        yield
        return
    with torch.compiler.set_stance("force_eager"):
        yield


def _instead(name: Any) -> str:
    return mps_ops.alternative(name) if isinstance(name, str) and "::" in name else ""
