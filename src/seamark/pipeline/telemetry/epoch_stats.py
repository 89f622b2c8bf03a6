"""What an epoch did, and how long the steps of the last epochs took."""

from __future__ import annotations

import math
import threading
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

PHASES: Final = ("begin", "write", "prepare", "capture", "save", "commit", "record", "retain")
"""The steps of an epoch, in the order in which they happen."""
EPOCHS_REMEMBERED: Final = 100
TOTAL: Final = "total"


@dataclass(frozen=True, kw_only=True)
class EpochStats:
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


@dataclass(frozen=True)
class Percentiles:
    """Seconds that 50, 95 and 99 of 100 epochs did not exceed; each was really measured."""

    p50: float
    p95: float
    p99: float


class Timings:
    """The phase durations of the last 100 epochs. Any thread may add and ask."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._epochs: deque[dict[str, float]] = deque(maxlen=EPOCHS_REMEMBERED)

    def add(self, phase_seconds: Mapping[str, float]) -> None:
        """Remember one epoch; its total is the sum of its phases unless ``total`` is given."""
        durations = dict(phase_seconds)
        durations.setdefault(TOTAL, math.fsum(phase_seconds.values()))
        with self._lock:
            self._epochs.append(durations)

    def percentiles(self) -> dict[str, Percentiles]:
        """Percentiles by phase and for ``total``; a phase counts the epochs that had it."""
        with self._lock:
            epochs = list(self._epochs)
        by_phase: dict[str, list[float]] = {}
        for durations in epochs:
            for phase, seconds in durations.items():
                by_phase.setdefault(phase, []).append(seconds)
        return {phase: _percentiles(sorted(seconds)) for phase, seconds in by_phase.items()}


def _percentiles(ordered: Sequence[float]) -> Percentiles:
    return Percentiles(*(_nearest_rank(ordered, percent) for percent in (50, 95, 99)))


def _nearest_rank(ordered: Sequence[float], percent: int) -> float:
    """The smallest value that at least ``percent`` of all do not exceed."""
    # in whole numbers: 0.95 * 20 is not 19 in floating point
    return ordered[-(-percent * len(ordered) // 100) - 1]
