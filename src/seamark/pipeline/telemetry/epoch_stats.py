"""The figures of one epoch, and how sizes and times are written for people."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

PHASES: Final = ("begin", "write", "prepare", "capture", "save", "commit", "record", "retain")
"""The steps of an epoch, in the order in which they happen."""


@dataclass(frozen=True)
class EpochFigures:
    """What one successful epoch did, and how long each step of it took."""

    epoch: int
    checkpoint_id: int
    rows_per_sink: dict[str, int | None]
    """None for a sink that does not count its rows."""
    seconds: float
    """The whole epoch, what lies between the phases included."""
    phases: dict[str, float]
    """Seconds by the names in ``PHASES``; a phase that did not happen may be left out."""
    new_bytes: int
    """What this checkpoint added to the store."""
    full_bytes: int
    """What a restore of this checkpoint reads, its parents' share included."""
    watermark: int | None
    """Milliseconds since 1970, or None when no operator has a watermark."""
    sinks: list[str]


def size_text(size: int) -> str:
    """A number of bytes for people: ``41 KiB``, ``3.1 MiB``."""
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
    """A duration in seconds for people: ``0.41 s``, ``12.3 s``, ``125 s``."""
    if seconds < 9.995:
        return f"{seconds:.2f} s"
    return f"{seconds:.1f} s" if seconds < 99.95 else f"{seconds:.0f} s"


def phase_text(seconds: float) -> str:
    """The duration of a step for people: ``9 ms``, and in seconds from one second on."""
    milliseconds = round(seconds * 1000)
    return f"{milliseconds} ms" if milliseconds < 1000 else seconds_text(seconds)
