"""What a preflight found, as numbers, as a table of text, and as a table in a notebook."""

import io
from dataclasses import dataclass, field
from html import escape
from typing import Any

import torch
from rich.table import Table

from helpers.chips import Chip, chip, chips
from helpers.diagnosis import Check, Diagnosis, plain_console
from helpers.memory import format_bytes
from helpers.preflight.tally import Use
from helpers.timing import format_seconds

RECOMMENDED = 0.75  # of a Mac's memory: what Metal recommends the GPU to use (MPSAllocator.h)
_SHOWN = 3  # places of one finding that a table shows; the report has them all


@dataclass(frozen=True)
class Finding:
    """Something to mend: where it is, how often each place did it, and what to use instead."""

    uses: dict[Use, int]
    alternative: str = ""

    @property
    def places(self) -> list[str]:
        """``train.py:12`` or ``train.py:12 (backward)`` for each, in the order of the run."""
        return list(dict.fromkeys(str(use) for use in self.uses))

    @property
    def forward(self) -> bool:
        """Whether it is needed before or after backward."""
        return any(use.phase == "forward" for use in self.uses)

    @property
    def backward(self) -> bool:
        """Whether it is needed in backward; its place is then the forward line it is for."""
        return any(use.phase == "backward" for use in self.uses)

    def __str__(self) -> str:
        """Return the places, and the alternative if one is known."""
        shown, more = self.places[:_SHOWN], len(self.places) - _SHOWN
        at = ", ".join(shown) + (f" and {more} more" if more > 0 else "")
        text = f"{at}\n    {self._line()}" if self._line() else at
        return f"{text}\n    instead: {self.alternative}" if self.alternative else text

    def _line(self) -> str:
        place = next(iter(self.uses)).place
        return place.text if place else ""


@dataclass(frozen=True)
class Report:
    """What one run of a function or program would do on MPS, for the installed PyTorch.

    The groups of findings map a name to where it is. ``peak_bytes`` has the bytes by kind at
    the moment when most were alive, and their ``total``; ``flops`` and ``bytes_moved`` are of the
    whole run. It prints as a table and shows as one in a notebook.
    """

    missing: dict[str, Finding]  # operators without an MPS kernel, by their aten names
    unknown: dict[str, Finding]  # operators of which PyTorch's tables do not say
    wide_dtypes: dict[torch.dtype, Finding]  # float64 and complex128, and where they begin
    mixed_devices: dict[str, Finding]  # operators that are given tensors of both devices
    cuda_calls: dict[str, Finding]  # what only CUDA answers
    refused_calls: dict[str, Finding]  # .numpy() on a tensor that is on MPS
    limits: dict[str, Finding]  # operators with a kernel that refuses these shapes
    on_cpu: dict[str, Finding]  # operators that PyTorch runs on the CPU by itself: slow, no error
    peak_bytes: dict[str, int]
    flops: int
    bytes_moved: int
    operators: int
    device: str  # "cpu": with values; "meta": with shapes only
    torch: str
    stopped: str = ""  # what ended the run before its end
    notes: list[str] = field(default_factory=list)

    @property
    def clean(self) -> bool:
        """Whether the run came to its end and nothing was found that fails on MPS, or may."""
        return not (self._fails() or self.unknown or self.stopped)

    @property
    def saw_anything(self) -> bool:
        """Whether an operator ran, or something was found without one."""
        return bool(self.operators or any(getattr(self, group) for group, *_ in _GROUPS))

    def fits(self, name: str, memory_gb: float | None = None) -> bool | None:
        """Return whether the peak is within 0.75 of a chip's memory; None if that is not known.

        ``name`` is one of ``data/chips.csv``, ``M2 Pro`` say. Without ``memory_gb`` the most
        memory sold with the chip counts. A Mac's other programs need memory as well.
        """
        row = chip(name)
        memory = row.max_memory_gb if memory_gb is None else memory_gb
        if memory is None:
            return None
        return self.peak_bytes["total"] <= RECOMMENDED * memory * 2**30

    def lower_bound_s(self, name: str) -> float | None:
        """Return seconds that the run takes at least, or None if a chip's rates are not known.

        A roofline: all FLOPs at the chip's FP32 rate, or every byte once at its full bandwidth,
        whichever takes longer (Williams et al., 2009). Real runs reach neither. Caches can make
        the traffic of small tensors cheaper than this counts.
        """
        return _lower_bound_s(chip(name), self.flops, self.bytes_moved)

    def to_json(self) -> dict[str, Any]:
        """Return everything in types that JSON has."""
        return {
            **{group: _group_to_json(getattr(self, group)) for group, *_ in _GROUPS},
            "clean": self.clean,
            "peak_bytes": self.peak_bytes,
            "flops": self.flops,
            "bytes_moved": self.bytes_moved,
            "operators": self.operators,
            "device": self.device,
            "torch": self.torch,
            "stopped": self.stopped,
            "notes": self.notes,
            "chips": {
                row.chip: {
                    "fits": self.fits(row.chip),
                    "max_memory_gb": row.max_memory_gb,
                    "lower_bound_s": self.lower_bound_s(row.chip),
                }
                for row in chips()
            },
        }

    def __str__(self) -> str:
        """Return the tables of text, at most 80 columns wide."""
        if not self.operators:
            return str(self._diagnosis())
        text = io.StringIO()
        plain_console(text).print(self._chip_table())
        table = "\n".join(line.rstrip() for line in text.getvalue().splitlines())
        return f"{self._diagnosis()}\n\n{table}"

    def _repr_html_(self) -> str:
        heads = "".join(f'<th scope="col">{head}</th>' for head in _CHIP_HEADS)
        rows = "".join(
            f'<tr><th scope="row">{escape(first)}</th>'
            + "".join(f"<td>{escape(cell)}</td>" for cell in rest)
            + "</tr>"
            for first, *rest in self._chip_rows()
        )
        return (
            f"{self._diagnosis()._repr_html_()}"
            f'<table class="chips"><thead><tr>{heads}</tr></thead><tbody>{rows}</tbody></table>'
        )

    def _diagnosis(self) -> Diagnosis:
        checks = [check for group in _GROUPS for check in _checks(self, *group)]
        peak = ", ".join(
            f"{kind.replace('_', ' ')} {format_bytes(size)}"
            for kind, size in self.peak_bytes.items()
            if size and kind != "total"
        )
        if self.stopped:
            after = "What comes after was not checked."
            checks.append(Check("stopped", "fail", self.stopped, after))
        total = format_bytes(self.peak_bytes["total"])
        work = f"{self.flops / 1e9:,.4g} GFLOP, {format_bytes(self.bytes_moved)} moved"
        checks += [Check("peak memory", "info", total, peak), Check("work", "info", work)]
        checks += [Check("note", "info", note) for note in self.notes]
        return Diagnosis(checks, self._verdict())

    def _verdict(self) -> str:
        if not self.operators and self.clean:
            return "Nothing to check: no operator ran. Does the program compute with tensors?"
        ran = f"{self.operators:,} operators checked against torch {self.torch}"
        if self.clean:
            return f"Nothing found that MPS lacks: {ran}."
        if self._fails():
            return f"This does not run on MPS as it is: {ran}."
        return f"Not run to its end: {ran}." if self.stopped else f"Unclear: {ran}."

    def _fails(self) -> bool:
        return any(getattr(self, group) for group, _, status, _ in _GROUPS if status == "fail")

    def _chip_rows(self) -> list[tuple[str, str, str, str]]:
        return [
            (
                row.chip,
                "not known" if row.max_memory_gb is None else f"{row.max_memory_gb:g} GB",
                {True: "fits", False: "does not fit", None: "not known"}[self.fits(row.chip)],
                "not known" if bound is None else format_seconds(bound),
            )
            for row in chips()
            for bound in [self.lower_bound_s(row.chip)]
        ]

    def _chip_table(self) -> Table:
        table = Table(*_CHIP_HEADS, box=None, pad_edge=False)
        for row in self._chip_rows():
            table.add_row(*row)
        return table


_CHIP_HEADS = ("Chip", "Most memory", "Peak in 75% of it", "Takes at least")
# field, name of the check, status, what it means
_GROUPS = (
    ("missing", "no MPS kernel", "fail", "Raises NotImplementedError on MPS."),
    ("wide_dtypes", "dtype", "fail", "MPS does not have it: a TypeError. Use float32."),
    ("mixed_devices", "two devices", "fail", "Raises RuntimeError: move all to one device."),
    ("cuda_calls", "CUDA only", "fail", "Fails or does nothing on a Mac."),
    ("refused_calls", "refused", "fail", "Raises TypeError on MPS: call .cpu() first."),
    ("limits", "shapes", "fail", "Its MPS kernel raises RuntimeError for these sizes."),
    ("unknown", "not known", "warn", "PyTorch's tables do not say whether MPS has it."),
    ("on_cpu", "runs on the CPU", "warn", "PyTorch copies to the CPU and back, without an error."),
)


def _checks(report: Report, group: str, name: str, status: Any, meaning: str) -> list[Check]:
    found: dict[Any, Finding] = getattr(report, group)
    return [Check(name, status, f"{what}\n  at {where}", meaning) for what, where in found.items()]


def _lower_bound_s(row: Chip, flops: int, bytes_moved: int) -> float | None:
    if row.fp32_tflops is None or row.bandwidth_gb_s is None:
        return None
    return max(flops / (row.fp32_tflops * 1e12), bytes_moved / (row.bandwidth_gb_s * 1e9))


def _group_to_json(group: dict[Any, Finding]) -> dict[str, Any]:
    return {
        str(name): {
            "alternative": finding.alternative,
            "uses": [
                {
                    "file": use.place.file if use.place else None,
                    "line": use.place.line if use.place else None,
                    "phase": use.phase,
                    "operator": use.operator,
                    "times": times,
                }
                for use, times in finding.uses.items()
            ],
        }
        for name, finding in group.items()
    }
