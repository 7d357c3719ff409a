import os
import subprocess
import sys
from pathlib import Path

import pytest

from helpers import __main__ as command
from helpers import data, doctor
from helpers.diagnosis import Check, Diagnosis


@pytest.fixture
def downloads(monkeypatch):
    """Record what is downloaded, instead of downloading it."""
    asked = []

    def download(name):
        asked.append(name)
        if name == "cifar10" and "offline" in asked:
            raise data.DataError("cannot reach the server; the folder is /data")
        return Path("/data") / name

    monkeypatch.setattr(data, "download", download)
    return asked


@pytest.mark.parametrize(("status", "code"), [("ok", 0), ("warn", 0), ("fail", 1)])
def test_doctor_prints_and_answers_by_its_exit_code(monkeypatch, capsys, status, code):
    sick = Diagnosis([Check("Python", status, "3.9")], "Device to use: cpu - because.")
    monkeypatch.setattr(doctor, "diagnose", lambda: sick)
    assert command.main(["doctor"]) == code
    assert "Device to use: cpu" in capsys.readouterr().out


def test_data_downloads_both_by_default(downloads, capsys):
    assert command.main(["data"]) == 0
    assert downloads == ["mnist", "cifar10"]
    assert capsys.readouterr().out == "mnist: /data/mnist\ncifar10: /data/cifar10\n"


def test_data_downloads_what_is_named(downloads):
    assert command.main(["data", "cifar10"]) == 0
    assert downloads == ["cifar10"]


def test_data_failure_is_one_line_and_an_exit_code(downloads, capsys):
    downloads.append("offline")
    assert command.main(["data", "cifar10", "mnist"]) == 1
    assert downloads == ["offline", "cifar10", "mnist"]  # one failure does not stop the next
    assert capsys.readouterr().err == ("cifar10: cannot reach the server; the folder is /data\n")


@pytest.mark.parametrize("arguments", [["measure"], ["data", "imagenet"], ["doctor", "--fix"]])
def test_unknown_words_are_refused_with_the_choices(arguments, downloads, capsys):
    with pytest.raises(SystemExit) as stop:
        command.main(arguments)
    assert stop.value.code == 2
    assert "usage: python -m helpers" in capsys.readouterr().err
    assert downloads == []


def test_no_command_prints_help(capsys):
    assert command.main([]) == 0
    assert "doctor" in capsys.readouterr().out


def test_command_line_of_a_fresh_python():
    plain = {n: v for n, v in os.environ.items() if "MPS" not in n and n != "BOOK_DEVICE"}
    done = subprocess.run(
        [sys.executable, "-m", "helpers", "doctor"],
        env=plain | {"COLUMNS": "80"},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.stderr == ""
    assert "Device to use:" in done.stdout
    assert done.returncode == int("FAIL" in done.stdout)
