"""Run the tests in `rules/` inside the simulation, each with a result of its own here.

The simulation cannot be turned on in the process of an ordinary test run, nor off again: one
session of pytest runs them all, and each test here looks its result up.
"""

import ast
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from .session import simulated

RULES = Path(__file__).parent / "rules"


def rules() -> list[str]:
    """Return the tests in `rules/` as "test_memory::test_resizing_counts"."""
    return [
        f"{path.stem}::{node.name}"
        for path in sorted(RULES.glob("test_*.py"))
        for node in ast.parse(path.read_text()).body
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")
    ]


@pytest.fixture(scope="module")
def results(tmp_path_factory) -> dict[str, list[ET.Element]]:
    """Return the cases of each rule: one, or one for each set of parameters."""
    report = tmp_path_factory.mktemp("rules") / "report.xml"
    done = simulated("-m", "pytest", "-q", str(RULES), f"--junitxml={report}")
    assert report.exists(), done.stdout + done.stderr
    found: dict[str, list[ET.Element]] = {}
    for case in ET.parse(report).iter("testcase"):
        module = case.attrib["classname"].rpartition(".")[2]
        found.setdefault(f"{module}::{case.attrib['name'].partition('[')[0]}", []).append(case)
    return found


@pytest.mark.parametrize("rule", rules())
def test_rule(rule, results):
    cases = results.get(rule, [])
    assert cases, f"{rule} was not run"
    problems = [
        f"{case.attrib['name']}:\n{problem.text}"
        for case in cases
        for problem in case
        if problem.tag in ("failure", "error")
    ]
    assert not problems, "\n".join(problems)
    skipped = [reason for case in cases if (reason := case.find("skipped")) is not None]
    if len(skipped) == len(cases):
        pytest.skip(skipped[0].attrib["message"])
