"""Questions about topics: partitions, settings, end offsets; and making a topic.

Tests: ``tests/integration/test_kafka_sink.py``.
"""

from __future__ import annotations

import shlex
import time
from collections.abc import Collection, Mapping
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from seamark.errors import RefusedError, StoreUnavailableError
from seamark.sinks.kafka.cluster import REQUEST_SECONDS, KafkaCluster, admin_module

if TYPE_CHECKING:
    from confluent_kafka.admin import AdminClient

Offsets = dict[str, dict[int, int]]
"""By topic and partition."""
_PAUSE: Final = 0.05
_NO_ID: Final = "A" * 22
"""Of brokers before Kafka 2.8."""


class TopicLook(NamedTuple):
    """What a cluster says about a topic."""

    partitions: int
    id: str
    """Another one for a topic that was made anew; empty where the brokers give none."""


def partition_counts(
    cluster: KafkaCluster, admin: AdminClient, topics: Collection[str]
) -> dict[str, int]:
    """How many partitions each topic has; a topic that does not exist is left out."""
    return {name: look.partitions for name, look in topic_looks(cluster, admin, topics).items()}


def topic_looks(
    cluster: KafkaCluster, admin: AdminClient, topics: Collection[str]
) -> dict[str, TopicLook]:
    """What there is to say about each topic; a topic that does not exist is left out."""
    from confluent_kafka import KafkaException, TopicCollection

    if not topics:
        return {}
    looks = {}
    with cluster.translating("asking for the topics of"):
        asked = admin.describe_topics(TopicCollection([*topics]), request_timeout=REQUEST_SECONDS)
        for name, answer in asked.items():
            try:
                found = answer.result()
            except KafkaException as error:
                if error.args[0].name() != "UNKNOWN_TOPIC_OR_PART":
                    raise
            else:
                known = str(found.topic_id)
                own_id = "" if known == _NO_ID else known
                looks[name] = TopicLook(len(found.partitions), own_id)
    return looks


def cluster_id(cluster: KafkaCluster, admin: AdminClient) -> str:
    """Tells a cluster from another one that has the same topics."""
    with cluster.translating("asking for the id of"):
        asked = admin.describe_cluster(request_timeout=REQUEST_SECONDS)
        return str(asked.result().cluster_id)


def topic_settings(
    cluster: KafkaCluster, admin: AdminClient, topics: Collection[str]
) -> dict[str, dict[str, str]]:
    """The settings of each topic, those of the broker included; none where we may not ask."""
    from confluent_kafka import KafkaException

    if not topics:
        return {}
    settings: dict[str, dict[str, str]] = {}
    with cluster.translating("asking for the settings of topics of"):
        kind = admin_module().ConfigResource
        resources = [kind(kind.Type.TOPIC, name) for name in topics]
        asked = admin.describe_configs(resources, request_timeout=REQUEST_SECONDS)
        for resource, answer in asked.items():
            try:
                entries = answer.result()
            except KafkaException as error:
                if error.args[0].name() != "TOPIC_AUTHORIZATION_FAILED":
                    raise
                continue
            settings[resource.name] = {
                name: entry.value for name, entry in entries.items() if entry.value is not None
            }
    return settings


def ensure_topic(
    cluster: KafkaCluster,
    admin: AdminClient,
    name: str,
    partitions: int,
    settings: Mapping[str, str] | None = None,
) -> int:
    """See that a topic exists, with at least so many partitions; how many it then has."""
    there = partition_counts(cluster, admin, [name]).get(name, 0)
    if there >= partitions:
        return there
    if there == 0:
        _create(cluster, admin, name, partitions, settings or {})
    else:
        _add_partitions(cluster, admin, name, partitions)
    deadline = time.monotonic() + REQUEST_SECONDS
    # the broker that made it knows it at once, the others a moment later
    while (there := partition_counts(cluster, admin, [name]).get(name, 0)) < partitions:
        if time.monotonic() > deadline:
            raise StoreUnavailableError(
                f"the topic {name} was made, and Kafka does not show it",
                where=cluster.bootstrap,
                hint="Is the cluster in good order? Start again.",
            )
        time.sleep(_PAUSE)
    return there


def ask_for_topic(
    cluster: KafkaCluster,
    admin: AdminClient,
    name: str,
    partitions: int,
    settings: Mapping[str, str] | None = None,
) -> int:
    """Ask whether :func:`ensure_topic` would be allowed; how many partitions there are now.

    Nothing is made. :class:`RefusedError` when Kafka would not let us make the topic.
    """
    there = partition_counts(cluster, admin, [name]).get(name, 0)
    if there == 0:
        _create(cluster, admin, name, partitions, settings or {}, only_asks=True)
    elif there < partitions:
        _add_partitions(cluster, admin, name, partitions, only_asks=True)
    return there


def _create(
    cluster: KafkaCluster,
    admin: AdminClient,
    name: str,
    partitions: int,
    settings: Mapping[str, str],
    *,
    only_asks: bool = False,
) -> None:
    """Make a topic with the replication that the brokers are set up for."""
    from confluent_kafka import KafkaException

    topic = admin_module().NewTopic(name, partitions, -1, config=dict(settings))
    try:
        asked = admin.create_topics(
            [topic], request_timeout=REQUEST_SECONDS, validate_only=only_asks
        )
        _result(asked[name])
    except KafkaException as error:
        code = error.args[0].name()
        if code == "TOPIC_ALREADY_EXISTS":
            return  # another process was faster
        if code not in ("TOPIC_AUTHORIZATION_FAILED", "POLICY_VIOLATION"):
            raise cluster.error_for(error.args[0], f"making the topic {name} in") from None
        given = "".join(
            f" --config {shlex.quote(f'{key}={value}')}" for key, value in settings.items()
        )
        raise RefusedError(
            f"the topic {name} is missing, and Kafka does not let us make it: "
            f"{cluster.redacted(error.args[0].str())}",
            where=cluster.bootstrap,
            hint=f"Have it made: kafka-topics.sh --create --topic {shlex.quote(name)} "
            f"--partitions {partitions}{given}",
        ) from None


def _add_partitions(
    cluster: KafkaCluster,
    admin: AdminClient,
    name: str,
    partitions: int,
    *,
    only_asks: bool = False,
) -> None:
    from confluent_kafka import KafkaException

    wanted = [admin_module().NewPartitions(name, partitions)]
    try:
        asked = admin.create_partitions(
            wanted, request_timeout=REQUEST_SECONDS, validate_only=only_asks
        )
        _result(asked[name])
    except KafkaException as error:
        if error.args[0].name() != "INVALID_PARTITIONS":  # another process was faster
            doing = f"adding partitions to the topic {name} of"
            raise cluster.error_for(error.args[0], doing) from None


def end_offsets(cluster: KafkaCluster, admin: AdminClient, counts: Mapping[str, int]) -> Offsets:
    """The offset after the last record of each partition, records of open transactions included.

    ``counts`` says how many partitions each topic has.
    """
    from confluent_kafka import IsolationLevel, TopicPartition

    latest = admin_module().OffsetSpec.latest()
    asked = {
        TopicPartition(topic, partition): latest
        for topic, count in counts.items()
        for partition in range(count)
    }
    ends: Offsets = {topic: {} for topic in counts}
    if not asked:
        return ends
    with cluster.translating("asking for the end of topics of"):
        answers = admin.list_offsets(
            asked,
            isolation_level=IsolationLevel.READ_UNCOMMITTED,
            request_timeout=REQUEST_SECONDS,
        )
        for place, answer in answers.items():
            ends[place.topic][place.partition] = answer.result().offset
    return ends


def _result(answer: Future[Any]) -> Any:
    return answer.result(REQUEST_SECONDS * 2)
