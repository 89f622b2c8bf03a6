"""Breaking a text into lines by what it takes on a screen, where some characters are two wide."""

from __future__ import annotations

import re
import textwrap

from rich.cells import cell_len, chop_cells


def wrapped(
    text: str, width: int, *, first: str = "", more: str = "", cut: bool = False
) -> list[str]:
    """The lines of one paragraph, none wider than ``width`` as long as it has places to break.

    ``first`` and ``more`` are put before the first line and the others. ``cut`` breaks a longer
    word too; without it a path stays whole, to be copied.
    """
    if text.isascii():
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
    found: list[str] = []
    for word in re.findall(r"[^ ]+ *|^ +", text):
        bare = word.rstrip(" ")
        if cut and cell_len(bare) > width:
            pieces = chop_cells(bare, max(width, 2))
            found += [*pieces[:-1], pieces[-1] + word[len(bare) :]]
        else:
            found.append(word)
    return found
