"""The history of a store as data for a picture and as rows of a table. Pure.

A picture is made of a bounded number of checkpoints. Of more than that, one of each run of ids is
taken; the runs begin at fixed ids, so that looking again needs no other manifests. It has a bounded
number of names, too: each is a column, and every checkpoint of a store may name others.

Tests: ``tests/ui/test_history.py``.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import NamedTuple, TypeVar

from seamark.reports.document import Document
from seamark.store.owner import Owner, known_pins
from seamark.ui.bounds import MOST_NAMES, MOST_POINTS
from seamark.ui.points import Point, damage_of, status_of
from seamark.ui.store_watch import StoreState

_MOST_EVENTS = 500
T = TypeVar("T", int, float)


class Window(NamedTuple):
    """The checkpoints of a picture: ids from a first to a last one, and those that are drawn."""

    first: int
    last: int
    total: int
    """How many there are from the first to the last."""
    drawn: list[int]


def window_of(
    ids: Sequence[int],
    first: int | None,
    last: int | None,
    *,
    marked: Collection[int] = (),
    most: int = MOST_POINTS,
) -> Window:
    """The part of a history that is asked for; by default its newest end.

    ``marked`` ones are drawn whatever lies around them, as far as there is room.
    """
    if not ids:
        return Window(0, 0, 0, [])
    end = len(ids) if last is None else bisect_right(ids, last)
    begin = max(0, end - most) if first is None else bisect_left(ids, first)
    asked = ids[begin:end]
    if not asked:
        return Window(first or ids[0], last or ids[-1], 0, [])
    step = 1
    drawn = list(asked)
    room = most // 2
    while len(drawn) > (most if step == 1 else room):
        step *= 2
        drawn = _first_of_each(asked, step)
    if step > 1:
        kept = [i for i in asked if i in marked][-(most - room - 1) :]
        drawn = sorted({*drawn, *kept, asked[-1]})
    return Window(asked[0], asked[-1], len(asked), drawn)


def _first_of_each(ids: Sequence[int], step: int) -> list[int]:
    """Of each run of ``step`` ids that begins at a multiple of it, the first that there is."""
    drawn: list[int] = []
    for number in ids:
        if not drawn or number // step != drawn[-1] // step:
            drawn.append(number)
    return drawn


def history_document(
    state: StoreState,
    window: Window,
    points: Mapping[int, Point],
    forks: Mapping[int, Sequence[str]] | None = None,
) -> Document:
    """What the picture is drawn from: columns with one value for each checkpoint.

    ``forks`` are the names of the stores that were forked from this one, by checkpoint.
    """
    shown = [points[i] for i in window.drawn if i in points]
    known = set(state.known)
    return {
        "store": state.url,
        "all": {
            "first": state.ids[0] if state.ids else None,
            "last": state.ids[-1] if state.ids else None,
            "total": len(state.ids),
        },
        "window": {
            "first": window.first,
            "last": window.last,
            "total": window.total,
            "drawn": len(shown),
        },
        "id": [p.id for p in shown],
        "epoch": [p.epoch for p in shown],
        "at_ms": [p.at_ms for p in shown],
        "status": [status_of(p, state.owner, points, known) for p in shown],
        "full": [p.is_full for p in shown],
        "took": [p.took for p in shown],
        "phases": _columns([p.phases for p in shown], 0.0),
        "new_bytes": [p.new_bytes for p in shown],
        "restore_bytes": [p.restore_bytes for p in shown],
        "rows": _columns([p.rows for p in shown], None),
        "lag": _columns([p.lag for p in shown], None),
        "watermark": [p.watermark for p in shown],
        "events": events_of(state, window, shown, points, forks or {}),
    }


def _columns(named: Sequence[Mapping[str, T]], absent: T | None) -> dict[str, list[T | None]]:
    """A column for each name, of the names that most have; the rest are summed up in one."""
    counts = Counter(name for each in named for name in each)
    kept = {name for name, _ in counts.most_common(MOST_NAMES)}
    columns = {name: [each.get(name, absent) for each in named] for name in counts if name in kept}
    if len(counts) > len(kept):
        rest = f"{len(counts) - len(kept)} others"
        while rest in kept:
            rest = f"({rest})"
        columns[rest] = [_summed(each, kept, absent) for each in named]
    return columns


def _summed(each: Mapping[str, T], kept: Collection[str], absent: T | None) -> T | None:
    values = [value for name, value in each.items() if name not in kept]
    return sum(values[1:], values[0]) if values else absent


def events_of(
    state: StoreState,
    window: Window,
    shown: Sequence[Point],
    points: Mapping[int, Point],
    forks: Mapping[int, Sequence[str]],
) -> list[Document]:
    """What happened besides checkpoints, with the id at which it did, oldest first.

    Starts, fences, rollbacks and pins are in ``owner.json``, so none of them is missed by a thinned
    picture; upgrades, gaps and damage are known of the checkpoints that were read.
    """
    owner, known = state.owner, set(state.known)
    events = [*_claims(owner)]
    events += [
        _event(last, "rollback", f"{_ids_text(first, last)} given up by a rollback")
        for first, last in owner.superseded
    ]
    events += [
        _event(i, "pin", f"pinned: {', '.join(names)}") for i, names in known_pins(owner).items()
    ]
    events += [
        _event(i, "fork", f"forked: {', '.join(sorted(names))}") for i, names in forks.items()
    ]
    for point in shown:
        if point.forked_from is not None:
            events.append(_event(point.id, "fork", f"forked from {point.forked_from}"))
        if point.upgraded_from is not None:
            events.append(_event(point.id, "upgrade", f"upgraded from {point.upgraded_from}"))
        if point.gaps:
            events.append(_event(point.id, "gap", "a source went on elsewhere: rows were gone"))
        if point.failure:
            events.append(_event(point.id, "failed", point.failure))
        if (damage := damage_of(point, points, known)) is not None:
            events.append(_event(point.id, "damage", damage))
        if point.error is not None:
            events.append(_event(point.id, "unreadable", point.error))
    inside = [e for e in events if window.first <= e["id"] <= window.last + 1]
    return sorted(inside, key=lambda event: event["id"])[-_MOST_EVENTS:]


def _claims(owner: Owner) -> Iterator[Document]:
    """Every start that ``owner.json`` still knows, and every writer that lost the store to it."""
    before = 0
    for at, generation in owner.fences:
        lost = range(before + 1, generation) if before else range(0)
        if lost:
            who = f"generation {lost[0]}" + (f" to {lost[-1]}" if len(lost) > 1 else "")
            yield _event(at, "fence", f"{who} claimed it, saved nothing, and is fenced")
        if at > 1:
            text = f"generation {generation} recovered; earlier writers are fenced from here on"
            yield _event(at, "recovery", text)
        else:
            yield _event(at, "start", f"generation {generation} began this store")
        before = generation


def _event(checkpoint_id: int, kind: str, text: str) -> Document:
    return {"id": checkpoint_id, "kind": kind, "text": text}


def _ids_text(first: int, last: int) -> str:
    return f"checkpoint {first}" if first == last else f"checkpoints {first} to {last}"


def table_rows(
    state: StoreState, ids: Sequence[int], points: Mapping[int, Point]
) -> list[Document]:
    """Checkpoints as rows of a table, in the order given."""
    known, pins = set(state.known), known_pins(state.owner)
    return [
        _row(points[i], state.owner, points, known, pins.get(i, [])) for i in ids if i in points
    ]


def _row(
    point: Point, owner: Owner, points: Mapping[int, Point], known: set[int], pins: Sequence[str]
) -> Document:
    notes = [damage_of(point, points, known), point.error, point.failure]
    notes += [f"pinned: {', '.join(pins)}"] if pins else []
    notes += [f"upgraded from {point.upgraded_from}"] if point.upgraded_from is not None else []
    notes += [f"forked from {point.forked_from}"] if point.forked_from is not None else []
    notes += ["rows of a source were gone"] if point.gaps else []
    return {
        "id": point.id,
        "epoch": point.epoch,
        "at_ms": point.at_ms,
        "status": status_of(point, owner, points, known),
        "full": point.is_full,
        "took": point.took,
        "new_bytes": point.new_bytes,
        "restore_bytes": point.restore_bytes,
        "lag": sum(point.lag.values()) if point.lag else None,
        "sinks": dict(point.sinks),
        "rows": dict(point.rows),
        "note": "; ".join(note for note in notes if note) or None,
    }
