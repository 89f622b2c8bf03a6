"""Plans that are read in one call tell the same as plans that are walked through."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest
from pyspark.sql import functions as f

from seamark import Pipeline
from seamark.errors import RefusedError, SeamarkError
from seamark.sinks import FileSink
from seamark.spark.java_classes import class_if_any
from seamark.spark.plans import expression_digests, plan_reader
from seamark.spark.plans.executed_plan import EXCHANGE_REUSE, WATERMARK, PlanNode
from seamark.spark.plans.plan_reader import (
    Eviction,
    InOneCall,
    WalkingReader,
    parse_evictions,
    parse_shape,
    parse_state_ids,
    parse_watermarks,
    state_writer,
)
from tests.pipeline.support import workloads
from tests.pipeline.support.workloads import orders, payments, rows_in, windowed

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Query = Callable[["SparkSession", Path], "DataFrame"]


def bars(spark: SparkSession, folder: Path) -> DataFrame:
    return windowed(orders(spark, folder))


def counted_twice(spark: SparkSession, folder: Path) -> DataFrame:
    """Its second part is a reused exchange when Spark may reuse one."""
    once = bars(spark, folder)
    return once.union(once)


def joined_with_a_cached_table(spark: SparkSession, folder: Path) -> DataFrame:
    table = spark.range(5).withColumnRenamed("id", "k").repartition(2).cache()
    near = "id = order AND pt >= t AND pt <= t + INTERVAL 1 MINUTE"
    paid = payments(spark, folder).withWatermark("pt", "1 minute")
    made = orders(spark, folder).withWatermark("t", "10 seconds")
    return made.join(paid, f.expr(near)).join(table, "k").select("id")


def without_state(spark: SparkSession, folder: Path) -> DataFrame:
    return orders(spark, folder).where("v > 3")


QUERIES: Final[dict[str, tuple[Query, str, dict[str, str]]]] = {
    "an aggregation": (bars, "hdfs", {}),
    "ids of state files": (bars, "format2", {}),
    "a reused exchange": (counted_twice, "hdfs", {EXCHANGE_REUSE: "true"}),
    "a join and a cached table": (joined_with_a_cached_table, "hdfs", {}),
    "no state": (without_state, "hdfs", {}),
}
OFTEN: Final = ("an aggregation", "no state")


def execution_of(spark: SparkSession, df: DataFrame, folder: Path) -> Any:
    """What is left of a query that has run to its end."""
    query = (
        df.writeStream.format("noop")
        .option("checkpointLocation", str(folder))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    wrapper: Any = query._jsq
    return wrapper.streamingQuery()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return workloads.write_input(tmp_path_factory.mktemp("plans"), epochs=1)


@pytest.mark.warm
@pytest.mark.parametrize(
    "name",
    [name if name in OFTEN else pytest.param(name, marks=pytest.mark.slow) for name in QUERIES],
)
def test_one_call_tells_what_a_walk_through_the_plan_tells(
    spark: SparkSession, folder: Path, tmp_path: Path, name: str
) -> None:
    query, provider, settings = QUERIES[name]
    with workloads.provider_of(spark, provider), workloads.settings_of(spark, settings):
        execution = execution_of(spark, query(spark, folder), tmp_path)
    gateway: Any = spark.sparkContext._gateway
    at_once = plan_reader.plan_reader(gateway, execution)
    assert isinstance(at_once, InOneCall), "Janino compiles the class on the Spark of these tests"
    walking = WalkingReader(execution, state_writer(gateway.jvm))
    text = at_once.plan()
    assert text == walking.plan()
    assert at_once.move_watermark() == walking.move_watermark()
    shape, _, evictions = text.partition("\n\n")
    plan = parse_shape(shape)
    marked = [each for each in parse_evictions(evictions) if each.watermark is not None]
    if name == "no state":
        assert not marked
        return
    assert marked
    watermark, by_node = parse_watermarks(at_once.move_watermark())
    assert watermark > 0
    assert watermark in by_node.values()
    assert {node.mark for node in below(plan)} - {None} == by_node.keys()
    if name == "ids of state files":
        assert at_once.state_ids() == walking.state_ids()
        (ids,) = parse_state_ids(at_once.state_ids()).values()
        assert len(ids) > 1
        assert all(ids)
    if name == "a reused exchange":
        reused = [node for node in below(plan) if node.name == "ReusedExchange"]
        assert reused
        assert all(WATERMARK in [hidden.name for hidden in below(node)] for node in reused)
    if name == "a join and a cached table":
        assert "InMemoryTableScan" in [node.name for node in below(plan)]


@pytest.mark.warm
@pytest.mark.slow
def test_where_the_class_cannot_be_compiled_plans_are_checked_all_the_same(
    spark: SparkSession, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gateway: Any = spark.sparkContext._gateway
    other = tmp_path / "no_java_at_all"
    other.mkdir()
    (other / "__init__.py").touch()
    (other / "PlanReader.java").write_text("no Java at all")
    (other / "ExpressionDigest.java").write_text("nor here")
    monkeypatch.syspath_prepend(tmp_path)
    for module, name in ((plan_reader, "PlanReader"), (expression_digests, "ExpressionDigest")):
        monkeypatch.setattr(module, "_HERE", other.name)
        assert class_if_any(gateway, other.name, name, spark._jsparkSession) is None

    p = Pipeline("walked", tmp_path / "store")
    p.sink("a", bars_of(p, spark, folder), FileSink(tmp_path / "a"))
    p.run()
    assert rows_in(tmp_path / "a").total() > 5

    p = Pipeline("refused", tmp_path / "other")
    source = p.source("orders", orders(spark, folder)).withWatermark("t", "10 seconds")
    paid = p.source("payments", payments(spark, folder)).withWatermark("pt", "1 minute")
    near = "id = order AND pt >= t - INTERVAL 1 MINUTE AND pt <= t + INTERVAL 1 MINUTE"
    both = source.join(paid, f.expr(near), "leftOuter")
    groups = both.groupBy(f.window("t", "20 seconds"), "k").count().select("window", "k")
    p.sink("b", groups, FileSink(tmp_path / "b"))
    with pytest.raises(RefusedError, match="the watermark on pt of payments"):
        p.run()


def bars_of(p: Pipeline, spark: SparkSession, folder: Path) -> DataFrame:
    return windowed(p.source("orders", orders(spark, folder)))


def below(plan: PlanNode) -> list[PlanNode]:
    return [plan, *(node for child in plan.children for node in below(child))]


# what the texts say


def test_a_shape_is_the_tree_that_its_depths_tell() -> None:
    shape = "0 - - Union\n1 0 - StateStoreSave\n2 - a-b EventTimeWatermark\n1 - - Scan a  b\n"
    scan, mark = PlanNode("Scan a  b"), PlanNode("EventTimeWatermark", (), None, "a-b")
    assert parse_shape(shape) == PlanNode("Union", (PlanNode("StateStoreSave", (mark,), 0), scan))


def test_a_name_may_hold_what_ends_a_line_elsewhere() -> None:
    assert parse_shape("0 - - Scan \u2028 and \x0b\n").name == "Scan \u2028 and \x0b"


def test_an_operator_without_a_watermark_is_told_from_one_at_the_beginning_of_time() -> None:
    told = list(parse_evictions("0 Some(0) Save\n1 None Limit\n2 Some(-5) Join\n"))
    assert told == [Eviction(0, "Save", 0), Eviction(1, "Limit", None), Eviction(2, "Join", -5)]


def test_a_line_that_says_something_else_is_not_taken_for_a_node() -> None:
    with pytest.raises(SeamarkError, match="cannot be read"):
        parse_shape("0 - - Union\n(2) Project\n")
    with pytest.raises(SeamarkError, match="cannot be read"):
        list(parse_evictions("0 Some(later) Save\n"))


def test_ids_are_in_the_order_of_partitions_whatever_order_they_come_in() -> None:
    assert parse_state_ids("1 1 b\n1 0 a x\n0 10 d\n0 9 c\n1 2\n") == {
        0: [["c"], ["d"]],
        1: [["a", "x"], ["b"], []],
    }
