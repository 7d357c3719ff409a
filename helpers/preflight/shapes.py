"""Tensors that have shapes and nothing else, for what is larger than this machine's memory."""

from typing import Any

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import (
    DataDependentOutputException,
    DynamicOutputShapeException,
    FakeTensor,
    FakeTensorMode,
)
from torch.utils._pytree import tree_leaves
from torch.utils.weak import WeakIdKeyDictionary

from helpers.preflight import operators


class NoValueError(RuntimeError):
    """A run that knows only shapes depends on what a tensor holds."""


class Shapes:
    """PyTorch's fake tensors, which report the CPU as their device and hold no memory."""

    def __init__(self) -> None:
        self.mode = FakeTensorMode(allow_non_fake_inputs=True)
        self.assumed_values = 0  # how often the program asked for a value
        self._stand_ins = WeakIdKeyDictionary()  # a fake lives as long as what it stands in for

    def stand_in(self, tensor: Tensor) -> Tensor:
        """Return a fake with the shape of a real tensor: each time the same one."""
        if isinstance(tensor, FakeTensor):
            return tensor
        if tensor not in self._stand_ins:
            convert = self.mode.fake_tensor_converter.from_real_tensor
            self._stand_ins[tensor] = convert(self.mode, tensor)
        stand_in: Tensor = self._stand_ins[tensor]
        return stand_in

    def known(self, tensor: Tensor) -> Tensor | None:
        """Return the fake of a tensor if there is one."""
        if isinstance(tensor, FakeTensor):
            return tensor
        known: Tensor | None = self._stand_ins.get(tensor)
        return known

    def run(self, func: Any, args: Any, kwargs: Any) -> Any:
        """Return an operator's result; a value that the program asks for is 1 or True.

        Raises NoValueError where the shape of a result depends on values.
        """
        try:
            return operators.call(func, func, args, kwargs)
        except DataDependentOutputException:
            self.assumed_values += 1
            dtype = next(leaf.dtype for leaf in tree_leaves(args) if isinstance(leaf, Tensor))
            if func.name() == "aten::equal" or dtype == torch.bool:
                return True
            return 1.0 if dtype.is_floating_point else 1
        except DynamicOutputShapeException as error:
            raise NoValueError(
                f"The shape of {func.name()}'s result depends on values, and device='meta' knows "
                "none. Check this part with device='cpu'."
            ) from error
