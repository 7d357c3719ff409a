"""``python -m helpers preflight``: a report on a program, for people and for other programs."""

import contextlib
import importlib
import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from helpers.preflight.places import what_stopped
from helpers.preflight.report import Report
from helpers.preflight.run import preflight_script, watch

CLEAN, FINDINGS, COULD_NOT_RUN = 0, 1, 2


def check(target: str, arguments: Sequence[str], *, as_json: bool, shapes: bool) -> int:
    """Print a report on ``script.py`` or ``module:function`` and return the exit code.

    0: nothing found; 1: findings; 2: it could not be run, or not to its end, and standard error
    says why. What the program prints goes to standard error, so that standard output holds the
    report alone: also that of a program that failed after a while.
    """
    own, as_json = _program_arguments(list(arguments), as_json)
    try:
        with contextlib.redirect_stdout(sys.stderr):
            report = _report(target, own, shapes)
    except (Exception, SystemExit) as error:
        print(f"Could not run {target}: {what_stopped(error)}", file=sys.stderr)
        return COULD_NOT_RUN
    if report.stopped:
        print(f"Could not run {target} to its end: {report.stopped}", file=sys.stderr)
    if not report.stopped or report.saw_anything:
        print(json.dumps(report.to_json(), indent=2) if as_json else report)
    if report.stopped:
        return COULD_NOT_RUN
    return CLEAN if report.clean else FINDINGS


def _program_arguments(arguments: list[str], as_json: bool) -> tuple[list[str], bool]:
    """Return what is for the program, all behind ``--`` and what is not --json before it."""
    at = arguments.index("--") if "--" in arguments else len(arguments)
    before, after = arguments[:at], arguments[at + 1 :]
    return [each for each in before if each != "--json"] + after, as_json or "--json" in before


def _report(target: str, arguments: list[str], shapes: bool) -> Report:
    if Path(target).is_file():
        if target.endswith(".ipynb"):
            raise ValueError(
                "a notebook is no script: jupyter nbconvert --to script makes one of it"
            )
        if shapes:
            raise ValueError("--device meta is for module:function; a script runs with values")
        return preflight_script(target, arguments)
    module, colon, _ = target.partition(":")
    if not colon or not module or target.endswith(".py"):
        raise FileNotFoundError(f"there is no file {target}, and it is not module:function")
    if arguments:
        raise ValueError(f"module:function takes no arguments: {' '.join(arguments)}")
    return watch(_function(target), whole_program=False, shapes=shapes).report()


def _function(target: str) -> Callable[[], Any]:
    name, _, attribute = target.partition(":")
    sys.path.insert(0, "")  # like python -m: modules of the current folder
    found: Any = importlib.import_module(name)
    for part in attribute.split("."):
        found = getattr(found, part)
    if not callable(found):
        raise TypeError(f"{target} is no function")
    function: Callable[[], Any] = found
    return function
