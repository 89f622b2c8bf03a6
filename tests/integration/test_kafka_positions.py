"""Topics of a real Kafka that are deleted or made again, at a start and while a pipeline waits."""

from __future__ import annotations

import shutil
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from seamark import Pipeline
from seamark.errors import PositionUnavailable, RefusedError
from seamark.sinks import FileSink, ForeachBatchSink
from seamark.testing.crashes import SimulatedCrash, crash_at
from tests.integration.support.kafka import Topics
from tests.integration.test_kafka import shown, wait_until
from tests.support.cutting_proxy import CuttingProxy
from tests.support.processes import Server
from tests.support.spark import local_spark
from tools.kafka import connector_jars

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.integration, pytest.mark.timeout(600)]

ANCHOR = {"trades": "earliest"}
IMPATIENT = {
    "kafka.default.api.timeout.ms": "2000",
    "kafka.request.timeout.ms": "1000",
    "fetchOffset.numRetries": "1",
    "fetchOffset.retryIntervalMs": "10",
}


@pytest.fixture(scope="module")
def spark(kafka: Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """A Spark with the connector, which a running one cannot be given."""
    jars = {"spark.jars": ",".join(map(str, connector_jars()))}
    with local_spark(tmp_path_factory.mktemp("warehouse"), jars, log_level="OFF") as session:
        yield session


@pytest.fixture
def topics(spark: SparkSession, kafka: Server) -> Topics:
    return Topics(spark, kafka)


class Reader:
    """Declares the same pipeline again and again, with other options."""

    def __init__(self, spark: SparkSession, root: Path, servers: str) -> None:
        self._spark, self._root, self._servers = spark, root, servers

    def __call__(
        self, settings: dict[str, Any] | None = None, function: Any = None, **options: str
    ) -> Pipeline:
        p = Pipeline("trades", self._root / "store", **{"source_timeout": 10, **(settings or {})})
        reader = self._spark.readStream.format("kafka").options(
            **{
                "kafka.bootstrap.servers": self._servers,
                "startingOffsets": "earliest",
                **options,
            }
        )
        rows = p.source("trades", reader).selectExpr("CAST(value AS STRING) AS value")
        p.sink("all", rows, FileSink(self._root / "all"))
        if function is not None:
            p.sink("fn", rows, ForeachBatchSink(function, idempotent=True))
        return p


@pytest.fixture
def reader(spark: SparkSession, topics: Topics, tmp_path: Path) -> Reader:
    return Reader(spark, tmp_path, topics.servers)


@pytest.fixture
def topic(topics: Topics) -> str:
    return topics.create(f"trades-{uuid.uuid4().hex}")


def test_a_topic_that_was_deleted_is_told_and_read_from_its_first_row_when_it_is_there_again(
    reader: Reader, topics: Topics, topic: str, tmp_path: Path
) -> None:
    topics.send(topic, ["a", "b"])
    reader(subscribe=topic).run()
    topics.delete(topic)
    for settings in ({}, {"reanchor": ANCHOR}):
        with pytest.raises(PositionUnavailable, match="is gone") as gone:
            reader(settings, subscribe=topic).run()
        assert f"{topic}-0: 2 is wanted, and the topic is gone" in str(gone.value)
    topics.create(topic)
    topics.send(topic, ["c"])
    reader({"reanchor": ANCHOR}, subscribe=topic).run()
    assert shown(tmp_path) == ["a", "b", "c"]


def test_a_topic_that_was_deleted_is_dropped_when_it_is_no_longer_subscribed(
    reader: Reader, topics: Topics, topic: str, tmp_path: Path
) -> None:
    other = topics.create(f"other-{uuid.uuid4().hex}")
    topics.send(topic, ["a"])
    topics.send(other, ["b"])
    reader(subscribe=f"{topic},{other}").run()
    topics.delete(other)
    topics.send(topic, ["c"])
    with pytest.raises(PositionUnavailable, match=f"the topic '{other}' is gone"):
        reader(subscribe=f"{topic},{other}").run()
    run = reader({"reanchor": ANCHOR, "policy": "warn"}, subscribe=topic).run()
    assert shown(tmp_path) == ["a", "b", "c"]
    assert f"{other}-0 was at 1 and is not there any more" in " ".join(run.report.notes)


def test_a_pattern_that_matches_nothing_any_more_has_lost_its_positions(
    reader: Reader, topics: Topics, topic: str, tmp_path: Path
) -> None:
    topics.send(topic, ["a", "b"])
    pattern = f"{topic}.*"
    reader(subscribePattern=pattern).run()
    topics.delete(topic)
    with pytest.raises(PositionUnavailable, match="is gone"):
        reader(subscribePattern=pattern).run()
    run = reader({"reanchor": ANCHOR}, subscribePattern=pattern).run()
    assert f"{topic}-0 was at 2 and is not there any more" in " ".join(run.report.notes)
    topics.create(topic)
    topics.send(topic, ["c"])
    for _ in range(2):
        reader(subscribePattern=pattern).run()
        assert shown(tmp_path) == ["a", "b", "c"]


def test_a_topic_that_came_after_the_start_is_not_taken_for_the_old_one_when_it_is_made_again(
    reader: Reader, topics: Topics, topic: str, tmp_path: Path
) -> None:
    topics.send(topic, ["a"])
    options = {"subscribePattern": f"{topic}.*", "kafka.metadata.max.age.ms": "500"}
    run = reader(None, None, **options).start()
    try:
        wait_until(lambda: shown(tmp_path) == ["a"])
        late = topics.create(f"{topic}-late")
        topics.send(late, ["b", "c"])
        wait_until(lambda: shown(tmp_path) == ["a", "b", "c"])
    finally:
        run.stop()
    topics.delete(late)
    topics.create(late)
    topics.send(late, ["d", "e", "f"])  # beyond the position: Spark would read only "f"
    with pytest.raises(PositionUnavailable, match="was deleted and made again"):
        reader(None, None, **options).run()
    reader({"reanchor": ANCHOR}, None, **options).run()
    assert shown(tmp_path) == ["a", "b", "c", "d", "e", "f"]


def test_a_function_gets_no_rows_of_a_topic_that_was_made_again_under_the_key_of_the_old_ones(
    reader: Reader, topics: Topics, topic: str
) -> None:
    calls: list[tuple[str, list[str]]] = []

    def function(df: DataFrame, epoch: Any) -> None:
        calls.append((epoch.key, sorted(row.value for row in df.collect())))

    topics.send(topic, ["a", "b"])
    with pytest.raises(SimulatedCrash):
        reader({"on_step": crash_at("write", "after", 1)}, function, subscribe=topic).run()
    topics.delete(topic)
    topics.create(topic)
    topics.send(topic, ["c", "d", "e"])
    with pytest.raises(RefusedError, match="epoch 1 was started on rows of the topic"):
        reader(None, function, subscribe=topic).run()
    assert [rows for _, rows in calls] == [["a", "b"]]


def test_a_first_epoch_is_not_run_on_a_plan_for_a_topic_that_was_made_again(
    reader: Reader, topics: Topics, topic: str, tmp_path: Path
) -> None:
    topics.send(topic, ["a", "b", "c"])
    crash = {"on_step": crash_at("write", "after", 1)}
    run = reader(crash, subscribe=topic, startingOffsets="latest").start()
    wait_until(lambda: any((tmp_path / "store" / "working").rglob("sources/0/0")))
    topics.send(topic, ["d"])
    with pytest.raises(SimulatedCrash):
        run.await_termination(120)
    topics.delete(topic)
    topics.create(topic)
    topics.send(topic, [*"efghi"])
    with pytest.raises(PositionUnavailable, match="since the first epoch was planned"):
        reader(subscribe=topic).run()  # it would read "h" and "i"
    shutil.rmtree(tmp_path / "store" / "working")  # as the error advises
    reader(subscribe=topic).run()
    assert shown(tmp_path) == [*"efghi"]


def test_a_topic_that_is_made_again_during_an_outage_ends_the_run(
    spark: SparkSession, topics: Topics, topic: str, kafka_proxy: CuttingProxy, tmp_path: Path
) -> None:
    topics.send(topic, ["a"])
    reader = Reader(spark, tmp_path, f"127.0.0.1:{kafka_proxy.port}")
    run = reader({"source_timeout": 300}, subscribe=topic, **IMPATIENT).start()
    try:
        wait_until(lambda: shown(tmp_path) == ["a"])
        first = run.query.runId
        kafka_proxy.lose(lambda _: True, times=1_000_000)
        kafka_proxy.cut_all()
        wait_until(lambda: not any(query.runId == first for query in spark.streams.active))
        assert run.is_active, run.exception()
        topics.delete(topic)
        topics.create(topic)
        topics.send(topic, ["b", "c", "d"])  # beyond the position: Spark would read two of them
        kafka_proxy.lose(lambda _: True, times=0)
        with pytest.raises(PositionUnavailable, match="1 rows of the new topic would never be"):
            run.await_termination(300)
    finally:
        kafka_proxy.lose(lambda _: True, times=0)
        run.stop()
    assert shown(tmp_path) == ["a"]
