"""Without PYTORCH_ENABLE_MPS_FALLBACK; test_processes.py sets it."""

import re
from contextlib import contextmanager

import pytest
import torch
import torch.nn.functional as F


@contextmanager
def always_warning():
    """The warning of the fallback comes once in a process, and another test may have had it."""
    torch.set_warn_always(True)
    try:
        yield
    finally:
        torch.set_warn_always(False)


@pytest.mark.parametrize(
    ("op", "call"),
    [
        ("aten::_linalg_eigvals", lambda: torch.linalg.eigvals(torch.eye(3, device="mps"))),
        ("aten::linalg_eig", lambda: torch.linalg.eig(torch.eye(3, device="mps"))),
        ("aten::mode", lambda: torch.ones(3, device="mps").mode()),
        (
            "aten::_adaptive_avg_pool3d",
            lambda: F.adaptive_avg_pool3d(torch.ones(1, 1, 4, 4, 4, device="mps"), 2),
        ),
    ],
)
def test_an_op_without_a_kernel_raises_the_error_of_mps(op, call):
    expected = (
        f"The operator '{op}[.\\w]*' is not currently implemented for the MPS device. If you want "
        "this op to be considered for addition please comment on "
        r"https://github.com/pytorch/pytorch/issues/141287 .*commit hash "
        f"{re.escape(torch.version.git_version)}"
        r"\. As a temporary fix, you can set the environment variable "
        "`PYTORCH_ENABLE_MPS_FALLBACK=1`"
    )
    with pytest.raises(NotImplementedError, match=expected):
        call()


def test_the_error_also_comes_from_a_backward_pass():
    torchvision = pytest.importorskip("torchvision", "0.29")
    x = torch.ones(1, 1, 5, 5, device="mps", requires_grad=True)
    offset, weight = torch.zeros(1, 18, 3, 3, device="mps"), torch.ones(1, 1, 3, 3, device="mps")
    y = torchvision.ops.deform_conv2d(x, offset, weight)
    with pytest.raises(NotImplementedError, match="torchvision::_deform_conv2d_backward"):
        y.sum().backward()


def test_a_custom_op_for_the_cpu_has_no_mps_kernel():
    @torch.library.custom_op("simulated_mps_rules::double", mutates_args=(), device_types="cpu")
    def double(x: torch.Tensor) -> torch.Tensor:
        return x * 2

    assert double(torch.ones(1)).item() == 2
    with pytest.raises(NotImplementedError, match="simulated_mps_rules::double"):
        double(torch.ones(1, device="mps"))


def test_embedding_with_max_norm_falls_back_without_the_variable():
    table = torch.nn.Embedding(4, 3, max_norm=1.0).to("mps")
    with always_warning(), pytest.warns(UserWarning, match="embedding_renorm_.*will fall back"):
        assert table(torch.tensor([1], device="mps")).is_mps


def test_svd_falls_back_without_the_variable_before_2_14():
    x = torch.eye(3, device="mps")
    if int(torch.__version__.split(".")[1]) >= 14:
        assert torch.linalg.svd(x).S.is_mps  # has a kernel now
        return
    with always_warning(), pytest.warns(UserWarning, match="linalg_svd.*will fall back"):
        assert torch.linalg.svd(x).S.is_mps
