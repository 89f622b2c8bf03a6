"""The type of an option that takes a duration: ``90s``, ``15min``, ``2h``, ``7d``."""

from __future__ import annotations

import click

from seamark._common.text import parse_duration


def duration(text: str) -> float:
    """Seconds, given with a unit; click's usage error for anything else."""
    seconds = parse_duration(text)
    if seconds is None:
        raise click.BadParameter("not a span like 90s, 15min, 2h or 7d")
    return seconds
