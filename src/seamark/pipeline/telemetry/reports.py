"""What a start found and did, what an epoch did, and how long the last epochs took."""

from __future__ import annotations

import math
import textwrap
import threading
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Any, Final

from seamark._common.text import seconds_text
from seamark._control_characters import escape_controls

WIDTH: Final = 80
_HEADLINE_WIDTH: Final = 60
_LABEL_WIDTH: Final = len("working copy")
TEXT_COLUMN: Final = 2 + _LABEL_WIDTH + 1
"""Where the text starts, after its label."""
PHASES: Final = ("begin", "write", "prepare", "capture", "save", "commit", "record", "retain")
"""The steps of an epoch, in the order in which they happen."""
EPOCHS_REMEMBERED: Final = 100
TOTAL: Final = "total"


class CopyOutcome(StrEnum):
    """What a start did with Spark's working copy."""

    NEW = "new"
    KEPT = "kept"
    REBUILT = "rebuilt"
    REARRANGED = "rearranged"
    ADOPTED = "adopted"


@dataclass(frozen=True, kw_only=True)
class StartReport:
    """The outcome of one recovery: which checkpoint was taken and what was done to reach it."""

    seconds: float = 0.0
    chosen_id: int | None = None
    """None when no checkpoint was taken."""
    epoch: int | None = None
    """The last decided epoch, from which the pipeline goes on."""
    fresh_start: bool = False
    skipped: list[tuple[int, str]] = field(default_factory=list)
    """Newer checkpoints that could not be taken, and why, newest first."""
    damaged: int = 0
    """How many of them are damaged or missing; a rollback took the others out of use."""
    verified: str = ""
    """What was compared with the manifest: ``SHA-256, 3 files, 41 KiB``."""
    finished: dict[str, str] = field(default_factory=dict)
    """What each sink needed: ``committed from its committable``, ``already committed``."""
    aborted: list[str] = field(default_factory=list)
    """What was staged and is gone: ``staged epoch 9 of sink large``."""
    working_copy: str = ""
    """What became of it: ``kept, commits/14 written``, ``new``."""
    copy_outcome: CopyOutcome | None = None
    """The same in one word."""
    restored_bytes: int = 0
    """What was written to rebuild it."""
    notes: list[str] = field(default_factory=list)

    def to_dict(self) -> dict[str, Any]:
        """The report made of JSON values, for logs and programs."""
        skipped = [{"checkpoint_id": number, "reason": why} for number, why in self.skipped]
        return {**asdict(self), "seconds": round(self.seconds, 6), "skipped": skipped}

    def fields(self) -> dict[str, Any]:
        """The report as log records and spans have it: what was skipped in words."""
        return {**self.to_dict(), "skipped": [f"{number}: {why}" for number, why in self.skipped]}

    def lines(self) -> list[str]:
        """The report for people, in 80 columns."""
        took = seconds_text(self.seconds)
        laid_out = ["Recovery" + took.rjust(_HEADLINE_WIDTH - len("Recovery"))]
        for label, entries in self._sections():
            shown = label
            for entry in entries:
                laid_out += _wrapped(shown, entry)
                shown = ""
        return laid_out

    def _sections(self) -> Iterator[tuple[str, list[str]]]:
        """Labels and their entries; empty sections are not printed."""
        yield "skipped", [f"checkpoint {number}: {why}" for number, why in self.skipped]
        yield "chosen", [self._chosen()]
        longest = max(map(len, self.finished), default=0) + 1
        yield (
            "finished",
            [f"sink {f'{sink}:'.ljust(longest)} {what}" for sink, what in self.finished.items()],
        )
        yield "aborted", self.aborted
        yield "working copy", [self.working_copy] if self.working_copy else []
        yield "note", self.notes

    def _chosen(self) -> str:
        if self.fresh_start:
            return "nothing: a fresh start"
        chosen = "no checkpoint" if self.chosen_id is None else f"checkpoint {self.chosen_id}"
        parts = [chosen] if self.epoch is None else [chosen, f"epoch {self.epoch}"]
        if self.verified:
            parts.append(f"verified ({self.verified})")
        return " · ".join(parts)


def _wrapped(label: str, entry: str) -> list[str]:
    """One entry behind its label; what does not fit is wrapped, but never inside a path."""
    start = f"  {label.ljust(_LABEL_WIDTH)} "
    # several lines, as an error's text has, become one; double spaces that align are kept
    # and what a store has in them for a terminal to obey is made visible
    text = escape_controls(" ".join(line.strip() for line in entry.splitlines()))
    return textwrap.wrap(
        text,
        WIDTH,
        initial_indent=start,
        subsequent_indent=" " * TEXT_COLUMN,
        break_long_words=False,
        break_on_hyphens=False,
    ) or [start.rstrip()]


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
    positions: Mapping[str, bytes] = field(default_factory=dict)
    """By source: how far it was read."""

    def fields(self) -> dict[str, Any]:
        """All figures by their names, as log records and spans have them."""
        return {
            "epoch": self.epoch,
            "checkpoint_id": self.checkpoint_id,
            "seconds": round(self.seconds, 6),
            "sinks": list(self.sinks),
            "rows": dict(self.rows_per_sink),
            "new_bytes": self.new_bytes,
            "full_bytes": self.full_bytes,
            "watermark": self.watermark,
            "phases": {phase: round(took, 6) for phase, took in in_order(self.phases).items()},
        }


def in_order(phases: Mapping[str, float]) -> dict[str, float]:
    """The phases in the order in which they happen; others come last."""
    known = {phase: phases[phase] for phase in PHASES if phase in phases}
    return {**known, **phases}


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
        return {
            phase: Percentiles(*(_nearest_rank(sorted(seconds), of) for of in (50, 95, 99)))
            for phase, seconds in by_phase.items()
        }


def _nearest_rank(ordered: Sequence[float], percent: int) -> float:
    """The smallest value that at least ``percent`` of all do not exceed."""
    # in whole numbers: 0.95 * 20 is not 19 in floating point
    return ordered[-(-percent * len(ordered) // 100) - 1]
