"""A sink to a real Kafka keeps what all sinks promise, and what Kafka's transactions make hard."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

import pytest

from seamark.testing import OpenSink, ReadRows, SinkSuite
from tests.sinks.support.kafka_records import Broker, HandWrittenRecords
from tests.sinks.test_conformance import WithoutSpark

pytestmark = [pytest.mark.integration, pytest.mark.timeout(600)]


class KafkaSuite(WithoutSpark, SinkSuite):
    can_take_back: ClassVar[bool] = False
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


@pytest.mark.chaos
class TestTwoShards(KafkaSuite):
    shards = 2
