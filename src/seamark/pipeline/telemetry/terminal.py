"""Lines on a terminal: in colours where rich is installed, plain where it is not."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final, Protocol, TextIO

if TYPE_CHECKING:
    from rich.console import Console

Pieces = list[tuple[str, str]]
"""A line as texts, each with the style that it has where there are colours."""

USUAL_WIDTH: Final = 80


class Terminal(Protocol):
    """Something that a person looks at."""

    def width(self) -> int:
        """How many columns it has at the moment."""

    def print(self, line: Pieces) -> None:
        """Print one line; ``OSError`` or ``ValueError`` when the terminal was closed."""


def open_terminal(stream: TextIO | None) -> Terminal | None:
    """The terminal behind a stream, or None when nobody looks at it."""
    if stream is None or stream.closed or not stream.isatty():
        return None
    try:
        from rich.console import Console
    except ModuleNotFoundError:
        return PlainTerminal(stream)
    return StyledTerminal(Console(file=stream, highlight=False, soft_wrap=True))


class PlainTerminal:
    """A terminal without colours."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def width(self) -> int:
        """How many columns it has at the moment."""
        try:
            return os.get_terminal_size(self._stream.fileno()).columns or USUAL_WIDTH
        except OSError:
            return USUAL_WIDTH

    def print(self, line: Pieces) -> None:
        """Print one line as it is."""
        self._stream.write("".join(text for text, _ in line) + "\n")
        self._stream.flush()


class StyledTerminal:
    """A terminal with colours, unless NO_COLOR is set or it says that it is a dumb one."""

    def __init__(self, console: Console) -> None:
        self._console = console

    def width(self) -> int:
        """How many columns it has at the moment."""
        return self._console.width

    def print(self, line: Pieces) -> None:
        """Print one line; square brackets in names are not taken for styles."""
        from rich.text import Text

        self._console.print(Text.assemble(*line))
