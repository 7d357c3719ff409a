"""What a comparison found, tensor by tensor, as text and as a table in a notebook."""

from dataclasses import dataclass, field
from html import escape
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    import pandas as pd

SHOWN = 12  # rows of a table that is printed; the report has them all


@dataclass(frozen=True)
class Difference:
    """How far one tensor is from float64, as a share of its length (root of the mean square).

    ``rounding`` is the CPU's distance in the type of the run, ``error`` the device's, ``limit``
    what the device may reach.
    """

    name: str
    error: float
    rounding: float
    limit: float
    unclear: bool

    @property
    def verdict(self) -> str:
        """``"agrees"``, ``"DISAGREES"``, or ``"unclear"``: rounding alone spoils this tensor."""
        if not self.error <= self.limit:  # NaN is no agreement
            return "DISAGREES"
        return "unclear" if self.unclear else "agrees"


@dataclass(frozen=True)
class Agreement:
    """One batch on the CPU and on the device, tensor by tensor; prints and shows as a table."""

    device: torch.device
    dtype: torch.dtype
    differences: list[Difference]
    compared: bool = True  # False on the CPU itself: the table shows what rounding costs
    notes: list[str] = field(default_factory=list)

    @property
    def agrees(self) -> bool:
        """Whether every tensor agrees; an unclear one does not."""
        return all(difference.verdict == "agrees" for difference in self.differences)

    @property
    def worst(self) -> Difference:
        """The tensor that comes closest to its limit, or exceeds it most."""
        return max(self.differences, key=_share)

    def table(self, most: int | None = None) -> "pd.DataFrame":
        """Return one row a tensor, errors as a share of its length.

        With ``most``, only so many rows, those that come closest to their limits.
        """
        import pandas as pd

        nearest = sorted(self.differences, key=_share, reverse=True)[:most]
        rows = [
            {
                "tensor": difference.name,
                f"error on {self.device.type}": f"{difference.error:.1e}",
                "error on the CPU": f"{difference.rounding:.1e}",
                "limit": f"{difference.limit:.1e}",
                "verdict": difference.verdict,
            }
            for difference in (self.differences if most is None else nearest)
        ]
        table = pd.DataFrame(rows).set_index("tensor")
        return table if self.compared else table.drop(columns="error on the CPU")

    @property
    def summary(self) -> str:
        """The verdict and the worst tensor, in a sentence or two, with the notes."""
        worst, n = self.worst, len(self.differences)
        kind = str(self.dtype).removeprefix("torch.")
        bad = [d.name for d in self.differences if d.verdict != "agrees"]
        if not self.compared:
            head = f"No GPU here: the CPU in {kind} against the CPU in float64."
            state = f"{n - len(bad)} of {n} tensors are clear of rounding."
        else:
            head = f"{self.device.type} in {kind} against the CPU:"
            state = f"{n - len(bad)} of {n} tensors agree."
        at = f"Worst: {worst.name}, error {worst.error:.1e}, limit {worst.limit:.1e}."
        return " ".join([head, state, at, *self.notes])

    def __str__(self) -> str:
        return f"{self._shown().to_string()}\n{self.summary}"

    def _repr_html_(self) -> str:
        return f"{self._shown().to_html()}<p><strong>{escape(self.summary)}</strong></p>"

    def _shown(self) -> "pd.DataFrame":
        return self.table(SHOWN if len(self.differences) > SHOWN else None)


def _share(difference: Difference) -> float:
    return difference.error / difference.limit
