"""All checkpoints of a store as a plain document: what each is, and what a restore would read."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from seamark.cli.output import Document
from seamark.cli.source_positions import positions
from seamark.manifest import CheckpointManifest
from seamark.store import CheckpointStore
from seamark.store.consistent_read import UNCOUNTED, Overtaken, until_settled
from seamark.store.inspection import scan
from seamark.store.manifest_scan import ScannedCheckpoint, known_pins
from seamark.store.owner import standing
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
    found = {seen.checkpoint_id: _summary(seen) for seen in scanned}
    # parents before children, so that damage reaches all that build on it
    for one in sorted(found.values(), key=lambda s: s.id):
        one.damage = one.damage or broken_link(one, found)
        one.error = one.error or unread_link(one, found)
    if any(one.damage for one in found.values()):
        owner = store.owner()  # pruned since it was read, with what it builds on?
        left = {i: one for i, one in found.items() if standing(owner, i) not in UNCOUNTED}
        if max(left, default=0) < max(found):
            raise Overtaken
        return left
    return found


def broken_link(one: CheckpointSummary, found: Mapping[int, CheckpointSummary]) -> str | None:
    """Why a checkpoint cannot be restored although it is whole itself, or None when it can."""
    if one.parent_id is None:
        return None
    parent = found.get(one.parent_id)
    if parent is None:
        return f"its parent {one.parent_id} is gone"
    if parent.damage is not None:
        return f"it builds on {parent.id}, which is damaged"
    return None


def unread_link(one: CheckpointSummary, found: Mapping[int, CheckpointSummary]) -> str | None:
    """Why nothing can be said about a checkpoint that could be read itself."""
    parent = found.get(one.parent_id) if one.parent_id is not None else None
    if parent is None or parent.error is None:
        return None
    return f"it builds on {parent.id}, which could not be read"


def _summary(seen: ScannedCheckpoint) -> CheckpointSummary:
    m = seen.manifest
    if m is None:
        error = seen.error.what if seen.error is not None else None
        return CheckpointSummary(
            seen.checkpoint_id, damage=seen.damage, superseded=seen.superseded, error=error
        )
    statuses = m.sink_commit_statuses
    names = [*m.sink_names, *(name for name in statuses if name not in m.sink_names)]
    # another system may name a sink without a status: nothing says that it is unfinished
    return CheckpointSummary(
        seen.checkpoint_id,
        epoch=m.epoch,
        timestamp_ms=m.timestamp_ms,
        parent_id=(m.parent_id or 0) if m.is_incremental else None,
        took=took_seconds(m),
        new_bytes=seen.stored_bytes,
        offsets=positions(m.source_offsets),
        sinks={n: statuses[n].kind if n in statuses else "Committed" for n in names},
        failures={n: status.message for n, status in statuses.items() if status.message},
        timeline=m.timeline,
        damage=seen.damage,
        superseded=seen.superseded,
    )


def took_seconds(manifest: CheckpointManifest) -> float | None:
    """How long the epoch took, by its phases; None when nobody wrote that down."""
    phases = manifest.timings
    return round(math.fsum(phases.values()), 6) if phases else None


def chain_ids(checkpoint_id: int, found: Mapping[int, CheckpointSummary]) -> list[int]:
    """A checkpoint and what it builds on, newest first, as far as it is known."""
    chain: list[int] = []
    wanted: int | None = checkpoint_id
    while wanted is not None and wanted in found and len(chain) <= LONGEST_CHAIN:
        chain.append(wanted)
        parent = found[wanted].parent_id
        wanted = parent if parent is not None and parent < wanted else None
    return chain


def listing_document(store: CheckpointStore, found: dict[int, CheckpointSummary]) -> Document:
    """What ``seamark list --json`` prints."""
    pins = known_pins(store.owner())
    rows = [_row(one, found, pins.get(one.id, [])) for one in found.values()]
    usable = [row["id"] for row in rows if row["status"] in USABLE]
    return {
        "store": store.url,
        "checkpoints": rows,
        "newest_valid": max(usable, default=None),
        "stored_bytes": sum(one.new_bytes or 0 for one in found.values()),
        "unreadable": sum(one.error is not None for one in found.values()),
        "verified": False,
        "without_checksum": [],
    }


def _row(
    one: CheckpointSummary, found: Mapping[int, CheckpointSummary], pins: list[str]
) -> Document:
    sizes = [found[i].new_bytes for i in chain_ids(one.id, found)]
    whole = one.damage is None and one.error is None and all(size is not None for size in sizes)
    return {
        "id": one.id,
        "epoch": one.epoch,
        "timestamp_ms": one.timestamp_ms,
        "status": one.status,
        "full": one.new_bytes is not None and one.parent_id is None,
        "parent_id": one.parent_id,
        "pins": pins,
        "took_seconds": one.took,
        "new_bytes": one.new_bytes,
        "full_bytes": sum(size or 0 for size in sizes) if whole else None,
        "sinks": one.sinks,
        "offsets": one.offsets,
        "timeline": one.timeline,
        "note": note_of(one, pins),
    }


def note_of(one: CheckpointSummary, pins: list[str]) -> str | None:
    """What is worth saying about a checkpoint beside its status."""
    told = [text for text in (one.damage, one.error) if text]
    told += [f"sink {name} failed: {why}" for name, why in one.failures.items()]
    told += [f"pinned: {', '.join(pins)}"] if pins else []
    return "; ".join(told) or None
