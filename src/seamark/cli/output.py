"""What the commands print: consoles, and the layout of an error."""

from __future__ import annotations

import textwrap

from rich.console import Console
from rich.text import Text

from seamark.errors import SeamarkError

WIDTH = 80


def stdout() -> Console:
    """Return a console for results; without colours off a terminal and with NO_COLOR."""
    return Console(highlight=False, soft_wrap=True)


def stderr() -> Console:
    """Return a console for errors and warnings; plain where ``stdout()`` is."""
    return Console(stderr=True, highlight=False, soft_wrap=True)


def error_lines(error: SeamarkError) -> list[str]:
    """Lay out an error: what happened, then where and what to do next, then its exit code."""
    headline, *more = error.what.splitlines() or [type(error).__name__]
    details = [*more, *(error.where or "").splitlines(), *(error.hint or "").splitlines()]
    lines = [f"error: {headline}"]
    for detail in details:
        lines += textwrap.wrap(
            detail.strip(),
            WIDTH,
            initial_indent="  ",
            subsequent_indent="  ",
            break_long_words=False,
            break_on_hyphens=False,
        )
    code = f"exit code {error.exit_code}"
    if len(lines) > 1 and len(lines[-1]) + 2 + len(code) <= WIDTH:
        lines[-1] += code.rjust(WIDTH - len(lines[-1]))
    else:
        lines.append(code.rjust(WIDTH))
    return lines


def print_error(error: SeamarkError) -> None:
    """Print an error to stderr."""
    first, *rest = error_lines(error)
    label, headline = first.split(" ", 1)
    text = Text.assemble((label, "bold red"), " ", (headline, "bold"))
    console = stderr()
    console.print(text)
    for line in rest:
        console.print(Text(line))
