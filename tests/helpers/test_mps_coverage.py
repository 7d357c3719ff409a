"""The table of MPS kernels by release: what it says, and that the page's HTML holds it all."""

import gzip
import importlib.util
import json
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest
import torch

from helpers import mps_coverage, mps_ops
from helpers.mps_coverage import coverage_html, functions, kernel_counts, operator_status, since

ROOT = Path(__file__).resolve().parents[2]
BY_NAME = {function.name: function for function in functions()}
# Counted in the wheels by other hands and other means (facts 1.2 of the project).
COUNTED = {"1.12.1": 251, "2.0.1": 307, "2.4.1": 388, "2.6.0": 417, "2.8.0": 475}
COUNTED |= {"2.9.1": 499, "2.14.1": 549, "2.15.0": 561}


@pytest.fixture(scope="module")
def tool():
    path = ROOT / "data" / "make_mps_coverage.py"
    spec = importlib.util.spec_from_file_location("make_mps_coverage", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def installed_release():
    series = torch.__version__.split("+")[0].rsplit(".", 1)[0]
    found = [r for r in mps_coverage.releases() if r.rsplit(".", 1)[0] == series]
    return found[0] if found else pytest.skip(f"torch {series} is not in the table")


class Rows(HTMLParser):
    """Text of every row of the table's body, and every address that the HTML names."""

    def __init__(self):
        super().__init__()
        self.rows, self.addresses, self.ids = [], [], []

    def handle_starttag(self, tag, attrs):
        if tag == "tr":
            self.rows.append("")
        for name, value in attrs:
            if name in ("src", "href"):
                self.addresses.append(value)
            if name == "id":
                self.ids.append(value)

    def handle_data(self, data):
        if self.rows:
            self.rows[-1] += f" {data}"


def test_counts_agree_with_an_earlier_count():
    assert {release: kernel_counts()[release] for release in COUNTED} == COUNTED
    assert list(kernel_counts().values()) == sorted(kernel_counts().values())


def test_every_operator_has_a_letter_for_every_release():
    table = json.loads(mps_coverage.TABLE.read_text())
    assert {len(letters) for letters in table["operators"].values()} == {len(table["releases"])}
    assert set("".join(table["operators"].values())) == set("kcm-")
    bases = {name.split(".")[0] for name in table["operators"]}
    assert {base for pair in table["functions"].values() for base in pair if base} <= bases


def test_the_installed_torch_agrees_with_its_own_file(tool):
    release = installed_release()
    text = mps_ops._yaml_path().read_text()
    assert tool.count(text) == kernel_counts()[release]
    for name, operator in tool.parse(text).items():
        if operator.keys & tool.KERNELS:
            assert operator_status(name, release) == operator.status, name
    kernels = {n for n, o in tool.parse(text).items() if o.status == "k"}
    assert kernels | mps_ops.python_registered() == mps_ops.kernels()


def test_what_pytorch_expects_to_fail_has_no_kernel_here():
    found = json.loads((ROOT / "data" / "preflight_accuracy.json").read_text())
    place = mps_coverage.releases().index(found["torch"])
    short = {name.removeprefix("torch.").replace("F.", "nn.functional."): name for name in BY_NAME}
    named = [short[entry] for entry in found["missing"] if entry in short]
    assert len(named) >= 20
    assert {BY_NAME[name].forward[place] for name in named} == {"m"}


def test_history_in_words():
    assert since("m" * 18) == "none"
    assert since("k" * 18) == "1.12"
    assert since(BY_NAME["torch.take"].forward) == "2.15"
    assert since(BY_NAME["torch.Tensor.put_"].forward) == "1.12 to 1.13, 2.15"
    assert since(BY_NAME["F.avg_pool3d"].backward) == "2.9"


def test_a_function_has_the_status_of_its_best_form():
    assert operator_status("max.unary_out", "2.14.1") == "m"
    assert operator_status("max.dim", "2.14.1") == "k"
    assert since(BY_NAME["torch.max"].forward) == "1.12"


def test_names_are_those_that_a_reader_can_call():
    for name in BY_NAME:
        path = name.split(" ")[0].replace("F.", "torch.nn.functional.", 1)
        if not path.startswith("torch."):
            path = name.split(" ")[0]
        found = torch
        for part in path.split(".")[1:]:
            found = getattr(found, part, None)
        assert found is not None or installed_release() != "2.14.1", name


def test_the_whole_table_stands_there_without_script():
    page = Rows()
    page.feed(coverage_html("2.14.1+cpu", name="cov"))
    assert len(page.rows) == 1 + len(functions())
    row = next(row for row in page.rows if "torch.take" in row)
    assert "2.15" in row
    assert page.addresses == []
    assert page.ids == ["cov", "cov-text", "cov-release", "cov-only"]


def test_controls_are_labelled_and_hidden_until_the_script_runs():
    html = coverage_html()
    assert '<div class="controls" hidden>' in html
    assert set(re.findall(r'<label for="([^"]+)"', html)) == {
        "coverage-text",
        "coverage-release",
        "coverage-only",
    }
    assert 'tabindex="0" role="region" aria-label=' in html
    assert len(gzip.compress(html.encode())) < 150_000


def test_release_chosen_first():
    chosen = re.compile(r"selected>([\d.]+)<")
    assert chosen.findall(coverage_html("2.9.0+cpu")) == ["2.9"]
    assert chosen.findall(coverage_html("9.9")) == ["2.15"]


def test_tool_reads_structured_operators_and_compositions(tool):
    text = """\
- func: a(Tensor self) -> Tensor
  structured_delegate: a.out
- func: a.out(Tensor self, *, Tensor(a!) out) -> Tensor(a!)
  structured: True
  dispatch:
    CPU, CUDA: a_out
    MPS: a_out_mps
- func: b(Tensor self) -> Tensor
  dispatch:
    CPU, CUDA: b
- func: c(Tensor self) -> Tensor
- func: d(Tensor self) -> Tensor
  dispatch:
    SparseMPS: d
"""
    assert {name: each.status for name, each in tool.parse(text).items()} == {
        "a": "k",
        "a.out": "k",
        "b": "m",
        "c": "c",
        "d": "m",
    }
    assert tool.count(text) == 1
