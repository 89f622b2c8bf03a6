"""All checkpoints of a store as a plain document: what each is, and what a restore would read.

Tests: ``tests/cli/test_list.py``.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from seamark._redaction import redacted_document
from seamark.manifest import CheckpointManifest, ConnectorCheckpoint
from seamark.manifest.described import is_first_of_fork
from seamark.reports.document import Document
from seamark.spark.kafka.lag import recorded_ages, recorded_lag
from seamark.spark.source_gaps import gap_texts
from seamark.store import CheckpointStore
from seamark.store.consistent_read import Overtaken, raise_if_missed, until_settled
from seamark.store.inspection import scan
from seamark.store.manifest_scan import ScannedCheckpoint
from seamark.store.owner import UNCOUNTED, OutdatedOwner, Owner, known_pins, standing

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
    restore_bytes: int | None = None
    """What a restore writes, where that was recorded."""
    named_bytes: int = 0
    """Bytes of the shared objects that it names itself."""
    added_bytes: int = 0
    """Those of them that were stored for it."""
    sinks: dict[str, str] = field(default_factory=dict)
    failures: dict[str, str] = field(default_factory=dict)
    timeline: str | None = None
    damage: str | None = None
    superseded: bool = False
    error: str | None = None
    """Why its manifest could not be read or judged, which proves nothing."""
    outdated_owner: OutdatedOwner | None = None
    """Why ``owner.json`` cannot be believed: it is older than this checkpoint."""
    offsets: dict[str, dict[str, str]] = field(default_factory=dict)
    lag: dict[str, dict[str, int]] = field(default_factory=dict)
    ages: dict[str, dict[str, float]] = field(default_factory=dict)
    rows: dict[str, int] = field(default_factory=dict)
    """How many rows each sink has got in the epoch, where they were counted."""
    gaps: list[str] = field(default_factory=list)
    """What sources left out after this epoch, in words."""
    upgraded_from: int | None = None
    forked_from: str | None = None
    """Store and checkpoint, of the one that a fork begins with."""

    @property
    def was_read(self) -> bool:
        """Whether its manifest was there and could be read."""
        return self.epoch is not None

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
    summaries = {entry.checkpoint_id: summary_of(entry) for entry in scanned}
    parents = (summary.parent_id for summary in summaries.values())
    raise_if_missed(summaries, parents, store.load_by_id)
    # parents before children, so that damage reaches all that build on it
    for summary in sorted(summaries.values(), key=lambda s: s.id):
        if summary.parent_id is not None:
            _inherit(summary, summaries.get(summary.parent_id))
    if any(summary.damage for summary in summaries.values()):
        owner, there = store.owner(), {*store.list_ids()}
        left = {  # or was it pruned since it was read, with what it builds on?
            i: summary
            for i, summary in summaries.items()
            if standing(owner, i) not in UNCOUNTED and (i in there or not summary.was_read)
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


def summary_of(scanned: ScannedCheckpoint) -> CheckpointSummary:
    """What a list needs of one checkpoint, as its manifest describes it."""
    m = scanned.manifest
    if m is None:
        error = scanned.error
        return CheckpointSummary(
            scanned.checkpoint_id,
            damage=scanned.damage,
            superseded=scanned.superseded,
            error=error.what if error is not None else None,
            outdated_owner=error if isinstance(error, OutdatedOwner) else None,
        )
    statuses = m.sink_commit_statuses
    names = [*dict.fromkeys([*m.sink_names, *statuses])]
    # another system may name a sink without a status: nothing says that it is unfinished
    return CheckpointSummary(
        scanned.checkpoint_id,
        epoch=m.epoch,
        timestamp_ms=m.timestamp_ms,
        parent_id=(m.parent_id or 0) if m.is_incremental else None,
        took=took_seconds(m),
        new_bytes=scanned.stored_bytes,
        restore_bytes=m.restore_bytes,
        named_bytes=sum(each.size for each in m.shared_objects),
        added_bytes=m.added_bytes,
        offsets=positions(m.source_offsets),
        lag=recorded_lag(m),
        ages=recorded_ages(m),
        rows={sink: digest.rows for sink, digest in (m.output_digests or {}).items()},
        gaps=gap_texts(gap for gap in m.gaps if gap.get("epoch") == m.epoch),
        upgraded_from=_upgraded_from(m),
        forked_from=_forked_from(m),
        sinks={n: statuses[n].kind if n in statuses else "Committed" for n in names},
        failures={n: status.message for n, status in statuses.items() if status.message},
        timeline=m.timeline,
        damage=scanned.damage,
        superseded=scanned.superseded,
    )


def _upgraded_from(manifest: CheckpointManifest) -> int | None:
    origin = (manifest.upgrade or {}).get("from")
    return origin if isinstance(origin, int) else None


def _forked_from(manifest: CheckpointManifest) -> str | None:
    """Only for the checkpoint that a fork begins with: all later ones say the same."""
    fork = manifest.fork if is_first_of_fork(manifest) else None
    return None if fork is None else f"{fork.url}@{fork.checkpoint_id}"


def took_seconds(manifest: CheckpointManifest) -> float | None:
    """How long the epoch took, by its phases; None when nobody wrote that down."""
    phases = manifest.timings
    return round(math.fsum(phases.values()), 6) if phases else None


def chain_ids(checkpoint_id: int, summaries: Mapping[int, CheckpointSummary]) -> list[int]:
    """A checkpoint and what it builds on, newest first, as far as it is known."""
    chain: list[int] = []
    next_id: int | None = checkpoint_id
    while next_id is not None and next_id in summaries:
        chain.append(next_id)
        parent = summaries[next_id].parent_id
        next_id = parent if parent is not None and parent < next_id else None
    return chain


def listing_document(url: str, owner: Owner, summaries: dict[int, CheckpointSummary]) -> Document:
    """What ``seamark list --json`` prints; the owner is of the moment of the summaries."""
    pins = known_pins(owner)
    chains = _chain_sizes(summaries)
    rows = [_row(each, chains[each.id], pins.get(each.id, [])) for each in summaries.values()]
    usable = [row["id"] for row in rows if row["status"] in USABLE]
    problem = owner_problem(each.outdated_owner for each in summaries.values())
    return {
        "store": url,
        "checkpoints": rows,
        # a start would choose none as long as nobody knows what was rolled back
        "newest_valid": max(usable, default=None) if problem is None else None,
        "stored_bytes": sum(summary.new_bytes or 0 for summary in summaries.values()),
        "unreadable": sum(summary.error is not None for summary in summaries.values()),
        "owner_problem": problem,
    }


def owner_problem(found: Iterable[object]) -> str | None:
    """What is wrong with ``owner.json`` and what to do, if checkpoints are newer than it."""
    problem = next((each for each in found if isinstance(each, OutdatedOwner)), None)
    return None if problem is None else f"{problem.what}. {problem.hint}"


class _ChainSize(NamedTuple):
    """What a checkpoint and those it builds on take, as far as they are known."""

    new_bytes: int | None = 0
    """None when one of them has no size."""
    named_bytes: int = 0


def _chain_sizes(summaries: Mapping[int, CheckpointSummary]) -> dict[int, _ChainSize]:
    sizes: dict[int, _ChainSize] = {}
    for summary in sorted(summaries.values(), key=lambda s: s.id):  # parents come first
        below = sizes.get(summary.parent_id or 0, _ChainSize())
        new, more = summary.new_bytes, below.new_bytes
        sizes[summary.id] = _ChainSize(
            None if new is None or more is None else new + more,
            # a checkpoint that builds on another one names only what it adds to it
            summary.named_bytes + below.named_bytes,
        )
    return sizes


def _row(summary: CheckpointSummary, chain: _ChainSize, pins: list[str]) -> Document:
    whole = summary.damage is None and summary.error is None and chain.new_bytes is not None
    notes = [text for text in (summary.damage, summary.error) if text]
    notes += [f"sink {name} failed: {why}" for name, why in summary.failures.items()]
    notes += [f"pinned: {', '.join(pins)}"] if pins else []
    notes += [f"upgraded from {summary.upgraded_from}"] if summary.upgraded_from else []
    notes += [f"forked from {summary.forked_from}"] if summary.forked_from else []
    notes += summary.gaps
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
        "referenced_bytes": max(0, chain.named_bytes - summary.added_bytes),
        # what a restore reads: as recorded, or all that the chain holds
        "full_bytes": (summary.restore_bytes or chain.new_bytes) if whole else None,
        "sinks": summary.sinks,
        "rows": summary.rows,
        "offsets": summary.offsets,
        "lag": summary.lag,
        "age_seconds": summary.ages,
        "timeline": summary.timeline,
        "note": "; ".join(notes) or None,
    }


def oldest(ages: Mapping[str, Mapping[str, float]]) -> float | None:
    """The age of the oldest row that comes next, over all partitions where it is known."""
    return max((age for parts in ages.values() for age in parts.values()), default=None)


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
    values = [str(value) for value in redacted_document(at).values()]
    if len(values) > 1 and all(map(_WHOLE.fullmatch, values)):
        numbers = [int(value) for value in values]
        low, high = min(numbers), max(numbers)
        return str(low) if low == high else f"{low}…{high}"
    if not values:
        return "at its beginning"
    first = values[0] if len(values[0]) <= _LONGEST else f"{values[0][: _LONGEST - 1]}…"
    return first if len(values) == 1 else f"{first} +{len(values) - 1}"
