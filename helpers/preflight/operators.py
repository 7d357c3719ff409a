"""What one operator costs, from its arguments and results: FLOPs, bytes, whether it is a view."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import flop_registry

_NO_TRAFFIC = ("aten::empty", "aten::new_empty", "aten::detach", "aten::lift", "aten::alias")
_WRITE_ONLY = ("aten::zero_", "aten::fill_", "aten::copy_", "aten::normal_", "aten::uniform_")
# Arguments that MPS takes from the CPU: what sequences are packed and cut by, and (told by its
# type) what stands between the brackets of x[...].
_FROM_CPU_TOO = {
    "batch_sizes", "lengths", "input_lengths", "target_lengths", "tensor_indices_or_sections"
}  # fmt: skip
_IN_BRACKETS = "List[Optional[Tensor]]"
_READ_ROWS = ("aten::embedding", "aten::index_select", "aten::index.Tensor", "aten::gather")


def flops(func: Any, args: Any, kwargs: Any, outputs: Any) -> int:
    """Return the FLOPs of a convolution, matrix product or attention by PyTorch's own formulas.

    ``torch.utils.flop_counter`` counts a multiplication and an addition as two, and gives other
    operators none: what those take is the traffic to memory.
    """
    formula = flop_registry.get(func._overloadpacket)
    return int(formula(*args, **kwargs, out_val=outputs)) if formula else 0


def bytes_moved(func: Any, inputs: list[Tensor], outputs: Any) -> int:
    """Return the bytes that an operator must read and write if every one passes once.

    Views move nothing. Of a table whose rows are looked up, only as much counts as comes out.
    """
    operator = func.name()
    if is_view(func) or operator.startswith(_NO_TRAFFIC):
        return 0
    written = sum(_bytes(leaf) for leaf in tree_leaves(outputs) if isinstance(leaf, Tensor))
    read = inputs[1:] if operator.startswith(_WRITE_ONLY) else inputs
    sizes = [_bytes(tensor) for tensor in {id(tensor): tensor for tensor in read}.values()]
    if operator.startswith(_READ_ROWS) and sizes:
        sizes[0] = min(sizes[0], written)
    return written + sum(sizes)


def is_view(func: Any) -> bool:
    """Return whether an operator's result shares the memory of an argument, which it only reads."""
    if torch.Tag.inplace_view in func.tags:
        return True
    infos = (argument.alias_info for argument in func._schema.arguments)
    return any(info is not None and not info.is_write for info in infos)


def call(func: Any, run: Callable[..., Any], args: Any, kwargs: Any) -> Any:
    """Run an operator through ``run``, with a tensor for a number where it insists on one.

    PyTorch shows a number that it had promoted to a tensor (the 3 of ``x % 3``) as a number, and
    takes it back as one for some operators only.
    """
    try:
        return run(*args, **kwargs)
    except RuntimeError as error:  # raised while it reads the arguments, before any work
        if "Expected a value of type 'Tensor'" not in str(error):
            raise
    promoted = list(args)
    for index, argument in enumerate(func._schema.arguments[: len(args)]):
        if str(argument.type) == "Tensor" and isinstance(args[index], (int, float)):
            promoted[index] = torch.tensor(args[index])
    return run(*promoted, **kwargs)


def written_to(func: Any, args: Any, kwargs: Any) -> list[Tensor]:
    """Return the arguments that an operator writes to."""
    written: list[Tensor] = []
    for index, argument in enumerate(func._schema.arguments):
        if argument.alias_info is not None and argument.alias_info.is_write:
            value = args[index] if index < len(args) else kwargs.get(argument.name)
            written += [leaf for leaf in tree_leaves(value) if isinstance(leaf, Tensor)]
    if func.name() == "aten::native_batch_norm":  # the running statistics, which its schema hides
        written += [leaf for leaf in args[3:5] if isinstance(leaf, Tensor)]
    return written


def operands(func: Any, args: Any, kwargs: Any) -> tuple[list[Tensor], list[Tensor]]:
    """Return the tensors that have to be on one device, and those that may be on the CPU too."""
    together: list[Tensor] = []
    free: list[Tensor] = []
    for index, argument in enumerate(func._schema.arguments):
        value = args[index] if index < len(args) else kwargs.get(argument.name)
        in_brackets = str(argument.type) == _IN_BRACKETS
        side = free if in_brackets or argument.name in _FROM_CPU_TOO else together
        side += [leaf for leaf in tree_leaves(value) if isinstance(leaf, Tensor)]
    return together, free


def layout_key(tensors: list[Tensor], kwargs: Any) -> str:
    """Return the dispatch key that MPS would use: MPS, SparseMPS or SparseCsrMPS."""
    layouts = {tensor.layout for tensor in tensors} | {kwargs.get("layout") or torch.strided}
    if torch.sparse_coo in layouts:
        return "SparseMPS"
    return "MPS" if layouts == {torch.strided} else "SparseCsrMPS"


def _bytes(tensor: Tensor) -> int:
    if tensor.layout != torch.strided:
        return 0
    # An expanded tensor repeats its storage without more memory.
    return min(tensor.numel() * tensor.element_size(), tensor.untyped_storage().nbytes())
