"""Each output must be one that Spark runs alone in the pipeline's output mode."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from seamark import Pipeline, open_store
from seamark.errors import RefusedError
from seamark.pipeline.pipeline import OutputMode
from seamark.sinks import ForeachBatchSink, MemorySink
from seamark.sinks.foreach import EpochNumber
from seamark.spark.plans.executed_plan import REGEX_NAMES
from seamark.spark.row_digests import digest_of
from tests.pipeline.support.workloads import orders, settings_of, windowed, write_input

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.warm

Outputs = Callable[["DataFrame"], Mapping[str, "DataFrame"]]


def totals(source: DataFrame) -> DataFrame:
    return source.groupBy("k").count()


REFUSED: Mapping[str, tuple[OutputMode, Outputs, str]] = {
    "rows in complete": (
        "complete",
        lambda s: {"totals": totals(s), "large": s.where("v > 5")},
        "large",
    ),
    "deduplication in complete": (
        "complete",
        lambda s: {"totals": totals(s), "once": s.dropDuplicates(["id"])},
        "once",
    ),
    "a limit in complete": (
        "complete",
        lambda s: {"some": s.limit(3), "totals": totals(s)},
        "some",
    ),
    "an aggregation without watermark, last": (
        "append",
        lambda s: {"bars": windowed(s), "totals": totals(s)},
        "totals",
    ),
    "an aggregation without watermark, first": (
        "append",
        lambda s: {"totals": totals(s), "bars": windowed(s)},
        "totals",
    ),
    "a sort in update": (
        "update",
        lambda s: {"totals": totals(s), "sorted": totals(s).orderBy("k")},
        "sorted",
    ),
}


def declared(
    spark: SparkSession, folder: Path, root: Path, mode: OutputMode, outputs: Outputs
) -> Pipeline:
    p = Pipeline("modes", root / "store", output_mode=mode, progress=None)
    for name, df in outputs(p.source("orders", orders(spark, folder))).items():
        p.sink(name, df, MemorySink())
    return p


@pytest.mark.parametrize("which", REFUSED)
def test_an_output_that_spark_refuses_alone_is_refused_beside_others_before_the_claim(
    spark: SparkSession, input_folder: Path, tmp_path: Path, which: str
) -> None:
    mode, outputs, name = REFUSED[which]
    p = declared(spark, input_folder, tmp_path, mode, outputs)
    with pytest.raises(RefusedError, match=f"output '{name}' in {mode} mode") as refused:
        p.run()
    assert "a pipeline of their own" in str(refused.value)
    with open_store(tmp_path / "store") as store:
        assert store.owner().generation == 0
    with pytest.raises(RefusedError, match=f"output '{name}'"):
        p.check()


def test_outputs_that_spark_runs_only_one_by_one_are_refused_before_the_claim(
    spark: SparkSession, input_folder: Path, tmp_path: Path
) -> None:
    def outputs(source: DataFrame) -> Mapping[str, DataFrame]:
        state = source.groupBy("k").applyInPandasWithState(
            lambda key, frames, state: iter(()), "k int", "n long", "update", "NoTimeout"
        )
        return {"state": state, "totals": totals(source)}

    p = declared(spark, input_folder, tmp_path, "update", outputs)
    with pytest.raises(RefusedError, match="these outputs as one query"):
        p.run()
    with open_store(tmp_path / "store") as store:
        assert store.owner().generation == 0


def test_aggregations_and_what_is_made_of_their_rows_go_together_in_complete_mode(
    spark: SparkSession, input_folder: Path, tmp_path: Path
) -> None:
    def outputs(source: DataFrame) -> Mapping[str, DataFrame]:
        counts = totals(source)
        return {
            "counts": counts,
            "some": counts.where("k > 1").select("k"),
            "top": counts.orderBy("count").limit(2),
            "bars": windowed(source),
        }

    p = declared(spark, input_folder, tmp_path, "complete", outputs)
    assert "complete mode" in p.explain()


@pytest.mark.slow
@pytest.mark.parametrize("outputs", [1, 2])
def test_a_name_that_could_be_a_pattern_is_that_of_one_column(
    spark: SparkSession, tmp_path: Path, outputs: int
) -> None:
    p = Pipeline("names", tmp_path / "store", output_mode="update", progress=None)
    sums = p.source("orders", orders(spark, write_input(tmp_path, 1))).groupBy("k").sum("v")
    sinks = [MemorySink() for _ in range(outputs)]
    with settings_of(spark, {REGEX_NAMES: "true"}):
        for number, sink in enumerate(sinks):
            p.sink(f"o{number}", sums, sink)
        p.run()
    with open_store(tmp_path / "store") as store:
        newest = store.load_latest()
    assert newest is not None
    for number, sink in enumerate(sinks):
        recorded = (newest.output_digests or {})[f"o{number}"]
        kept = digest_of(spark.createDataFrame(sink.rows, sums.schema))
        assert recorded.total_digest == kept.digest


@pytest.mark.slow
def test_a_sorted_result_comes_in_its_order_beside_another_output(
    spark: SparkSession, tmp_path: Path
) -> None:
    shown: list[list[int]] = []

    def keep(rows: DataFrame, _: EpochNumber) -> None:
        shown.append([row["id"] for row in rows.collect()])

    p = Pipeline("sorted", tmp_path / "store", output_mode="complete", progress=None)
    source = p.source("orders", orders(spark, write_input(tmp_path, 1)))
    ids = source.groupBy("id").count().orderBy("id").where("id >= 0")
    p.sink("ids", ids, ForeachBatchSink(keep))
    p.sink("totals", totals(source), MemorySink())
    with settings_of(spark, {"spark.sql.shuffle.partitions": "6"}):
        p.run()
    assert [ids == sorted(ids) for ids in shown] == [True, True]


def test_a_session_that_turns_the_check_off_has_it_off(
    spark: SparkSession, input_folder: Path, tmp_path: Path
) -> None:
    mode, outputs, _ = REFUSED["rows in complete"]
    p = declared(spark, input_folder, tmp_path, mode, outputs)
    with settings_of(spark, {"spark.sql.streaming.unsupportedOperationCheck": "false"}):
        assert "complete mode" in p.explain()
