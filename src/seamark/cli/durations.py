"""Spans of time as people type them: ``90s``, ``15min``, ``2h``, ``7d``."""

from __future__ import annotations

import itertools
import re
from typing import Final

import click

_UNITS: Final = {
    "s": 1.0, "sec": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86400.0, "w": 604800.0,
}  # fmt: skip
_SPAN: Final = re.compile(r"(\d+(?:\.\d+)?)\s*([a-z]+)")


def parse_duration(text: str) -> float | None:
    """The seconds that a text means; None when it is no span of time.

    >>> parse_duration("90s"), parse_duration("1.5h"), parse_duration("7")
    (90.0, 5400.0, None)
    """
    found = _SPAN.fullmatch(text.strip().lower())
    if found is None or found[2] not in _UNITS:
        return None
    return float(found[1]) * _UNITS[found[2]]


def duration(text: str) -> float:
    """The type of an option: seconds, given with a unit; click's usage error for all else."""
    seconds = parse_duration(text)
    if seconds is None:
        raise click.BadParameter("not a span like 90s, 15min, 2h or 7d")
    return seconds


def duration_text(seconds: float) -> str:
    """A span of time for people: ``90 s``, ``15 min``, ``2 h``, ``7 days``."""
    for size, unit in ((86400, "days"), (3600, "h"), (60, "min")):
        if seconds >= size and seconds % size == 0:
            count = int(seconds // size)
            return f"{count} day" if unit == "days" and count == 1 else f"{count} {unit}"
    return f"{seconds:g} s"


def elapsed_text(seconds: float) -> str:
    """How far two times are apart, in its two largest units: ``0.02 s``, ``361 days 0 h``.

    >>> elapsed_text(4.0), elapsed_text(3725.0), elapsed_text(31_190_300.0)
    ('4 s', '1 h 2 min', '360 days 23 h')
    """
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
