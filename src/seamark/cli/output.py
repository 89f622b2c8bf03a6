"""What the commands print: consoles, JSON, progress bars, and texts without secrets.

Tests: ``tests/cli/test_commands.py``.
"""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import lru_cache
from typing import Any, Final

import click
from rich.console import Console
from rich.text import Text

from seamark._common.progress_bars import Advance, progress_bar_on
from seamark._control_characters import escape_controls, escape_controls_in_json
from seamark._redaction import redacted_document, storage_option_redactor
from seamark.cli.commands import settings
from seamark.reports import document

WIDTH: Final = 80

STYLES: Final = {
    word: colour
    for colour, words in {
        "green": "valid ok chosen keep equal",
        "yellow": "committing gone unreadable warning superseded skipped",
        "red": "damaged remove error failed differs",
    }.items()
    for word in words.split()
}
"""Colours are a second signal, next to these words."""


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
    text = escape_controls_in_json(
        json.dumps(document, ensure_ascii=False, separators=(", ", ": "))
    )
    try:
        text.encode(sys.stdout.encoding or "utf-8")
    except UnicodeEncodeError:
        text = json.dumps(document, separators=(", ", ": "))
    click.echo(text)


def styled(word: str) -> Text:
    """A word in the colour that goes with it, decided by how it begins."""
    return Text(word, STYLES.get(word.split(",", maxsplit=1)[0].split(" ", maxsplit=1)[0], ""))


def print_long(text: str, console: Console | None = None) -> None:
    """Print one line as it is, however long; what it names can be copied."""
    (console or stdout()).print(Text(printable(text)))


def print_hint(text: str) -> None:
    """Say what to type next; not with ``-q``."""
    if not settings().quiet:
        print_long(text)


@contextmanager
def progress_bar(what: str, total: float | None, *, of_bytes: bool = False) -> Iterator[Advance]:
    """A progress bar with rate and time left; nothing off a terminal, with JSON or ``-q``."""
    console = stderr()
    asked = settings()
    hidden = asked.as_json or asked.quiet or not console.is_terminal
    with progress_bar_on(console, what, total, of_bytes=of_bytes, hidden=hidden) as advance:
        yield advance


def screen_width(console: Console | None = None) -> int:
    """As wide as the terminal, 80 columns off one; stdout's unless another one is given."""
    if not (console or stdout()).is_terminal:
        return WIDTH
    return max(shutil.get_terminal_size((WIDTH, 24)).columns, 40)


Document = document.Document


def print_answer(document: Document, show: Callable[[Document], None]) -> None:
    """Print what a command found out, as JSON when that was asked for. Secrets are hidden.

    An ``exit_code`` of the document is that of the command.
    """
    clean = without_secrets(document)
    if settings().as_json:
        print_json(clean)
    else:
        show(clean)
    if code := document.get("exit_code"):
        raise click.exceptions.Exit(code)


def printable(text: str) -> str:
    """A text on one line: line breaks in it are made visible, so that none looks like a new row."""
    return escape_controls(_redact()(text))


def printable_lines(text: str) -> list[str]:
    """A text of several lines, as errors have them."""
    return escape_controls(_redact()(text), lines=True).split("\n")


def without_secrets(document: Any) -> Any:
    """A document made of JSON values, without secrets, which a member's name may also reveal."""
    return redacted_document(document, _redact())


def _redact() -> Callable[[str], str]:
    return _redactor(tuple(settings().storage_options.items()))


@lru_cache(maxsize=4)
def _redactor(options: tuple[tuple[str, str], ...]) -> Callable[[str], str]:
    return storage_option_redactor(dict(options))
