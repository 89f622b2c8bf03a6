"""The topics that a sink writes to: there or made, and what they take.

Tests: ``tests/integration/test_kafka_sink.py``.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

from seamark.errors import RefusedError
from seamark.sinks.kafka.cluster import KafkaCluster
from seamark.sinks.kafka.staged_records import DEFAULT_LIMIT, TopicFacts
from seamark.sinks.kafka.topics import ask_for_topic, ensure_topic, partition_counts, topic_settings

if TYPE_CHECKING:
    from confluent_kafka.admin import AdminClient


class Target:
    """The topics of one output, which stay what they are for the time of a run."""

    def __init__(self, cluster: KafkaCluster, topic: str | None, create: int | None) -> None:
        self._cluster = cluster
        self._topic = topic
        self._create = create

    @property
    def shown(self) -> str:
        """Where it is, for people."""
        return f"{self._cluster.bootstrap}/{self._topic or '*'}"

    def look(self, admin: AdminClient) -> None:
        """:class:`RefusedError` when :meth:`make` would raise it; nothing is made."""
        if self._create is None:
            self.make(admin)
        elif self._topic is not None:
            # one that is there has at least one partition, and gets no more
            ask_for_topic(self._cluster, admin, self._topic, 1)

    def make(self, admin: AdminClient) -> None:
        """See that the topic exists; :class:`RefusedError` when it does not and is not made."""
        if self._topic is not None and not self.facts(admin, [self._topic]):
            raise RefusedError(
                f"the topic {self._topic!r} does not exist",
                where=self._cluster.bootstrap,
                hint="Create it, or give create_partitions= to have it created.",
            )

    def facts(self, admin: AdminClient, topics: Collection[str]) -> dict[str, TopicFacts]:
        """What the cluster says about topics; missing ones are made, or left out."""
        counts = partition_counts(self._cluster, admin, topics)
        if self._create is not None:
            for name in sorted({*topics} - counts.keys()):
                ensure_topic(self._cluster, admin, name, self._create)
                counts[name] = self._create
        settings = topic_settings(self._cluster, admin, counts)
        return {name: _facts(count, settings.get(name, {})) for name, count in counts.items()}


def _facts(partitions: int, settings: dict[str, str]) -> TopicFacts:
    return TopicFacts(
        partitions,
        limit=int(settings.get("max.message.bytes", DEFAULT_LIMIT)),
        is_compacted="compact" in settings.get("cleanup.policy", "delete"),
    )
