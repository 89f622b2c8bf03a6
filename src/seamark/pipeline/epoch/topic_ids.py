"""The id of each topic of Kafka that an epoch reads, also of one that came after the start.

A topic that is deleted and made again has the same name and another id. The start asks for the ids
that there are; a pattern may stand for topics that come later. Without their ids a later start
would go on in a new topic at the position of the old one.

Tests: ``tests/pipeline/test_topic_ids.py``.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final

from seamark.errors import PositionUnavailable, RefusedError
from seamark.pipeline.declaration.structure import PipelineIdentity
from seamark.pipeline.epoch.begun_epoch import drops_known_keys
from seamark.pipeline.epoch.running_epoch import EpochHistory
from seamark.spark.kafka.positions import Topics, parsed
from seamark.store.plans import StoredPlan

_PLAN_AGAIN: Final = (
    "Roll back to the newest checkpoint, or take a new store when there is none: epochs are "
    "planned again then. Bring the targets of functions back to that epoch first."
)


def note_late_topics(
    identity: PipelineIdentity, lines: Sequence[str], history: EpochHistory
) -> None:
    """Ask for the ids of topics that an epoch reads and the start did not know.

    Raises as :func:`seamark.spark.kafka.broker.topics_of` when Kafka does not answer.
    """
    late = _late(identity, lines, history.late_topics)
    if not late or identity.topics_again is None:
        return
    now = identity.topics_again()
    for source, names in late.items():
        found = {n: facts.topic_id for n, facts in now.get(source, {}).items() if n in names}
        history.late_topics.setdefault(source, {}).update(found)


def _late(
    identity: PipelineIdentity, lines: Sequence[str], known: Mapping[str, Mapping[str, str]]
) -> dict[str, set[str]]:
    """By source that the start has looked at: topics that are read and whose id is not known."""
    late: dict[str, set[str]] = {}
    for source, line in zip(identity.leaves, lines, strict=True):
        if source in identity.topics:
            read = (parsed(line) or {}).keys()
            if new := read - identity.topics[source].keys() - known.get(source, {}).keys():
                late.setdefault(source, set()).update(new)
    return late


def ids_at(identity: PipelineIdentity, history: EpochHistory) -> dict[str, Any]:
    """By source: the ids of what the next epoch reads, as far as they are known."""
    before = None if history.newest is None else history.newest.source_ids
    return identity.source_ids_after(before, history.late_topics)


def topic_ids_at(identity: PipelineIdentity, history: EpochHistory) -> dict[str, Any]:
    """The same without folders and tables: one with another id may have the same rows."""
    others = identity.folders.keys() | identity.origins.keys()
    return {n: ids for n, ids in ids_at(identity, history).items() if n not in others}


def require_same_topics(known: Mapping[str, Any], topics: Mapping[str, Topics]) -> None:
    """:class:`PositionUnavailable` when a topic has another id than the one that is ``known``."""
    if again := _made_again(known, topics):
        source, topic = again[0]
        raise PositionUnavailable(
            f"source {source!r}: the topic {topic!r} was deleted and made again while the pipeline "
            "was waiting for it",
            hint="Start again: the start says what can be done.",
            source=source,
        )


def ids_of(topics: Mapping[str, Topics]) -> dict[str, dict[str, str]]:
    """By source: the id of each topic."""
    return {n: {name: facts.topic_id for name, facts in of.items()} for n, of in topics.items()}


def require_topics_of_first_plan(
    known: Mapping[str, Any], topics: Mapping[str, Topics], copies: str
) -> None:
    """:class:`PositionUnavailable` when a first epoch was planned on a topic that is another now.

    ``copies`` is where the working copies are, one of which has the plan.
    """
    if again := _made_again(known, topics):
        source, topic = again[0]
        raise PositionUnavailable(
            f"source {source!r}: the topic {topic!r} was deleted and made again since the first "
            "epoch was planned",
            where=copies,
            hint="Nothing is decided yet. Stop the pipeline and remove that folder: the epoch is "
            "planned again then, from where 'startingOffsets' says ('earliest': the first row of "
            "the new topic).",
            source=source,
        )


def require_topics_of_plan(
    stored: StoredPlan, identity: PipelineIdentity, functions: Collection[str], where: str
) -> None:
    """:class:`RefusedError` when an epoch was started on the rows of a topic that is another now.

    The offsets would be the same and the rows others, and a target that knows the key of the epoch
    would drop them. Of the first epoch of all no checkpoint tells where the new topic is read from.
    """
    again = _made_again(stored.source_ids, identity.topics)
    if again and (not stored.follows or drops_known_keys(identity, functions)):
        source, topic = again[0]
        raise RefusedError(
            f"epoch {stored.epoch} was started on rows of the topic {topic!r}, which was deleted "
            "and made again since",
            where=f"{where}: source {source!r}; a function may have been called with the old rows",
            hint=_PLAN_AGAIN,
        )


def _made_again(known: Mapping[str, Any], topics: Mapping[str, Topics]) -> list[tuple[str, str]]:
    """Source and topic of each that has another id now."""
    return [
        (source, topic)
        for source, now in topics.items()
        for topic, facts in now.items()
        if isinstance(ids := known.get(source), dict)
        and isinstance(ids.get(topic), str)
        and ids[topic] != facts.topic_id
    ]
