"""Going on in Kafka from another position than the one that is lost. Only lost ones are moved.

Tests: ``tests/spark/kafka/test_gaps.py``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal

from seamark._common.checks import U64_MAX
from seamark.errors import InvalidInputError, PositionUnavailable, RefusedError
from seamark.spark.kafka.positions import (
    Loss,
    LostPosition,
    Offsets,
    each_position,
    line_of,
    parsed,
)
from seamark.spark.source_gaps import Anchor, Gap, Move

LostByLine = Mapping[str, Sequence[LostPosition]]
"""By each line that the offset log has for a source: its positions that are lost, maybe none."""


def check_anchors(reanchor: object) -> None:
    """:class:`InvalidInputError` unless it says for sources by name where to go on."""
    if not isinstance(reanchor, Mapping):
        raise InvalidInputError(_USE, hint=_EXAMPLE)
    for anchor in reanchor.values():
        if anchor in ("earliest", "latest") or _is_version(anchor):
            continue
        try:
            _given(anchor)
        except (ValueError, TypeError, AttributeError):
            raise InvalidInputError(_USE, hint=_EXAMPLE) from None


def version_of_topic(source: str) -> InvalidInputError:
    """The error for a number where Kafka needs offsets."""
    return InvalidInputError(
        f"reanchor of source {source!r} is one number, and it reads from Kafka", hint=_EXAMPLE
    )


def _is_version(anchor: object) -> bool:
    return type(anchor) is int and 0 <= anchor <= U64_MAX


_USE: Final = (
    "reanchor says for each source by its name: 'earliest', 'latest', offsets of a topic, or the "
    "version or snapshot of a table"
)
_EXAMPLE: Final = "For example reanchor={'trades': {'topic': {0: 500, 1: 480}}, 'orders': 17}."


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
    lost = [one for each in lost_by_line.values() for one in each]
    if isinstance(anchor, int):
        raise version_of_topic(lost[0].source)
    explicit = None if isinstance(anchor, str) else _given(anchor)
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
