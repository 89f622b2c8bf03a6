"""Records that somebody adds to a topic, or that its epochs never had, are found by an audit."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

import pytest
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from seamark.sinks import KafkaSink
from tests.audit.support.pipelines import (
    ROWS,
    audited,
    damage_found,
    pipeline,
    write_input,
)
from tests.integration.test_kafka_positions import spark
from tests.sinks.support.kafka_records import Broker

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["spark"]  # one with the connector: later modules cannot give it to a running one

pytestmark = [pytest.mark.integration, pytest.mark.timeout(600)]


def sink_to(broker: Broker, topic: str, root: Path) -> KafkaSink:
    return KafkaSink(broker.servers, topic, key="name", staging=root / "staging")


def test_each_epoch_is_compared_by_its_offsets(
    spark: SparkSession, broker: Broker, topic: str, tmp_path: Path
) -> None:
    write_input(tmp_path / "input", 3)
    pipeline(spark, tmp_path, sink_to(broker, topic, tmp_path)).run(available_now=True)
    found = audited(spark, tmp_path / "store")
    assert not found.is_damaged
    results = [(v.epochs, v.result.value, v.found_rows) for v in found.sinks[0].verdicts]
    assert results == [("1", "not compared", None), ("2", "ok", ROWS), ("3", "ok", ROWS)]


def test_records_of_somebody_else_between_two_epochs_are_found(
    spark: SparkSession, broker: Broker, topic: str, tmp_path: Path
) -> None:
    from confluent_kafka import Producer

    write_input(tmp_path / "input", 2)
    pipeline(spark, tmp_path, sink_to(broker, topic, tmp_path)).run(available_now=True)
    producer = Producer({"bootstrap.servers": broker.servers})
    producer.produce(topic, value=b'{"n": 1}')
    producer.flush()
    write_input(tmp_path / "input", 1, 2)
    pipeline(spark, tmp_path, sink_to(broker, topic, tmp_path)).run(available_now=True)
    assert damage_found(audited(spark, tmp_path / "store")) == [("trades", "3", "doubled")]


class Careless(KafkaSink):
    """Sends other records than it was given."""

    change: ClassVar[Callable[[DataFrame], DataFrame]]

    def _write(self, df: DataFrame, folder: str) -> None:
        super()._write(type(self).change(df), folder)


def without_one(rows: DataFrame) -> DataFrame:
    return rows.where("n <> 25")


def with_keys(rows: DataFrame) -> DataFrame:
    return rows.where("name is not null and n <> 25")


def with_another(rows: DataFrame) -> DataFrame:
    return rows.withColumn("price", F.expr("if(n = 25, price + 1, price)"))


@pytest.mark.parametrize(("change", "result"), [(without_one, "lost"), (with_another, "edited")])
def test_records_that_are_lost_or_edited_on_the_way_are_found(
    spark: SparkSession,
    broker: Broker,
    topic: str,
    tmp_path: Path,
    change: Callable[[DataFrame], DataFrame],
    result: str,
) -> None:
    kind = type("Changing", (Careless,), {"change": staticmethod(change)})
    write_input(tmp_path / "input", 3)
    sink = kind(broker.servers, topic, key="name", staging=tmp_path / "staging")
    pipeline(spark, tmp_path, sink).run(available_now=True)
    assert damage_found(audited(spark, tmp_path / "store")) == [("trades", "2", result)]


def test_what_retention_has_removed_is_not_compared(
    spark: SparkSession, broker: Broker, topic: str, tmp_path: Path
) -> None:
    from confluent_kafka import TopicPartition

    write_input(tmp_path / "input", 3)
    pipeline(spark, tmp_path, sink_to(broker, topic, tmp_path)).run(available_now=True)
    ends = [record.offset() for record in broker.records(topic) if record.partition() == 0]
    gone = TopicPartition(topic, 0, ends[len(ends) // 2])
    admin = broker.admin()
    for future in admin.delete_records([gone]).values():
        future.result(60)
    found = audited(spark, tmp_path / "store")
    assert not found.is_damaged
    results = {verdict.epochs: verdict.result.value for verdict in found.sinks[0].verdicts}
    assert results["2"] == "not compared"
    assert results["3"] == "ok"


def test_records_that_a_compaction_may_have_removed_are_not_compared(
    spark: SparkSession, broker: Broker, tmp_path: Path
) -> None:
    topic = broker.new_topic(1, {"cleanup.policy": "compact,delete"})
    write_input(tmp_path / "input", 3)
    kind = type("Changing", (Careless,), {"change": staticmethod(with_keys)})
    sink = kind(broker.servers, topic, key="name", staging=tmp_path / "staging")
    pipeline(spark, tmp_path, sink).run(available_now=True)
    found = audited(spark, tmp_path / "store")
    assert not found.is_damaged
    two = next(verdict for verdict in found.sinks[0].verdicts if verdict.epochs == "2")
    assert (two.result.value, f"topic {topic} is compacted" in two.text) == ("not compared", True)
