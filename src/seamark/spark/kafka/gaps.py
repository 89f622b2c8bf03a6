"""Going on from another position than the one that is lost, and the record that stays of it.

Only positions that are lost are moved. Which rows were left out is written into every later
checkpoint of the history.

Tests: ``tests/spark/kafka/test_gaps.py``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from seamark._common.text import grouped, time_text
from seamark.errors import InvalidInputError, PositionUnavailable, RefusedError
from seamark.spark.kafka.positions import (
    Loss,
    LostPosition,
    Offsets,
    each_position,
    line_of,
    parsed,
)

Anchor = Literal["earliest", "latest"] | Mapping[str, Mapping[Any, int]]
"""Where a source goes on: at an end of what is left, or at topic → partition → offset."""

LostByLine = Mapping[str, Sequence[LostPosition]]
"""By each line that the offset log has for a source: its positions that are lost, maybe none."""


@dataclass(frozen=True, kw_only=True)
class Move:
    """One position that was lost, and where reading goes on instead."""

    topic: str
    partition: int
    wanted: int
    goes_on: int | None
    """None when the partition is not there any more."""
    rows: int | None
    """Rows that are never read; None when nobody can know."""
    loss: str


@dataclass(frozen=True, kw_only=True)
class Gap:
    """The positions of a source that are moved, and the lines of the offset log that do it."""

    source: str
    lines: Mapping[str, str]
    """By each line that the source had: the one that takes its place. Several for several leaves
    of the plan that have come to different places."""
    moves: tuple[Move, ...]

    @property
    def new_lines(self) -> list[str]:
        """The lines that the source goes on from, without repetition."""
        return list(dict.fromkeys(self.lines.values()))

    def document(self, epoch: int, now_ms: int) -> dict[str, Any]:
        """What the manifest says about it: the source went on like this after that epoch."""
        return {
            "source": self.source,
            "epoch": epoch,
            "timestamp_ms": now_ms,
            "line": self.new_lines[0],
            **({"lines": dict(self.lines)} if len(self.lines) > 1 else {}),
            "moves": [
                {
                    "topic": move.topic,
                    "partition": move.partition,
                    "from": move.wanted,
                    "to": move.goes_on,
                    "rows": move.rows,
                    "why": move.loss,
                }
                for move in self.moves
            ],
        }


def check_anchors(reanchor: object) -> None:
    """:class:`InvalidInputError` unless it says for sources by name where to go on."""
    if not isinstance(reanchor, Mapping):
        raise InvalidInputError(_USE, hint=_EXAMPLE)
    for anchor in reanchor.values():
        if anchor in ("earliest", "latest"):
            continue
        try:
            _given(anchor)
        except (ValueError, TypeError, AttributeError):
            raise InvalidInputError(_USE, hint=_EXAMPLE) from None


_USE = "reanchor says for each source by its name: 'earliest', 'latest', or offsets"
_EXAMPLE = "For example reanchor={'trades': {'topic': {0: 500, 1: 480}}}."


def _given(anchor: Any) -> Offsets:
    given = {str(t): {int(n): at for n, at in parts.items()} for t, parts in anchor.items()}
    if not given or any(type(at) is not int or at < 0 for _, _, at in each_position(given)):
        raise ValueError("not offsets")
    return given


def planned_gap(lost_by_line: LostByLine, anchor: Anchor | Literal["stay"]) -> Gap:
    """The gap that moves the lost positions of one source to the anchor. Pure.

    Each line of the source is moved for itself, and only where it is lost. With ``stay`` reading
    goes on at the same offsets, in a topic that is another one. :class:`RefusedError` for offsets
    that leave out a lost position, name one that is not lost, or lie outside of what the topic has.
    """
    explicit = None if isinstance(anchor, str) else _given(anchor)
    lost = [one for each in lost_by_line.values() for one in each]
    if explicit is not None:
        _require_fit(explicit, lost)
    targets = {one: _target(one, anchor, explicit) for one in lost}
    return Gap(
        source=lost[0].source,
        lines={line: _moved(line, each, targets) for line, each in lost_by_line.items()},
        moves=tuple(
            Move(
                topic=one.topic,
                partition=one.partition,
                wanted=one.wanted,
                goes_on=goes_on,
                rows=_rows_between(one, goes_on),
                loss=one.loss.value,
            )
            for one, goes_on in targets.items()
        ),
    )


def _moved(
    line: str, lost: Sequence[LostPosition], targets: Mapping[LostPosition, int | None]
) -> str:
    if not lost:
        return line  # as Spark wrote it
    moved = {topic: dict(parts) for topic, parts in (parsed(line) or {}).items()}
    for one in lost:
        goes_on = targets[one]
        if goes_on is None:
            del moved[one.topic][one.partition]
        else:
            moved[one.topic][one.partition] = goes_on
    return line_of({topic: parts for topic, parts in moved.items() if parts})


def _target(one: LostPosition, anchor: object, explicit: Offsets | None) -> int | None:
    if one.ends is None:
        return None
    if anchor == "stay":
        return one.wanted
    if explicit is None:
        return one.ends.earliest if anchor == "earliest" else one.ends.latest
    chosen = explicit[one.topic][one.partition]
    if not one.ends.earliest <= chosen <= one.ends.latest:
        raise RefusedError(
            f"source {one.source!r} cannot go on at {chosen}",
            where=str(one),
            hint="Give an offset that the partition has.",
        )
    return chosen


def _require_fit(explicit: Offsets, lost: Sequence[LostPosition]) -> None:
    named = {(topic, number) for topic, number, _ in each_position(explicit)}
    needed = {(one.topic, one.partition) for one in lost if one.ends is not None}
    if named != needed:
        names = ", ".join(f"{topic}-{number}" for topic, number in sorted(needed))
        raise RefusedError(
            f"reanchor of source {lost[0].source!r} has to name the lost positions and no others",
            where=f"Lost are {names or 'none that can be moved'}.",
            hint="A position that can be read is never moved: rows would be left out or come "
            "twice.",
        )


def _rows_between(one: LostPosition, goes_on: int | None) -> int | None:
    if goes_on is None or one.ends is None or one.loss is Loss.AHEAD:
        return None
    first = one.ends.earliest if one.loss is Loss.OTHER_TOPIC else one.wanted
    return goes_on - first


def planned_texts(gaps: Iterable[Gap]) -> list[str]:
    """What a start is about to leave out, in words."""
    return [
        f"source {gap.source!r} goes on elsewhere: {move.topic}-{move.partition} "
        + (
            f"was at {move.wanted} and is not there any more"
            if move.goes_on is None
            else f"at {move.goes_on} instead of {move.wanted}, {_rows_text(move.rows)} are never "
            "read"
        )
        for gap in gaps
        for move in gap.moves
    ]


def gap_texts(gaps: Iterable[Mapping[str, Any]]) -> list[str]:
    """The gaps of a manifest in words; what cannot be read is told as it is."""
    return [text for gap in gaps for text in _texts(gap)]


def _texts(gap: Mapping[str, Any]) -> list[str]:
    try:
        when = time_text(gap["timestamp_ms"])
        return [
            f"source {gap['source']!r} has a gap after epoch {gap['epoch']}: "
            f"{move['topic']}-{move['partition']} {_move_text(move)} ({move['why']}, {when})"
            for move in gap["moves"]
        ]
    except (KeyError, TypeError, ValueError, OverflowError):
        return [f"a gap that cannot be read: {str(gap)[:200]}"]


def _move_text(move: Mapping[str, Any]) -> str:
    if move["to"] is None:
        return f"was at {move['from']} and is not there any more"
    rows = _rows_text(move["rows"])
    return f"went on at {move['to']} instead of {move['from']}, {rows} were never read"


def _rows_text(rows: int | None) -> str:
    if rows is None:
        return "an unknown number of rows"
    return f"{grouped(int(rows))} row{'' if rows == 1 else 's'}"


def position_error(lost: Sequence[LostPosition], lines: Mapping[str, str]) -> PositionUnavailable:
    """The error for positions that nothing was said about; ``lines`` are those that are wanted."""
    first = lost[0]
    names = ", ".join(repr(name) for name in dict.fromkeys(one.source for one in lost))
    other = _topics(lost, Loss.OTHER_TOPIC)
    deleted = _topics(lost, Loss.NO_TOPIC)
    if other:
        what = (
            f"source {names}: the topic {other} was deleted and made again, and the position in "
            "the checkpoint is one of the old topic"
        )
    elif deleted:
        what = f"source {names}: the topic {deleted} is gone, and the rows that come next with it"
    else:
        what = f"source {names} no longer has the rows that come next"
    shown = "; ".join(str(one) for one in lost[:_MOST]) + (
        f"; and {len(lost) - _MOST} more" if len(lost) > _MOST else ""
    )
    left: Offsets = {}
    for one in lost:
        if one.source == first.source and one.ends is not None:
            left.setdefault(one.topic, {})[one.partition] = one.ends.earliest
    return PositionUnavailable(
        what,
        where=shown,
        hint=_ways_on(first, deleted),
        source=first.source,
        requested=lines.get(first.source, "").encode(),
        earliest=line_of(left).encode() if left else None,
    )


def _topics(lost: Sequence[LostPosition], loss: Loss) -> str:
    return ", ".join(repr(name) for name in dict.fromkeys(o.topic for o in lost if o.loss is loss))


def _ways_on(first: LostPosition, deleted: str) -> str:
    anchor = f"Pipeline(…, reanchor={{{first.source!r}: 'earliest'}})"
    over = "Or start over with policy='auto_reset' or a new store."
    if deleted:
        return (
            f"Make the topic again and go on with {anchor}, which reads the new one from its first "
            "row. Or read without it: take it out of the option subscribe or assign, accept that "
            "once with policy='warn', and the same reanchor drops its positions. The gap is "
            f"recorded in every later checkpoint. {over}"
        )
    return (
        f"Bring the rows back and start again. Or go on without them: {anchor} reads on from the "
        "first row that is left, 'latest' with what arrives from now on, and "
        f"{{{first.topic!r}: {{{first.partition}: …}}}} at offsets of your choice; the gap is "
        f"recorded in every later checkpoint. {over}"
    )


_MOST = 8
