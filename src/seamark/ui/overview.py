"""A row of the overview for each place: is it healthy, how far is it, what does it cost. Pure.

Tests: ``tests/ui/test_overview.py``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Final, NamedTuple

from seamark._common.text import elapsed_text
from seamark.errors import (
    CheckpointNotFoundError,
    InvalidInputError,
    RefusedError,
    SeamarkError,
)
from seamark.reports.document import Document
from seamark.store.owner import Owner
from seamark.ui.bounds import NEWEST
from seamark.ui.points import Point, damage_of, percentile, status_of
from seamark.ui.store_watch import StoreState

_QUIET_SECONDS: Final = 60.0
_QUIET_FACTOR: Final = 20.0


class Health(NamedTuple):
    """How a place is, in one word, and why."""

    word: str
    level: str
    """good, idle, warn or bad: the colour, after the word."""
    why: str


_TROUBLE: Final = (
    "damaged",
    "not answering",
    "not there",
    "cannot be shown",
    "unreadable",
    "failing",
    "warnings",
    "writer gone",
    "quiet",
    "looking",
    "running",
    "ok",
    "stopped",
    "empty",
)
"""Worst first."""


def trouble(row: Document) -> tuple[int, str]:
    """What rows are sorted by."""
    return _TROUBLE.index(row["health"]["word"]), row["name"]


def store_health(state: StoreState, points: Mapping[int, Point], now: float) -> Health:
    """How a store is that answers."""
    if state.damage is not None:
        return Health("damaged", "bad", state.damage.what)
    owner, known = state.owner, set(state.known)
    if not state.ids:
        return Health("empty", "idle", "It holds no checkpoint yet.")
    recent = [points[i] for i in state.ids[-NEWEST:] if i in points]
    counted = [p for p in recent if status_of(p, owner, points, known) != "superseded"]
    if not counted:
        return Health("running", "good", "The newest checkpoints were rolled back.")
    newest = counted[-1]
    status = status_of(newest, owner, points, known)
    if status == "damaged":
        why = damage_of(newest, points, known)
        return Health("damaged", "bad", f"Checkpoint {newest.id}: {why}")
    if status == "unreadable":
        return Health("unreadable", "bad", f"Checkpoint {newest.id}: {newest.error}")
    if status == "failed":
        return Health("failing", "bad", newest.failure or "A sink has failed.")
    return _writer_health(state, counted, now)


def _writer_health(state: StoreState, points: Sequence[Point], now: float) -> Health:
    owner, newest = state.owner, points[-1]
    if owner.generation == 0:
        return Health("ok", "good", "Nobody has claimed it: it was written by another system.")
    if owner.released:
        return Health("stopped", "idle", "Its writer has given it back.")
    if state.writer_alive is False:
        why = "Its writer has died without giving it back. The next start finishes its last epoch."
        return Health("writer gone", "warn", why)
    silent = now - (newest.at_ms or 0) / 1000
    usual = usual_interval(points)
    if usual is not None and silent > max(_QUIET_SECONDS, _QUIET_FACTOR * usual):
        why = f"No checkpoint for {elapsed_text(int(silent))}; usually every {elapsed_text(usual)}."
        return Health("quiet", "warn", why)
    return Health("running", "good", "Checkpoints arrive.")


def usual_interval(points: Sequence[Point]) -> float | None:
    """The median of the seconds between two checkpoints, where there are enough of them."""
    times = [p.at_ms for p in points if p.at_ms is not None]
    gaps = [max(0, b - a) / 1000 for a, b in pairwise(times)]
    return round(percentile(gaps, 0.5) or 0.0, 2) if len(gaps) >= 3 else None


def rows_per_second(points: Sequence[Point]) -> float | None:
    """Rows that all sinks got a second, over the checkpoints given; None where nobody counted."""
    counted = [p for p in points if p.rows and p.at_ms is not None]
    if len(counted) < 2:
        return None
    seconds = ((counted[-1].at_ms or 0) - (counted[0].at_ms or 0)) / 1000
    rows = sum(sum(p.rows.values()) for p in counted[1:])  # the first one ran before that time
    return round(rows / seconds, 1) if seconds > 0 else None


def store_row(state: StoreState, points: Mapping[int, Point], now: float) -> Document:
    """What the overview shows of a store."""
    known = set(state.known)
    recent = [points[i] for i in state.ids[-NEWEST:] if i in points]
    statuses = {p.id: status_of(p, state.owner, points, known) for p in recent}
    usable = [p for p in recent if statuses[p.id] in ("valid", "committing", "failed")]
    newest = usable[-1] if usable else None
    took = [p.took for p in recent if p.took is not None]
    interval = usual_interval(usable)
    return {
        "kind": "store",
        "health": store_health(state, points, now)._asdict(),
        "newest": None
        if newest is None
        else {"id": newest.id, "epoch": newest.epoch, "at_ms": newest.at_ms},
        "checkpoints": len(state.ids),
        "damaged": sum(word == "damaged" for word in statuses.values()),
        "lag": dict(newest.lag) if newest is not None else {},
        "oldest_age": newest.oldest_age if newest is not None else None,
        "watermark": newest.watermark if newest is not None else None,
        "epochs_per_minute": round(60 / interval, 1) if interval else None,
        "rows_per_second": rows_per_second(usable),
        "rows": dict(newest.rows) if newest is not None else {},
        "took": {
            "p50": percentile(took, 0.5),
            "p95": percentile(took, 0.95),
            "recent": [round(seconds, 4) for seconds in took],
        },
        "state_bytes": newest.restore_bytes if newest is not None else None,
        "new_bytes": percentile((p.new_bytes or 0 for p in recent), 0.5),
        "writer": writer_document(state.owner, alive=state.writer_alive),
        "pipeline": state.owner.pipeline,
        "pins": len(state.owner.pins),
    }


def writer_document(owner: Owner, *, alive: bool | None) -> Document | None:
    """Who has claimed a store, and since when; None when nobody ever has."""
    if owner.generation == 0:
        return None
    return {
        "text": owner.writer,
        "generation": owner.generation,
        "claimed_at_ms": owner.claimed_at_ms,
        "recovered_at_id": _recovered_at(owner),
        "released": owner.released,
        "alive": alive,
    }


def _recovered_at(owner: Owner) -> int | None:
    """The first id that the writer of now may decide; None for the first writer of a store."""
    at = owner.fences[-1][0] if owner.fences else 0
    return at if at > 1 else None


def directory_row(document: Document | None) -> Document:
    """What the overview shows of a checkpoint directory of Spark's."""
    if document is None:
        return {"kind": "directory", "health": looking()._asdict()}
    severities = [finding["severity"] for finding in document["findings"]]
    if "damage" in severities:
        first = next(f for f in document["findings"] if f["severity"] == "damage")
        health = Health("damaged", "bad", first["message"])
    elif "warning" in severities:
        first = next(f for f in document["findings"] if f["severity"] == "warning")
        health = Health("warnings", "warn", first["message"])
    else:
        health = Health("ok", "good", document["would_do"]["text"])
    return {
        "kind": "directory",
        "health": health._asdict(),
        "committed": document["committed"],
        "planned": document["planned"],
        "batches": document["batches"]["kept"],
        "state_bytes": document["bytes"],
        "watermark": document["watermark_ms"] or None,
        "findings": len(document["findings"]),
    }


def looking() -> Health:
    """Of a place that has not answered yet."""
    return Health("looking", "idle", "It has not answered yet.")


def not_answering(error: SeamarkError) -> Health:
    """Of a place that could not be looked at, by what was said instead."""
    if isinstance(error, CheckpointNotFoundError):
        return Health("not there", "bad", error.what)
    if isinstance(error, InvalidInputError | RefusedError):
        why = ". ".join(part for part in (error.what, error.hint) if part)
        return Health("cannot be shown", "warn", why)
    return Health("not answering", "bad", error.what)
