"""tools/find_python.sh: a candidate counts only if it runs, newest tested version first."""

import os
import subprocess
from pathlib import Path

import pytest

SCRIPT = Path(__file__).resolve().parents[2] / "tools/find_python.sh"


@pytest.fixture
def find(tmp_path):
    """Return a function that runs the script with only the given interpreters on PATH."""

    def run(asked_for="", **versions):
        for name, version in versions.items():
            path = tmp_path / name.replace("_", ".")
            fails = "echo 'command not found' >&2; exit 127"
            path.write_text(f"#!/bin/sh\n{f'echo {version}' if version else fails}\n")
            path.chmod(0o755)
        command = ["/bin/sh", str(SCRIPT), asked_for]
        return subprocess.run(command, env={"PATH": str(tmp_path)}, capture_output=True, text=True)

    return run


def test_the_newest_tested_version_wins(find):
    found = find(python3_11="3.11", python3_12="3.12", python3="3.11")
    assert (found.stdout, found.stderr, found.returncode) == ("python3.12\n", "", 0)


def test_a_command_that_does_not_run_is_passed_over(find):
    assert find(python3_13=None, python3_12=None, python3_11="3.11").stdout == "python3.11\n"


def test_python3_is_enough(find):
    assert find(python3="3.13").stdout == "python3\n"


def test_python_3_14_is_let_through_with_one_line(find):
    found = find(python3="3.14")
    assert found.stdout == "python3\n"
    assert found.stderr.count("\n") == 1
    assert "untested" in found.stderr


def test_a_tested_version_is_preferred_to_3_14(find):
    assert find(python3="3.14", python3_11="3.11").stdout == "python3.11\n"


@pytest.mark.parametrize("version", ["3.10", "2.7", "3.15", "4.0"])
def test_an_old_or_unknown_version_is_refused_in_one_line(find, version):
    found = find(python3=version)
    assert (found.returncode, found.stdout) == (1, "")
    assert found.stderr.count("\n") == 1
    assert f"python3 is Python {version}" in found.stderr
    assert "PYTHON=" in found.stderr


def test_no_python_at_all_is_said_in_one_line(find):
    found = find()
    assert found.returncode == 1
    assert found.stderr.count("\n") == 1
    assert "install one" in found.stderr


def test_the_python_asked_for_is_the_only_candidate(find):
    assert find("python3.12", python3_13="3.13", python3_12="3.12").stdout == "python3.12\n"
    refused = find("python3.10", python3_13="3.13", python3_10="3.10")
    assert (refused.returncode, refused.stdout) == (1, "")
    assert "/nowhere/python does not run" in find("/nowhere/python").stderr


@pytest.mark.parametrize("how", ["before", "after"])
def test_make_hands_on_the_python_asked_for(how):
    command = ["make", "-n", "environment", *(["PYTHON=mine"] if how == "after" else [])]
    # Not what the make that may run these tests was told.
    own = {"MAKEFLAGS", "MFLAGS", "MAKELEVEL", "MAKEOVERRIDES", "PYTHON"}
    variables = {name: value for name, value in os.environ.items() if name not in own}
    variables |= {"PYTHON": "mine"} if how == "before" else {}
    done = subprocess.run(
        command, cwd=SCRIPT.parents[1], env=variables, capture_output=True, text=True
    )
    assert 'find_python.sh "mine"' in done.stdout
