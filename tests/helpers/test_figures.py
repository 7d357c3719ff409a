"""Figures show the data they are given."""

import matplotlib as mpl
import matplotlib.pyplot as plt
import pytest
import torch

from helpers import figures
from helpers.timing import Timing
from helpers.training import Epoch, Evaluation, History


@pytest.fixture(autouse=True)
def _fresh_canvas():
    mpl.use("agg")
    with mpl.rc_context():
        figures.style()
        yield
    plt.close("all")


def evaluation(predictions, labels):
    return Evaluation(0.5, 0.5, torch.tensor(predictions), torch.tensor(labels))


def test_samples_have_a_row_each_and_the_median_marked():
    timings = [
        Timing("a", torch.device("cpu"), 1.0, (1.0, 2.0, 6.0)),
        Timing("b", torch.device("cpu"), 1.0, (4.0,)),
    ]
    axes = figures.plot_samples(timings)
    assert [tick.get_text() for tick in axes.get_yticklabels()] == ["a", "b"]
    assert [len(line.get_xdata()) for line in axes.lines] == [3, 1]
    assert axes.collections[0].get_segments()[0][0][0] == 2.0


def test_sweep_draws_each_series_with_its_name():
    axes = figures.plot_sweep([64, 128], {"cpu": [1, 2], "gpu": [3, 4]}, xlabel="n", ylabel="s")
    assert axes.get_legend_handles_labels()[1] == ["cpu", "gpu"]
    assert list(axes.lines[1].get_ydata()) == [3, 4]
    assert [tick.get_text() for tick in axes.get_xticklabels()] == ["64", "128"]


def test_history_shows_error_in_percent_from_epoch_one():
    history = History([Epoch(1.0, 0.9, 2.0, 10)], [evaluation([0], [0])])
    _, right = figures.plot_history(history).axes
    assert right.lines[0].get_xdata()[0] == 1
    assert right.lines[0].get_ydata()[0] == pytest.approx(10)


def test_confusion_counts_rows_as_truth():
    axes = figures.plot_confusion(evaluation([1, 1, 0], [0, 1, 0]), ("zero", "one"))
    written = {t.get_position(): t.get_text() for t in axes.texts}
    assert written == {(0, 0): "1", (1, 0): "1", (1, 1): "1"}
    assert axes.get_ylabel() == "true"


def test_images_get_a_title_each_and_empty_places_stay_empty():
    figure = figures.show_images(torch.zeros(3, 1, 4, 4, dtype=torch.uint8), "abc", columns=2)
    assert [axes.get_title() for axes in figure.axes] == ["a", "b", "c", ""]
    assert len(figure.axes[3].images) == 0


def test_the_machine_is_noted_on_the_figure():
    axes = plt.subplots()[1]
    figures.note_machine(axes, "cpu")
    assert f"torch {torch.__version__.split('+')[0]}" in axes.get_figure().get_supxlabel()
