"""How the book draws: one look, and a few plots that take data and return their axes."""

from collections.abc import Mapping, Sequence

import matplotlib.pyplot as plt
import numpy as np
import torch
from cycler import cycler
from IPython.core.getipython import get_ipython
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib_inline.backend_inline import set_matplotlib_formats
from numpy.typing import ArrayLike

from helpers.machine import stamp
from helpers.svg import GRID, INK, PAPER, QUIET, SERIES, SVG_SETTINGS
from helpers.timing import Timing
from helpers.training import Evaluation, History

COLORS = SERIES
MARKERS = ("o", "s", "^", "D", "v", "P", "X")


def style() -> None:
    """Give every figure of this session the book's look; call it in a chapter's first cell."""
    plt.rcParams.update(
        {
            "figure.figsize": (7.0, 3.8),
            "figure.dpi": 96,
            "figure.constrained_layout.use": True,
            "figure.facecolor": PAPER,
            "axes.facecolor": "none",
            "savefig.facecolor": PAPER,
            "text.color": INK,
            "axes.edgecolor": INK,
            "axes.labelcolor": INK,
            "axes.titlecolor": INK,
            "xtick.color": INK,
            "ytick.color": INK,
            "font.size": 11,
            "axes.spines.top": False,
            "axes.spines.right": False,
            "axes.grid": True,
            "axes.axisbelow": True,
            "grid.color": GRID,
            "grid.linewidth": 0.8,
            "legend.frameon": False,
            "lines.linewidth": 1.8,
            "lines.markersize": 5,
            "image.cmap": "cividis",
            "image.interpolation": "none",  # in the file as many pixels as the image has
            "axes.prop_cycle": cycler(color=COLORS) + cycler(marker=MARKERS),
            **SVG_SETTINGS,
        }
    )
    _svg_in_notebooks()


def note_machine(axes: Axes, device: torch.device | str) -> Axes:
    """Write the machine, device, PyTorch version and date in small type under the axes."""
    figure = axes.get_figure(root=True)
    assert figure is not None
    figure.supxlabel(stamp(device), fontsize=7.5, color=QUIET, x=0.995, ha="right")
    return axes


def plot_samples(timings: Sequence[Timing], axes: Axes | None = None) -> Axes:
    """Draw every sample of each timing as a dot, its median as a bar; logarithmic seconds."""
    axes = axes or plt.subplots(figsize=(7.0, 0.8 + 0.55 * len(timings)))[1]
    for row, timing in enumerate(timings):
        # A fixed ripple spreads the dots, so that the picture is the same for the same data.
        offsets = 0.16 * np.sin(np.arange(timing.n) * 2.4)
        axes.plot(timing.samples_s, row + offsets, linestyle="none", marker="o", alpha=0.5)
        axes.vlines(timing.median_s, row - 0.32, row + 0.32, color=INK)
    axes.set_yticks(range(len(timings)), [timing.label for timing in timings])
    axes.set_ylim(len(timings) - 0.5, -0.5)
    axes.set_xscale("log")
    axes.set_xlabel("seconds per call (bar: median)")
    return axes


def plot_sweep(
    sizes: Sequence[float],
    series: Mapping[str, Sequence[float]],
    *,
    xlabel: str,
    ylabel: str,
    axes: Axes | None = None,
) -> Axes:
    """Draw one line a series over ``sizes``, both axes logarithmic; NaN leaves a gap."""
    axes = axes or plt.subplots()[1]
    for name, values in series.items():
        axes.plot(sizes, values, label=name)
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    axes.set_xticks(sizes, [f"{size:g}" for size in sizes])
    axes.minorticks_off()
    axes.set(xlabel=xlabel, ylabel=ylabel)
    axes.legend()
    return axes


def plot_history(history: History) -> Figure:
    """Draw loss (left) and error rate (right) of training and test data over the epochs."""
    figure, (left, right) = plt.subplots(1, 2, figsize=(7.4, 3.2))
    table = history.table()
    for part in ("train", "test"):
        left.plot(table.index, table[f"{part} loss"], label=part)
        right.plot(table.index, 100 * (1 - table[f"{part} accuracy"]), label=part)
    left.set(xlabel="epoch", ylabel="mean loss")
    right.set(xlabel="epoch", ylabel="wrong answers (%)", ylim=(0, None))
    for axes in (left, right):
        axes.xaxis.get_major_locator().set_params(integer=True)
    left.legend()
    return figure


def plot_confusion(evaluation: Evaluation, classes: Sequence[str]) -> Axes:
    """Draw how often each class (row) was taken for each class (column), counts written in."""
    n = len(classes)
    pairs = evaluation.labels * n + evaluation.predictions
    counts = np.bincount(pairs.numpy(), minlength=n * n).reshape(n, n)
    axes = plt.subplots(figsize=(5.6, 5.2))[1]
    # Colour by share of the row's mistakes: the diagonal would drown everything else.
    mistakes = counts - np.diag(np.diag(counts))
    axes.imshow(mistakes, cmap="Blues", vmax=max(int(mistakes.max()), 1) * 1.6)
    for row, column in np.ndindex(n, n):
        if counts[row, column]:
            weight = "bold" if row == column else "normal"
            axes.text(
                column,
                row,
                f"{counts[row, column]}",
                ha="center",
                va="center",
                fontsize=9,
                fontweight=weight,
                color="#111111",  # the cells stay light in a dark page, where INK turns light
            )
    axes.set_xticks(range(n), classes)
    axes.set_yticks(range(n), classes)
    axes.grid(False)
    axes.set(xlabel="predicted", ylabel="true")
    return axes


def show_images(
    images: ArrayLike | torch.Tensor, titles: Sequence[str], columns: int = 8
) -> Figure:
    """Show uint8 ``images`` (n, channels, height, width) in a grid, a title over each."""
    pixels = np.asarray(images)
    rows = -(-len(pixels) // columns)
    figure, grid = plt.subplots(
        rows, columns, figsize=(7.4, 7.4 / columns * rows * 1.25), squeeze=False
    )
    for axes in grid.flat:
        axes.axis("off")
    for axes, image, title in zip(grid.flat, pixels, titles, strict=False):
        gray = image.shape[0] == 1
        axes.imshow(image[0] if gray else image.transpose(1, 2, 0), cmap="gray_r" if gray else None)
        axes.set_title(title, fontsize=9)
    return figure


def _svg_in_notebooks() -> None:
    """Make notebooks show figures as SVG without a date; outside of IPython do nothing."""
    shell = get_ipython()
    if shell is None:
        return
    set_matplotlib_formats("svg", metadata={"Date": None, "Creator": None})
