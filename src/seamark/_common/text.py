"""Numbers, sizes, durations, times and names as people read and type them."""

from __future__ import annotations

import itertools
import os
import platform
import re
import time
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Final

from seamark._version import __version__

_UNITS: Final = {
    "s": 1.0, "sec": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86400.0, "w": 604800.0,
}  # fmt: skip
_DURATION: Final = re.compile(r"(\d+(?:\.\d+)?)\s*([a-z]+)")


def grouped(count: int | str) -> str:
    """A number with its digits in groups of three: ``1 234 567``. One that is hidden stays so."""
    if isinstance(count, str):
        return count
    return f"{count:,}".replace(",", " ")


def plural(number: int, noun: str) -> str:
    """A number with its noun."""
    return f"{number} {noun}{'' if number == 1 else 's'}"


def first_line(error: BaseException) -> str:
    """What an error of a library says first; its class when it says nothing.

    >>> first_line(OSError("no answer\\nat line 3")), first_line(KeyError())
    ('no answer', 'KeyError')
    """
    return (str(error).strip().splitlines() or [type(error).__name__])[0]


def shortened(text: str, most: int) -> str:
    """A text of at most so many characters; of a longer one the end is left out.

    >>> shortened("orders", 6), shortened("orders-of-today", 6)
    ('orders', 'order…')
    """
    return text if len(text) <= most else f"{text[: most - 1]}…"


def ranges_text(numbers: Iterable[int]) -> str:
    """Ascending numbers, neighbours as a range.

    >>> ranges_text([1, 2, 3, 7])
    '1 to 3, 7'
    """
    parts: list[list[int]] = []
    for number in numbers:
        if parts and parts[-1][1] == number - 1:
            parts[-1][1] = number
        else:
            parts.append([number, number])
    return ", ".join(str(a) if a == b else f"{a} to {b}" for a, b in parts)


def columns_text(rows: Sequence[Sequence[str]]) -> str:
    """Rows under each other, all columns but the last as wide as their widest cell.

    >>> print(columns_text([("NAME", "ROWS"), ("a", "7")]))
    NAME  ROWS
    a     7
    """
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)][:-1]
    return "\n".join("  ".join([*map(str.ljust, row, widths), row[-1]]).rstrip() for row in rows)


def backquoted(name: str) -> str:
    """A column's name as Spark takes it literally."""
    return "`" + name.replace("`", "``") + "`"


def size_text(size: int) -> str:
    """A number of bytes: ``41 KiB``, ``3.1 MiB``."""
    if size < 1024:
        return f"{size} B"
    value, unit = size / 1024, "KiB"
    for larger in ("MiB", "GiB", "TiB"):
        # 1023.96 would be written as 1024
        if value < 1023.5:
            break
        value, unit = value / 1024, larger
    return f"{value:.0f} {unit}" if value >= 9.95 or unit == "KiB" else f"{value:.1f} {unit}"


def seconds_text(seconds: float) -> str:
    """How long something took: ``0.41 s``, ``12.3 s``, ``125 s``."""
    if seconds < 9.995:
        return f"{seconds:.2f} s"
    return f"{seconds:.1f} s" if seconds < 99.95 else f"{seconds:.0f} s"


def phase_text(seconds: float | str) -> str:
    """How long a step took: ``9 ms``, and in seconds from one second on; hidden stays so."""
    if isinstance(seconds, str):
        return seconds
    milliseconds = round(seconds * 1000)
    return f"{milliseconds} ms" if milliseconds < 1000 else seconds_text(seconds)


def parse_duration(text: str) -> float | None:
    """The seconds that a text such as ``90s`` or ``7d`` means; None when it is not a duration.

    >>> parse_duration("90s"), parse_duration("1.5h"), parse_duration("7")
    (90.0, 5400.0, None)
    """
    match = _DURATION.fullmatch(text.strip().lower())
    if match is None or match[2] not in _UNITS:
        return None
    return float(match[1]) * _UNITS[match[2]]


def duration_text(seconds: float) -> str:
    """A duration as it is typed: ``90 s``, ``15 min``, ``2 h``, ``7 days``."""
    for size, unit in ((86400, "days"), (3600, "h"), (60, "min")):
        if seconds >= size and seconds % size == 0:
            count = int(seconds // size)
            return f"{count} day" if unit == "days" and count == 1 else f"{count} {unit}"
    return f"{seconds:g} s"


def elapsed_text(seconds: float | str) -> str:
    """The time between two events, in its two largest units: ``0.02 s``, ``361 days 4 h``.

    One that is hidden, because its name looks like that of a password, stays so.

    >>> elapsed_text(4.0), elapsed_text(3725.0), elapsed_text(31_190_300.0)
    ('4 s', '1 h 2 min', '360 days 23 h')
    """
    if isinstance(seconds, str):
        return seconds
    if seconds < 60:
        return f"{seconds:.2f}".rstrip("0").rstrip(".") + " s"
    whole = int(seconds)
    units = (("day", 86400), ("h", 3600), ("min", 60), ("s", 1))
    for (large, size), (small, part) in itertools.pairwise(units):
        if whole >= size:
            count, rest = divmod(whole, size)
            first = f"{count} {large}{'s' if large == 'day' and count != 1 else ''}"
            return f"{first} {rest // part} {small}" if rest // part else first
    return f"{whole} s"


def age_text(timestamp_ms: int, now: float | None = None) -> str:
    """How long ago something was: ``12 s ago``, ``3 min ago``, ``2 days ago``."""
    seconds = (time.time() if now is None else now) - timestamp_ms / 1000
    if seconds < -1:
        return f"in {_largest_unit(-seconds)}"
    return f"{_largest_unit(max(seconds, 0))} ago"


def _largest_unit(seconds: float) -> str:
    for size, one, many in ((86400, "day", "days"), (3600, "h", "h"), (60, "min", "min")):
        if seconds >= size:
            count = int(seconds // size)
            return f"{count} {one if count == 1 else many}"
    return f"{int(seconds)} s"


def time_text(timestamp_ms: int | str) -> str:
    """An exact time: ``2026-01-05 09:30:01.500 UTC``. One that is hidden stays so."""
    if isinstance(timestamp_ms, str):
        return timestamp_ms
    try:
        exact = datetime.fromtimestamp(timestamp_ms / 1000, UTC)
    except (ValueError, OverflowError, OSError):
        return f"{timestamp_ms} ms"
    return f"{exact:%Y-%m-%d %H:%M:%S}.{timestamp_ms % 1000:03} UTC"


def default_writer() -> str:
    """Host, process and version, so that people know whom to look for."""
    return f"{platform.node() or 'unknown'} pid {os.getpid()} seamark {__version__}"
