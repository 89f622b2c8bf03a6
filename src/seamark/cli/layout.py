"""Lines that fit the width of the screen: rows under headings, and labels with facts."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

import click
from rich.cells import cell_len, chop_cells
from rich.text import Text

from seamark import limits
from seamark._common import text
from seamark.cli.output import printable, screen_width, stdout

Cell = str | Text
plural = text.plural

_GAP: Final = "  "
_NARROWEST: Final = 10
_NOTE_INDENT: Final = 4
_LONG: Final = 10_000


def print_rows(
    headings: Sequence[str],
    rows: Iterable[Sequence[Cell]],
    *,
    right: str = "",
    notes: Iterable[str] = (),
) -> None:
    """Print rows under headings, each with its note below it. What is too long wraps.

    Headings that are in ``right`` are set to the right. Fast enough for thousands of rows.
    """
    coloured = stdout().is_terminal
    table = [[_shown(cell, coloured=coloured) for cell in row] for row in rows]
    row_notes = [*notes]
    row_notes += [""] * (len(table) - len(row_notes))
    width = screen_width()
    widths = _fitted([list(headings), *table], width)
    rightward = [heading in right.split() for heading in headings]
    bold: list[Cell] = [Text(h, "bold") if coloured else h for h in headings]
    lines = _row_lines(bold, widths, rightward)
    for row, note in zip(table, row_notes, strict=True):
        lines += _row_lines(row, widths, rightward)
        lines += _paragraph(note, width, _NOTE_INDENT) if note else []
    print_text(lines)


def fits(table: Sequence[Sequence[Cell]]) -> bool:
    """Whether rows can be printed without breaking a cell into lines."""
    columns = zip(*table, strict=True)
    widths = [max(cell_len(printable(_plain(cell))) for cell in column) for column in columns]
    return sum(widths) + len(_GAP) * (len(widths) - 1) <= screen_width()


def print_facts(facts: Iterable[tuple[str, Cell]], *, indent: int = 2) -> None:
    """Print labels with their facts; a long fact continues below its first line.

    A label that would leave too little room has a line of its own.
    """
    labelled = [(printable(label), value) for label, value in facts]
    width = screen_width()
    widest = width // 2 - indent - len(_GAP)
    label_width = max((n for label, _ in labelled if (n := cell_len(label)) <= widest), default=0)
    lines: list[Text | str] = []
    for label, value in labelled:
        start = " " * indent
        if cell_len(label) > widest:
            lines += wrapped(label, width, first=start, more=start, cut=True)
            start += " " * label_width + _GAP
        else:
            start += label + " " * (label_width - cell_len(label)) + _GAP
        lines += _hanging(start, value, width)
    print_text(lines)


def print_section(title: str, facts: Iterable[tuple[str, Cell]]) -> None:
    """Print facts under a title, below an empty line; nothing when there are none."""
    if listed := list(facts):
        print_paragraph(title, gap=True)
        print_facts(listed)


def print_warnings(warnings: Iterable[str], *, gap: bool = False) -> None:
    """Print a paragraph for each warning; of very many the rest as a number."""
    found = list(warnings)
    width = screen_width()
    lines: list[str] = []
    for warning in found[: limits.MOST_WARNINGS]:
        lines += [*([""] if gap else []), *_paragraph(f"warning: {warning}", width)]
    if (more := len(found) - limits.MOST_WARNINGS) > 0:
        lines += _paragraph(f"and {plural(more, 'more warning')}: --json has all of them", width)
    print_text(lines)


def print_paragraph(text: str, *, gap: bool = False) -> None:
    """Print a text, wrapped; with ``gap`` below an empty line. Line ends in it are made visible."""
    print_text([*([""] if gap else []), *(_paragraph(text, screen_width()) or [""])])


def print_text(lines: Sequence[Text | str]) -> None:
    """Print lines in one go; in colours on a terminal only."""
    if not lines:
        return
    console = stdout()
    if console.is_terminal:
        console.print(Text("\n").join(t if isinstance(t, Text) else Text(t) for t in lines))
    else:
        click.echo("\n".join(map(_plain, lines)))


def _paragraph(text: str, width: int, indent: int = 0) -> list[str]:
    start = " " * indent
    return wrapped(printable(text), width, first=start, more=start)


def _hanging(start: str, value: Cell, width: int) -> list[Text | str]:
    style = value.style if isinstance(value, Text) else ""
    used = cell_len(start)
    first, *more = _paragraph(_plain(value), max(width - used, _NARROWEST)) or [""]
    if not style:  # there may be very many, and assembling takes most of the time
        return [start + first, *(" " * used + line for line in more)]
    lines = [Text.assemble(start, (first, style))]
    return [*lines, *(Text.assemble(" " * used, (line, style)) for line in more)]


def _fitted(table: Sequence[Sequence[Cell]], width: int) -> list[int]:
    """How wide each column may be: what it needs, the widest ones less when that is too much."""
    columns = list(zip(*table, strict=True))
    room = width - len(_GAP) * (len(columns) - 1)
    widths = [max(cell_len(_plain(cell)) for cell in column) for column in columns]
    # a cell may have a million characters, and equal columns get narrower by one at a time
    widths = [min(each, max(room, _NARROWEST)) for each in widths]
    while sum(widths) > room and max(widths) > _NARROWEST:
        widest = widths.index(max(widths))
        others = sum(widths) - widths[widest]
        second = max([w for n, w in enumerate(widths) if n != widest], default=0)
        widths[widest] = max(room - others, min(second, widths[widest] - 1), _NARROWEST)
    return widths


def or_dash(value: Any, text: Callable[[Any], str] = str) -> str:
    """The text of a value, or a dash when it is not known."""
    return "–" if value is None else text(value)


def _plain(cell: Cell) -> str:
    return cell.plain if isinstance(cell, Text) else cell


def _shown(cell: Cell, *, coloured: bool) -> Cell:
    """A cell without secrets, control characters or line breaks."""
    text = printable(_plain(cell))
    return Text(text, cell.style) if coloured and isinstance(cell, Text) else text


def _row_lines(
    row: Sequence[Cell], widths: Sequence[int], rightward: Sequence[bool]
) -> list[Text | str]:
    parts = [
        [plain]
        if cell_len(plain := _plain(cell)) <= width
        else wrapped(plain, width, cut=True) or [""]
        for cell, width in zip(row, widths, strict=True)
    ]
    styles = [cell.style if isinstance(cell, Text) else "" for cell in row]
    lines: list[Text | str] = []
    for number in range(max(map(len, parts))):
        pieces = [part[number] if number < len(part) else "" for part in parts]
        padded = [
            " " * (width - cell_len(piece)) + piece
            if to_the_right
            else piece + " " * (width - cell_len(piece))
            for piece, width, to_the_right in zip(pieces, widths, rightward, strict=True)
        ]
        if any(styles):
            line = Text(_GAP).join(map(Text, padded, styles))
            line.rstrip()
            lines.append(line)
        else:
            lines.append(_GAP.join(padded).rstrip())
    return lines


def wrapped(
    text: str, width: int, *, first: str = "", more: str = "", cut: bool = False
) -> list[str]:
    """The lines of one paragraph, none wider than ``width`` as long as it has places to break.

    ``first`` and ``more`` are put before the first line and the others. ``cut`` breaks a longer
    word too; without it a path stays whole, to be copied.
    """
    # textwrap copies what is left of a word for each line that it cuts off
    if text.isascii() and not (cut and len(text) > _LONG):
        return textwrap.wrap(
            text,
            width,
            initial_indent=first,
            subsequent_indent=more,
            break_on_hyphens=False,
            break_long_words=cut,
        )
    lines: list[str] = []
    line = ""
    for word in _words(text, width - max(cell_len(first), cell_len(more)), cut=cut):
        start = more if lines else first
        if line and cell_len(start + line + word.rstrip()) > width:
            lines.append((start + line).rstrip())
            line = ""
        line += word
    if line:
        lines.append(((more if lines else first) + line).rstrip())
    return lines


def _words(text: str, width: int, *, cut: bool) -> list[str]:
    """Words with the spaces after them, those that no line can hold in pieces."""
    pieces: list[str] = []
    for word in re.findall(r"[^ ]+ *|^ +", text):
        bare = word.rstrip(" ")
        if cut and cell_len(bare) > width:
            chopped = chop_cells(bare, max(width, 2))
            pieces += [*chopped[:-1], chopped[-1] + word[len(bare) :]]
        else:
            pieces.append(word)
    return pieces
