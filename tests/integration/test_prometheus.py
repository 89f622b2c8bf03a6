"""A real Prometheus scrapes a running pipeline, and every query of the dashboard has an answer."""

from __future__ import annotations

import contextlib
import math
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from prometheus_client import CollectorRegistry, generate_latest

from seamark import Pipeline
from seamark.sinks import FileSink
from tests.dashboards.support.expressions import (
    ALERTS,
    KAFKA_ONLY,
    Query,
    alerts,
    dashboard_queries,
)
from tests.integration.support.kafka import Topics, kafka_server
from tests.integration.support.prometheus import (
    Prometheus,
    installed,
    prometheus_server,
    promtool,
)
from tests.pipeline.support.workloads import orders, put_file, windowed
from tests.pipeline.test_metrics import scraped
from tests.support.processes import Server, free_port
from tests.support.skipped import or_skip
from tests.support.spark import local_spark
from tools.kafka import connector_jars

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from seamark.pipeline.run import Run

pytestmark = [pytest.mark.integration, pytest.mark.timeout(600)]
PATIENCE = 500.0
CASES = Path(__file__).parents[1] / "dashboards" / "alerts_test.yml"


@pytest.fixture(scope="module")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """A Spark with Kafka's connector where that was fetched."""
    jars = {"spark.jars": ",".join(map(str, connector_jars()))} if connector_jars() else {}
    with local_spark(tmp_path_factory.mktemp("warehouse"), jars, log_level="OFF") as session:
        yield session


@pytest.fixture(scope="module")
def broker() -> Iterator[Server]:
    with or_skip("Kafka", kafka_server()) as server:
        yield server


@pytest.fixture
def port() -> int:
    return free_port()


@pytest.fixture
def prometheus(port: int) -> Iterator[Prometheus]:
    with or_skip("Prometheus", prometheus_server(f"127.0.0.1:{port}", ALERTS)) as server:
        yield server


@pytest.fixture
def promtool_is_there() -> Iterator[None]:
    with or_skip("Prometheus", installed()):
        yield


@contextlib.contextmanager
def again_and_again(work: Callable[[int], object]) -> Iterator[None]:
    """Do something over and over on a thread of its own."""
    ended = threading.Event()

    def go_on() -> None:
        number = 0
        while not ended.wait(0.3):
            number += 1
            work(number)

    thread = threading.Thread(target=go_on)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


@contextlib.contextmanager
def stopped_at_the_end(run: Run) -> Iterator[None]:
    try:
        yield
    finally:
        run.stop()


def answers(prometheus: Prometheus, query: Query) -> bool:
    """Whether there is a series with a number."""
    series = prometheus.query(query.filled_in())
    return any(not math.isnan(float(each["value"][1])) for each in series)


def wait_for_answers(prometheus: Prometheus, queries: list[Query], run: Run) -> None:
    left, deadline = queries, time.monotonic() + PATIENCE
    while left := [query for query in left if not answers(prometheus, query)]:
        assert run.is_active, run.exception()
        assert time.monotonic() < deadline, f"no data: {left}"
        time.sleep(0.5)


def totals(source: DataFrame) -> DataFrame:
    from pyspark.sql import functions as f

    timed = source.selectExpr("CAST(value AS STRING) AS value", "timestamp AS t")
    grouped = timed.withWatermark("t", "1 second").groupBy(f.window("t", "1 second"))
    return grouped.agg(f.count("*").alias("n"))


def is_of_kafka(query: Query) -> bool:
    return bool(query.names & KAFKA_ONLY)


def test_every_query_of_the_dashboard_has_an_answer_and_no_alert_fires(
    spark: SparkSession, prometheus: Prometheus, port: int, tmp_path: Path
) -> None:
    def write(number: int) -> None:
        now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        rows: list[dict[str, Any]] = [{"id": n, "k": n % 5, "v": n, "t": now} for n in range(50)]
        made = put_file(tmp_path / "written", number, rows)
        made.rename(tmp_path / "in" / "orders" / made.name)  # whole or not at all

    (tmp_path / "in" / "orders").mkdir(parents=True)
    write(0)
    p = Pipeline("trades", tmp_path / "store", metrics=port, full_every=3)
    source = p.source("orders", orders(spark, tmp_path / "in"))
    p.sink("bars", windowed(source), FileSink(tmp_path / "bars"))
    p.sink("large", source.where("v > 25"), FileSink(tmp_path / "large"))
    run = p.start()
    with stopped_at_the_end(run), again_and_again(write):
        queries = [query for query in dashboard_queries() if not is_of_kafka(query)]
        assert len(queries) > 25
        wait_for_answers(prometheus, queries, run)
        groups = prometheus.get("rules")["groups"]
        rules = [rule for group in groups for rule in group["rules"]]
        assert {rule["name"] for rule in rules} == {rule["alert"] for rule in alerts()}
        assert {
            rule["name"]: rule.get("lastError", "") for rule in rules if rule["health"] == "err"
        } == {}
        assert [rule["name"] for rule in rules if rule["state"] == "firing"] == []
        [target] = prometheus.get("targets")["activeTargets"]
        assert (target["health"], target["lastError"]) == ("up", "")


def test_lag_of_kafka_is_in_the_dashboard_by_topic_and_partition(
    spark: SparkSession, broker: Server, prometheus: Prometheus, port: int, tmp_path: Path
) -> None:
    topics = Topics(spark, broker)
    topic = topics.create("trades")
    p = Pipeline("trades", tmp_path / "store", metrics=port)
    reader = spark.readStream.format("kafka").option("kafka.bootstrap.servers", topics.servers)
    options = {"subscribe": topic, "startingOffsets": "earliest", "maxOffsetsPerTrigger": "2"}
    source = p.source("trades", reader.options(**options))
    p.sink("bars", totals(source), FileSink(tmp_path / "bars"))
    topics.send(topic, [str(number) for number in range(200)])
    run = p.start(trigger={"processingTime": "3 seconds"})
    with stopped_at_the_end(run):
        wait_for_answers(prometheus, dashboard_queries(), run)
        [lag] = prometheus.query("seamark_source_lag_rows > 0")
        labels = {name: lag["metric"][name] for name in ("source", "topic", "partition")}
        assert labels == {"source": "trades", "topic": topic, "partition": "0"}


@pytest.mark.usefixtures("promtool_is_there")
def test_promtool_accepts_the_rules_and_each_alert_fires_in_its_case_and_not_else() -> None:
    done = promtool(["check", "rules", ALERTS])
    assert done.returncode == 0, done.stdout + done.stderr
    tested = promtool(["test", "rules", CASES])
    assert tested.returncode == 0, tested.stdout + tested.stderr


@pytest.mark.usefixtures("promtool_is_there")
def test_promtool_has_nothing_to_say_against_the_names(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    put_file(
        tmp_path / "in" / "orders", 0, [{"id": 1, "k": 1, "v": 1, "t": "2026-01-01T00:10:00Z"}]
    )
    registry = CollectorRegistry()
    p = Pipeline("trades", tmp_path / "store", metrics=registry)
    source = p.source("orders", orders(spark, tmp_path / "in"))
    p.sink("bars", windowed(source), FileSink(tmp_path / "bars"))
    p.run()
    exposition = generate_latest(registry)
    assert len(scraped(exposition.decode())) > 100
    linted = promtool(["check", "metrics"], exposition)
    assert (linted.returncode, linted.stdout + linted.stderr) == (0, "")
