"""What the commands print: consoles, tables, bars, times, and the layout of an error."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final, Protocol

import click
from rich.cells import cell_len
from rich.console import Console, RenderableType
from rich.table import Table
from rich.text import Text

from seamark.cli.settings import settings
from seamark.cli.shown import shown, shown_lines, without_secrets
from seamark.cli.visible import visible_json
from seamark.cli.wrapping import wrapped
from seamark.errors import SeamarkError

WIDTH: Final = 80

STYLES: Final = {
    "valid": "green",
    "ok": "green",
    "chosen": "green",
    "keep": "green",
    "committing": "yellow",
    "gone": "yellow",
    "unreadable": "yellow",
    "warning": "yellow",
    "superseded": "yellow",
    "skipped": "yellow",
    "damaged": "red",
    "remove": "red",
    "error": "red",
    "failed": "red",
}
"""Colours are a second signal beside these words."""


class _Console(Console):
    """A console that leaves it to the command line what a closed pipe means."""

    def on_broken_pipe(self) -> None:
        """Raise what rich would turn into an exit of its own."""
        raise BrokenPipeError


def stdout() -> Console:
    """Return a console for results; without colours off a terminal and with NO_COLOR."""
    return _Console(highlight=False, soft_wrap=True)


def stderr() -> Console:
    """Return a console for errors and warnings; plain where ``stdout()`` is."""
    return _Console(stderr=True, highlight=False, soft_wrap=True)


def print_json(document: object, *, is_data: bool = False) -> None:
    """Print one JSON document on one line, in ASCII where the stream does not take all of it.

    Secrets are hidden, except in ``is_data``: rows that the user has asked for.
    """
    document = document if is_data else without_secrets(document)
    text = visible_json(json.dumps(document, ensure_ascii=False, separators=(", ", ": ")))
    try:
        text.encode(sys.stdout.encoding or "utf-8")
    except UnicodeEncodeError:
        text = json.dumps(document, separators=(", ", ": "))
    click.echo(text)


def styled(word: str) -> Text:
    """A word in the colour that goes with it, decided by how it begins."""
    return Text(word, STYLES.get(word.split(",", maxsplit=1)[0].split(" ", maxsplit=1)[0], ""))


def table(
    headings: Sequence[str], rows: Iterable[Sequence[RenderableType]], *, right: str = ""
) -> Table:
    """A table without lines. A heading that is also in ``right`` (by name) is set to the right.

    The last column takes what is left of the width and wraps.
    """
    made = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    rightward = right.split()
    for number, heading in enumerate(headings):
        is_last = number == len(headings) - 1
        made.add_column(
            heading,
            justify="right" if heading in rightward else "left",
            overflow="fold",
            no_wrap=not is_last,
        )
    for row in rows:
        made.add_row(*(Text(shown(cell)) if isinstance(cell, str) else cell for cell in row))
    return made


def print_table(made: Table) -> None:
    """Print a table as wide as the terminal, 80 columns off one."""
    console: Console = _Console(highlight=False)
    if not console.is_terminal:
        console = _Console(highlight=False, width=WIDTH)
    console.print(made)


def print_long(text: str, console: Console | None = None) -> None:
    """Print one line as it is, however long; what it names can be copied."""
    (console or stdout()).print(Text(shown(text)))


def hint(text: str) -> None:
    """Say what to type next; not with ``-q``."""
    if not settings().quiet:
        print_long(text)


class Advance(Protocol):
    """Moves a bar on."""

    def __call__(self, by: float = 1, *, total: float | None = None) -> None: ...


@contextmanager
def bar(what: str, total: float | None, *, of_bytes: bool = False) -> Iterator[Advance]:
    """A progress bar with rate and time left; nothing off a terminal, with JSON or ``-q``."""
    from rich.progress import (
        BarColumn,
        DownloadColumn,
        MofNCompleteColumn,
        Progress,
        ProgressColumn,
        TextColumn,
        TimeRemainingColumn,
        TransferSpeedColumn,
    )

    console = stderr()
    asked = settings()
    columns: list[ProgressColumn] = [TextColumn("{task.description}"), BarColumn(None)]
    columns += [DownloadColumn(), TransferSpeedColumn()] if of_bytes else [MofNCompleteColumn()]
    columns += [TimeRemainingColumn()]
    hidden = asked.as_json or asked.quiet or not console.is_terminal
    with Progress(*columns, console=console, transient=True, disable=hidden) as progress:
        task = progress.add_task(what, total=total)

        def advance(by: float = 1, *, total: float | None = None) -> None:
            if total is not None:
                progress.update(task, total=total)
            progress.advance(task, by)

        yield advance


def screen_width(console: Console | None = None) -> int:
    """As wide as the terminal, 80 columns off one; stdout's unless another one is given."""
    if not (console or stdout()).is_terminal:
        return WIDTH
    return max(shutil.get_terminal_size((WIDTH, 24)).columns, 40)


def error_lines(error: SeamarkError) -> list[str]:
    """Lay out an error: what happened, then where and what to do next, then its exit code.

    Further lines of one part stand deeper, so that a name with line ends cannot add a part.
    """
    width = screen_width(stderr())
    lines: list[str] = []
    for part in (error.what or type(error).__name__, error.where, error.hint):
        first, *more = shown_lines(part or "")
        start = "  " if lines else "error: "
        lines += wrapped(first.strip(), width, first=start, more="  ")
        for line in more:
            lines += wrapped(line.strip(), width, first="    ", more="    ")
    code = f"exit code {error.exit_code}"
    if len(lines) > 1 and cell_len(lines[-1]) + 2 + len(code) <= width:
        lines[-1] += code.rjust(width - cell_len(lines[-1]))
    else:
        lines.append(code.rjust(width))
    return lines


def print_error(error: SeamarkError) -> None:
    """Print an error to stderr."""
    print_lines(error_lines(error))


def print_lines(lines: Sequence[str]) -> None:
    """Print the lines of an error to stderr."""
    first, *rest = lines
    label, _, headline = first.partition(" ")
    console = stderr()
    console.print(Text.assemble((label, "bold red"), " ", (headline, "bold")))
    for line in rest:
        console.print(Text(line))


Document = dict[str, Any]
"""What a command found out: printed as JSON, or laid out for a person."""


def answer(document: Document, show: Callable[[Document], None]) -> None:
    """Print what a command found out, as JSON when that was asked for. Secrets are hidden."""
    clean = without_secrets(document)
    if settings().as_json:
        print_json(clean)
    else:
        show(clean)
