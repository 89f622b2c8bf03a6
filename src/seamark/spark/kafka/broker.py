"""What Kafka says about the topics of a source, asked by Kafka's own client in Spark's JVM.

Spark itself tries for minutes before it gives up, and then names neither the server nor the topic.
The client is given the options of the source, so whatever Spark can log in with works here too.

Tests: ``tests/integration/test_kafka.py``.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, Final

from py4j.protocol import Py4JError, Py4JJavaError

from seamark._common.logs import logger_named
from seamark._redaction import redacted
from seamark.errors import SourceUnavailableError
from seamark.spark.failures import exception_classes, explained, is_silence
from seamark.spark.kafka.positions import (
    Offsets,
    PartitionEnds,
    TopicFacts,
    Topics,
    each_position,
    limit_of,
)

log = logger_named("seamark.pipeline")

SERVERS: Final = "kafka.bootstrap.servers"
_TOKENS: Final = "spark.kafka.clusters."
_GRACE: Final = 5
"""Seconds more than Kafka's own limit, for its client to say so itself."""
_LONGEST_TRY: Final = 15.0
"""Seconds that one question may take; a longer patience asks again."""
_PAUSE: Final = 1.0
_UNKNOWN: Final = "org.apache.kafka.common.errors.UnknownTopicOrPartitionException"


@dataclass(frozen=True)
class KnownTopics:
    """What Kafka knows of the topics of one source."""

    topics: Topics
    absent: tuple[str, ...] = ()
    """Topics that the options name and Kafka does not know."""


def address_of(options: Mapping[str, str]) -> str:
    """Where a source is read from, to be named in errors; empty when nothing is known."""
    servers = options.get(SERVERS)
    if not servers:
        return ""
    read = next((k for k in ("subscribe", "subscribepattern", "assign") if k in options), None)
    topics = f", {read}={options[read]}" if read is not None else ""
    return redacted(f"{SERVERS}={servers}{topics}")


def topics_of(
    spark: Any,
    name: str,
    options: Mapping[str, str],
    patience: float,
    is_stopping: Callable[[], bool] = lambda: False,
    is_passing: Callable[[BaseException], bool] = is_silence,
) -> KnownTopics | None:
    """The topics that a source reads; None when they could not be looked at.

    A failure that ``is_passing`` is waited out for as long as there is patience.
    :class:`SourceUnavailableError` when Kafka does not answer in time or refuses the login. What
    else goes wrong here is left for Spark to find.
    """
    if any(key.startswith(_TOKENS) for key, _ in spark.sparkContext.getConf().getAll()):
        return None  # logins by delegation tokens are Spark's own business
    deadline = time.monotonic() + patience
    while True:
        left = max(deadline - time.monotonic(), 1.0)
        try:
            return _asked(spark, name, options, min(left, _LONGEST_TRY))
        except SourceUnavailableError as error:
            over = time.monotonic() + _PAUSE >= deadline
            if over or is_stopping() or not is_passing(error):
                raise
            time.sleep(_PAUSE)


def _asked(spark: Any, name: str, options: Mapping[str, str], seconds: float) -> KnownTopics | None:
    jvm = spark.sparkContext._jvm
    try:
        with _client(jvm, options, seconds) as client:
            return _Questions(jvm, client, int(seconds) + _GRACE).topics(options)
    except Py4JJavaError as error:
        explanation = explained(error, {name: address_of(options)})
        if isinstance(explanation, SourceUnavailableError):
            raise explanation from error
        log.info("source %s was not looked at: %s", name, explanation)
    except (Py4JError, TypeError) as error:  # no client of Kafka's in this JVM
        log.info("source %s was not looked at: %s", name, redacted(str(error)))
    return None


def client_settings(jvm: Any, options: Mapping[str, str], seconds: float) -> Any:
    """The ``kafka.*`` options of a source as properties of a client that waits that long."""
    given = jvm.java.util.Properties()
    for key, value in options.items():
        if key.startswith("kafka."):
            given.setProperty(key.removeprefix("kafka."), value)
    limit = str(max(int(seconds * 1000), 1000))
    given.setProperty("request.timeout.ms", limit)
    given.setProperty("default.api.timeout.ms", limit)
    return given


@contextmanager
def _client(jvm: Any, options: Mapping[str, str], seconds: float) -> Iterator[Any]:
    given = client_settings(jvm, options, seconds)
    client = jvm.org.apache.kafka.clients.admin.AdminClient.create(given)
    try:
        yield client
    finally:
        client.close(jvm.java.time.Duration.ofSeconds(1))


class _Questions:
    """What is asked of one client."""

    def __init__(self, jvm: Any, client: Any, seconds: int) -> None:
        self._jvm = jvm
        self._client = client
        self._seconds = seconds

    def _get(self, future: Any) -> Any:
        return future.get(self._seconds, self._jvm.java.util.concurrent.TimeUnit.SECONDS)

    def topics(self, options: Mapping[str, str]) -> KnownTopics:
        names = named_topics(options)
        if "subscribepattern" in options:
            known = self._get(self._client.listTopics().names())
            pattern = self._jvm.java.util.regex.Pattern.compile(options["subscribepattern"])
            names = [str(name) for name in known if pattern.matcher(name).matches()]
        described = self._described(names)
        numbers = {
            name: [int(each.partition()) for each in topic.partitions()]
            for name, topic in described.items()
        }
        spec = self._jvm.org.apache.kafka.clients.admin.OffsetSpec
        earliest = self._offsets(numbers, spec.earliest())
        latest = self._offsets(numbers, spec.latest())
        settings = self._settings(numbers)
        topics = {
            name: TopicFacts(
                topic_id=str(described[name].topicId().toString()),
                partitions={
                    number: PartitionEnds(earliest[name, number], latest[name, number])
                    for number in sorted(parts)
                },
                retention_ms=limit_of(settings.get(name, {}), "retention.ms"),
                retention_bytes=limit_of(settings.get(name, {}), "retention.bytes"),
            )
            for name, parts in numbers.items()
        }
        return KnownTopics(topics, tuple(name for name in names if name not in topics))

    def _described(self, names: list[str]) -> dict[str, Any]:
        """The description of each topic that Kafka knows."""
        found = {}
        futures = self._client.describeTopics(self._list(names)).topicNameValues()
        for name in names:
            try:
                found[name] = self._get(futures.get(name))
            except Py4JJavaError as error:
                if _UNKNOWN not in exception_classes(str(error)):
                    raise
        return found

    def _offsets(
        self, numbers: Mapping[str, Iterable[int]], spec: Any
    ) -> dict[tuple[str, int], int]:
        asked = self._jvm.java.util.HashMap()
        for name, parts in numbers.items():
            for number in parts:
                asked.put(self._jvm.org.apache.kafka.common.TopicPartition(name, number), spec)
        found = self._get(self._client.listOffsets(asked).all())
        return {(str(at.topic()), int(at.partition())): int(found.get(at).offset()) for at in found}

    def _settings(self, names: Iterable[str]) -> dict[str, dict[str, str]]:
        """Those of each topic; a user who may read rows need not be allowed to see them."""
        config = self._jvm.org.apache.kafka.common.config
        kind = getattr(config, "ConfigResource$Type").TOPIC
        resources = self._list([config.ConfigResource(kind, name) for name in names])
        try:
            found = self._get(self._client.describeConfigs(resources).all())
            return {
                str(at.name()): {
                    name: str(found.get(at).get(name).value())
                    for name in ("cleanup.policy", "retention.ms", "retention.bytes")
                    if found.get(at).get(name) is not None
                }
                for at in found
            }
        except Py4JJavaError as error:
            log.info("the settings of topics cannot be read: %s", redacted(str(error))[:300])
            return {}

    def _list(self, values: Iterable[Any]) -> Any:
        found = self._jvm.java.util.ArrayList()
        for each in values:
            found.add(each)
        return found


def named_topics(options: Mapping[str, str]) -> list[str]:
    """The topics of ``subscribe`` or ``assign``."""
    if "subscribe" in options:
        return [topic for topic in re.split(r"\s*,\s*", options["subscribe"].strip()) if topic]
    try:
        return list(json.loads(options.get("assign", "{}")))
    except (ValueError, TypeError):
        return []  # Spark will say what is wrong with it


def with_times(
    spark: Any, options: Mapping[str, str], topics: Topics, offsets: Offsets, seconds: float
) -> Topics:
    """The same facts, with the times of the rows at these positions as far as they can be had.

    One row of each partition that is behind is read, by a consumer without a group.
    """
    behind = [
        (topic, number, wanted)
        for topic, number, wanted in each_position(offsets)
        if topic in topics
        and (ends := topics[topic].partitions.get(number)) is not None
        and ends.earliest <= wanted < ends.latest
    ]
    if not behind:
        return topics
    times = times_at(spark, options, behind, seconds)
    return {name: replace(facts, times=times.get(name, {})) for name, facts in topics.items()}


def times_at(
    spark: Any, options: Mapping[str, str], rows: list[tuple[str, int, int]], seconds: float
) -> dict[str, dict[int, int]]:
    """When rows were written, by topic and partition; each is a topic, a partition and an offset.

    What cannot be read in time is absent.
    """
    times: dict[str, dict[int, int]] = {}
    try:
        for topic, number, at in _read_times(spark.sparkContext._jvm, options, rows, seconds):
            if at >= 0:  # a row need not have a time
                times.setdefault(topic, {})[number] = at
    except (Py4JError, TypeError) as error:
        log.info("the times of rows could not be read: %s", redacted(str(error))[:300])
    return times


def commit_to_group(
    spark: Any, options: Mapping[str, str], group: str, offsets: Offsets, seconds: float
) -> None:
    """Store positions as those of a consumer group without members; raises what the JVM raises."""
    jvm = spark.sparkContext._jvm
    stored = jvm.java.util.HashMap()
    for topic, number, wanted in each_position(offsets):
        at = jvm.org.apache.kafka.common.TopicPartition(topic, number)
        stored.put(at, jvm.org.apache.kafka.clients.consumer.OffsetAndMetadata(wanted))
    with _client(jvm, options, seconds) as client:
        done = client.alterConsumerGroupOffsets(group, stored).all()
        done.get(int(seconds) + _GRACE, jvm.java.util.concurrent.TimeUnit.SECONDS)


def _read_times(
    jvm: Any, options: Mapping[str, str], behind: list[tuple[str, int, int]], seconds: float
) -> Iterator[tuple[str, int, int]]:
    given = client_settings(jvm, options, seconds)
    for key in ("group.id", "group.instance.id", "max.partition.fetch.bytes"):
        given.remove(key)
    plain = "org.apache.kafka.common.serialization.ByteArrayDeserializer"
    given.setProperty("key.deserializer", plain)
    given.setProperty("value.deserializer", plain)
    given.setProperty("max.partition.fetch.bytes", "1024")  # one row comes, however long it is
    given.setProperty("auto.offset.reset", "none")
    given.setProperty("enable.auto.commit", "false")
    consumer = jvm.org.apache.kafka.clients.consumer.KafkaConsumer(given)
    deadline = time.monotonic() + seconds
    try:
        for topic, number, wanted in behind:
            if (left := deadline - time.monotonic()) <= 0:
                return
            at = jvm.org.apache.kafka.common.TopicPartition(topic, number)
            one = jvm.java.util.ArrayList()
            one.add(at)
            consumer.assign(one)
            consumer.seek(at, wanted)
            rows = consumer.poll(jvm.java.time.Duration.ofMillis(int(left * 1000)))
            if not rows.isEmpty():
                yield topic, number, int(rows.records(at).get(0).timestamp())
    finally:
        consumer.close(jvm.java.time.Duration.ofSeconds(1))
