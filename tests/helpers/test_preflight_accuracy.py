"""Preflight against PyTorch's own list of what MPS lacks, over its database of operators."""

import json
import warnings

import pytest
import torch

pytest.importorskip("expecttest", reason="PyTorch's own tests need expecttest")
from tests.preflight_accuracy import OTHER_REASONS, RESULT, expected_to_fail, sweep

FLOAT64 = {"to", "double", "cdouble", "float_power", "log_softmaxwith_dtype"}


@pytest.fixture(scope="module")
def accuracy():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return sweep()


def test_no_false_alarm(accuracy):
    assert accuracy.false_alarms == {}


def test_no_missing_kernel_overlooked(accuracy):
    assert accuracy.overlooked == {}
    found = {*accuracy.missing, *accuracy.wide, *accuracy.limits, *accuracy.other_reasons}
    assert expected_to_fail() <= found
    assert set(accuracy.other_reasons) <= set(OTHER_REASONS)
    assert len(accuracy.missing) >= 30


def test_the_float64_ones_are_caught_too(accuracy):
    assert set(accuracy.wide) == FLOAT64


def test_all_ran_but_what_needs_a_gpu(accuracy):
    assert all(name.startswith("jiterator") for name in accuracy.did_not_run)
    assert accuracy.clean > 600


def test_the_table_in_the_book_is_what_the_command_prints(accuracy):
    shown = json.loads(RESULT.read_text())
    if shown["torch"] != torch.__version__.split("+")[0]:
        pytest.skip(f"the table is of torch {shown['torch']}")
    assert shown == json.loads(accuracy.to_json())
