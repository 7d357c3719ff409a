"""The suite of a record: what fits into its time, what it leaves out, and how it is stopped."""

import time

import pytest
import torch

from helpers import __main__ as command
from helpers import record_suite, records
from helpers.record_suite import Findings, climb, record
from helpers.record_work import DTYPES, Ladder, ladders
from helpers.records import RecordError, load_records

CPU = torch.device("cpu")


def ladder(prepare, sizes=(1, 2, 4), **changes):
    fixed = {"workload": "matmul", "dtype": "float32", "growth": 1, "longest_s": 20.0}
    return Ladder(**(fixed | {"bytes_each": lambda n: n} | changes), sizes=sizes, prepare=prepare)


def climbed(steps, seconds=30.0, memory_bytes=2**30):
    found = Findings()
    climb(steps, CPU, time.perf_counter() + seconds, memory_bytes, found, lambda line: None)
    return found


def sleeping(seconds_each):
    return lambda size: lambda: time.sleep(size * seconds_each)


@pytest.fixture
def quick(monkeypatch):
    """Replace the suite by something that takes no time."""
    monkeypatch.setattr(record_suite, "ladders", lambda device: [ladder(sleeping(1e-4))])
    monkeypatch.setattr(record_suite.psutil, "cpu_percent", lambda interval: 50.0)


def test_sizes_that_fit_are_measured():
    found = climbed(ladder(sleeping(1e-3)))
    assert [m.size for m in found.measurements] == [1, 2, 4]
    assert [m.median_s for m in found.measurements] == sorted(
        m.median_s for m in found.measurements
    )
    assert found.left_out == []


def test_a_size_that_would_take_too_long_is_never_begun():
    begun = []

    def prepare(size):
        begun.append(size)
        return lambda: time.sleep(size * 0.01)

    found = climbed(ladder(prepare, sizes=(1, 1000, 10_000)), seconds=5.0)
    assert begun == [1]
    assert [left.size for left in found.left_out] == [1000, 10_000]
    assert "it needs about" in found.left_out[0].reason


def test_growth_is_taken_into_account():
    found = climbed(ladder(sleeping(1e-3), sizes=(1, 20), growth=3), seconds=4.0)
    assert [left.size for left in found.left_out] == [20]  # 8,000 times as long, not 20


def test_the_first_size_is_left_out_if_a_probe_is_slow():
    begun = []
    found = climbed(ladder(begun.append, probe=lambda: lambda: time.sleep(0.1)), seconds=2.0)
    assert begun == []
    assert len(found.left_out) == 3


def test_a_machine_that_becomes_slower_is_stopped_in_the_middle():
    calls = []

    def work():
        calls.append(None)
        time.sleep(0.01 if len(calls) < 3 else 0.7)

    before_s = time.perf_counter()
    found = climbed(ladder(lambda size: work, sizes=(1,)), seconds=1.0)
    assert time.perf_counter() - before_s < 5.0
    assert found.measurements == []
    assert "its time was up" in found.left_out[0].reason


def test_what_needs_too_much_memory_is_left_out():
    found = climbed(ladder(sleeping(1e-4), bytes_each=lambda n: n * 2**28), memory_bytes=2**30)
    assert [m.size for m in found.measurements] == [1]
    assert "memory" in found.left_out[0].reason


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (RuntimeError("MPS backend out of memory (MPS allocated: 1 GiB)"), "out of memory"),
        (NotImplementedError("no kernel for 'Half'\nmore"), "NotImplementedError: no kernel for"),
        (RuntimeError("in /Users/somebody/torch/a.cpp:3 it broke"), "in <path>:3 it broke"),
    ],
)
def test_an_error_is_a_reason_without_paths_and_the_rest_goes_on(error, reason):
    def prepare(size):
        if size == 2:
            raise error
        return lambda: None

    found = climbed(ladder(prepare))
    assert [m.size for m in found.measurements] == [1, 4]
    assert reason in found.left_out[0].reason
    assert "somebody" not in found.left_out[0].reason


def test_the_suite_has_the_workloads_of_the_schema():
    found = {(steps.workload, steps.dtype) for steps in ladders(CPU)}
    assert {name for name, _ in found} == {
        "matmul", "copy", "mnist_epoch", "resnet18_step", "resnet18_image",
    }  # fmt: skip
    assert {dtype for name, dtype in found if name == "matmul"} == set(DTYPES)
    assert {dtype for name, dtype in found if name == "resnet18_step"} == set(DTYPES)
    assert sum(steps.longest_s for steps in ladders(CPU)) < 150  # of three minutes


@pytest.mark.parametrize("steps", ladders(CPU), ids=lambda steps: f"{steps.workload}-{steps.dtype}")
def test_each_workload_computes_at_its_smallest(steps):
    if steps.workload.startswith("resnet18"):
        steps.probe()()
    else:
        steps.prepare(steps.sizes[0])()


def test_a_simulated_device_is_refused_in_one_line(monkeypatch):
    monkeypatch.setattr(record_suite, "is_simulated", lambda device: True)
    with pytest.raises(RecordError, match="simulated") as refused:
        record(CPU)
    assert "\n" not in str(refused.value)


def test_the_command_writes_a_record_and_says_where(quick, tmp_path, capsys):
    assert command.main(["record", "--device", "cpu", "--folder", str(tmp_path)]) == 0
    (made,), left_out = load_records(tmp_path)
    assert left_out == []
    assert made.device == "cpu"
    assert len(made.measurements) == 3
    assert made.load == 0.5
    assert "not idle" in made.notes[0]
    (path,) = tmp_path.iterdir()
    assert capsys.readouterr().out.rstrip().endswith(str(path))


def test_an_interrupted_command_writes_nothing(quick, monkeypatch, tmp_path):
    def interrupted(size):
        if size == 4:
            raise KeyboardInterrupt
        return lambda: None

    monkeypatch.setattr(record_suite, "ladders", lambda device: [ladder(interrupted)])
    with pytest.raises(KeyboardInterrupt):
        command.main(["record", "--device", "cpu", "--folder", str(tmp_path)])
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--device", "abacus"], "no device of this book"),
        (["--folder", "/no/such/folder"], "There is no folder"),
    ],
)
def test_what_cannot_be_recorded_is_one_line(quick, tmp_path, capsys, arguments, says):
    folder = [] if "--folder" in arguments else ["--folder", str(tmp_path)]
    assert command.main(["record", *arguments, *folder]) == 1
    error = capsys.readouterr().err
    assert says in error
    assert error.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


def test_records_go_to_the_book_by_default(quick, monkeypatch, tmp_path):
    monkeypatch.setattr(records, "FOLDER", tmp_path)
    assert command.main(["record", "--device", "cpu"]) == 0
    assert len(list(tmp_path.glob("*.json"))) == 1
