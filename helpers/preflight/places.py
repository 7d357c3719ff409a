"""Which line of the caller's own code led here."""

import linecache
import sys
import sysconfig
import traceback
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

from helpers.device import first_line

_PATHS = sysconfig.get_paths()
# Code that came with an installation. The standard library's folder holds site-packages too.
INSTALLED = (
    "<frozen",
    *{_PATHS[key] for key in ("stdlib", "platstdlib", "purelib", "platlib")},
)
_OWN_FOLDER = str(Path(__file__).parent)
_WATCHERS = "helpers.preflight."  # stands between the caller's code and PyTorch's
# torch.cuda.amp.autocast and its like call their general forms.
_PASSED_THROUGH = (_WATCHERS, "torch.cuda.amp", "torch.amp")


@dataclass(frozen=True)
class Place:
    """A line of source."""

    file: str
    line: int

    @property
    def text(self) -> str:
        """The line itself, or nothing where its source is not at hand."""
        return linecache.getline(self.file, self.line).strip()

    def __str__(self) -> str:
        """Return ``train.py:12``, or the line's number alone for a notebook's cell."""
        in_cell = "ipykernel_" in self.file or self.file.startswith("<")
        return f"{'cell' if in_cell else Path(self.file).name}:{self.line}"


def caller() -> Place | None:
    """Return the innermost line that belongs to no installed package.

    Where there is none (a library that calls itself), the innermost line outside PyTorch.
    """
    frame: FrameType | None = sys._getframe(1)
    outside_torch: FrameType | None = None
    while frame is not None:
        if not _is_watcher_or_torch(frame):
            outside_torch = outside_torch or frame
            if not frame.f_code.co_filename.startswith(INSTALLED):
                return _place(frame)
        frame = frame.f_back
    return _place(outside_torch) if outside_torch else None


def what_stopped(error: BaseException) -> str:
    """Return in a line what an error says, and the innermost line outside installed packages."""
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if not frame.filename.startswith((_OWN_FOLDER, *INSTALLED))]
    where = f" ({own[-1].filename}, line {own[-1].lineno})" if own else ""
    if isinstance(error, SystemExit):
        return f"it ended with exit code {error.code}{where}"
    return f"{type(error).__name__}: {first_line(str(error))}{where}"


def called_by_torch() -> bool:
    """Return whether PyTorch by itself made the call that is being looked at."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and _module(frame).startswith(_PASSED_THROUGH):
        frame = frame.f_back
    return frame is not None and _module(frame).split(".")[0] == "torch"


def _is_watcher_or_torch(frame: FrameType) -> bool:
    module = _module(frame)
    return module.startswith(_WATCHERS) or module.split(".")[0] in (
        "torch",
        "unittest",
        "contextlib",
    )


def _module(frame: FrameType) -> str:
    return str(frame.f_globals.get("__name__", ""))


def _place(frame: FrameType) -> Place:
    return Place(frame.f_code.co_filename, frame.f_lineno)
