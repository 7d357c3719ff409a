"""Silent errors that MPS had or has, each with a small computation that would show it."""

from helpers.known_errors.reports import KNOWN_ERRORS, check_known_errors
from helpers.known_errors.verdicts import KnownError, Verdict, Verdicts, check

__all__ = ["KNOWN_ERRORS", "KnownError", "Verdict", "Verdicts", "check", "check_known_errors"]
