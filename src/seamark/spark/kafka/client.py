"""What Kafka says about topics, asked without Spark: by ``confluent-kafka``, for the command line.

Tests: ``tests/integration/test_kafka.py``.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from concurrent.futures import Future
from typing import Any, Final

from seamark._redaction import redacted
from seamark.errors import (
    InvalidInputError,
    RefusedError,
    SourceSilentError,
    SourceUnavailableError,
)
from seamark.spark.kafka.positions import (
    Offsets,
    PartitionEnds,
    TopicFacts,
    Topics,
    each_position,
    limit_of,
)

_SILENT: Final = ("_TRANSPORT", "_TIMED_OUT", "_ALL_BROKERS_DOWN", "_RESOLVE", "_TIMED_OUT_QUEUE")
_SERVERS: Final = "bootstrap.servers"


def read_settings(text: str) -> dict[str, str]:
    """The settings of a client in a file of lines ``name=value``, as Kafka's own tools take it.

    >>> read_settings("# ours\\nbootstrap.servers = broker:9092\\n")
    {'bootstrap.servers': 'broker:9092'}
    """
    settings: dict[str, str] = {}
    for line in text.splitlines():
        if not line.strip() or line.lstrip().startswith(("#", "!")):
            continue
        name, equals, value = line.partition("=")
        if not equals or not name.strip():
            # the line may hold a secret, so it is not repeated
            raise InvalidInputError("a line of the client's settings is not name=value")
        settings[name.strip()] = value.strip()
    return settings


def look_at(settings: Mapping[str, str], offsets: Offsets, seconds: float) -> Topics:
    """The topics of these positions, with the time of the row at each; one that is gone is absent.

    :class:`SourceSilentError` when Kafka does not answer, :class:`SourceUnavailableError` when it
    refuses the login, :class:`RefusedError` without ``confluent-kafka``.
    """
    try:
        import confluent_kafka
    except ImportError:
        raise RefusedError(
            "Kafka is asked by confluent-kafka, which is not installed",
            hint="pip install 'seamark[kafka]'. A start of the pipeline makes the same check "
            "without it.",
        ) from None
    try:
        with_defaults = {"log_level": 0, "socket.timeout.ms": int(seconds * 1000), **settings}
        return _Look(with_defaults, seconds).topics(offsets)
    except confluent_kafka.KafkaException as error:
        raise _explained(error, settings) from error
    except TimeoutError as error:  # of a future: the client itself has not given up yet
        raise _no_answer(_at(settings, f"within {seconds:g} s")) from error


def _explained(error: Exception, settings: Mapping[str, str]) -> Exception:
    reason = error.args[0] if error.args else error
    name = str(getattr(reason, "name", lambda: "")())
    where = _at(settings, reason)
    if name == "_INVALID_ARG":
        return InvalidInputError(
            "Kafka's client cannot use its settings",
            where=where,
            hint="They are those of librdkafka: sasl.username and ssl.ca.location instead of "
            "sasl.jaas.config and ssl.truststore.location.",
        )
    if name in _SILENT:
        return _no_answer(where)
    return SourceUnavailableError(
        "Kafka refuses the question",
        where=where,
        hint="Check the login, and that its user may DESCRIBE and READ the topics.",
    )


def _no_answer(where: str) -> SourceSilentError:
    return SourceSilentError(
        "Kafka does not answer",
        where=where,
        hint="Check the servers, and that they can be reached from here.",
    )


def _at(settings: Mapping[str, str], reason: object) -> str:
    return redacted(f"{_SERVERS}={settings.get(_SERVERS, '')}: {reason}")


def java_id(topic_id: object) -> str:
    """A topic's id as Kafka's own client writes it, which is what checkpoints hold.

    >>> java_id("3Z2KiMqXQEmPWveUegXM+A==")
    '3Z2KiMqXQEmPWveUegXM-A'
    """
    return str(topic_id).rstrip("=").replace("+", "-").replace("/", "_")


class _Look:
    """One look at the topics, within one time."""

    def __init__(self, settings: Mapping[str, Any], seconds: float) -> None:
        from confluent_kafka import admin

        self._api: Any = admin
        self._settings = dict(settings)
        self._deadline = time.monotonic() + seconds
        self._admin = admin.AdminClient(self._settings)

    @property
    def _left(self) -> float:
        return max(self._deadline - time.monotonic(), 0.1)

    def _get(self, future: Future[Any]) -> Any:
        return future.result(self._left)

    def topics(self, offsets: Offsets) -> Topics:
        known = self._admin.list_topics(timeout=self._left).topics
        names = sorted(set(offsets).intersection(known))
        if not names:
            return {}
        parts = {name: sorted(known[name].partitions) for name in names}
        ids, limits = self._ids(names), self._settings_of(names)
        ends = self._ends(parts)
        times = self._times(offsets, ends)
        return {
            name: TopicFacts(
                topic_id=ids[name],
                partitions={number: ends[name, number] for number in parts[name]},
                retention_ms=limit_of(limits.get(name, {}), "retention.ms"),
                retention_bytes=limit_of(limits.get(name, {}), "retention.bytes"),
                times=times.get(name, {}),
            )
            for name in names
        }

    def _ids(self, names: list[str]) -> dict[str, str]:
        from confluent_kafka import TopicCollection

        described = self._admin.describe_topics(TopicCollection(names), request_timeout=self._left)
        return {name: java_id(self._get(future).topic_id) for name, future in described.items()}

    def _settings_of(self, names: list[str]) -> dict[str, dict[str, str]]:
        from confluent_kafka import KafkaException

        kind = self._api.ResourceType.TOPIC
        resources = [self._api.ConfigResource(kind, name) for name in names]
        found: dict[str, dict[str, str]] = {}
        for resource, future in self._admin.describe_configs(
            resources, request_timeout=self._left
        ).items():
            try:
                entries = self._get(future)
            except KafkaException:
                continue  # a user who may read rows need not be allowed to see them
            found[resource.name] = {name: str(each.value) for name, each in entries.items()}
        return found

    def _ends(self, parts: Mapping[str, list[int]]) -> dict[tuple[str, int], PartitionEnds]:
        from confluent_kafka import TopicPartition

        spec_of = self._api.OffsetSpec
        asked = [(name, number) for name, numbers in parts.items() for number in numbers]
        first, last = (
            {
                (at.topic, at.partition): int(self._get(future).offset)
                for at, future in self._admin.list_offsets(
                    {TopicPartition(*each): spec for each in asked}, request_timeout=self._left
                ).items()
            }
            for spec in (spec_of.earliest(), spec_of.latest())
        )
        return {each: PartitionEnds(first[each], last[each]) for each in asked}

    def _times(
        self, offsets: Offsets, ends: Mapping[tuple[str, int], PartitionEnds]
    ) -> dict[str, dict[int, int]]:
        """When the row at each position was written, as far as the time goes."""
        from confluent_kafka import Consumer, TopicPartition

        behind = [
            TopicPartition(topic, number, wanted)
            for topic, number, wanted in each_position(offsets)
            if (at := ends.get((topic, number))) and at.earliest <= wanted < at.latest
        ]
        times: dict[str, dict[int, int]] = {}
        if not behind:
            return times
        # a consumer that is given its partitions joins no group, and stores nothing in one
        consumer = Consumer(
            {**self._settings, "group.id": "seamark-look", "enable.auto.commit": False}
        )
        try:
            consumer.assign(behind)
            while sum(map(len, times.values())) < len(behind) and time.monotonic() < self._deadline:
                row = consumer.poll(min(self._left, 1.0))
                if row is None or row.error():
                    continue
                topic, number = str(row.topic()), int(row.partition() or 0)
                times.setdefault(topic, {}).setdefault(number, int(row.timestamp()[1]))
                consumer.pause([TopicPartition(topic, number)])
        finally:
            consumer.close()
        return times
