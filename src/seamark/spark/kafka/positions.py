"""Positions in topics of Kafka: whether they can be read, how far behind they are, for how long.

All decisions are made from facts that were read before; nothing here talks to Kafka.

Tests: ``tests/spark/kafka/test_positions.py``.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Final

from seamark._common.checks import I64_MAX
from seamark._common.json_documents import decode_foreign
from seamark._common.text import grouped
from seamark.errors import DamageError
from seamark.limits import LONGEST_TOPIC

_PARTITION: Final = re.compile(r"[0-9]{1,10}")

Offsets = dict[str, dict[int, int]]
"""Topic → partition → offset: the next row to be read."""


@dataclass(frozen=True)
class PartitionEnds:
    """The rows that a partition has: from ``earliest`` to before ``latest``."""

    earliest: int
    latest: int


@dataclass(frozen=True, kw_only=True)
class TopicFacts:
    """What Kafka says about a topic."""

    topic_id: str
    """Another topic of the same name has another one."""
    partitions: Mapping[int, PartitionEnds]
    retention_ms: int | None = None
    """How long rows stay; None for ever, or when it is not known."""
    retention_bytes: int | None = None
    times: Mapping[int, int] = field(default_factory=dict)
    """By partition: when the row at the position was written, in ms; where that was asked."""


Topics = Mapping[str, TopicFacts]
"""The topics that a source reads, by name."""


class Loss(Enum):
    """Why a position cannot be gone on from."""

    EXPIRED = "expired"
    AHEAD = "ahead"
    NO_TOPIC = "no topic"
    NO_PARTITION = "no partition"
    OTHER_TOPIC = "another topic"


@dataclass(frozen=True, kw_only=True)
class LostPosition:
    """A position that means nothing any more."""

    source: str
    topic: str
    partition: int
    wanted: int
    loss: Loss
    ends: PartitionEnds | None = None

    @property
    def rows(self) -> int | None:
        """Rows that cannot be read, or would never be; None when nobody can know."""
        if self.ends is None or self.loss is Loss.AHEAD:
            return None
        if self.loss is Loss.OTHER_TOPIC:
            return max(min(self.wanted, self.ends.latest) - self.ends.earliest, 0)
        return self.ends.earliest - self.wanted

    def __str__(self) -> str:
        at = f"{self.topic}-{self.partition}: {self.wanted} is wanted"
        if self.ends is None:
            gone = "topic" if self.loss is Loss.NO_TOPIC else "partition"
            return f"{at}, and the {gone} is gone"
        earliest, latest = self.ends.earliest, self.ends.latest
        there = f"{at}, earliest is {earliest}, latest is {latest}"
        if self.loss is Loss.AHEAD:
            return f"{there}: the partition is shorter than what was read"
        rows = grouped(self.rows or 0)
        if self.loss is Loss.OTHER_TOPIC:
            return f"{there}: {rows} rows of the new topic would never be read"
        return f"{there}: {rows} rows are lost"


def parsed(line: object) -> Offsets | None:
    """The offsets in a line of Spark's offset log; None for one that is not Kafka's.

    >>> parsed('{"trades":{"0":17,"1":20}}'), parsed('{"logOffset":3}'), parsed("-")
    ({'trades': {0: 17, 1: 20}}, None, None)
    """
    try:
        value = decode_foreign(line) if isinstance(line, str) else None
        if not isinstance(value, dict) or not value:
            return None
        return {
            _topic(topic): {_partition(number): _offset(at) for number, at in parts.items()}
            for topic, parts in value.items()
        }
    except (ValueError, TypeError, AttributeError, RecursionError, DamageError):
        return None


def _topic(name: str) -> str:
    if len(name) > LONGEST_TOPIC:  # it is put before each of its partitions
        raise ValueError("not a topic")
    return name


def _partition(text: str) -> int:
    if _PARTITION.fullmatch(text) is None:
        raise ValueError("not a partition")
    return int(text)


def _offset(value: object) -> int:
    if type(value) is not int or not 0 <= value <= I64_MAX:
        raise ValueError("not an offset")
    return value


def line_of(offsets: Offsets) -> str:
    """The line of the offset log, as Spark itself writes it.

    >>> line_of({"trades": {10: 1, 2: 5}})
    '{"trades":{"2":5,"10":1}}'
    """
    ordered = {
        topic: {str(number): parts[number] for number in sorted(parts)}
        for topic, parts in sorted(offsets.items())
    }
    return json.dumps(ordered, separators=(",", ":"), ensure_ascii=False)


def each_position(offsets: Offsets) -> Iterator[tuple[str, int, int]]:
    """Topic, partition and offset of each position."""
    for topic, parts in offsets.items():
        for number, wanted in parts.items():
            yield topic, number, wanted


def lost_positions(
    source: str, offsets: Offsets, topics: Topics, ids_before: Mapping[str, Any]
) -> list[LostPosition]:
    """The positions of a source that cannot be gone on from. Pure.

    ``ids_before`` has the id of each topic that the positions were reached in. ``topics`` are all
    that there are: one that is not among them is gone.
    """
    lost: list[LostPosition] = []
    for topic, number, wanted in each_position(offsets):
        facts = topics.get(topic)
        ends = facts.partitions.get(number) if facts is not None else None
        loss = _loss(facts, ends, wanted, ids_before.get(topic))
        if loss is not None:
            lost.append(
                LostPosition(
                    source=source,
                    topic=topic,
                    partition=number,
                    wanted=wanted,
                    loss=loss,
                    ends=ends,
                )
            )
    return lost


def _loss(
    facts: TopicFacts | None, ends: PartitionEnds | None, wanted: int, id_before: object
) -> Loss | None:
    if facts is None:
        return Loss.NO_TOPIC
    if isinstance(id_before, str) and id_before != facts.topic_id:
        return Loss.OTHER_TOPIC
    if ends is None:
        return Loss.NO_PARTITION
    if wanted < ends.earliest:
        return Loss.EXPIRED
    return Loss.AHEAD if wanted > ends.latest else None


@dataclass(frozen=True, kw_only=True)
class PositionStatus:
    """How a position stands in its partition."""

    topic: str
    partition: int
    wanted: int
    ends: PartitionEnds | None
    age_ms: int | None = None
    """How long ago the next row was written; 0 when there is none."""
    left_ms: int | None = None
    """How long until retention reaches the next row; None when it never does, or nobody knows."""
    kept_ms: int | None = None
    """How long rows stay, where retention goes by time."""

    @property
    def is_near(self) -> bool:
        """Whether retention comes soon: less than a tenth of the time that rows stay is left."""
        if self.left_ms is None:
            return False
        whole = self.kept_ms or self.left_ms + (self.age_ms or 0)
        return self.left_ms < whole / 10

    @property
    def lag(self) -> int | None:
        """Rows that were not read yet."""
        return None if self.ends is None else max(self.ends.latest - self.wanted, 0)


def statuses(offsets: Offsets, topics: Topics, now_ms: int) -> list[PositionStatus]:
    """How each position of a source stands. Pure."""
    return [
        _status(topic, number, wanted, topics.get(topic), now_ms)
        for topic, number, wanted in each_position(offsets)
    ]


def _status(
    topic: str, number: int, wanted: int, facts: TopicFacts | None, now_ms: int
) -> PositionStatus:
    ends = facts.partitions.get(number) if facts is not None else None
    age = left = None
    if facts is not None and ends is not None:
        if wanted >= ends.latest:
            age = 0
        elif number in facts.times:
            age = max(now_ms - facts.times[number], 0)
            left = time_left(facts, ends, wanted, age)
    return PositionStatus(
        topic=topic,
        partition=number,
        wanted=wanted,
        ends=ends,
        age_ms=age,
        left_ms=left,
        kept_ms=None if facts is None else facts.retention_ms,
    )


def time_left(facts: TopicFacts, ends: PartitionEnds, wanted: int, age_ms: int) -> int | None:
    """Milliseconds until retention may delete the row at a position, if nothing reads on.

    By time this is exact. By size it is how long writers need, at their rate since that row, to
    write as many rows as lie before it: a partition that has not yet reached its size has longer.
    """
    limits: list[int] = []
    if facts.retention_ms is not None:
        limits.append(facts.retention_ms - age_ms)
    behind = ends.latest - wanted
    if facts.retention_bytes is not None and behind > 0 and age_ms > 0:
        limits.append((wanted - ends.earliest) * age_ms // behind)
    return max(min(limits), 0) if limits else None


def limit_of(settings: Mapping[str, str], name: str) -> int | None:
    """A limit of retention among the settings of a topic; None where rows are not deleted by it.

    >>> limit_of({"cleanup.policy": "delete", "retention.ms": "604800000"}, "retention.ms")
    604800000
    >>> limit_of({"cleanup.policy": "compact", "retention.ms": "604800000"}, "retention.ms")
    """
    if "delete" not in settings.get("cleanup.policy", "delete"):
        return None
    value = settings.get(name, "-1")
    return int(value) if re.fullmatch(r"[0-9]{1,19}", value) else None
