"""``python -m helpers preflight``: a report on a program, for people and for other programs."""

import contextlib
import importlib
import json
import sys
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from helpers.device import first_line
from helpers.preflight.places import INSTALLED
from helpers.preflight.report import Report
from helpers.preflight.run import preflight, preflight_script

CLEAN, FINDINGS, COULD_NOT_RUN = 0, 1, 2


def check(target: str, arguments: Sequence[str], *, as_json: bool, shapes: bool) -> int:
    """Print a report on ``script.py`` or ``module:function`` and return the exit code.

    0: nothing found; 1: findings; 2: it could not be run, and standard error says why. What the
    program prints goes to standard error, so that standard output holds the report alone.
    """
    own, as_json = _program_arguments(list(arguments), as_json)
    try:
        with contextlib.redirect_stdout(sys.stderr):
            report = _report(target, own, shapes)
    except (Exception, SystemExit) as error:
        print(_why(target, error), file=sys.stderr)
        return COULD_NOT_RUN
    print(json.dumps(report.to_json(), indent=2) if as_json else report)
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
    return preflight(_function(target), device="meta" if shapes else "cpu")


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


def _why(target: str, error: BaseException) -> str:
    """Return what stopped a program, and the last line of it outside installed packages."""
    frames = traceback.extract_tb(error.__traceback__)
    ours = str(Path(__file__).parent)
    own = [frame for frame in frames if not frame.filename.startswith((ours, *INSTALLED))]
    where = f" ({own[-1].filename}, line {own[-1].lineno})" if own else ""
    if isinstance(error, SystemExit):
        said = f"it ended with exit code {error.code}"
    else:
        said = f"{type(error).__name__}: {first_line(str(error))}"
    return f"Could not run {target}: {said}{where}"
