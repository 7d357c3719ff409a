"""The Metal source that torch.compile generates, on a machine that need not be a Mac."""

import logging
import re

import pytest
import torch

from helpers.metal_source import MetalProgram, MetalSourceError, metal_program


def relu_and_sin(x, y):
    return (torch.relu(x) * 2 + torch.sin(y)).sum(-1)


@pytest.fixture(scope="module")
def program() -> MetalProgram:
    return metal_program(relu_and_sin, torch.ones(4, 64), torch.ones(4, 64))


def test_five_operators_become_one_kernel(program):
    assert program.operators == (
        "aten::relu",
        "aten::mul.Tensor",
        "aten::sin",
        "aten::add.Tensor",
        "aten::sum.dim_IntList",
    )
    assert len(program.kernels) == len(program.launches) == 1


def test_the_kernel_is_metal_that_reads_both_inputs_once_and_writes_once(program):
    source = program.kernels[0]
    head, body = source.split(") {", 1)
    assert re.search(r"^kernel void generated_kernel", source, re.MULTILINE)
    assert head.count("device float* ") == 1
    assert head.count("constant float* ") == 2
    assert len(re.findall(r"in_ptr\d\[", body)) == 2
    assert len(re.findall(r"out_ptr\d\[", body)) == 1
    assert "metal::precise::sin" in body
    assert "threadgroup_sum" in body
    assert source.endswith("}")


def test_shape_and_type_of_the_examples_go_into_the_source():
    half = metal_program(lambda x: x + 1, torch.ones(2, 8, dtype=torch.float16)).kernels[0]
    assert "device half*" in half
    long_rows = metal_program(lambda x: x.sum(-1), torch.ones(2, 3000)).kernels[0]
    assert "3000*x0" in long_rows


def test_values_and_device_of_the_examples_do_not():
    def plus_one(x):
        return x + 1

    ones, nothing = torch.ones(8), torch.empty(8, device="meta")
    assert metal_program(plus_one, ones) == metal_program(plus_one, nothing)
    assert torch.equal(ones, torch.ones(8))


def test_a_matrix_product_stays_a_call_of_pytorch():
    program = metal_program(lambda x, w: torch.relu(x @ w), torch.ones(4, 8), torch.ones(8, 2))
    assert program.operators == ("aten::mm", "aten::relu")
    assert len(program.kernels) == 1
    assert [name.split("_kernel")[0] for name in program.launches] == ["extern", "generated"]


def test_a_product_alone_has_no_generated_kernel():
    program = metal_program(torch.mm, torch.ones(4, 8), torch.ones(8, 2))
    assert (program.kernels, program.launches) == ((), ("extern_kernels.mm",))


@pytest.mark.parametrize("dtype", [torch.float64, torch.complex128])
def test_a_type_that_mps_lacks_is_refused(dtype):
    with pytest.raises(MetalSourceError, match="no float64"):
        metal_program(torch.relu, torch.ones(4, dtype=dtype))


def test_a_compiler_that_has_changed_gives_one_error_with_the_version(monkeypatch):
    def gone(*_, **__):
        raise AttributeError("codegen has moved")

    monkeypatch.setattr("torch._inductor.graph.GraphLowering.codegen", gone)
    with pytest.raises(MetalSourceError) as caught:
        metal_program(torch.relu, torch.ones(4))
    assert f"torch {torch.__version__} " in str(caught.value)
    assert "AttributeError: codegen has moved" in str(caught.value)


def test_python_without_a_call_is_a_compiler_that_has_changed(monkeypatch):
    monkeypatch.setattr("torch._inductor.graph.GraphLowering.codegen", lambda self: "nothing")
    with pytest.raises(MetalSourceError, match="no Metal source"):
        metal_program(torch.relu, torch.ones(4))


def test_an_error_of_the_function_passes_through():
    with pytest.raises(ZeroDivisionError):
        metal_program(lambda x: 1 / 0, torch.ones(4))


def test_logging_is_as_before(monkeypatch):
    monkeypatch.setattr(logging.root.manager, "disable", logging.DEBUG)
    metal_program(torch.relu, torch.ones(4))
    assert logging.root.manager.disable == logging.DEBUG


def test_what_this_machine_answers_about_cores_is_put_back():
    before = torch.backends.mps.get_core_count
    metal_program(torch.relu, torch.ones(4), gpu_cores=40)
    assert torch.backends.mps.get_core_count is before
