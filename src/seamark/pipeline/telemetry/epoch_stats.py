"""The figures of one epoch."""

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
