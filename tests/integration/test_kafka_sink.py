"""A sink to a real Kafka keeps what all sinks promise, and what Kafka's transactions make hard."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

import pytest

from seamark.sinks import KafkaSink
from seamark.sinks.kafka.ledger import Entry
from seamark.sinks.kafka.transactions import ShardOfEpoch, ShardWriter
from seamark.testing import OpenSink, ReadRows, SinkSuite
from seamark.testing.conformance.sink_examples import epoch
from tests.sinks.support.kafka_records import Broker, HandWrittenRecords, opened, prepared
from tests.sinks.test_conformance import WithoutSpark

if TYPE_CHECKING:
    from confluent_kafka import Producer

pytestmark = [pytest.mark.integration, pytest.mark.timeout(600)]


class KafkaSuite(WithoutSpark, SinkSuite):
    can_take_back: ClassVar[bool] = False
    overlaps: ClassVar[int] = 4
    shards: ClassVar[int] = 1

    @pytest.fixture
    def open_sink(self, broker: Broker, topic: str, tmp_path: Path) -> OpenSink:
        return lambda: HandWrittenRecords(
            broker.servers, topic, key="n", staging=tmp_path, shards=self.shards
        )

    @pytest.fixture
    def visible(self, broker: Broker, topic: str) -> ReadRows:
        return lambda: broker.numbers(topic)


class TestOneTransaction(KafkaSuite):
    pass


@pytest.mark.parametrize("shards", [1, 2])
def test_rows_that_another_process_shows_and_removes_while_they_are_sent_are_shown_once(
    broker: Broker, topic: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, shards: int
) -> None:
    def sink() -> KafkaSink:
        return opened(
            HandWrittenRecords(broker.servers, topic, key="n", staging=tmp_path, shards=shards)
        )

    committable = prepared(sink(), [1, 2, 3], epoch(1), "a1")
    first, other = sink(), sink()
    others = iter([other])
    send = ShardWriter._transact

    def overtaken(self: ShardWriter, producer: Producer, share: ShardOfEpoch) -> Entry:
        for another in others:
            another.commit(committable)
        return send(self, producer, share)

    monkeypatch.setattr(ShardWriter, "_transact", overtaken)
    first.commit(committable)
    assert next(others, None) is None, "the other process has committed"
    assert sorted(broker.numbers(topic)) == [1, 2, 3]


@pytest.mark.chaos
class TestTwoShards(KafkaSuite):
    shards = 2
