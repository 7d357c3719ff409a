"""What a probe says of a device, as a verdict and as a table."""

from collections.abc import Callable
from dataclasses import dataclass, field
from html import escape
from typing import TYPE_CHECKING, Literal

import torch
from torch import Tensor

from helpers.device import as_device, first_line
from helpers.known_errors.probes import Pairs

if TYPE_CHECKING:
    import pandas as pd

Outcome = Literal["reproduced here", "not here", "not applicable"]

# Exact where the data are whole numbers; elsewhere far above rounding, far below these errors.
TOLERANCE = 1e-3
ISSUE = "https://github.com/pytorch/pytorch/issues/{}"
AS_OF = "2026-09"  # the newest issue that we could read


@dataclass(frozen=True)
class KnownError:
    """A reported error: where, in which versions, how the issue stood in ``AS_OF``, and a probe.

    ``probe(device)`` returns pairs of tensors, computed on the device and right.
    ``not_on`` maps a device type to the reason why the probe does not run there.
    """

    what: str
    issue: int
    seen_in: str
    status: str
    probe: Callable[[torch.device], Pairs]
    not_on: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Verdict:
    """What a probe found on one device."""

    error: KnownError
    outcome: Outcome
    detail: str = ""


class Verdicts(list[Verdict]):
    """Prints as a table, and shows as one with links in a notebook."""

    @property
    def reproduced(self) -> list[Verdict]:
        """The errors that this device has."""
        return [verdict for verdict in self if verdict.outcome == "reproduced here"]

    def table(self) -> "pd.DataFrame":
        """Return one row a check."""
        import pandas as pd

        return pd.DataFrame([_row(verdict) for verdict in self], columns=_HEADS).set_index(
            _HEADS[0]
        )

    def __str__(self) -> str:
        return str(self.table().to_string())

    def _repr_html_(self) -> str:
        head = "".join(f'<th scope="col">{name}</th>' for name in _HEADS)
        body = "".join(_html_row(verdict) for verdict in self)
        return (
            f'<table class="known-errors"><thead><tr>{head}</tr></thead>'
            f"<tbody>{body}</tbody></table>"
        )


def check(error: KnownError, device: torch.device | str) -> Verdict:
    """Run one probe on ``device`` and say what it found; raises nothing."""
    device = as_device(device)
    if device.type in error.not_on:
        return Verdict(error, "not applicable", error.not_on[device.type])
    try:
        pairs = error.probe(device)
    except Exception as problem:  # a refusal is no silent error, whatever its type
        text = first_line(str(problem)) or type(problem).__name__
        return Verdict(error, "not applicable", f"it is refused: {text[:80]}")
    worst = max(_distance(got, right) for got, right in pairs)
    if worst <= TOLERANCE:
        return Verdict(error, "not here")
    return Verdict(error, "reproduced here", f"off by {worst:.3g}")


def _distance(got: Tensor, right: Tensor) -> float:
    """Return the largest difference; infinite for NaN, and for another shape."""
    got = got.detach().cpu()
    if got.shape != right.shape:
        return float("inf")
    difference = (got.double() - right.double()).abs().max().item()
    return difference if difference == difference else float("inf")


def _words(verdict: Verdict) -> str:
    return f"{verdict.outcome}: {verdict.detail}" if verdict.detail else verdict.outcome


_HEADS = ["computation", "here", f"issue, {AS_OF}", "seen in"]


def _row(verdict: Verdict) -> list[str]:
    error = verdict.error
    return [error.what, _words(verdict), f"#{error.issue}, {error.status}", error.seen_in]


def _html_row(verdict: Verdict) -> str:
    what, here, issue, seen_in = map(escape, _row(verdict))
    number, status = issue.split(",", 1)
    link = f'<a href="{ISSUE.format(verdict.error.issue)}">{number}</a>,{status}'
    return f'<tr><th scope="row">{what}</th><td>{here}</td><td>{link}</td><td>{seen_in}</td></tr>'
