"""Records: written whole or not at all, never over another, and checked when they are read."""

import json
import os
import subprocess
import sys
from dataclasses import replace

import pytest

from helpers import records
from helpers.machine import Machine
from helpers.records import (
    FOLDER,
    LeftOut,
    Measurement,
    Record,
    RecordError,
    check_folder,
    load_records,
    read_record,
    save_record,
)

MAC = Machine(
    chip="Apple M2 Pro",
    gpu="Apple M2 Pro",
    gpu_cores=19,
    memory_bytes=16 * 2**30,
    cpu_cores=10,
    os="macOS 15.2",
    python="3.12.1",
    torch="2.14.1",
    power="mains",
)
RECORD = Record(
    date="2026-11-30",
    device="mps",
    machine=MAC,
    threads=6,
    load=0.02,
    notes=(),
    seconds=61.5,
    measurements=(
        Measurement("matmul", 1024, "float32", 1e-3, 1e-5, 200, 0.02),
        Measurement("copy", 2**28, "float32", 2e-3, 1e-5, 125, 0.01, ("wide spread",)),
    ),
    left_out=(LeftOut("matmul", 8192, "float32", "out of memory"),),
)


@pytest.fixture
def content(tmp_path):
    """A good record's JSON, to be spoiled."""
    return json.loads(save_record(RECORD, tmp_path).read_text())


def left_out_line(folder, content):
    path = folder / "spoiled.json"
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    good, left_out = load_records(folder)
    assert [record.stem for record in good] == [RECORD.stem]
    (line,) = left_out
    assert line.startswith("spoiled.json: ")
    assert "\n" not in line
    return line


def test_what_is_saved_is_read_back(tmp_path):
    path = save_record(RECORD, tmp_path)
    assert path.name == "apple-m2-pro-mps-torch2.14.1-2026-11-30.json"
    assert read_record(path) == RECORD
    assert load_records(tmp_path) == ([RECORD], [])


def test_a_record_says_what_it_measured():
    assert RECORD.of("matmul")[1024].flops_per_s == 2 * 1024**3 / 1e-3
    assert RECORD.of("copy")[2**28].bytes_per_s == 2**29 / 2e-3
    assert RECORD.of("matmul", "float16") == {}
    assert str(RECORD) == "Apple M2 Pro · mps · torch 2.14.1 · macOS 15.2 · 2026-11-30"


def test_a_cuda_record_is_named_after_the_card():
    machine = replace(MAC, chip="AMD EPYC", gpu="NVIDIA H200", os="Linux 6.1", torch="2.11.0+cu130")
    named = replace(RECORD, device="cuda", machine=machine)
    assert named.stem == "nvidia-h200-cuda-torch2.11.0-2026-11-30"


def test_a_second_run_adds_and_never_overwrites(tmp_path):
    first = save_record(RECORD, tmp_path)
    before = first.read_bytes()
    others = [save_record(replace(RECORD, seconds=seconds), tmp_path) for seconds in (1.0, 2.0)]
    assert first.read_bytes() == before
    assert [path.name for path in others] == [f"{RECORD.stem}-2.json", f"{RECORD.stem}-3.json"]
    assert len(load_records(tmp_path)[0]) == 3
    assert len(list(tmp_path.iterdir())) == 3  # nothing else is left behind


def test_a_write_that_fails_leaves_nothing(tmp_path, monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(records.Path, "replace", full)
    with pytest.raises(RecordError, match=r"^Cannot write .*: No space left on device\.$"):
        save_record(RECORD, tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_write_that_is_interrupted_leaves_nothing(tmp_path, monkeypatch):
    def interrupted(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(records.Path, "write_text", interrupted)
    with pytest.raises(KeyboardInterrupt):
        save_record(RECORD, tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_record_that_breaks_the_schema_is_not_written(tmp_path):
    with pytest.raises(RecordError, match=r"seconds: -1 "):
        save_record(replace(RECORD, seconds=-1), tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_cannot_be_written_to_is_one_clear_line(tmp_path, monkeypatch):
    with pytest.raises(RecordError, match=r"^There is no folder .*missing.*--folder\.$"):
        check_folder(tmp_path / "missing")

    def refuse(**_):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(records.tempfile, "TemporaryFile", refuse)
    with pytest.raises(RecordError, match=r"^Cannot write to .*: Permission denied.*--folder\.$"):
        check_folder(tmp_path)


def spoil(content, path, value):
    *parents, last = path
    for key in parents:
        content = content[key]
    if value is None:
        del content[last]
    else:
        content[last] = value


@pytest.mark.parametrize(
    ("path", "value", "field", "reason"),
    [
        (["date"], None, "the record", "'date' is a required property"),
        (["date"], "2026-13-45", "date", "is not a 'date'"),
        (["device"], "tpu", "device", "is not one of"),
        (["user"], "somebody", "the record", "'user' was unexpected"),
        (["machine", "hostname"], "mine", "machine", "'hostname' was unexpected"),
        (["machine", "os"], "Linux 6.1", "machine.os", "does not match '^macOS '"),
        (["measurements", 1, "median_s"], -1, "measurements[1].median_s", "less than"),
        (["measurements", 0, "median_s"], "fast", "measurements[0].median_s", "'number'"),
        (["measurements", 0, "size"], 1.5, "measurements[0].size", "'integer'"),
        (["measurements", 0, "workload"], "sorting", "measurements[0].workload", "is not one of"),
        (["measurements"], [], "measurements", "non-empty"),
        (["format"], 2, "format", "1 was expected"),
        (["load"], 7, "load", "greater than the maximum"),
    ],
)
def test_a_malformed_file_names_itself_the_field_and_the_reason(
    tmp_path, content, path, value, field, reason
):
    spoil(content, path, value)
    line = left_out_line(tmp_path, content)
    assert line.startswith(f"spoiled.json: {field}: ")
    assert reason in line


@pytest.mark.parametrize(
    "text", ["", "{", "[1, 2", '{"seconds": NaN}', "[" * 100_000, '"a word"', "null"]
)
def test_what_is_no_record_at_all_is_left_out_as_well(tmp_path, content, text):
    assert left_out_line(tmp_path, text)


def test_bytes_that_are_no_text_and_a_folder_in_the_way(tmp_path, content):
    (tmp_path / "a.json").write_bytes(b"\xff\xfe\x00")
    (tmp_path / "b.json").mkdir()
    good, left_out = load_records(tmp_path)
    assert len(good) == 1
    assert [line.partition(":")[0] for line in left_out] == ["a.json", "b.json"]


def test_a_folder_that_is_not_there_holds_no_records(tmp_path):
    assert load_records(tmp_path / "missing") == ([], [])


def test_a_folder_that_cannot_be_read_is_said(tmp_path):
    (tmp_path / "records").write_text("a file")
    records, left_out = load_records(tmp_path / "records")
    assert (records, len(left_out)) == ([], 1)
    assert left_out[0].startswith("records: cannot be read: ")


def test_two_times_for_one_measurement_make_no_record(tmp_path, content):
    content["measurements"].append({**content["measurements"][0], "median_s": 5e-3})
    line = left_out_line(tmp_path, content)
    assert line.endswith("matmul at 1024 in float32 is there more than once")


def test_the_records_of_the_book_are_good_and_none_is_of_a_simulation():
    good, left_out = load_records()
    assert left_out == []
    assert good
    assert all("simulated" not in str(record).lower() for record in good)


def test_the_records_name_no_user_and_no_computer():
    import getpass
    import platform

    names = {getpass.getuser(), platform.node()} - {"root", "", "localhost"}
    for path in FOLDER.glob("*.json"):
        assert not [name for name in names if name in path.read_text()]


@pytest.mark.skipif(os.name == "nt" or os.getuid() == 0, reason="root may write anywhere")
def test_a_read_only_folder_ends_the_command_before_it_measures(tmp_path):
    tmp_path.chmod(0o555)
    command = [sys.executable, "-m", "helpers", "record", "--folder", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 1
    assert done.stderr.startswith("Cannot write to")
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize("chip", ["x" * 390, "ÄÖ", "?"])
def test_any_name_of_a_chip_makes_a_file(tmp_path, chip):
    odd = replace(RECORD, machine=replace(RECORD.machine, chip=chip, torch="2.14.1/x"))
    assert save_record(odd, tmp_path).is_file()


def test_what_could_not_be_read_again_is_not_written(tmp_path):
    with pytest.raises(RecordError, match="not be readable"):
        save_record(replace(RECORD, seconds=float("nan")), tmp_path)
    assert list(tmp_path.iterdir()) == []
