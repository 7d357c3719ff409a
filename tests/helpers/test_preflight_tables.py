"""What preflight reads: PyTorch's table of kernels, the book's of operators and of chips."""

import json
from pathlib import Path

import pytest
import torch

from helpers import mps_ops
from helpers.chips import BY, CSV, ChipsError, chip, chips

HEAD = CSV.read_text().splitlines()[0]


@pytest.mark.parametrize("key", ["MPS", "SparseMPS", "SparseCsrMPS"])
def test_kernels_are_those_that_torchgen_finds(key):
    """torchgen is PyTorch's own reader of the file; it takes seconds, and needs PyYAML."""
    pytest.importorskip("yaml")
    from torchgen.gen import parse_native_yaml
    from torchgen.model import DispatchKey

    folder = Path(torch.__file__).parent.parent / "torchgen" / "packaged" / "ATen" / "native"
    parsed = parse_native_yaml(folder / "native_functions.yaml", folder / "tags.yaml")
    table = parsed.backend_indices[DispatchKey[key]]
    expected = {
        str(function.func.name)
        for function in parsed.native_functions
        if table.has_kernel(function)
        or (
            function.structured_delegate is not None and function.structured_delegate in table.index
        )
    }
    registered = mps_ops.python_registered() if key == "MPS" else frozenset()
    assert mps_ops.kernels(key) == expected | registered


@pytest.mark.parametrize(
    ("operator", "verdict"),
    [
        ("aten::add.Tensor", "kernel"),
        ("aten::convolution", "kernel"),
        ("aten::linalg_eig", "missing"),
        ("aten::embedding_renorm_", "on cpu"),
        ("aten::zeros_like", "composite"),
    ],
)
def test_verdicts(operator, verdict):
    assert mps_ops.verdict(operator) == verdict


def test_operators_that_python_registers_count(monkeypatch, tmp_path):
    """Up to torch 2.12, torch.backends.mps registered group_norm that way."""
    source = tmp_path / "__init__.py"
    source.write_text('_lib.impl("native_group_norm", f, "MPS")\nother.impl("not_this")\n')
    monkeypatch.setattr(torch.backends.mps, "__file__", str(source), raising=False)
    assert mps_ops.python_registered.__wrapped__() == {"native_group_norm"}


@pytest.mark.parametrize(
    ("series", "always", "perhaps"),
    [
        ("2.12", {"embedding_renorm_", "linalg_svd", "linalg_svd.U"}, set()),
        ("2.11", {"embedding_renorm_", "linalg_svd", "linalg_svd.U"}, set()),  # 2.10 and 2.12 agree
        ("2.13", {"embedding_renorm_"}, {"linalg_svd", "linalg_svd.U"}),  # 2.12 and 2.14 differ
        ("2.14", {"embedding_renorm_"}, set()),
        ("3.0", set(), {"embedding_renorm_"}),  # newer than what was read
    ],
)
def test_hand_registered_operators_by_version(series, always, perhaps):
    assert mps_ops.always_on_cpu(series) == (always, perhaps)


@pytest.mark.parametrize(
    ("version", "operator", "verdict"),
    [
        ("0.29.1+cpu", "torchvision::nms", "kernel"),
        ("0.29.1", "torchvision::_roi_align_backward", "kernel"),
        ("0.29.1", "torchvision::_deform_conv2d_backward", "missing"),
        ("9.9.9", "torchvision::nms", "unknown"),
    ],
)
def test_torchvision_by_version(monkeypatch, version, operator, verdict):
    monkeypatch.setattr(mps_ops.importlib.metadata, "version", lambda _: version)
    assert mps_ops.verdict.__wrapped__(operator) == verdict


def test_alternatives_are_for_what_mps_lacks():
    known = torch._C._dispatch_get_all_op_names()
    for operator in json.loads(mps_ops.TABLE.read_text())["alternatives"]:
        overloads = [name for name in known if name.split(".")[0] == operator]
        if operator.startswith("aten::") and overloads:  # not every torch has every operator
            assert "missing" in {mps_ops.verdict(name) for name in overloads}, operator


def test_an_alternative_that_itself_lacks_a_kernel_is_not_proposed(monkeypatch):
    assert "torch.where" in mps_ops.alternative("aten::heaviside.out")
    monkeypatch.setattr(mps_ops, "kernels", lambda _="MPS": frozenset())
    assert mps_ops.alternative("aten::heaviside.out") == ""
    assert mps_ops.alternative("aten::linalg_eig") == "on the CPU"


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        (lambda x: torch.where(x == 0, torch.tensor(0.5), (x > 0).to(x.dtype)),
         lambda x: torch.heaviside(x, torch.tensor(0.5))),
        (lambda x: torch.erfinv(2 * x.sigmoid() - 1) * 2**0.5,
         lambda x: torch.special.ndtri(x.sigmoid())),
        (lambda x: x.flatten()[torch.tensor([0, 3])], lambda x: x.take(torch.tensor([0, 3]))),
        (lambda x: torch.cdist(x, x)[tuple(torch.triu_indices(4, 4, 1))], torch.pdist),
        (lambda x: 2.0 ** torch.linspace(0, 3, 7), lambda x: torch.logspace(0, 3, 7, 2.0)),
        (lambda x: x.abs().log2().floor() + 1, lambda x: torch.frexp(x).exponent.float()),
    ],
)  # fmt: skip
def test_alternatives_compute_the_same(ours, theirs):
    torch.manual_seed(0)
    x = torch.randn(4, 3)
    torch.testing.assert_close(ours(x), theirs(x), rtol=1e-4, atol=1e-4)


def test_chips_have_the_published_figures():
    assert chip("M1").fp32_tflops == 2.6
    assert chip("M1").fp32_by == "Apple"
    assert chip("apple m4 max (32-core GPU)").bandwidth_gb_s == 410
    assert chip("M5 Max").fp32_tflops is None
    assert {row.chip.split()[0] for row in chips()} == {"M1", "M2", "M3", "M4", "M5"}
    assert all(row.sources for row in chips())
    assert all(row.fp32_by in BY for row in chips() if row.fp32_tflops)


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        ("M9,10,,fast,,32,,3,Apple,somewhere,", "line 2: bandwidth_gb_s is 'fast'"),
        ("M9,10,,100000,,32,,3,Apple,somewhere,", "bandwidth_gb_s is '100000'.* 10 to 10000"),
        ("M9,10,,100,Intel,32,,3,Apple,somewhere,", "bandwidth_by must be Apple or third party"),
        ("M9,10,,,Apple,32,,3,Apple,somewhere,", "bandwidth_by must be .* or empty"),
        ("M9,10,,100,,32,,3,Apple,,", "sources must not be empty"),
        ("M9,10", "must have 11 columns"),
        ("M9,10,,100,,32,,3,,a,\nM9,10,,100,,32,,3,,a,", "twice in the table: M9"),
    ],
)
def test_a_malformed_row_names_itself_and_the_reason(tmp_path, row, reason):
    path = tmp_path / "chips.csv"
    path.write_text(f"{HEAD}\n{row}\n")
    with pytest.raises(ChipsError, match=reason):
        chips(path)


def test_wrong_columns_are_refused(tmp_path):
    path = tmp_path / "chips.csv"
    path.write_text("chip,cores\nM9,10\n")
    with pytest.raises(ChipsError, match="the columns must be chip, gpu_cores"):
        chips(path)
