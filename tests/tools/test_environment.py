"""tools/environment.py: when .venv is trusted, and the one line that says what is missing."""

import errno
import importlib.util
import json
import platform
import shutil
import subprocess
import sys
from collections import namedtuple
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
spec = importlib.util.spec_from_file_location("book_environment", ROOT / "tools/environment.py")
environment = importlib.util.module_from_spec(spec)
spec.loader.exec_module(environment)


@pytest.fixture
def checkout(tmp_path, monkeypatch):
    """Return a folder with requirements and nothing installed; what is made there has no pip."""
    monkeypatch.setattr(environment, "MAKE_VENV", (*environment.MAKE_VENV, "--without-pip"))
    folder = tmp_path / "a book"
    folder.mkdir()
    for name in environment.INPUTS:
        (folder / name).write_text(name)
    return folder


@pytest.fixture
def pip(monkeypatch):
    """Replace pip by something that notes its calls, writes a log, and returns a status."""

    class Pip:
        status, log, calls = 0, "", 0

        def __call__(self, root, log):
            self.calls += 1
            log.write_text(self.log)
            return self.status

    fake = Pip()
    monkeypatch.setattr(environment, "run_pip", fake)
    return fake


@pytest.fixture
def ready(checkout, pip):
    environment.bring_up_to_date(checkout)
    return checkout


def problem(function, *args, **kwargs):
    with pytest.raises(environment.SetupError) as caught:
        function(*args, **kwargs)
    return str(caught.value)


def test_a_fresh_checkout_is_installed_once(checkout, pip):
    environment.bring_up_to_date(checkout)
    environment.bring_up_to_date(checkout)
    assert pip.calls == 1
    assert environment.version_of(checkout / ".venv/bin/python") == platform.python_version()


def test_an_interrupted_installation_is_done_again(checkout, monkeypatch):
    def interrupted(root, log):
        raise KeyboardInterrupt

    monkeypatch.setattr(environment, "run_pip", interrupted)
    with pytest.raises(KeyboardInterrupt):
        environment.bring_up_to_date(checkout)
    assert environment.state_of(checkout) == "its installation was not finished"


def test_an_interrupted_update_is_done_again_from_nothing(ready, monkeypatch):
    def interrupted(root, log):
        raise KeyboardInterrupt

    (ready / "requirements.txt").write_text("more")
    monkeypatch.setattr(environment, "run_pip", interrupted)
    with pytest.raises(KeyboardInterrupt):
        environment.bring_up_to_date(ready)
    assert environment.state_of(ready) == "its installation was not finished"


@pytest.mark.parametrize("content", ["", "{", "[]", '{"python": "3.11.0"}'])
def test_a_damaged_stamp_is_no_stamp(ready, content):
    (ready / ".venv/book-stamp.json").write_text(content)
    assert environment.state_of(ready) == "its installation was not finished"


def test_changed_requirements_update_the_same_environment(ready, pip):
    marker = ready / ".venv/marker"
    marker.touch()
    (ready / "constraints.txt").write_text("other")
    assert environment.state_of(ready) == "outdated"
    environment.bring_up_to_date(ready)
    assert (pip.calls, marker.exists(), environment.state_of(ready)) == (2, True, "ready")


def test_a_moved_folder_is_installed_again(ready, pip):
    moved = ready.parent / "moved"
    ready.rename(moved)
    assert environment.state_of(moved) == "the folder was moved"
    environment.bring_up_to_date(moved)
    assert (pip.calls, environment.state_of(moved)) == (2, "ready")


def test_an_interrupted_removal_of_the_old_environment_is_no_obstacle(ready, pip, monkeypatch):
    def interrupt(path, **_):
        if path.exists():
            raise KeyboardInterrupt

    moved = ready.rename(ready.with_name("moved"))
    with monkeypatch.context() as patched:
        patched.setattr(environment.shutil, "rmtree", interrupt)
        with pytest.raises(KeyboardInterrupt):
            environment.bring_up_to_date(moved)
    assert not (moved / ".venv").exists()
    environment.bring_up_to_date(moved)
    assert environment.state_of(moved) == "ready"
    assert not (moved / ".build/old-venv").exists()


def test_a_python_that_is_gone_is_noticed(ready):
    python = ready / ".venv/bin/python"
    python.unlink()
    python.symlink_to("/nowhere/python3")
    assert environment.state_of(ready) == "its Python is gone or was replaced"


def test_another_python_is_used_only_if_asked_for(ready):
    stamp = ready / ".venv/book-stamp.json"
    stamp.write_text(json.dumps({**json.loads(stamp.read_text()), "python": "3.99.9"}))
    python = ready / ".venv/bin/python"
    python.unlink()
    python.write_text("#!/bin/sh\necho 3.99.9\n")
    python.chmod(0o755)
    assert environment.state_of(ready) == "ready"
    assert "3.99.9" in environment.state_of(ready, asked_for="/usr/bin/python3")


def test_a_folder_named_venv_that_is_none_is_left_alone(checkout):
    (checkout / ".venv").mkdir()
    (checkout / ".venv/precious").touch()
    assert "move it away" in problem(environment.bring_up_to_date, checkout)
    assert (checkout / ".venv/precious").exists()


def test_no_network_at_the_first_installation(checkout, pip, monkeypatch):
    monkeypatch.setenv("BOOK_GOAL", "test")
    pip.status, pip.log = 1, "Retrying: NewConnectionError('Failed to establish a new connection')"
    message = problem(environment.bring_up_to_date, checkout)
    assert "needs the network once" in message
    assert "make test" in message
    assert str(checkout / ".build/install.log") in message
    assert environment.state_of(checkout) == "its installation was not finished"


def test_no_network_for_an_update_keeps_what_is_installed(ready, pip):
    (ready / "requirements.txt").write_text("more")
    pip.status, pip.log = 1, "Temporary failure in name resolution"
    assert "requirements have changed and the network" in problem(
        environment.bring_up_to_date, ready
    )
    assert environment.state_of(ready) == "outdated"
    (ready / "requirements.txt").write_text("requirements.txt")
    assert environment.state_of(ready) == "ready"


def test_a_failure_of_pip_is_never_taken_for_success(checkout, pip):
    pip.status, pip.log = 1, "x ERROR: No matching distribution found for torch==2.14.1\n"
    message = problem(environment.bring_up_to_date, checkout)
    assert "No matching distribution found for torch==2.14.1" in message
    assert environment.state_of(checkout) == "its installation was not finished"


def test_a_disk_that_fills_up_is_named(checkout, pip):
    pip.status, pip.log = 1, "OSError: [Errno 28] No space left on device"
    assert "disk is full" in problem(environment.bring_up_to_date, checkout)


def test_too_little_disk_space_is_said_before_anything_is_fetched(checkout, pip, monkeypatch):
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage(1e12, 1e12, 1.25e9))
    message = problem(environment.bring_up_to_date, checkout)
    assert "has 1.2 GB" in message
    assert "needs about" in message
    assert pip.calls == 0
    assert not (checkout / ".venv").exists()


def test_a_python_without_venv_names_the_debian_package(checkout, pip, monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    message = problem(environment.bring_up_to_date, checkout)
    assert f"apt install python{sys.version_info.major}.{sys.version_info.minor}-venv" in message


@pytest.mark.parametrize("number", [errno.EROFS, errno.EACCES])
def test_a_read_only_checkout_is_named(checkout, monkeypatch, number):
    def refuse(self, *args, **kwargs):
        raise OSError(number, "no writing here", str(self))

    monkeypatch.setattr(Path, "mkdir", refuse)  # root may write anywhere, so chmod proves nothing
    message = problem(environment.bring_up_to_date, checkout)
    assert str(checkout) in message
    assert "a folder you may write to" in message


@pytest.mark.parametrize(
    ("machine", "translated", "release", "words"),
    [
        ("x86_64", "1", "15.1", "translated by Rosetta"),
        ("x86_64", "", "15.1", "an Intel Mac"),
        ("arm64", "0", "13.6", "needs macOS 14"),
    ],
)
def test_c01_a_mac_without_a_wheel_is_told_why(monkeypatch, machine, translated, release, words):
    monkeypatch.setattr(platform, "system", lambda: "Darwin")
    monkeypatch.setattr(platform, "machine", lambda: machine)
    monkeypatch.setattr(platform, "mac_ver", lambda: (release, ("", "", ""), machine))
    answer = subprocess.CompletedProcess([], 0, f"{translated}\n")
    monkeypatch.setattr(subprocess, "run", lambda *args, **kwargs: answer)
    assert words in problem(environment.refuse_wrong_computer)


def test_a_mac_with_a_wheel_is_let_through(monkeypatch):
    monkeypatch.setattr(platform, "system", lambda: "Darwin")
    monkeypatch.setattr(platform, "machine", lambda: "arm64")
    monkeypatch.setattr(platform, "mac_ver", lambda: ("26.3.1", ("", "", ""), "arm64"))
    environment.refuse_wrong_computer()
