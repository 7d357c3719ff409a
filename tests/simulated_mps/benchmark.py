"""What the simulation costs: a ResNet-18 training step, simulated and on the plain CPU.

    python -m tests.simulated_mps.benchmark [--rounds 10] [--batch 16] [--side 224]

Two processes take turns, one step each, so that whatever else the machine does hits both. The
ratio is the median of the ratios of neighbouring steps; the aim is 1.15 at most. No test asserts
it. It says what the simulation adds, and nothing about the speed of a Mac.
"""

import argparse
import statistics
import subprocess
import sys
import time
from pathlib import Path

AIM = 1.15
WARMUP = 2


def work(device: str, batch: int, side: int) -> None:
    """Take a training step for each line on standard input, and print its seconds."""
    import torch
    import torch.nn.functional as F
    from torchvision.models import resnet18

    torch.manual_seed(0)
    model = resnet18(num_classes=10).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    images = torch.randn(batch, 3, side, side).to(device)
    labels = torch.randint(0, 10, (batch,)).to(device)
    for _ in sys.stdin:
        start = time.perf_counter()
        optimizer.zero_grad()
        loss = F.cross_entropy(model(images), labels)
        loss.backward()
        optimizer.step()
        loss.item()
        print(time.perf_counter() - start, flush=True)


class Worker:
    """A process that takes one step when it is asked to."""

    def __init__(self, device: str, batch: int, side: int) -> None:
        simulation = ["-m", "tests.simulated_mps"] if device == "mps" else []
        self.process = subprocess.Popen(
            [
                *(sys.executable, *simulation, "-m", "tests.simulated_mps.benchmark"),
                *(f"--worker={device}", f"--batch={batch}", f"--side={side}"),
            ],
            cwd=Path(__file__).parents[2],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def step(self) -> float:
        """Return the seconds of one step."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write("step\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        if not line:
            raise RuntimeError(f"a worker ended with {self.process.wait()}; its error is above")
        return float(line)

    def stop(self) -> None:
        """Let the process end."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait()


def measure(rounds: int, batch: int, side: int) -> list[tuple[float, float]]:
    """Return the seconds of ``rounds`` pairs of steps: plain CPU, simulated mps."""
    plain, simulated = (Worker(device, batch, side) for device in ("cpu", "mps"))
    try:
        pairs = []
        for i in range(WARMUP + rounds):
            # who goes first alternates: a load that rises or falls must not favour one
            first, second = (plain, simulated) if i % 2 else (simulated, plain)
            times = {first: first.step(), second: second.step()}
            pairs.append((times[plain], times[simulated]))
        return pairs[WARMUP:]
    finally:
        plain.stop()
        simulated.stop()


def main() -> None:
    """Print both medians and the ratio; a worker of the benchmark comes here as well."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--side", type=int, default=224)
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.worker:
        work(chosen.worker, chosen.batch, chosen.side)
        return
    pairs = measure(chosen.rounds, chosen.batch, chosen.side)
    plain, simulated = (statistics.median(times) for times in zip(*pairs, strict=True))
    ratio = statistics.median(s / p for p, s in pairs)
    print(
        f"ResNet-18 training step, batch {chosen.batch} of {chosen.side}x{chosen.side}, "
        f"{chosen.rounds} pairs\n"
        f"plain CPU {plain:.3f} s, simulated mps {simulated:.3f} s (medians)\n"
        f"ratio {ratio:.2f} (median of pairs; the aim is {AIM} at most)"
    )


if __name__ == "__main__":
    main()
