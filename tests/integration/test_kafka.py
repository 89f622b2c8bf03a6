"""Pipelines that read from a real Kafka: what is refused, what is told, and in whose words."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from prometheus_client import CollectorRegistry

from seamark import Pipeline
from seamark.errors import PositionUnavailable, RefusedError, SourceUnavailableError
from seamark.pipeline.declaration.settings import Step
from seamark.sinks import FileSink
from seamark.spark.failures import is_outage, is_silence
from seamark.spark.java import java_home
from seamark.spark.kafka.positions import Offsets
from seamark.spark.kafka.sources import KafkaSources
from tests.cli.support.running import Cli
from tests.integration.support.kafka import Topics, kafka_server
from tests.pipeline.support.workloads import values_in
from tests.support.processes import Server, free_port
from tests.support.skipped import or_skip
from tests.support.spark import local_spark
from tests.test_docs import program
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
    spark: SparkSession,
    root: Path,
    servers: str,
    topic: str,
    policy: str = "strict",
    settings: Mapping[str, Any] | None = None,
    **more: str,
) -> Pipeline:
    chosen = {"policy": policy, "source_timeout": 10, **(settings or {})}
    p = Pipeline("trades", root / "store", **chosen)
    options = {
        "kafka.bootstrap.servers": servers,
        "subscribe": topic,
        "startingOffsets": "earliest",
        **more,
    }
    source = p.source("trades", spark.readStream.format("kafka").options(**options))
    p.sink("all", source.selectExpr("CAST(value AS STRING) AS value"), FileSink(root / "all"))
    return p


@pytest.fixture
def cli(capsys: pytest.CaptureFixture[str]) -> Cli:
    return Cli(capsys)


def wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 300
    while not condition():
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.1)


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


def test_a_host_whose_name_is_lost_in_mid_run_counts_as_one_that_is_away(
    spark: SparkSession, tmp_path: Path
) -> None:
    unlooked = {"source_timeout": 0}  # so that Spark itself finds it, as it does in mid-run
    with pytest.raises(SourceUnavailableError, match="cannot use its options") as failed:
        declare(spark, tmp_path, "no-such-host.invalid:9092", "trades", settings=unlooked).run()
    assert is_outage(failed.value)
    assert not is_silence(failed.value)


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
    with pytest.raises(PositionUnavailable, match="was deleted and made again") as gone:
        declare(spark, tmp_path, topics.servers, topic).run()
    assert "2 is wanted, earliest is 0, latest is 3: 2 rows of the new topic" in str(gone.value)
    assert shown(tmp_path) == ["a", "b"]
    declare(spark, tmp_path, topics.servers, topic, policy="auto_reset").run()
    assert shown(tmp_path) == ["c", "d", "e"]


def test_a_topic_that_was_made_again_is_told_also_after_a_start_that_did_not_look(
    spark: SparkSession, tmp_path: Path, topics: Topics
) -> None:
    topic = topics.create(f"trades-{uuid.uuid4().hex}")
    topics.send(topic, ["a"])
    declare(spark, tmp_path, topics.servers, topic).run()
    topics.send(topic, ["b"])
    unlooked = {"source_timeout": 0}
    declare(spark, tmp_path, topics.servers, topic, settings=unlooked).run()
    topics.delete(topic)
    topics.create(topic)
    topics.send(topic, ["c", "d", "e"])
    with pytest.raises(PositionUnavailable, match="was deleted and made again"):
        declare(spark, tmp_path, topics.servers, topic).run()
    assert shown(tmp_path) == ["a", "b"]


def test_a_topic_that_was_made_again_is_read_from_its_first_row_on_request(
    spark: SparkSession, tmp_path: Path, topics: Topics
) -> None:
    topic = topics.create(f"trades-{uuid.uuid4().hex}")
    topics.send(topic, ["a", "b"])
    declare(spark, tmp_path, topics.servers, topic).run()
    topics.delete(topic)
    topics.create(topic)
    topics.send(topic, ["c"])  # below the old position: Spark would complain of lost rows
    anchor = {"reanchor": {"trades": "earliest"}}
    declare(spark, tmp_path, topics.servers, topic, settings=anchor).run()
    assert shown(tmp_path) == ["a", "b", "c"]
    topics.send(topic, ["d"])
    run = declare(spark, tmp_path, topics.servers, topic).run()
    assert shown(tmp_path) == ["a", "b", "c", "d"]
    assert any("has a gap after epoch" in note for note in run.report.notes)


@pytest.mark.slow
def test_rows_that_retention_has_taken_are_counted_and_left_out_only_on_request(
    spark: SparkSession, tmp_path: Path, topics: Topics, cli: Cli
) -> None:
    topic = topics.create(f"trades-{uuid.uuid4().hex}", retention_ms="86400000")
    topics.send(topic, ["a", "b"])
    declare(spark, tmp_path, topics.servers, topic).run()
    topics.send(topic, [f"row {number}" for number in range(8)])
    [source] = cli.document("sources", tmp_path / "store", "--check")["sources"]
    [part] = source["partitions"]
    assert (part["position"], part["earliest"], part["latest"], part["lag"]) == (2, 0, 10, 8)
    assert part["status"] == "ok"
    assert 0 <= part["age_seconds"] < 600
    assert 86400 - 600 < part["retention_left_seconds"] <= 86400
    ids = source["topics"][topic]
    assert ids["id"] == ids["recorded_id"], "both clients write the id of a topic in the same way"

    topics.delete_rows(topic, before=7)
    with pytest.raises(PositionUnavailable) as gone:
        declare(spark, tmp_path, topics.servers, topic).run()
    assert f"{topic}-0: 2 is wanted, earliest is 7, latest is 10: 5 rows are lost" in str(
        gone.value
    )
    assert (gone.value.source, gone.value.exit_code) == ("trades", 6)
    assert cli("sources", tmp_path / "store", "--check") == 6
    assert "5 rows are lost" in " ".join(cli.out.split())

    anchor = {"reanchor": {"trades": "earliest"}}
    declare(spark, tmp_path, topics.servers, topic, settings=anchor).run()
    assert shown(tmp_path) == ["a", "b", "row 5", "row 6", "row 7"]
    found = cli.document("show", tmp_path / "store", "latest")
    assert found["gaps"][0]["moves"][0]["rows"] == 5
    assert cli("show", tmp_path / "store", "latest") == 0
    assert "went on at 7 instead of 2, 5 rows were never read" in " ".join(cli.out.split())


def test_what_was_read_is_seen_in_a_consumer_group_in_the_metrics_and_in_the_checkpoint(
    spark: SparkSession,
    tmp_path: Path,
    topics: Topics,
    cli: Cli,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    topic, group = topics.create(f"trades-{uuid.uuid4().hex}"), f"group-{uuid.uuid4().hex}"
    read, times = threading.Event(), KafkaSources.times

    def noted_times(self: KafkaSources, rows: Mapping[str, Offsets]) -> dict[str, dict[str, int]]:
        found = times(self, rows)
        read.set()
        return found

    def wait_for_times(step: Step, when: str, epoch: int) -> None:
        if (step, when, epoch) == (Step.WRITE, "before", 1):  # an epoch itself waits for nothing
            assert read.wait(300)

    monkeypatch.setattr(KafkaSources, "times", noted_times)
    topics.send(topic, [f"row {number:02}" for number in range(10)])
    registry = CollectorRegistry()
    p = declare(
        spark,
        tmp_path,
        topics.servers,
        topic,
        settings={"consumer_group": group, "metrics": registry, "on_step": wait_for_times},
        maxOffsetsPerTrigger="4",
    )
    p.run()
    assert topics.group_offsets(group) == {f"{topic}-0": 10}
    labels = {"pipeline": "trades", "source": "trades", "topic": topic, "partition": "0"}
    assert registry.get_sample_value("seamark_source_offset", labels) == 10
    assert registry.get_sample_value("seamark_checkpoint_lag_rows", labels) == 0
    assert registry.get_sample_value("seamark_checkpoint_position_age_seconds", labels) == 0
    lag = registry.get_sample_value("seamark_source_lag_rows", labels)
    assert lag in (0, 2, 6), "measured after one of the epochs"
    newest_first = cli.document("list", tmp_path / "store", "--wide")["checkpoints"]
    by_epoch = {row["epoch"]: row["lag"] for row in newest_first}
    assert [by_epoch[number]["trades"][f"{topic}-0"] for number in (1, 2, 3)] == [6, 2, 0]
    ages = {row["epoch"]: row["age_seconds"]["trades"] for row in newest_first}
    assert 0 < ages[1][f"{topic}-0"] < 600
    assert ages[3] == {f"{topic}-0": 0}
    [source] = cli.document("sources", tmp_path / "store")["sources"]
    assert (source["lag"], source["age_seconds"]) == ({f"{topic}-0": 0}, {f"{topic}-0": 0})


def test_a_broker_that_is_away_for_longer_than_spark_waits_does_not_end_the_run(
    spark: SparkSession, tmp_path: Path, topics: Topics, broker: Server
) -> None:
    topic = topics.create(f"trades-{uuid.uuid4().hex}")
    topics.send(topic, ["a"])
    impatient = {
        "kafka.default.api.timeout.ms": "2000",
        "kafka.request.timeout.ms": "1000",
        "fetchOffset.numRetries": "1",
        "fetchOffset.retryIntervalMs": "10",
    }
    p = declare(
        spark, tmp_path, topics.servers, topic, settings={"source_timeout": 300}, **impatient
    )
    run = p.start()
    try:
        wait_until(lambda: shown(tmp_path) == ["a"])
        first = run.query.runId
        broker.kill()
        wait_until(lambda: not any(q.runId == first for q in spark.streams.active))
        assert run.is_active, run.exception()
        broker.start()
        topics.send(topic, ["b"])
        wait_until(lambda: shown(tmp_path) == ["a", "b"])
        assert run.query.runId != first
    finally:
        run.stop()
    assert run.exception() is None


def test_the_program_of_the_documentation_runs_as_it_stands_there(
    tmp_path: Path, topics: Topics, cli: Cli
) -> None:
    topic = topics.create(f"trades-{uuid.uuid4().hex}")
    topics.send(topic, ["a", "b", "c"])
    jars = {"spark.jars": ",".join(map(str, connector_jars()))}
    code = (
        program("docs/kafka.md", "from_kafka.py")
        .replace("seamark.kafka_packages()", repr(jars))  # tests fetch nothing
        .replace("broker:9092", topics.servers)
        .replace('"subscribe", "trades"', f'"subscribe", "{topic}"')
        .replace("/data/", f"{tmp_path}/")
    )
    environment = {**os.environ, "JAVA_HOME": str(java_home()), "SPARK_LOCAL_IP": "127.0.0.1"}
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    rows = sorted(row["value"] for row in values_in(tmp_path / "trades"))
    assert rows == ["a", "b", "c"]
    assert topics.group_offsets("trades-pipeline")[f"{topic}-0"] == 3
    [source] = cli.document("sources", tmp_path / "checkpoints", "--check")["sources"]
    assert [part["lag"] for part in source["partitions"]] == [0]
