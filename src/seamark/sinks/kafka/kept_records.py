"""Whether a topic still has the records that the ledger says were shown there.

The ledger is a topic of its own. It outlives records of the target that a broker has lost, and a
target that somebody has deleted and made anew.

Tests: ``tests/integration/test_kafka_sink_topics.py``.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import TYPE_CHECKING

from seamark.errors import LineageError
from seamark.sinks.kafka.cluster import KafkaCluster
from seamark.sinks.kafka.ledger import Entry
from seamark.sinks.kafka.topics import Offsets, cluster_id, end_offsets, topic_looks

if TYPE_CHECKING:
    from confluent_kafka.admin import AdminClient


@dataclass(frozen=True)
class TopicsNow:
    """Where topics end, and which topics they are."""

    ends: Offsets
    ids: dict[str, str]
    """The id of the cluster, and that which it has given the topic; only of those that have one."""


class TopicsOfCluster:
    """Looks at topics of one cluster."""

    def __init__(self, cluster: KafkaCluster) -> None:
        self._cluster = cluster
        self._id: str | None = None

    def now(self, admin: AdminClient, topics: Collection[str]) -> TopicsNow:
        """What is to be said about topics; one that is not there is left out."""
        if self._id is None:
            self._id = cluster_id(self._cluster, admin)
        looks = topic_looks(self._cluster, admin, topics)
        counts = {name: look.partitions for name, look in looks.items()}
        ids = {name: f"{self._id}/{look.id}" for name, look in looks.items() if look.id}
        return TopicsNow(end_offsets(self._cluster, admin, counts), ids)


def require_kept(newest: Entry | None, topic: str | None, now: TopicsNow, where: str) -> None:
    """:class:`LineageError` when a topic cannot have all that was shown up to the newest epoch.

    A broker that loses its disk's cache, or an unclean election of a leader, takes back what was
    acknowledged: the topic ends too early. One that was made anew may have more records than the
    old one had. A topic that is not there is refused when it is written to.
    """
    if newest is None or topic is None or topic not in newest.ends or topic not in now.ends:
        return
    epoch = newest.receipt.epoch
    hint = (
        f"Nothing is written after epoch {epoch}. Continue into a new topic; if a later epoch was "
        f"decided already, roll the pipeline back to epoch {epoch} first."
    )
    shown = newest.ends[topic]
    if any(shown.values()) and _is_another(newest.ids.get(topic), now.ids.get(topic)):
        raise LineageError(
            f"the topic {topic!r} is another one than that of epoch {epoch}: somebody has deleted "
            "it and made it anew, and the rows of earlier epochs are not in it",
            where=where,
            hint=hint,
        )
    for partition, end in sorted(shown.items()):
        if (there := now.ends[topic].get(partition, 0)) < end:
            raise LineageError(
                f"Kafka has lost records that it had acknowledged: epoch {epoch} ended at {end} in "
                f"partition {partition} of the topic {topic!r}, which ends at {there}",
                where=where,
                hint="A power cut, an unclean election of a leader, or somebody who has made the "
                f"topic anew. {hint}",
            )


def _is_another(before: str | None, now: str | None) -> bool:
    """Whether an id is that of another topic of the same cluster. Pure.

    In another cluster, to which the topics were moved, all of them have other ids.
    """
    if before is None or now is None:
        return False
    return before != now and before.partition("/")[0] == now.partition("/")[0]
