"""What the page remembers of one checkpoint: small, whatever its manifest says.

Tests: ``tests/ui/test_points.py``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import islice
from typing import TypeVar

from seamark.reports.checkpoint_summary import oldest, summary_of
from seamark.store.manifest_scan import ScannedCheckpoint
from seamark.store.owner import Owner, Standing, standing
from seamark.ui.bounds import LONGEST_NOTE, MOST_NAMES

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Point:
    """One checkpoint as a row of a table and as a bar of a picture."""

    id: int
    epoch: int | None = None
    at_ms: int | None = None
    parent_id: int | None = None
    """What it builds on; None for one that holds everything itself."""
    is_full: bool = False
    phases: Mapping[str, float] = field(default_factory=dict)
    took: float | None = None
    new_bytes: int | None = None
    restore_bytes: int | None = None
    watermark: int | None = None
    lag: Mapping[str, int] = field(default_factory=dict)
    """By source: rows that were there and not read yet."""
    oldest_age: float | None = None
    sinks: Mapping[str, str] = field(default_factory=dict)
    rows: Mapping[str, int] = field(default_factory=dict)
    """By sink: rows that it got in the epoch, where they were counted."""
    failure: str | None = None
    """What a sink that failed has said."""
    generation: int = 0
    timeline: str | None = None
    upgraded_from: int | None = None
    forked_from: str | None = None
    """Store and checkpoint, of the one that a fork begins with."""
    origin: tuple[str, int] | None = None
    """The same as two values, of every checkpoint of a fork."""
    gaps: int = 0
    damage: str | None = None
    error: str | None = None
    """Why its manifest could not be read or judged, which proves nothing."""

    @property
    def is_settled(self) -> bool:
        """Whether nothing about it will change, but for what ``owner.json`` says."""
        return self.error is None and all(s == "Committed" for s in self.sinks.values())


def point_of(scanned: ScannedCheckpoint) -> Point:
    """What is remembered of a checkpoint whose manifest was read."""
    manifest, summary = scanned.manifest, summary_of(scanned)
    if manifest is None:
        return Point(
            scanned.checkpoint_id, damage=_note(summary.damage), error=_note(summary.error)
        )
    failures = [f"sink {name} failed: {why}" for name, why in summary.failures.items()]
    return Point(
        scanned.checkpoint_id,
        epoch=summary.epoch,
        at_ms=summary.timestamp_ms,
        parent_id=summary.parent_id,
        is_full=not manifest.is_incremental,
        phases=_first(manifest.timings or {}),
        took=summary.took,
        new_bytes=bytes_of(scanned),
        restore_bytes=summary.restore_bytes,
        watermark=manifest.watermark,
        lag=_first({name: sum(parts.values()) for name, parts in summary.lag.items()}),
        oldest_age=oldest(summary.ages),
        sinks=_first(summary.sinks),
        rows=_first(summary.rows),
        failure=_note("; ".join(failures)),
        generation=manifest.generation,
        timeline=_note(manifest.timeline),
        upgraded_from=summary.upgraded_from,
        forked_from=_note(summary.forked_from),
        origin=None if manifest.fork is None else (manifest.fork.url, manifest.fork.checkpoint_id),
        gaps=len(summary.gaps),
        damage=_note(summary.damage),
    )


def bytes_of(scanned: ScannedCheckpoint) -> int:
    """What was stored for a checkpoint, by what its manifest says."""
    manifest = scanned.manifest
    if manifest is None:
        return scanned.stored_bytes
    return scanned.stored_bytes + (manifest.state_bytes or 0) + manifest.added_bytes


def status_of(point: Point, owner: Owner, parents: Mapping[int, Point], known: set[int]) -> str:
    """One of valid, committing, failed, damaged, superseded, unreadable.

    ``known`` are the ids that there are; what a checkpoint builds on must be one of them.
    """
    if standing(owner, point.id) is Standing.SUPERSEDED:
        return "superseded"
    if point.error is not None:
        return "unreadable"
    if damage_of(point, parents, known) is not None:
        return "damaged"
    if "Failed" in point.sinks.values():
        return "failed"
    return "valid" if point.is_settled else "committing"


def damage_of(point: Point, parents: Mapping[int, Point], known: set[int]) -> str | None:
    """What is wrong with a checkpoint or the one that it builds on, as far as that was read."""
    if point.damage is not None:
        return point.damage
    if point.parent_id is None:
        return None
    if point.parent_id not in known:
        return f"its parent {point.parent_id} is gone"
    parent = parents.get(point.parent_id)
    if parent is not None and parent.damage is not None:
        return f"it builds on {parent.id}, which is damaged"
    return None


def percentile(values: Iterable[float], share: float) -> float | None:
    """The value below which a share of all lies; None when there are none."""
    ordered = sorted(values)
    return ordered[min(int(share * len(ordered)), len(ordered) - 1)] if ordered else None


def _first(named: Mapping[str, T]) -> dict[str, T]:
    """As many as a picture has room for; a manifest may name any number."""
    return {name[:LONGEST_NOTE]: value for name, value in islice(named.items(), MOST_NAMES)}


def _note(text: str | None) -> str | None:
    return None if not text else text if len(text) <= LONGEST_NOTE else f"{text[:LONGEST_NOTE]}…"
