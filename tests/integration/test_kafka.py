"""Pipelines that read from a real Kafka: what is refused, what is told, and in whose words."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from seamark import Pipeline
from seamark.errors import RefusedError, SourceUnavailableError
from seamark.sinks import FileSink
from tests.integration.support.kafka import Topics, kafka_server
from tests.pipeline.support.workloads import values_in
from tests.support.processes import Server, free_port
from tests.support.skipped import or_skip
from tests.support.spark import local_spark
from tools.kafka import connector_jars

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.integration, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def broker() -> Iterator[Server]:
    with or_skip("Kafka", kafka_server()) as server:
        yield server


@pytest.fixture(scope="module")
def spark(broker: Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """A Spark with the connector, which a running one cannot be given."""
    jars = {"spark.jars": ",".join(map(str, connector_jars()))}
    warehouse = tmp_path_factory.mktemp("warehouse")
    with local_spark(warehouse, jars, log_level="OFF") as session:
        yield session


@pytest.fixture
def topics(spark: SparkSession, broker: Server) -> Topics:
    return Topics(spark, broker)


def declare(
    spark: SparkSession, root: Path, servers: str, topic: str, policy: str = "strict", **more: str
) -> Pipeline:
    p = Pipeline("trades", root / "store", policy=policy, source_timeout=10)
    options = {
        "kafka.bootstrap.servers": servers,
        "subscribe": topic,
        "startingOffsets": "earliest",
        **more,
    }
    source = p.source("trades", spark.readStream.format("kafka").options(**options))
    p.sink("all", source.selectExpr("CAST(value AS STRING) AS value"), FileSink(root / "all"))
    return p


def shown(root: Path) -> list[str]:
    return sorted(row["value"] for row in values_in(root / "all"))


def test_a_server_that_does_not_answer_is_named_with_the_option_that_names_it(
    spark: SparkSession, tmp_path: Path
) -> None:
    nobody = f"127.0.0.1:{free_port()}"
    with pytest.raises(SourceUnavailableError, match="Kafka does not answer") as failed:
        declare(spark, tmp_path, nobody, "trades").run()
    assert f"source 'trades': kafka.bootstrap.servers={nobody}" in str(failed.value)
    assert "Check the option kafka.bootstrap.servers" in str(failed.value)
    assert not list((tmp_path / "store").glob("*/manifest.json"))


def test_a_host_that_is_not_known_is_named(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(SourceUnavailableError, match="cannot use its options") as failed:
        declare(spark, tmp_path, "no-such-host.invalid:9092", "trades").run()
    assert "no-such-host.invalid:9092" in str(failed.value)


def test_a_topic_that_is_not_there_is_named(
    spark: SparkSession, tmp_path: Path, topics: Topics
) -> None:
    missing = f"missing-{uuid.uuid4().hex}"
    with pytest.raises(SourceUnavailableError, match="does not know a topic") as failed:
        declare(spark, tmp_path, topics.servers, missing).run()
    assert f"subscribe={missing}" in str(failed.value)


def test_rows_are_read_once_and_skipping_lost_ones_is_refused_until_it_is_accepted(
    spark: SparkSession, tmp_path: Path, topics: Topics
) -> None:
    topic = topics.create(f"trades-{uuid.uuid4().hex}")
    topics.send(topic, ["a", "b"])
    declare(spark, tmp_path, topics.servers, topic).run()
    topics.send(topic, ["c"])
    with pytest.raises(RefusedError, match="may lose rows by failOnDataLoss=false"):
        declare(spark, tmp_path, topics.servers, topic, failOnDataLoss="false").run()
    assert shown(tmp_path) == ["a", "b"]
    declare(spark, tmp_path, topics.servers, topic).run()
    assert shown(tmp_path) == ["a", "b", "c"]


def test_a_topic_that_was_made_again_is_not_taken_for_the_old_one(
    spark: SparkSession, tmp_path: Path, topics: Topics
) -> None:
    topic = topics.create(f"trades-{uuid.uuid4().hex}")
    topics.send(topic, ["a", "b"])
    declare(spark, tmp_path, topics.servers, topic).run()
    topics.delete(topic)
    topics.create(topic)
    topics.send(topic, ["c", "d", "e"])  # beyond the old position: Spark would read only "e"
    with pytest.raises(RefusedError, match="was deleted and made again"):
        declare(spark, tmp_path, topics.servers, topic).run()
    assert shown(tmp_path) == ["a", "b"]
    declare(spark, tmp_path, topics.servers, topic, policy="auto_reset").run()
    assert shown(tmp_path) == ["c", "d", "e"]
