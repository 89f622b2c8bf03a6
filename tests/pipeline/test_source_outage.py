"""How long a run waits for a source that does not answer. Without Spark."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from typing import Any, cast

import pytest

from seamark.errors import (
    PositionUnavailable,
    SeamarkError,
    SourceSilentError,
    SourceUnavailableError,
)
from seamark.manifest import CheckpointManifest, ConnectorCheckpoint
from seamark.pipeline import source_outage
from seamark.pipeline.epoch.running_epoch import EpochHistory
from seamark.pipeline.source_outage import SourceOutage, waiting_for
from seamark.sources import SequencedSource
from seamark.sources.position_looks import PositionLook
from seamark.spark.failures import explained
from seamark.spark.kafka.broker import KnownTopics
from seamark.spark.kafka.positions import PartitionEnds, TopicFacts

SILENCE = explained(Exception(": org.apache.kafka.common.errors.TimeoutException: no node"))
EXECUTOR = explained(
    Exception(
        "Caused by: java.util.concurrent.TimeoutException: "
        "Cannot fetch record for offset 17 in 120000 milliseconds"
    )
)


class Sources:
    """Sources that answer or not, and how often they were asked."""

    def __init__(self, *, answer: bool) -> None:
        self.answer = answer
        self.asked = 0

    def wait(self, _: float, __: Callable[[], bool]) -> None:
        self.asked += 1
        if not self.answer:
            raise SourceUnavailableError("Kafka does not answer")


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now = [0.0]
    monkeypatch.setattr(source_outage, "_PAUSE", 0.0)
    monkeypatch.setattr("seamark.pipeline.source_outage.time.monotonic", lambda: now[0])
    return now


NAMELESS = explained(
    Exception(
        ": org.apache.kafka.common.KafkaException: Failed to create new KafkaAdminClient\n"
        "Caused by: org.apache.kafka.common.config.ConfigException: "
        "No resolvable bootstrap urls given in bootstrap.servers"
    )
)


TABLE = explained(
    Exception("Traceback …\nseamark.errors.SourceSilentError: there is no Delta table here, or …")
)


@pytest.mark.parametrize("failure", [SILENCE, EXECUTOR, NAMELESS, TABLE, SourceSilentError("x")])
def test_a_source_that_answers_again_ends_the_outage(failure: SeamarkError) -> None:
    sources = Sources(answer=True)
    assert SourceOutage(sources.wait, 60, threading.Event()).is_over(failure, 3)
    assert sources.asked == 1


@pytest.mark.parametrize(
    "failure",
    [
        SeamarkError("Spark stopped the query"),
        SourceUnavailableError("Kafka refuses the login"),
        explained(
            Exception(": org.apache.kafka.common.errors.UnknownTopicOrPartitionException: x")
        ),
        explained(Exception(": java.net.ConnectException: Connection refused")),
        explained(Exception(": org.apache.kafka.common.config.ConfigException: bad acks")),
    ],
)
def test_no_other_failure_is_waited_out(failure: SeamarkError) -> None:
    sources = Sources(answer=True)
    assert not SourceOutage(sources.wait, 60, threading.Event()).is_over(failure, 3)
    assert sources.asked == 0


def test_the_time_counts_from_the_first_failure_and_anew_after_an_epoch(
    clock: list[float],
) -> None:
    sources = Sources(answer=True)
    outage = SourceOutage(sources.wait, 60, threading.Event())
    assert outage.is_over(SILENCE, 3)
    clock[0] = 59
    assert outage.is_over(SILENCE, 3)
    clock[0] = 61
    assert not outage.is_over(SILENCE, 3), "it answers and fails for longer than it may"
    assert outage.is_over(SILENCE, 4), "an epoch was decided in between"


def test_a_source_that_stays_away_ends_the_run() -> None:
    outage = SourceOutage(Sources(answer=False).wait, 60, threading.Event())
    assert not outage.is_over(SILENCE, 3)


def test_a_run_that_is_to_stop_does_not_wait_and_does_not_fail() -> None:
    stopping, sources = threading.Event(), Sources(answer=True)
    stopping.set()
    assert SourceOutage(sources.wait, 60, stopping).is_over(SILENCE, 3)
    assert sources.asked == 0


class Kafka:
    """A Kafka that answers, with one topic of a source."""

    def __init__(self, topic_id: str) -> None:
        topic = TopicFacts(topic_id=topic_id, partitions={0: PartitionEnds(0, 900)})
        self._known = KnownTopics({"t": topic})

    def look(self, _: float, __: Any, is_passing: Any) -> dict[str, KnownTopics]:
        assert is_passing(NAMELESS), "the name of a broker that is away may be unknown"
        return {"trades": self._known}


def after_epoch(topic_id: str) -> EpochHistory:
    position = ConnectorCheckpoint({}, 1, {"line": '{"t":{"0":120}}'})
    newest = CheckpointManifest.new(
        1, epoch=1, source_offsets={"trades": position}, source_ids={"trades": {"t": topic_id}}
    )
    return EpochHistory("t1", 1, 2, newest)


def test_a_topic_that_was_made_again_during_the_outage_ends_the_run() -> None:
    wait = waiting_for(cast(Any, Kafka("two")), after_epoch("one"))
    with pytest.raises(PositionUnavailable, match="120 rows of the new topic would never be read"):
        SourceOutage(wait, 60, threading.Event()).is_over(SILENCE, 1)


@pytest.mark.parametrize("history", [after_epoch("one"), EpochHistory("t1", 1, 1)])
def test_a_topic_that_is_the_same_is_read_on(history: EpochHistory) -> None:
    wait = waiting_for(cast(Any, Kafka("one")), history)
    assert SourceOutage(wait, 60, threading.Event()).is_over(SILENCE, 1)


class Orders(SequencedSource):
    """A table that has lost its rows, or has them."""

    def read_from(self, position: Any, limit: int) -> list[Any]:
        return []

    def check(self, position: Any) -> None:
        if self.options.get("lost"):
            raise PositionUnavailable("the rows are gone")


def after_reading_a_table() -> EpochHistory:
    line = json.dumps({"sequence": 1, "position": 7, "digest": "a" * 64})
    at = {"orders": ConnectorCheckpoint({}, 1, {"line": line})}
    return EpochHistory("t1", 1, 2, CheckpointManifest.new(1, epoch=1, source_offsets=at))


def test_a_table_is_waited_for_and_asked_what_it_has_left() -> None:
    history = after_reading_a_table()
    there = {"orders": PositionLook("orders", Orders, {}, patience=300)}
    wait = waiting_for(None, history, there)
    assert SourceOutage(wait, 60, threading.Event()).is_over(SourceSilentError("x"), 1)
    lost = {"orders": PositionLook("orders", Orders, {"lost": "yes"}, patience=300)}
    with pytest.raises(PositionUnavailable, match="source 'orders': the rows are gone"):
        SourceOutage(waiting_for(None, history, lost), 60, threading.Event()).is_over(
            SourceSilentError("x"), 1
        )
    assert waiting_for(None, history) is None


def test_without_patience_nothing_is_waited_for() -> None:
    sources = Sources(answer=True)
    assert not SourceOutage(sources.wait, 0, threading.Event()).is_over(SILENCE, 3)
    assert sources.asked == 0


def test_a_topic_that_was_made_again_before_the_first_epoch_was_decided_ends_the_run() -> None:
    known = {"trades": {"t": "one"}}
    wait = waiting_for(cast(Any, Kafka("two")), EpochHistory("t1", 1, 1), None, lambda: known)
    with pytest.raises(PositionUnavailable, match="'t' was deleted and made again"):
        SourceOutage(wait, 60, threading.Event()).is_over(SILENCE, 0)
    wait = waiting_for(cast(Any, Kafka("one")), EpochHistory("t1", 1, 1), None, lambda: known)
    assert SourceOutage(wait, 60, threading.Event()).is_over(SILENCE, 0)
