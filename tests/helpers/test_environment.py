import os
import subprocess
import sys
from pathlib import Path

import pytest

from helpers import environment
from helpers.environment import FALLBACK, HIGH, LOW, Origin, inspect_variables


def judge(torch="2.14.1", **now):
    """What is said of variables that were set before the process started."""
    found = inspect_variables(now, Origin(now, now, torch_came_first=False), torch)
    return {variable.name: variable for variable in found}


def in_child(script, **variables):
    """Run a script in a fresh Python and return what it printed."""
    clean = {name: value for name, value in os.environ.items() if "MPS" not in name}
    done = subprocess.run(
        [sys.executable, "-c", script],
        env=clean | variables,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_nothing_set_is_an_empty_list():
    assert judge() == {}


def test_other_variables_are_not_ours():
    assert environment._ours({"PYTORCH_CUDA_ALLOC_CONF": "x", "HOME": "/", HIGH: "1"}) == {
        HIGH: "1"
    }


@pytest.mark.parametrize(("value", "state"), [("1", "on"), ("2", "on"), ("0", "off")])
def test_fallback_is_plainly_on_or_off(value, state):
    variable = judge(**{FALLBACK: value})[FALLBACK]
    assert variable.problem is None
    assert variable.meaning.startswith(state)


@pytest.mark.parametrize("value", ["false", "", "off", "true", "00", " 1"])
def test_c16_ambiguous_fallback_values_are_not_reported_as_on(value):
    variable = judge(**{FALLBACK: value})[FALLBACK]
    assert "ambiguous" in variable.problem
    assert variable.meaning.startswith("unclear")


@pytest.mark.parametrize(
    ("value", "enabled"), [("0", False), ("1", True), ("false", True), ("", True)]
)
def test_fallback_enabled_reads_as_libtorch_does(monkeypatch, value, enabled):
    monkeypatch.setattr(environment, "ORIGIN", Origin({FALLBACK: value}, None, False))
    assert environment.fallback_enabled() is enabled


def test_fallback_set_after_torch_was_loaded_is_not_enabled(monkeypatch):
    monkeypatch.setattr(environment, "ORIGIN", Origin({}, {}, False))
    monkeypatch.setenv(FALLBACK, "1")
    assert environment.fallback_enabled() is False


def test_high_below_the_default_low_ratio_is_a_contradiction():
    problem = judge(**{HIGH: "1.2"})[HIGH].problem
    assert LOW in problem
    assert "at most 1.2" in problem


def test_high_and_low_that_agree_are_no_problem():
    assert [v.problem for v in judge(**{HIGH: "1.2", LOW: "1.0"}).values()] == [None, None]


def test_low_above_high_is_a_contradiction():
    found = judge(**{HIGH: "1.2", LOW: "1.3"})
    assert "exceeds the high ratio, 1.2" in found[LOW].problem
    assert found[HIGH].problem is None


def test_low_above_the_default_high_is_a_contradiction():
    assert "exceeds the high ratio, 1.7" in judge(**{LOW: "1.8"})[LOW].problem


def test_high_of_zero_is_no_limit_and_dangerous():
    found = judge(**{HIGH: "0.0", LOW: "1.9"})
    assert "may cause system failure" in found[HIGH].problem
    assert found[LOW].problem is None


@pytest.mark.parametrize("value", ["2.1", "3"])
def test_high_above_two_is_refused(value):
    assert "above 2.0" in judge(**{HIGH: value})[HIGH].problem


@pytest.mark.parametrize("name", [HIGH, LOW])
@pytest.mark.parametrize("value", ["lots", "", "nan", "inf", "-1", "1,4"])
def test_ratio_that_is_no_ratio(name, value):
    assert "is not a ratio" in judge(**{name: value})[name].problem


def test_bitmask_must_be_a_whole_number():
    name = "PYTORCH_MPS_LOG_PROFILE_INFO"
    assert judge(**{name: "68"})[name].problem is None
    assert "not a whole number" in judge(**{name: "all"})[name].problem


@pytest.mark.parametrize(
    ("typo", "meant"),
    [("PYTORCH_MPS_HIGH_WATERMARK", HIGH), ("PYTORCH_MPS_ENABLE_FALLBACK", FALLBACK)],
)
def test_unknown_name_suggests_the_close_one(typo, meant):
    assert f"did you mean {meant}?" in judge(**{typo: "1"})[typo].problem


def test_variable_of_a_newer_torch_is_not_read_yet():
    name = "PYTORCH_MPS_METAL_VERSION"
    assert "new in 2.15" in judge(**{name: "4.0"})[name].problem
    assert judge("2.15.0", **{name: "4.0"})[name].problem is None
    assert "3.1, 3.2 or 4.0" in judge("2.15.0", **{name: "5"})[name].problem


def test_c32_set_after_helpers_is_certainly_too_late():
    (variable,) = inspect_variables({HIGH: "1.5"}, Origin({}, {}, False), "2.14.1")
    assert variable.problem.startswith("was set after torch was loaded")
    assert (variable.value, variable.at_start) == ("1.5", None)


def test_removed_variable_still_counts():
    (variable,) = inspect_variables({}, Origin({FALLBACK: "1"}, {FALLBACK: "1"}, False), "2.14.1")
    assert (variable.value, variable.at_start) == (None, "1")
    assert "was removed after torch was loaded" in variable.problem


@pytest.mark.parametrize("at_start", [{}, None])
def test_unknown_order_is_reported_as_unknown(at_start):
    origin = Origin({FALLBACK: "1"}, at_start, torch_came_first=True)
    (variable,) = inspect_variables({FALLBACK: "1"}, origin, "2.14.1")
    assert variable.problem.startswith("may have been set after torch was loaded")


def test_set_before_the_process_started_is_in_time_even_if_torch_came_first():
    origin = Origin({FALLBACK: "1"}, {FALLBACK: "1"}, torch_came_first=True)
    (variable,) = inspect_variables({FALLBACK: "1"}, origin, "2.14.1")
    assert variable.problem is None


SET = f"import os; os.environ['{FALLBACK}'] = '1'; "
TORCH = "import sys; sys.modules['torch'] = None; "  # what this module looks at; loading is slow
ALONE = f"import sys; sys.path.insert(0, {str(Path(environment.__file__).parent)!r}); "
REPORT = (
    "import environment as e; print(e.fallback_enabled(), *(v.problem for v in e.mps_variables()))"
)


def test_c16_child_sets_fallback_after_helpers():
    report = REPORT.replace("import environment as e", "import helpers.environment as e")
    said = in_child("import helpers, torch; " + SET + report)
    assert said.startswith(
        "False was set after torch was loaded: restart the kernel and set it before `import torch`"
    )


def test_c16_child_sets_fallback_between_torch_and_helpers():
    said = in_child(ALONE + TORCH + SET + REPORT)
    assert "may have been set after torch was loaded" in said


def test_c16_child_sets_fallback_first():
    assert in_child(ALONE + SET + REPORT) == "True None"


def test_child_inherits_the_variable_and_loads_torch_first():
    assert in_child(ALONE + TORCH + REPORT, **{FALLBACK: "1"}) == "True None"


def test_unreadable_start_environment_is_not_an_error(monkeypatch):
    def refuse(self):
        raise environment.psutil.AccessDenied

    monkeypatch.setattr(environment.psutil.Process, "environ", refuse)
    assert environment._start_environment() is None


@pytest.mark.parametrize("value", ["TRUE", "1", "true"])
def test_c10_duplicate_openmp_is_flagged(monkeypatch, value):
    monkeypatch.setenv("KMP_DUPLICATE_LIB_OK", value)
    assert environment.openmp_override() == value


@pytest.mark.parametrize("value", [None, "", "FALSE", "0"])
def test_c10_openmp_variable_that_allows_nothing(monkeypatch, value):
    monkeypatch.delenv("KMP_DUPLICATE_LIB_OK", raising=False)
    if value is not None:
        monkeypatch.setenv("KMP_DUPLICATE_LIB_OK", value)
    assert environment.openmp_override() is None


def test_torch_is_not_imported():
    assert in_child(
        ALONE + "import environment as e; print(e._torch_version(), 'torch' in sys.modules)"
    ) == (f"{environment._torch_version()} False")
