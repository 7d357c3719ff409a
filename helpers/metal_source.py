"""The Metal source that ``torch.compile`` generates for a Mac's GPU, written on any machine.

The compiler's Metal part (``torch/_inductor/codegen/mps.py``) is Python and ships in every wheel.
It looks at shapes and types only, so tensors that have nothing else stand in for a Mac's. Nothing
is compiled to machine code and nothing runs: that takes a Mac.
"""

import contextlib
import functools
import logging
import re
import textwrap
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any
from unittest import mock

import torch
from torch import Tensor

# In the generated Python, the kernels between quotes (older torch calls the first name, newer the
# second), and the lines of ``call`` that put work into the queue.
_KERNEL = re.compile(
    r"^\w+ = (?:compile_mps_shader|async_compile\.metal)\((?:'\w+', )?'''\n(.*?)'''",
    re.DOTALL | re.MULTILINE,
)
_LAUNCH = re.compile(
    r"^ {4,}(?:\w+ = )?(?:mps_lib_\d+\.)?((?:extern_kernels|aten)\.[\w.]+|generated_kernel\w*)",
    re.MULTILINE,
)


class MetalSourceError(RuntimeError):
    """The installed PyTorch generated no Metal source."""


@dataclass(frozen=True)
class MetalProgram:
    """What ``torch.compile`` makes of a function for MPS."""

    operators: tuple[str, ...]  # what eager mode runs, one after the other: aten::relu, ...
    kernels: tuple[str, ...]  # the source of each generated kernel, in Metal's C++
    launches: tuple[str, ...]  # what the compiled function runs: a generated kernel or PyTorch's


def metal_program(fn: Callable[..., Any], *examples: Tensor, gpu_cores: int = 8) -> MetalProgram:
    """Return the Metal kernels that ``torch.compile`` would generate for ``fn(*examples)`` on MPS.

    Of the examples only shape, layout and type are used; they may be on any device. ``fn`` must
    not compute with tensors of its own, since those are not on MPS, and is compiled for inference,
    without gradients. ``gpu_cores`` is what a Mac would report, which the compiler may use to
    divide work.

    Checked with torch 2.9.1, 2.10.0, 2.11.0, 2.12.1, 2.13.0 and 2.14.1. The compiler's inside has
    no public interface: with a torch where it has changed too far, and for a function that it
    refuses (float64, say), this raises ``MetalSourceError``. Errors of ``fn`` itself pass through.
    """
    if any(x.dtype in (torch.float64, torch.complex128) for x in examples):
        raise MetalSourceError("MPS has no float64 and no complex128: use float32 or complex64.")
    stand_ins, mode = _on_mps(examples)
    with torch.no_grad(), mode, _quiet():
        eager = _traced(fn, stand_ins, decompositions=None)
        try:
            with mock.patch.object(torch.backends.mps, "get_core_count", return_value=gpu_cores):
                python = _generated(fn, stand_ins, mode)
                launches = _LAUNCH.findall(_call(python))
        except Exception as error:
            reason = (str(error).strip().splitlines() or ["no reason given"])[0]
            raise MetalSourceError(
                f"torch {torch.__version__} generated no Metal source for this function "
                f"({type(error).__name__}: {reason}). helpers.metal_source knows torch 2.9 to 2.14."
            ) from error
    kernels = tuple(textwrap.dedent(source).strip() for source in _KERNEL.findall(python))
    return MetalProgram(_operators(eager), kernels, tuple(launches))


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Keep the compiler's remarks off the page; its errors are raised as well as logged."""
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        yield
    finally:
        logging.disable(before)


def _on_mps(examples: tuple[Tensor, ...]) -> tuple[list[Tensor], Any]:
    """Return tensors without memory that say they are on MPS, and the mode they live in."""
    from torch._subclasses.fake_tensor import FakeTensorMode

    mode = FakeTensorMode()
    with mode:
        device = torch.device("mps")
        empty = functools.partial(torch.empty_strided, device=device)
        stand_ins = [empty(x.size(), x.stride(), dtype=x.dtype) for x in examples]
    return stand_ins, mode


def _traced(fn: Callable[..., Any], stand_ins: list[Tensor], decompositions: Any) -> Any:
    """Return the graph of operators behind a call of ``fn``."""
    from torch.fx.experimental.proxy_tensor import make_fx

    return make_fx(fn, decomposition_table=decompositions, tracing_mode="fake")(*stand_ins)


def _operators(graph: Any) -> tuple[str, ...]:
    calls = (node.target for node in graph.graph.nodes if node.op == "call_function")
    return tuple(target.name() for target in calls if hasattr(target, "name"))


def _generated(fn: Callable[..., Any], stand_ins: list[Tensor], mode: Any) -> str:
    """Return the Python that the compiler writes for ``fn``, with the kernels as strings in it."""
    from torch._inductor.debug import DebugContext
    from torch._inductor.decomposition import select_decomp_table
    from torch._inductor.graph import GraphLowering
    from torch._inductor.virtualized import V

    traced = _traced(fn, stand_ins, select_decomp_table())
    graph = GraphLowering(traced, shape_env=None, example_inputs=stand_ins)
    debug = DebugContext()
    with V.set_graph_handler(graph), V.set_fake_mode(mode), V.set_debug_handler(debug), debug:
        graph.run(*stand_ins)
        wrapper = graph.codegen()
    code = wrapper[0] if isinstance(wrapper, tuple) else wrapper
    return str(getattr(code, "value", code))


def _call(python: str) -> str:
    """Return the part of the generated Python that runs at each call."""
    return python[python.index("def call(") :].split("\ndef ", 1)[0]
