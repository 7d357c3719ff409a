"""How a diagnosis reads: in a terminal, as plain text, and in a notebook."""

import io
import re
from collections.abc import Iterable
from dataclasses import dataclass
from html import escape
from typing import Literal

from rich.console import Console
from rich.table import Table
from rich.text import Text

Status = Literal["ok", "info", "warn", "fail"]
LABEL = {"ok": "ok", "info": "info", "warn": "WARN", "fail": "FAIL"}
STYLE = {"ok": "green", "info": "dim", "warn": "yellow", "fail": "bold red"}


@dataclass(frozen=True)
class Check:
    """One thing that was looked at."""

    name: str
    status: Status
    found: str
    meaning: str = ""  # what that means for you, in a sentence or two
    remedy: str = ""  # commands only, one a line, to be copied as they are


class Diagnosis(list[Check]):
    """The checks in the order in which they were made, and the verdict.

    It prints as a table of text at most 80 columns wide, and shows as a table in a notebook.
    """

    def __init__(self, checks: Iterable[Check], verdict: str) -> None:
        super().__init__(checks)
        self.verdict = verdict

    @property
    def failed(self) -> bool:
        """Whether anything must be mended before the book can do its work here."""
        return any(check.status == "fail" for check in self)

    def show(self, console: Console | None = None) -> None:
        """Print the table, the commands that mend what is wrong, and the verdict."""
        console = console or Console(highlight=False)
        console.print(self._table())
        console.print()
        for check in self:
            if check.remedy:
                # Outside the table and unwrapped, so that a command can be copied in one piece.
                console.print(Text(f"To mend '{check.name}':", style="bold"))
                console.print(Text(check.remedy), soft_wrap=True)
                console.print()
        console.print(Text(self.verdict, style="bold"))

    def __str__(self) -> str:
        text = io.StringIO()
        self.show(plain_console(text))
        return "\n".join(line.rstrip() for line in text.getvalue().splitlines())

    def _repr_html_(self) -> str:
        rows = "".join(_html_row(check) for check in self)
        heads = "".join(f'<th scope="col">{head}</th>' for head in ("Check", "Status", "Found"))
        return (
            f'<table class="doctor"><thead><tr>{heads}</tr></thead><tbody>{rows}</tbody></table>'
            f"<p><strong>{escape(self.verdict)}</strong></p>"
        )

    def _table(self) -> Table:
        table = Table(show_header=False, box=None, padding=(0, 1), pad_edge=False)
        table.add_column("status", no_wrap=True)
        table.add_column("check", no_wrap=True)
        table.add_column("found", overflow="fold")
        for check in self:
            style = STYLE[check.status]
            details = Text(check.found)
            if check.meaning:
                details.append(f"\n{check.meaning}", style="" if check.remedy else "dim")
            table.add_row(Text(LABEL[check.status], style=style), Text(check.name), details)
        return table


def plain_console(file: io.StringIO) -> Console:
    """Return a console that writes text without colours, 80 columns wide, into ``file``.

    In a notebook as well, where rich would otherwise show a cell's output and write nothing.
    """
    return Console(file=file, width=80, color_system=None, highlight=False, force_jupyter=False)


def _html_row(check: Check) -> str:
    details = _html_text(check.found)
    if check.meaning:
        details += f"<br>{_html_text(check.meaning)}"
    if check.remedy:
        details += f"<pre><code>{escape(check.remedy)}</code></pre>"
    return (
        f'<tr class="doctor-{check.status}"><th scope="row">{escape(check.name)}</th>'
        f"<td>{LABEL[check.status]}</td><td>{details}</td></tr>"
    )


def _html_text(text: str) -> str:
    """Escape ``text``, keep its lines, and set what stands between backticks as code."""
    marked = re.sub(r"`([^`]+)`", r"<code>\1</code>", escape(text))
    return marked.replace("\n", "<br>")
