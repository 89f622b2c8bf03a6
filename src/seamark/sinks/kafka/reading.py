"""Reading topics up to the offsets that end an epoch, for programs without Spark.

Tests: ``tests/integration/test_kafka_sink_topics.py``.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from seamark.errors import StoreUnavailableError
from seamark.sinks.kafka.cluster import REQUEST_SECONDS, KafkaCluster
from seamark.sinks.kafka.topics import topic_settings

if TYPE_CHECKING:
    from confluent_kafka import Consumer, Message

_POLL: Final = 0.5
_PATIENCE: Final = 60.0
"""Seconds in which something has to arrive."""


def kafka_records(
    bootstrap: str | Sequence[str],
    end_offsets: Mapping[str, Mapping[int, int]],
    options: Mapping[str, Any] | None = None,
    *,
    start_offsets: Mapping[str, Mapping[int, int]] | None = None,
) -> Iterator[dict[str, Any]]:
    """All committed records before these offsets, by topic and partition, in no order.

    ``start_offsets`` are those of the first records, where they are not the first that there are.

    Each is a dictionary with the columns of Spark's Kafka source: ``key``, ``value``, ``topic``,
    ``partition``, ``offset``, ``timestamp`` (milliseconds), ``headers``. ``options`` are those of
    librdkafka, as of :class:`seamark.sinks.KafkaSink`. :class:`StoreUnavailableError` when a topic
    cannot be read that far: Kafka does not answer, or another writer has a transaction open there.
    """
    ends = {(t, int(p)): end for t, parts in end_offsets.items() for p, end in parts.items() if end}
    if not ends:
        return
    cluster = KafkaCluster(bootstrap, options)
    consumer = cluster.consumer(
        {
            "group.id": "seamark",
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "auto.offset.reset": "earliest",
        }
    )
    try:
        with cluster.translating("reading records of"):
            begin = start_offsets or {}
            starts = {
                (topic, number): begin[topic][number]
                for topic, number in ends
                if begin.get(topic, {}).get(number)
            }
            yield from _before(consumer, starts, ends, cluster.bootstrap)
    finally:
        consumer.close()


def first_offsets(
    bootstrap: str | Sequence[str],
    wanted: Mapping[str, Mapping[int, int]],
    options: Mapping[str, Any] | None = None,
) -> dict[str, dict[int, int]]:
    """By topic and partition of ``wanted``: the offset of the first record that Kafka still has."""
    from confluent_kafka import TopicPartition

    cluster = KafkaCluster(bootstrap, options)
    consumer = cluster.consumer({"group.id": "seamark", "enable.auto.commit": False})
    lows: dict[str, dict[int, int]] = {}
    try:
        with cluster.translating("asking for the offsets of"):
            for topic, partitions in wanted.items():
                for number in partitions:
                    place = TopicPartition(topic, number)
                    low, _ = consumer.get_watermark_offsets(place, REQUEST_SECONDS)
                    lows.setdefault(topic, {})[number] = low
    finally:
        consumer.close()
    return lows


def compacted_topics(
    bootstrap: str | Sequence[str],
    topics: Collection[str],
    options: Mapping[str, Any] | None = None,
) -> set[str]:
    """Those topics of which Kafka removes records that have a later one of the same key.

    One whose settings we may not read is not among them.
    """
    cluster = KafkaCluster(bootstrap, options)
    admin = cluster.admin()
    settings = topic_settings(cluster, admin, topics)
    return {name for name, each in settings.items() if "compact" in each.get("cleanup.policy", "")}


def _before(
    consumer: Consumer,
    starts: Mapping[tuple[str, int], int],
    ends: Mapping[tuple[str, int], int],
    where: str,
) -> Iterator[dict[str, Any]]:
    from confluent_kafka import OFFSET_BEGINNING, KafkaError, KafkaException, TopicPartition

    consumer.assign([TopicPartition(*place, starts.get(place, OFFSET_BEGINNING)) for place in ends])
    waiting = set(ends)
    deadline = time.monotonic() + _PATIENCE
    while waiting:
        record: Any = consumer.poll(_POLL)
        if record is None:
            if time.monotonic() > deadline:
                missing = ", ".join(f"{topic}-{number}" for topic, number in sorted(waiting))
                raise StoreUnavailableError(
                    f"nothing more arrived of {missing}",
                    where=where,
                    hint="Another writer may have an open transaction there; it ends by itself "
                    "within its transaction.timeout.ms. Try again.",
                )
            continue
        error, place = record.error(), (record.topic(), record.partition())
        if error is not None and error.code() != KafkaError._PARTITION_EOF:
            if not error.retriable():
                raise KafkaException(error)
            continue
        if place in waiting and record.offset() >= ends[place]:
            waiting.remove(place)
        elif place in waiting and error is None:
            deadline = time.monotonic() + _PATIENCE
            yield _as_columns(record)


def _as_columns(record: Message) -> dict[str, Any]:
    return {
        "key": record.key(),
        "value": record.value(),
        "topic": record.topic(),
        "partition": record.partition(),
        "offset": record.offset(),
        "timestamp": record.timestamp()[1],
        "headers": record.headers(),
    }
