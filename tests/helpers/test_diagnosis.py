"""How a diagnosis reads."""

import io

from bs4 import BeautifulSoup
from rich.console import Console

from helpers.diagnosis import Check, Diagnosis

COMMAND = (
    "python -m pip install --force-reinstall --no-cache-dir --no-deps torch==2.14.1 # " + "<b>" * 20
)
SICK = Diagnosis(
    [
        Check("Python", "ok", "3.11.7 for arm64"),
        Check("MPS built", "fail", "no", "Install <the> wheel & [see]. " * 8, COMMAND),
        Check("Variables", "warn", "PYTORCH_MPS_DISABLE_PREFILL_ATTENTION=" + "1" * 60),
    ],
    "Device to use: cpu - because MPS was not built.",
)


def show(**options):
    text = io.StringIO()
    SICK.show(Console(file=text, width=80, highlight=False, **options))
    return text.getvalue()


def test_text_is_readable_at_80_columns_and_commands_are_whole():
    lines = str(SICK).splitlines()
    assert [line for line in lines if len(line) > 80] == [COMMAND]
    assert lines[-1] == SICK.verdict


def test_text_has_no_colour_and_keeps_brackets():
    assert "\x1b" not in str(SICK)
    assert "<the> wheel & [see]." in " ".join(str(SICK).split())


def test_colour_only_on_a_terminal_that_wants_it(monkeypatch):
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm-256color")
    assert "\x1b[1;31m" in show(force_terminal=True)
    assert "\x1b" not in show()
    monkeypatch.setenv("NO_COLOR", "1")
    assert "\x1b[1;31m" not in show(force_terminal=True)


def test_text_is_plain_ascii():
    assert str(SICK).isascii()


def test_html_is_escaped_and_complete():
    page = BeautifulSoup(SICK._repr_html_(), "html.parser")
    assert page.table["class"] == ["doctor"]
    assert [cell.text for cell in page.select("tbody th[scope=row]")] == [c.name for c in SICK]
    assert page.find("the") is None
    assert page.select_one("pre code").text == COMMAND
    assert SICK.verdict in page.text


def test_only_a_failure_fails():
    assert SICK.failed
    assert not Diagnosis([SICK[0], SICK[2]], "").failed
    assert not Diagnosis([], "").failed


def test_what_stands_between_backticks_is_code_in_html_and_still_escaped():
    html = Diagnosis([Check("Data", "info", "run `make <data>`")], "done")._repr_html_()
    assert "run <code>make &lt;data&gt;</code>" in html


def test_lines_of_a_finding_stay_lines_in_a_notebook():
    html = Diagnosis(
        [Check("kernel", "fail", "aten::mode\n  at a.py:3", "why")], "done"
    )._repr_html_()
    assert "aten::mode<br>  at a.py:3<br>why" in html


def test_it_prints_as_text_in_a_notebook_too(monkeypatch):
    outside = str(SICK)
    monkeypatch.setattr("rich.console._is_jupyter", lambda: True)
    assert str(SICK) == outside
