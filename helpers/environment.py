"""The environment variables that PyTorch's MPS backend reads, and what is wrong with yours.

This module is imported before PyTorch where that is possible: PyTorch reads the variables when it
is loaded, and only a copy of the environment from that moment can show that one was set too late.
"""

import difflib
import math
import os
import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib import metadata
from typing import NamedTuple

import psutil

FALLBACK = "PYTORCH_ENABLE_MPS_FALLBACK"
HIGH = "PYTORCH_MPS_HIGH_WATERMARK_RATIO"
LOW = "PYTORCH_MPS_LOW_WATERMARK_RATIO"
METAL_VERSION = "PYTORCH_MPS_METAL_VERSION"
BITMASKS = (
    "PYTORCH_DEBUG_MPS_ALLOCATOR",
    "PYTORCH_MPS_LOG_PROFILE_INFO",
    "PYTORCH_MPS_TRACE_SIGNPOSTS",
)
DEFAULT_HIGH, DEFAULT_LOW, LARGEST_HIGH = 1.7, 1.4, 2.0


class Known(NamedTuple):
    """A variable that some release of PyTorch reads."""

    since: str  # first minor release of PyTorch; "" for Apple's own
    default: str
    meaning: str


# Names, releases and defaults were read in the official macOS wheels of PyTorch 1.12 to 2.15.
KNOWN = {
    FALLBACK: Known("1.12", "off", "ops without an MPS kernel run on the CPU instead of failing"),
    "PYTORCH_DEBUG_MPS_ALLOCATOR": Known(
        "1.12",
        "0",
        "prints what the allocator does: 1 profiling, 2 allocations, 4 recycles, 8 releases, "
        "16 large ones only",
    ),
    HIGH: Known(
        "1.13", "1.7", "hard limit of GPU memory, as a multiple of Metal's recommended working set"
    ),
    LOW: Known(
        "1.13", "1.4", "soft limit of GPU memory, where PyTorch starts to collect; 0.0 turns it off"
    ),
    "PYTORCH_MPS_LOG_PROFILE_INFO": Known(
        "2.1", "0", "prints what ran where; 68 counts the ops that fell back to the CPU"
    ),
    "PYTORCH_MPS_TRACE_SIGNPOSTS": Known("2.1", "0", "writes OS signposts for Instruments"),
    "PYTORCH_MPS_PREFER_METAL": Known(
        "2.3", "off", "matrix products by Metal kernels instead of MPSGraph"
    ),
    "PYTORCH_MPS_FAST_MATH": Known("2.5", "off", "Metal's fast math: quicker, less precise"),
    "PYTORCH_MPS_DISABLE_PREFILL_ATTENTION": Known(
        "2.13", "off", "turns off the attention kernel for long prompts"
    ),
    METAL_VERSION: Known("2.15", "not set", "version of the Metal language: 3.1, 3.2 or 4.0"),
    "MTL_CAPTURE_ENABLED": Known("", "off", "Apple's: allows torch.mps.profiler.metal_capture"),
}


@dataclass(frozen=True)
class MpsVariable:
    """A variable that is set now, or was set when PyTorch was loaded."""

    name: str
    value: str | None  # None: it has been removed since PyTorch was loaded
    at_start: str | None  # what PyTorch saw when it was loaded, as far as that can be known
    meaning: str
    problem: str | None  # what is wrong, in a sentence or two


@dataclass(frozen=True)
class Origin:
    """What is known about the environment at the moment when PyTorch was loaded."""

    at_import: Mapping[str, str]  # when this module was imported
    at_start: Mapping[str, str] | None  # when the process started; None: cannot be read
    torch_came_first: bool  # PyTorch had been loaded before this module


def _is_ours(name: str) -> bool:
    return name in KNOWN or (name.startswith("PYTORCH_") and "MPS" in name)


def _ours(environment: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in environment.items() if _is_ours(name)}


def _start_environment() -> dict[str, str] | None:
    try:
        return _ours(psutil.Process().environ())
    except (psutil.Error, OSError):  # macOS may refuse to tell
        return None


# Taken once. Every other module of helpers imports PyTorch, so it is loaded right after this line,
# if it was not loaded before.
ORIGIN = Origin(_ours(os.environ), _start_environment(), "torch" in sys.modules)


def fallback_enabled() -> bool:
    """Return whether ops without an MPS kernel run on the CPU, as PyTorch decided when it loaded.

    PyTorch 2.14.1 reads the variable once, and takes every value except exactly ``0`` for "on",
    ``false`` included. A value set after PyTorch was loaded changes nothing, and is ignored here.
    """
    return ORIGIN.at_import.get(FALLBACK, "0") != "0"


def openmp_override() -> str | None:
    """Return the value of ``KMP_DUPLICATE_LIB_OK`` if it allows two OpenMP libraries, else None."""
    value = os.environ.get("KMP_DUPLICATE_LIB_OK", "")
    return None if value.strip().lower() in ("", "0", "false", "no", "off") else value


def mps_variables() -> list[MpsVariable]:
    """Return every MPS variable that is set, or was set when PyTorch was loaded, with its problem.

    Sorted by name; an empty list when none is set. Nothing is changed.
    """
    return inspect_variables(_ours(os.environ), ORIGIN, _torch_version())


def inspect_variables(now: Mapping[str, str], origin: Origin, torch: str) -> list[MpsVariable]:
    """Judge the variables in ``now``, given what PyTorch ``torch`` saw when it was loaded."""
    found = []
    for name in sorted(now.keys() | origin.at_import.keys()):
        value, seen = now.get(name), origin.at_import.get(name)
        problems = [_lateness(name, value, origin)]
        if value is not None:
            problems += [_unread(name, torch), _contradiction(name, value, now)]
        known = KNOWN.get(name)
        found.append(
            MpsVariable(
                name,
                value,
                seen,
                _meaning(name, value) if known else "not a variable that PyTorch reads",
                " ".join(problem for problem in problems if problem) or None,
            )
        )
    return found


def _lateness(name: str, value: str | None, origin: Origin) -> str | None:
    remedy = "restart the kernel and set it before `import torch`."
    seen = origin.at_import.get(name)
    if value is None:
        return f"was removed after torch was loaded, which still uses '{seen}': restart the kernel."
    if value != seen:
        return f"was set after torch was loaded: {remedy}"
    if not origin.torch_came_first:
        return None
    if origin.at_start is None or origin.at_start.get(name) != value:
        return (
            f"may have been set after torch was loaded: {remedy} "
            "(Import helpers before torch, and this check can tell.)"
        )
    return None


def _unread(name: str, torch: str) -> str | None:
    """Say why this PyTorch does not read the variable, if it does not."""
    if name not in KNOWN:
        close = difflib.get_close_matches(name, KNOWN, n=1, cutoff=0.6)
        return "no PyTorch reads a variable of this name" + (
            f": did you mean {close[0]}?" if close else "."
        )
    since = KNOWN[name].since
    if since and minor_version(since) > minor_version(torch):
        return f"torch {torch} does not read it: it is new in {since}."
    return None


def _contradiction(name: str, value: str, now: Mapping[str, str]) -> str | None:
    """Say what is wrong with the value, by itself or beside the other variables."""
    if name == FALLBACK:
        return _ambiguous_switch(value)
    if name in (HIGH, LOW):
        return _bad_watermark(name, value, now)
    if name in BITMASKS and not value.strip().isdecimal():
        return f"'{value}' is not a whole number."
    if name == METAL_VERSION and value not in ("3.1", "3.2", "4.0"):
        return f"'{value}' is ignored: it can be 3.1, 3.2 or 4.0."
    return None


def _ambiguous_switch(value: str) -> str | None:
    if value == "0" or re.fullmatch(r"[1-9][0-9]*", value):
        return None
    return (
        f"'{value}' is ambiguous: torch 2.14.1 takes everything except exactly 0 for on, and older "
        "releases read a number. Write 1 for on; for off write 0 or remove the variable."
    )


def _bad_watermark(name: str, value: str, now: Mapping[str, str]) -> str | None:
    ratio = _number(value)
    if ratio is None or ratio < 0:
        return f"'{value}' is not a ratio: write a number such as 1.4."
    if name == HIGH and ratio > LARGEST_HIGH:
        return f"{value} is above {LARGEST_HIGH}, the largest value that PyTorch accepts."
    if name == HIGH and ratio == 0:
        return "0.0 removes the limit of GPU memory, which may cause system failure."
    if name == HIGH and LOW not in now and ratio < DEFAULT_LOW:
        return (
            f"{value} is below the low ratio, {DEFAULT_LOW} by default, and PyTorch refuses that "
            f"('invalid low watermark ratio'): set {LOW} to at most {value} as well."
        )
    # A high ratio of 0.0 is "no limit", and one that is no number has its own message.
    high = _number(now.get(HIGH, str(DEFAULT_HIGH)))
    if name == LOW and high and ratio > high:
        return (
            f"{value} exceeds the high ratio, {high}, and PyTorch refuses that "
            "('invalid low watermark ratio')."
        )
    return None


def _meaning(name: str, value: str | None) -> str:
    meaning = KNOWN[name].meaning
    if name == FALLBACK and value is not None:
        # C16: only a value that every release reads alike may be called on.
        state = "off" if value == "0" else "unclear" if _ambiguous_switch(value) else "on"
        return f"{state}: {meaning}" if state == "on" else f"{state}; when on, {meaning}"
    return f"{meaning} (default {KNOWN[name].default})"


def _number(text: str) -> float | None:
    try:
        number = float(text)
    except ValueError:
        return None
    return number if math.isfinite(number) else None


def minor_version(version: str) -> tuple[int, int]:
    """Return the first two numbers of a version: (2, 14) for "2.14.1+cu130"."""
    major, minor = re.findall(r"\d+", version)[:2]
    return int(major), int(minor)


@cache
def _torch_version() -> str:
    return metadata.version("torch")  # without the price of importing it
