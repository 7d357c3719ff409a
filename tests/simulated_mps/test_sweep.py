"""PyTorch's operator database on the simulated device: no wrong result, no unexplained failure."""

import pytest

from . import xfail_lists
from .sweep import Outcome, explanation, sweep


@pytest.fixture(scope="module")
def outcomes():
    return sweep(samples=3)


@pytest.fixture(scope="module")
def lists():
    return xfail_lists.float32()


def test_the_sweep_covers_the_database(outcomes):
    assert len(outcomes) > 500
    assert sum(outcome.result == "ok" for outcome in outcomes) > 0.9 * len(outcomes)


def test_no_result_differs_from_the_cpu(outcomes):
    assert [o for o in outcomes if o.result == "mismatch"] == []


def test_every_failure_is_expected_by_pytorchs_own_tables(outcomes, lists):
    failed = [o for o in outcomes if o.result not in ("ok", "mismatch")]
    assert [o for o in failed if explanation(o, lists) is None] == []


def test_known_gaps_of_mps_are_found(outcomes):
    results = {outcome.key: outcome.result for outcome in outcomes}
    assert results["linalg.eig"] == results["mode"] == "missing"
    assert results["double"] == "float64"
    assert results["to_sparse"] == "sparse"


def test_the_lists_are_read(lists):
    assert "linalg.eig" in lists["UNIMPLEMENTED_XFAILLIST"]
    assert "add" not in lists["UNIMPLEMENTED_XFAILLIST"]
    assert "_upsample_bilinear2d_aa" not in lists["UNIMPLEMENTED_XFAILLIST"]  # uint8 only


def test_a_wrong_result_is_never_explained(lists):
    wrong = Outcome("linalg.eig", "mismatch", "forward", "", True)
    assert explanation(wrong, lists) is None
