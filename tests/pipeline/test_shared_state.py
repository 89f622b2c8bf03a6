"""Outputs of one pipeline that have a stateful part in common."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import functions as f

from seamark import Pipeline
from seamark.errors import RefusedError
from seamark.pipeline.run_builder import QueryStarter
from seamark.sinks import FileSink, ForeachBatchSink
from seamark.spark.plans.executed_plan import CACHE_PRUNING, EXCHANGE_REUSE, EXCLUDED_RULES
from seamark.store import open_store
from tests.pipeline.support import workloads
from tests.pipeline.support.workloads import deduplicated, orders, rows_in, windowed

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from seamark.pipeline.declaration.compile import Compiled

Outputs = Callable[["DataFrame"], Mapping[str, "DataFrame"]]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return workloads.write_input(tmp_path_factory.mktemp("shared"), epochs=2)


def pipeline(
    spark: SparkSession, folder: Path, root: Path, outputs: Outputs, **options: Any
) -> Pipeline:
    p = Pipeline("shared", root / "store", **options)
    for name, df in outputs(p.source("orders", orders(spark, folder))).items():
        p.sink(name, df, FileSink(root / name))
    return p


def one_bar(source: DataFrame) -> Mapping[str, DataFrame]:
    return {"a": windowed(source)}


def bars_twice(source: DataFrame) -> Mapping[str, DataFrame]:
    bars = windowed(source)
    return {"a": bars, "b": bars}


def bars_four_ways(source: DataFrame) -> Mapping[str, DataFrame]:
    bars = windowed(source)
    named = bars.selectExpr("k AS `a key`", "n * 2 AS twice", "sum", "window.start AS start")
    return {
        "a": bars,
        "all": source.where("v > 50"),
        "b": named.where("sum > 100 AND twice > 2").select("a key", "start"),
        "c": bars.where("k = 3").alias("x").selectExpr("x.sum / x.n AS mean"),
    }


def counted_after_deduplication(source: DataFrame) -> Mapping[str, DataFrame]:
    single = deduplicated(source)
    sums = single.groupBy(f.window("t", "20 seconds"), "k", "id").agg(f.sum("v").alias("sum"))
    return {"a": single, "b": sums}


def operators_in(root: Path) -> list[str]:
    """The operators that keep state in the working copy."""
    return sorted(path.name for path in root.glob("store/working/*/state/*"))


@pytest.mark.warm
@pytest.mark.slow
def test_outputs_of_one_aggregation_share_its_state_and_each_gets_its_rows(
    spark: SparkSession, folder: Path, tmp_path: Path
) -> None:
    pipeline(spark, folder, tmp_path, bars_four_ways).run()
    bars = [json.loads(row) for row in rows_in(tmp_path / "a").elements()]
    assert len(bars) > 20
    expected = Counter(
        json.dumps({"a key": bar["k"], "start": bar["window"]["start"]}, sort_keys=True)
        for bar in bars
        if bar["sum"] > 100 and bar["n"] * 2 > 2
    )
    assert 0 < expected.total() < len(bars)
    assert rows_in(tmp_path / "b") == expected
    means = Counter(json.dumps({"mean": b["sum"] / b["n"]}) for b in bars if b["k"] == 3)
    assert means.total() > 0
    assert rows_in(tmp_path / "c") == means
    assert rows_in(tmp_path / "all").total() > 0
    assert operators_in(tmp_path) == ["0"]


@pytest.mark.slow
@pytest.mark.warm
def test_outputs_with_a_state_of_their_own_have_the_same_rows_whatever_the_session_says(
    spark: SparkSession, folder: Path, tmp_path: Path
) -> None:
    with workloads.settings_of(spark, {EXCHANGE_REUSE: "true"}):
        pipeline(spark, folder, tmp_path, bars_twice, share_state=False).run()
        assert spark.conf.get(EXCHANGE_REUSE) == "true", "the session is the user's"
    assert rows_in(tmp_path / "a").total() > 20
    assert rows_in(tmp_path / "a") == rows_in(tmp_path / "b")
    assert operators_in(tmp_path) == ["0", "1"]

    with pytest.raises(RefusedError, match="share_state=False"):
        pipeline(spark, folder, tmp_path, bars_twice).run()
    again = pipeline(spark, folder, tmp_path, bars_twice, share_state=False).run()
    assert again.report.chosen_id is not None


@pytest.mark.warm
@pytest.mark.slow
def test_no_filter_on_shared_rows_or_in_a_function_loses_what_is_no_number(
    spark: SparkSession, folder: Path, tmp_path: Path
) -> None:
    passed: list[Any] = []
    p = Pipeline("shared", tmp_path / "store")
    source = p.source("orders", orders(spark, folder))
    single = deduplicated(source.withColumn("x", f.expr("IF(k = 1, double('NaN'), 1.0)")))
    for name, condition in {"all": "true", "high": "x >= 5", "low": "x < 5"}.items():
        p.sink(name, single.where(condition), FileSink(tmp_path / name))
    collect = lambda df, _: passed.extend(df.where("x >= 5").collect())  # noqa: E731
    p.sink("function", single, ForeachBatchSink(collect, idempotent=True))
    with workloads.settings_of(spark, {CACHE_PRUNING: "true"}):
        p.run()
    high, low = rows_in(tmp_path / "high"), rows_in(tmp_path / "low")
    assert any("NaN" in row for row in high), "it is larger than every number"
    assert low.total() > 0
    assert high + low == rows_in(tmp_path / "all")
    assert len(passed) == high.total()


@pytest.mark.spark
def test_an_output_and_an_aggregation_of_it_are_both_complete(
    spark: SparkSession, folder: Path, tmp_path: Path
) -> None:
    pipeline(spark, folder, tmp_path, counted_after_deduplication).run()
    assert rows_in(tmp_path / "a").total() == 121
    assert rows_in(tmp_path / "b").total() == 120, "the last row's window is still open"


@pytest.mark.warm
def test_an_epoch_whose_plan_reuses_a_stateful_input_is_refused_before_anything_is_written(
    spark: SparkSession, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(QueryStarter, "_query_settings", lambda *_: nullcontext())
    with (
        workloads.settings_of(spark, {EXCHANGE_REUSE: "true"}),
        pytest.raises(RefusedError, match=r"epoch 1: Spark's plan is not the one") as refused,
    ):
        pipeline(spark, folder, tmp_path, counted_after_deduplication).run()
    assert "the aggregation (operator 1) reads an exchange that belongs" in str(refused.value)
    assert not any(rows_in(tmp_path / sink) for sink in "ab")


@pytest.mark.spark
def test_a_function_that_makes_spark_reuse_exchanges_stops_the_next_epoch(
    spark: SparkSession, folder: Path, tmp_path: Path
) -> None:
    def meddle(batch: DataFrame, _: int) -> None:
        batch.sparkSession.conf.set(EXCHANGE_REUSE, "true")
        batch.count()

    p = Pipeline("shared", tmp_path / "store", share_state=False)
    bars = windowed(p.source("orders", orders(spark, folder)))
    p.sink("a", bars, FileSink(tmp_path / "a"))
    p.sink("b", bars, ForeachBatchSink(meddle))
    with pytest.raises(RefusedError, match=r"epoch 2: Spark's plan is not the one"):
        p.run()
    with open_store(tmp_path / "store") as store:
        assert [epoch for _, epoch in store.list()] == [1]


@pytest.mark.spark
@pytest.mark.parametrize("rules", ["org.apache.spark.sql.catalyst.optimizer.CombineUnions", None])
def test_a_function_that_changes_the_rules_of_the_plan_stops_the_next_epoch(
    spark: SparkSession, tmp_path: Path, rules: str | None
) -> None:
    """Where a source is empty in a batch, a top three without its sort would be all rows."""
    shown: list[int] = []

    def meddle(batch: DataFrame, _: int) -> None:
        shown.append(batch.count())
        if rules is None:
            batch.sparkSession.conf.unset(EXCLUDED_RULES)
        else:
            batch.sparkSession.conf.set(EXCLUDED_RULES, rules)

    folder = workloads.write_input(tmp_path / "in", epochs=1)
    (folder / "orders" / "001.json").unlink()  # the second epoch has payments only
    p = Pipeline("shared", tmp_path / "store", output_mode="complete", progress=None)
    totals = p.source("orders", orders(spark, folder)).groupBy("k").count()
    paid = p.source("payments", workloads.payments(spark, folder)).groupBy("paid").count()
    p.sink("top", totals.orderBy("count", "k").limit(3), ForeachBatchSink(meddle))
    p.sink("paid", paid, FileSink(tmp_path / "paid"))
    with pytest.raises(RefusedError, match=r"epoch 2: a setting that the plan .* was changed"):
        p.run()
    assert shown == [3]


@pytest.mark.warm
def test_an_output_whose_watermark_would_never_move_is_refused(
    spark: SparkSession, folder: Path, tmp_path: Path
) -> None:
    p = Pipeline("shared", tmp_path / "store")
    source = p.source("orders", orders(spark, folder))
    marked = source.withWatermark("t", "10 seconds")
    paid = p.source("payments", workloads.payments(spark, folder)).withWatermark("pt", "1 minute")
    near = "id = order AND pt >= t - INTERVAL 1 MINUTE AND pt <= t + INTERVAL 1 MINUTE"
    both = marked.join(paid, f.expr(near), "leftOuter")
    # only the groups are read, so that Spark needs no join: and leaves it out with its watermark
    groups = both.groupBy(f.window("t", "20 seconds"), "k").count().select("window", "k")
    p.sink("a", source, FileSink(tmp_path / "a"))
    p.sink("b", groups, FileSink(tmp_path / "b"))
    with pytest.raises(RefusedError, match="the watermark on pt of payments"):
        p.run()
    assert not rows_in(tmp_path / "a")


@pytest.mark.spark
def test_a_sink_that_is_added_to_state_that_is_there_gets_all_that_comes_out_of_it(
    spark: SparkSession, tmp_path: Path
) -> None:
    folder = workloads.write_input(tmp_path / "in", epochs=1)
    pipeline(spark, folder, tmp_path, one_bar).run()
    before = rows_in(tmp_path / "a")
    late = [{"id": n, "k": 1, "v": n, "t": workloads.clock(9000 + n)} for n in range(50)]
    workloads.put_file(folder / "orders", 2, late)
    workloads.put_file(
        folder / "orders", 3, [{"id": 0, "k": 0, "v": 0, "t": workloads.clock(18000)}]
    )
    pipeline(spark, folder, tmp_path, bars_twice).run()
    assert rows_in(tmp_path / "b") == rows_in(tmp_path / "a") - before
    assert rows_in(tmp_path / "b").total() == 4, "three windows, and the row that was waiting"


def compiled(spark: SparkSession, folder: Path, outputs: Outputs) -> Compiled:
    from seamark.pipeline.declaration.compile import Output, compile_outputs
    from seamark.sinks import MemorySink
    from seamark.spark.plans.plan import PlanSources

    sources = PlanSources()
    source = orders(spark, folder)
    sources.add("orders", source)
    made = [Output(name, df, MemorySink()) for name, df in outputs(source).items()]
    return compile_outputs(made, sources, output_mode="append")


def shared_by(spark: SparkSession, folder: Path, outputs: Outputs) -> list[tuple[int, ...]]:
    """Which outputs have a state together, by their numbers."""
    return [branch.outputs for branch in compiled(spark, folder, outputs).branches]


@pytest.mark.warm
def test_only_what_looks_at_one_row_at_a_time_is_left_to_the_batch(
    spark: SparkSession, folder: Path
) -> None:
    from pyspark.sql.types import LongType

    plus_one = f.udf(lambda n: n + 1, LongType())
    table = spark.range(5).withColumnRenamed("id", "k")

    def outputs(source: DataFrame) -> Mapping[str, DataFrame]:
        bars = windowed(source)
        timed = bars.withColumn("at", f.current_timestamp())
        return {
            "0 shared": bars,
            "1 stateless": source,
            "2 shared": bars.where("n > 3").select("k"),
            "3 built again": windowed(source),
            "4 the time of the epoch": timed,
            "5 random": bars.withColumn("r", f.rand()),
            "6 a Python function": bars.select(plus_one("n").alias("n")),
            "7 a table": bars.join(table, "k"),
            "8 shared with 4": timed.where("n > 3"),
            "9 another operator": bars.groupBy("k", f.window_time("window")).count(),
        }

    expected = [(0, 2), (1,), (3,), (4, 8), (5,), (6,), (7,), (9,)]
    assert shared_by(spark, folder, outputs) == expected
    assert compiled(spark, folder, outputs).shares == {
        "2 shared": "0 shared",
        "8 shared with 4": "4 the time of the epoch",
    }
    assert shared_by(spark, folder, lambda source: {"a": source, "b": source}) == [(0,), (1,)]


def halves(source: DataFrame) -> Mapping[str, DataFrame]:
    """Each row is in one of the two, by chance."""
    drawn = source.select("id", "v", "t").withColumn("r", f.rand())
    return {"a": drawn.where("r < 0.5"), "b": drawn.where("r >= 0.5").select("id")}


@pytest.mark.spark
@pytest.mark.parametrize("share_state", [True, False])
def test_rows_that_outputs_divide_by_chance_are_in_one_of_them_each(
    spark: SparkSession, folder: Path, tmp_path: Path, share_state: bool
) -> None:
    def outputs(source: DataFrame) -> Mapping[str, DataFrame]:
        return {**halves(source), "all": source}

    p = pipeline(spark, folder, tmp_path, outputs, share_state=share_state)
    assert "a shares its random rows with b" in p.explain()
    p.run()

    def ids(*sinks: str) -> list[int]:
        rows = [json.loads(row) for sink in sinks for row in rows_in(tmp_path / sink).elements()]
        return sorted(row["id"] for row in rows)

    assert len(ids("all")) > 100
    assert ids("a", "b") == ids("all")
    assert 0 < len(ids("a")) < len(ids("all"))


@pytest.mark.warm
def test_outputs_share_random_rows_or_a_warning_says_that_each_draws_its_own(
    spark: SparkSession, folder: Path
) -> None:
    def outputs(source: DataFrame) -> Mapping[str, DataFrame]:
        drawn = source.withWatermark("t", "10 seconds").withColumn("r", f.rand())
        return {
            "0 shared": drawn.where("r < 0.5"),
            "1 shared": drawn.where("r >= 0.5").select("id"),
            "2 drawn anew": source.withColumn("r", f.rand()),
            "3 counted": drawn.groupBy(f.window("t", "20 seconds")).agg(f.max("r")),
            "4 not random": source,
        }

    found = compiled(spark, folder, outputs)
    assert [branch.outputs for branch in found.branches] == [(0, 1), (2,), (3,), (4,)]
    assert found.shares == {}, "there is no state to share"
    assert "watermark" in {each["operator"] for each in found.computes["1 shared"]}
    (warning,) = found.warnings
    assert warning.startswith("outputs 0 shared, 3 counted are made of the same random values")
    assert compiled(spark, folder, halves).warnings == ()


def with_a_hidden_column(source: DataFrame) -> Mapping[str, DataFrame]:
    """Spark adds the column to the node that draws, in one of them only."""
    drawn = source.withColumn("r", f.rand())
    return {"a": drawn.where("r < 0.5"), "b": drawn.where("r >= 0.5").select("_metadata.file_name")}


def joined_with_itself(source: DataFrame) -> Mapping[str, DataFrame]:
    """Spark gives the columns on the right other ids."""
    drawn = source.withColumn("r", f.rand())
    right = drawn.where("r >= 0.5").select("id", "r")
    return {"a": drawn.where("r < 0.5"), "b": source.select("id").join(right, "id")}


def of_one_seed(source: DataFrame) -> Mapping[str, DataFrame]:
    """The same in a batch, and not in a stream: Spark seeds every expression anew."""
    return {"a": source.where(f.rand(7) < 0.5), "b": source.where(f.rand(7) >= 0.5)}


@pytest.mark.warm
@pytest.mark.parametrize("outputs", [with_a_hidden_column, joined_with_itself, of_one_seed])
def test_random_values_that_are_drawn_apart_are_told_however_spark_rewrites_the_plan(
    spark: SparkSession,
    folder: Path,
    outputs: Callable[[DataFrame], Mapping[str, DataFrame]],
) -> None:
    (warning,) = compiled(spark, folder, outputs).warnings
    assert warning.startswith("outputs a, b are made of the same random values")


def by_id(source: DataFrame) -> DataFrame:
    """Rows of one id once; the time is not among the keys."""
    return source.withWatermark("t", "10 seconds").dropDuplicates(["id"])


@pytest.mark.warm
def test_outputs_share_only_operators_that_judge_alike_which_rows_are_late(
    spark: SparkSession, folder: Path
) -> None:
    def outputs(source: DataFrame) -> Mapping[str, DataFrame]:
        single = by_id(source)
        return {
            "0 with the time": single,
            "1 without it": single.select("id"),
            "2 with the time": single.select("t"),
            "3 without it": single.select("id", "v"),
        }

    assert shared_by(spark, folder, outputs) == [(0, 2), (1, 3)]


@pytest.mark.warm
@pytest.mark.slow
def test_an_output_without_the_time_has_the_late_rows_that_it_has_alone(
    spark: SparkSession, tmp_path: Path
) -> None:
    times = {1: "00:00", 2: "10:00", 4: "10:01", 5: "10:02", 3: "00:01", 6: "10:03"}
    (tmp_path / "in").mkdir()
    for number, (row, time) in enumerate(times.items()):
        at = tmp_path / "in" / f"{number}.json"
        at.write_text(json.dumps({"id": row, "t": f"2026-01-01T00:{time}Z"}))
        os.utime(at, (1.7e9 + number, 1.7e9 + number))

    def rows() -> DataFrame:
        reader = spark.readStream.schema("id long, t timestamp").option("maxFilesPerTrigger", 1)
        return reader.json(str(tmp_path / "in"))

    alone = by_id(rows()).select("id").writeStream.trigger(availableNow=True)
    alone = alone.option("checkpointLocation", str(tmp_path / "stock"))
    alone.format("parquet").start(str(tmp_path / "alone")).awaitTermination()
    p = Pipeline("late", tmp_path / "store")
    single = by_id(p.source("rows", rows()))
    p.sink("all", single, FileSink(tmp_path / "all"))
    p.sink("ids", single.select("id"), FileSink(tmp_path / "ids"))
    p.run()

    def ids(folder: str) -> set[int]:
        return {row.id for row in spark.read.parquet(str(tmp_path / folder)).collect()}

    assert ids("ids") == ids("alone") == {1, 2, 3, 4, 5, 6}
    assert ids("all") == {1, 2, 4, 5, 6}


def malformed(spark: SparkSession, folder: Path, **options: str) -> DataFrame:
    """Two files of csv; in the second, a row has a value that is no number."""
    (folder / "csv").mkdir(exist_ok=True)
    for number, text in enumerate(("k,v,w\n1,1,1\n2,2,2\n", "k,v,w\n1,x,1\n3,3,3\n")):
        (folder / "csv" / f"{number}.csv").write_text(text)
    reader = spark.readStream.schema("k int, v int, w int").option("header", "true")
    return reader.options(maxFilesPerTrigger="1", **options).csv(str(folder / "csv"))


def counted(rows: DataFrame) -> Mapping[str, DataFrame]:
    totals = rows.groupBy("k").agg(f.count("*").alias("n"), f.sum("v").alias("sum"))
    return {
        "0 of rows": totals.select("k", "n"),
        "1 of values": totals,
        "2 of rows": totals.select("n", "k").where("n > 0"),
    }


@pytest.mark.warm
@pytest.mark.parametrize(
    ("options", "settings", "expected"),
    [
        ({}, {}, [(0, 1, 2)]),
        ({"mode": "DROPMALFORMED"}, {}, [(0, 2), (1,)]),
        ({"ignoreCorruptFiles": "true"}, {}, [(0, 2), (1,)]),
        ({}, {"spark.sql.files.ignoreCorruptFiles": "true"}, [(0, 2), (1,)]),
        ({"columnNameOfCorruptRecord": "w"}, {}, [(0, 2), (1,)]),
    ],
)
def test_outputs_share_only_where_the_columns_that_they_read_give_the_same_rows(
    spark: SparkSession,
    tmp_path: Path,
    options: dict[str, str],
    settings: dict[str, str],
    expected: list[tuple[int, ...]],
) -> None:
    with workloads.settings_of(spark, settings):
        p = Pipeline("malformed", tmp_path / "store", output_mode="update")
        source = p.source("rows", malformed(spark, tmp_path, **options))
        for name, df in counted(source).items():
            p.sink(name, df, FileSink(tmp_path / name))
        assert [branch.outputs for branch in p._declared().compiled.branches] == expected


@pytest.mark.warm
@pytest.mark.slow
def test_an_output_of_files_with_malformed_rows_counts_those_that_it_counts_alone(
    spark: SparkSession, tmp_path: Path
) -> None:
    def rows() -> DataFrame:
        return malformed(spark, tmp_path, mode="DROPMALFORMED")

    p = Pipeline("malformed", tmp_path / "store", output_mode="update")
    for name, df in counted(p.source("rows", rows())).items():
        p.sink(name, df, FileSink(tmp_path / name))
    p.run()
    for name, df in counted(rows()).items():
        alone: list[str] = []

        def keep(batch: DataFrame, _: int, alone: list[str] = alone) -> None:
            alone += [row.asDict().__repr__() for row in batch.collect()]

        writer = df.writeStream.outputMode("update").trigger(availableNow=True)
        writer = writer.option("checkpointLocation", str(tmp_path / f"stock {name}"))
        writer.foreachBatch(keep).start().awaitTermination()
        shown = spark.read.parquet(str(tmp_path / name)).select(*df.columns).collect()
        assert Counter(row.asDict().__repr__() for row in shown) == Counter(alone), name
