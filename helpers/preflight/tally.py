"""What a run did and what was found in it, with the places."""

from dataclasses import dataclass, field
from typing import Any

from helpers.preflight.places import Place


@dataclass(frozen=True)
class Use:
    """One place where something was found."""

    place: Place | None
    phase: str  # "forward" or "backward"
    operator: str

    def __str__(self) -> str:
        """Return ``train.py:12 (backward)``."""
        where = str(self.place) if self.place else "PyTorch's own code"
        return f"{where} (backward)" if self.phase == "backward" else where


Uses = dict[Use, int]  # how often at each place


@dataclass
class Tally:
    """What was done on a device that the program named, or elsewhere."""

    flops: int = 0
    bytes_moved: int = 0
    operators: int = 0
    findings: dict[str, dict[Any, Uses]] = field(default_factory=dict)

    def add(self, category: str, name: Any, use: Use) -> None:
        """Count, say, a missing operator at a place once more."""
        uses = self.findings.setdefault(category, {}).setdefault(name, {})
        uses[use] = uses.get(use, 0) + 1
