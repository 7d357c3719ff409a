"""tools/browser.py: where it looks, in which order, and what it says when there is nothing."""

import importlib.util
import os
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
spec = importlib.util.spec_from_file_location("book_browser", ROOT / "tools/browser.py")
browser = importlib.util.module_from_spec(spec)
spec.loader.exec_module(browser)


def program(path: Path, status: int = 0) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\nexit {status}\n")
    path.chmod(0o755)
    return path


@pytest.fixture
def machine(monkeypatch, tmp_path):
    """A computer with nothing: no browser, no download, no network, no package."""

    class Machine:
        path, places, own = tmp_path / "bin", tmp_path / "places", tmp_path / "own/chrome"
        fetched = False

        def can_download(self):
            program(self.path / "fetch").write_text(
                f"#!/bin/sh\ntouch {tmp_path}/fetched\nmkdir -p {self.own.parent}\n"
                f"printf '#!/bin/sh\\n' >{self.own}; chmod 755 {self.own}\n"
            )

        @property
        def downloads(self):
            return (tmp_path / "fetched").exists()

    made = Machine()
    monkeypatch.delenv("CHROME_PATH", raising=False)
    monkeypatch.setenv("PATH", f"{made.path}{os.pathsep}/usr/bin{os.pathsep}/bin")
    monkeypatch.setattr(browser, "COMMANDS", ("book-chrome", "book-chromium"))
    monkeypatch.setattr(browser, "PLACES", (str(made.places / "Google Chrome"),))
    monkeypatch.setattr(browser, "downloaded", lambda: iter([made.own]))
    monkeypatch.setattr(browser, "PLAYWRIGHT", ("fetch", "chromium"))
    monkeypatch.setattr(browser, "DEBIAN", (("apt-get", "install"),))
    monkeypatch.setattr(browser.os, "geteuid", lambda: 1000)
    return made


def test_the_one_that_is_named_comes_first(machine, monkeypatch, tmp_path):
    program(machine.path / "book-chrome")
    named = program(tmp_path / "mine")
    monkeypatch.setenv("CHROME_PATH", str(named))
    assert browser.find_browser() == named


def test_a_named_one_that_does_not_start_is_no_reason_to_take_another(machine, monkeypatch):
    program(machine.path / "book-chrome")
    monkeypatch.setenv("CHROME_PATH", "/nowhere/chrome")
    with pytest.raises(browser.NoBrowserError, match="CHROME_PATH=/nowhere/chrome"):
        browser.find_browser()


def test_an_installed_one_is_taken_and_nothing_fetched(machine):
    machine.can_download()
    chrome = program(machine.path / "book-chrome")
    assert browser.find_browser() == chrome
    assert not machine.downloads


def test_a_stub_that_does_not_start_is_passed_over(machine):
    program(machine.path / "book-chrome", status=1)
    chromium = program(machine.path / "book-chromium")
    assert browser.find_browser() == chromium


def test_applications_that_are_not_on_path_are_found(machine):
    chrome = program(machine.places / "Google Chrome")
    assert browser.find_browser() == chrome


def test_an_earlier_download_is_used_without_a_network(machine):
    machine.can_download()
    program(machine.own)
    assert browser.find_browser() == machine.own
    assert not machine.downloads


def test_without_a_browser_playwright_fetches_its_own(machine):
    machine.can_download()
    assert browser.find_browser() == machine.own
    assert machine.downloads


@pytest.fixture
def debian(machine, monkeypatch):
    """apt-get there works and installs; whether the user may is up to the test."""
    installed = machine.path / "book-chromium"
    program(machine.path / "apt-get").write_text(
        f"#!/bin/sh\nprintf '#!/bin/sh\\n' >{installed}; chmod 755 {installed}\n"
    )
    return installed


def test_root_on_debian_gets_the_package(debian, monkeypatch):
    monkeypatch.setattr(browser.os, "geteuid", lambda: 0)
    assert browser.find_browser() == debian


def test_nobody_else_touches_the_system(debian):
    with pytest.raises(browser.NoBrowserError):
        browser.find_browser()
    assert not debian.exists()


def test_with_nothing_to_be_had_it_names_the_command_to_run(machine):
    program(machine.path / "fetch", status=1)
    with pytest.raises(browser.NoBrowserError, match=r"run  fetch chromium "):
        browser.find_browser()


def test_a_command_that_hangs_is_given_up():
    assert not browser.runs(sys.executable, "-c", "import time; time.sleep(60)", limit_s=0.2)
