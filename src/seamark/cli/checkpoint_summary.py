"""All checkpoints of a store as a plain document: what each is, and what a restore would read.

Tests: ``tests/cli/test_list.py``.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from seamark.cli.output import Document, without_secrets
from seamark.manifest import CheckpointManifest, ConnectorCheckpoint
from seamark.store import CheckpointStore
from seamark.store.consistent_read import Overtaken, until_settled
from seamark.store.inspection import scan
from seamark.store.manifest_scan import ScannedCheckpoint
from seamark.store.owner import UNCOUNTED, known_pins, standing
from seamark.store.validation import LONGEST_CHAIN

USABLE: Final = ("valid", "committing")
"""Statuses of checkpoints that a start could choose."""


@dataclass
class CheckpointSummary:
    """What a list needs of one checkpoint; its manifest may be large and is not kept."""

    id: int
    epoch: int | None = None
    timestamp_ms: int | None = None
    parent_id: int | None = None
    """What it builds on; None for one that holds everything itself."""
    took: float | None = None
    new_bytes: int | None = None
    sinks: dict[str, str] = field(default_factory=dict)
    failures: dict[str, str] = field(default_factory=dict)
    timeline: str | None = None
    damage: str | None = None
    superseded: bool = False
    error: str | None = None
    """Why its manifest could not be read, which proves nothing."""
    offsets: dict[str, dict[str, str]] = field(default_factory=dict)

    @property
    def status(self) -> str:
        """One of valid, committing, damaged, superseded, unreadable."""
        if self.superseded:
            return "superseded"
        if self.error is not None:
            return "unreadable"
        if self.damage is not None:
            return "damaged"
        return "valid" if all(s == "Committed" for s in self.sinks.values()) else "committing"


def summarize_checkpoints(store: CheckpointStore) -> dict[int, CheckpointSummary]:
    """Every checkpoint by id, newest first. One that builds on a broken one is damaged too.

    One whose manifest cannot be read is listed too, and nothing is known of it.
    """
    return until_settled(lambda: _summaries(store), store.url)


def _summaries(store: CheckpointStore) -> dict[int, CheckpointSummary]:
    """:class:`Overtaken` when the newest is pruned before all that it needs was looked at."""
    scanned = scan(store, unreadable=True, measure=True)
    summaries = {entry.checkpoint_id: _summary(entry) for entry in scanned}
    # parents before children, so that damage reaches all that build on it
    for summary in sorted(summaries.values(), key=lambda s: s.id):
        if summary.parent_id is not None:
            _inherit(summary, summaries.get(summary.parent_id))
    if any(summary.damage for summary in summaries.values()):
        owner = store.owner()  # pruned since it was read, with what it builds on?
        left = {
            i: summary for i, summary in summaries.items() if standing(owner, i) not in UNCOUNTED
        }
        if max(left, default=0) < max(summaries):
            raise Overtaken
        return left
    return summaries


def _inherit(summary: CheckpointSummary, parent: CheckpointSummary | None) -> None:
    """Note why a checkpoint cannot be restored, or not judged, although it is whole itself."""
    if parent is None:
        summary.damage = summary.damage or f"its parent {summary.parent_id} is gone"
    elif parent.damage is not None:
        summary.damage = summary.damage or f"it builds on {parent.id}, which is damaged"
    if parent is not None and parent.error is not None:
        summary.error = summary.error or f"it builds on {parent.id}, which could not be read"


def _summary(scanned: ScannedCheckpoint) -> CheckpointSummary:
    m = scanned.manifest
    if m is None:
        error = scanned.error.what if scanned.error is not None else None
        return CheckpointSummary(
            scanned.checkpoint_id, damage=scanned.damage, superseded=scanned.superseded, error=error
        )
    statuses = m.sink_commit_statuses
    names = [*m.sink_names, *(name for name in statuses if name not in m.sink_names)]
    # another system may name a sink without a status: nothing says that it is unfinished
    return CheckpointSummary(
        scanned.checkpoint_id,
        epoch=m.epoch,
        timestamp_ms=m.timestamp_ms,
        parent_id=(m.parent_id or 0) if m.is_incremental else None,
        took=took_seconds(m),
        new_bytes=scanned.stored_bytes,
        offsets=positions(m.source_offsets),
        sinks={n: statuses[n].kind if n in statuses else "Committed" for n in names},
        failures={n: status.message for n, status in statuses.items() if status.message},
        timeline=m.timeline,
        damage=scanned.damage,
        superseded=scanned.superseded,
    )


def took_seconds(manifest: CheckpointManifest) -> float | None:
    """How long the epoch took, by its phases; None when nobody wrote that down."""
    phases = manifest.timings
    return round(math.fsum(phases.values()), 6) if phases else None


def chain_ids(checkpoint_id: int, summaries: Mapping[int, CheckpointSummary]) -> list[int]:
    """A checkpoint and what it builds on, newest first, as far as it is known."""
    chain: list[int] = []
    next_id: int | None = checkpoint_id
    while next_id is not None and next_id in summaries and len(chain) <= LONGEST_CHAIN:
        chain.append(next_id)
        parent = summaries[next_id].parent_id
        next_id = parent if parent is not None and parent < next_id else None
    return chain


def listing_document(store: CheckpointStore, summaries: dict[int, CheckpointSummary]) -> Document:
    """What ``seamark list --json`` prints."""
    pins = known_pins(store.owner())
    rows = [_row(summary, summaries, pins.get(summary.id, [])) for summary in summaries.values()]
    usable = [row["id"] for row in rows if row["status"] in USABLE]
    return {
        "store": store.url,
        "checkpoints": rows,
        "newest_valid": max(usable, default=None),
        "stored_bytes": sum(summary.new_bytes or 0 for summary in summaries.values()),
        "unreadable": sum(summary.error is not None for summary in summaries.values()),
    }


def _row(
    summary: CheckpointSummary, summaries: Mapping[int, CheckpointSummary], pins: list[str]
) -> Document:
    sizes = [summaries[i].new_bytes for i in chain_ids(summary.id, summaries)]
    whole = (
        summary.damage is None and summary.error is None and all(size is not None for size in sizes)
    )
    notes = [text for text in (summary.damage, summary.error) if text]
    notes += [f"sink {name} failed: {why}" for name, why in summary.failures.items()]
    notes += [f"pinned: {', '.join(pins)}"] if pins else []
    return {
        "id": summary.id,
        "epoch": summary.epoch,
        "timestamp_ms": summary.timestamp_ms,
        "status": summary.status,
        "full": summary.new_bytes is not None and summary.parent_id is None,
        "parent_id": summary.parent_id,
        "pins": pins,
        "took_seconds": summary.took,
        "new_bytes": summary.new_bytes,
        "full_bytes": sum(size or 0 for size in sizes) if whole else None,
        "sinks": summary.sinks,
        "offsets": summary.offsets,
        "timeline": summary.timeline,
        "note": "; ".join(notes) or None,
    }


_LONGEST: Final = 24
_WHOLE: Final = re.compile(r"-?[0-9]{1,18}")
_DIGITS: Final = re.compile(r"([0-9]{1,18})")


def positions(checkpoints: Mapping[str, ConnectorCheckpoint]) -> dict[str, dict[str, str]]:
    """The offsets of each source or table, readable, in the order of their names."""
    return {
        name: dict(sorted(at.offsets.items(), key=_natural)) for name, at in checkpoints.items()
    }


def _natural(item: tuple[str, Any]) -> list[tuple[bool, int, str]]:
    """partition-2 before partition-10."""
    parts: Iterable[str] = _DIGITS.split(item[0])
    return [
        (is_number, int(part) if is_number else 0, part)
        for number, part in enumerate(parts)
        for is_number in [number % 2 == 1]
    ]


def positions_text(sources: Mapping[str, Mapping[str, str]]) -> str:
    """Each source with its lowest and highest position: ``trades 600…602``."""
    return ", ".join(f"{name} {_span(at)}".rstrip() for name, at in sources.items())


def short_positions_text(sources: Mapping[str, Mapping[str, str]]) -> str:
    """The same without a name where there is only one source."""
    return _span(next(iter(sources.values()))) if len(sources) == 1 else positions_text(sources)


def _span(at: Mapping[str, str]) -> str:
    values = [str(value) for value in without_secrets(at).values()]
    if len(values) > 1 and all(map(_WHOLE.fullmatch, values)):
        numbers = [int(value) for value in values]
        low, high = min(numbers), max(numbers)
        return str(low) if low == high else f"{low}…{high}"
    if not values:
        return "at its beginning"
    first = values[0] if len(values[0]) <= _LONGEST else f"{values[0][: _LONGEST - 1]}…"
    return first if len(values) == 1 else f"{first} +{len(values) - 1}"
