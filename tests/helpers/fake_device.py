"""An asynchronous device without hardware: calls queue work, synchronizing does it.

The clock is simulated too, so that tests of timing are exact and take no time.
"""

from dataclasses import dataclass, field

import torch


@dataclass
class FakeDevice:
    """A device whose launches return at once; ``now_s`` is the simulated clock."""

    launch_s: float = 1e-5
    now_s: float = 0.0
    queued_s: float = 0.0
    events: list[str] = field(default_factory=list)

    def launch(self, work_s: float) -> None:
        """Queue ``work_s`` seconds of work; only the launch itself takes time."""
        self.events.append("launch")
        self.now_s += self.launch_s
        self.queued_s += work_s

    def busy(self, seconds: float) -> None:
        """Keep the CPU busy, as compiling does."""
        self.now_s += seconds

    def synchronize(self, device: torch.device) -> None:
        """Do all queued work."""
        self.events.append("synchronize")
        self.now_s += self.queued_s
        self.queued_s = 0.0

    def clock(self) -> float:
        """Read the simulated clock."""
        self.events.append("clock")
        return self.now_s
