"""What a pipeline tells about itself, what it refuses, and the modes and sinks beside files."""

from __future__ import annotations

import logging
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from seamark import Pipeline, SeamarkError, open_store
from seamark.errors import RefusedError
from seamark.pipeline.declaration.compatibility import Compatibility, CompatibilityCheck
from seamark.sinks import Committable, FileSink, ForeachBatchSink, MemorySink
from seamark.spark.plans.lossy_options import CHECKS_OPERATORS, CHECKS_STATE, SKIPS_NULLS
from tests.pipeline.support.workloads import (
    Uninterrupted,
    orders,
    payments,
    pipeline,
    rows_in,
    run,
    settings_of,
    windowed,
    write_input,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.warm

SECRET = "hunter2-is-a-secret"


# asking


def test_explain_says_what_is_read_kept_written_and_guaranteed(
    spark: SparkSession, input_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    p = Pipeline("windowed", tmp_path / "store")
    source = p.source("orders", orders(spark, input_folder))
    p.sink("main", windowed(source), FileSink(tmp_path / "main"))
    p.sink("called", source.where("v > 50"), ForeachBatchSink(print))
    text = p.explain()
    assert text in capsys.readouterr().out
    for words in (
        "Pipeline windowed · append mode",
        "orders         json",
        "read 2 times an epoch",
        "aggregation",
        "in 2 partitions",
        "t of orders, 10 s late at most",
        "exactly once",
        "at least once",
        "outside the epoch's atomic commit",
        str(tmp_path / "main"),
    ):
        assert words in text


@pytest.mark.slow
def test_check_compares_without_starting_claiming_or_writing_anything(
    spark: SparkSession, input_folder: Path, tmp_path: Path
) -> None:
    p = pipeline(spark, "windowed", "hdfs", input_folder, tmp_path)
    assert p.check().fit is Compatibility.SAME
    assert not (tmp_path / "main").exists()
    run(spark, "windowed", "hdfs", input_folder, tmp_path)
    with open_store(tmp_path / "store") as store:
        before = store.owner()
    assert (
        pipeline(spark, "windowed", "hdfs", input_folder, tmp_path).check().fit
        is Compatibility.SAME
    )
    other = Pipeline("windowed", tmp_path / "store")
    source = other.source("orders", orders(spark, input_folder))
    other.sink("main", windowed(source), FileSink(tmp_path / "main"))
    verdict = other.check()
    assert verdict.fit is Compatibility.REFUSED
    assert verdict.changes == ["sink 'large' was removed"]
    with open_store(tmp_path / "store") as store:
        assert store.owner() == before


def bars(
    spark: SparkSession, folder: Path, root: Path, wanted: Callable[[DataFrame], DataFrame]
) -> Pipeline:
    p = Pipeline("bars", root / "store")
    p.sink("bars", wanted(p.source("orders", orders(spark, folder))), FileSink(root / "bars"))
    return p


def by_window(
    source: DataFrame, length: str = "20 seconds", delay: str = "10 seconds", by: str = "k"
) -> DataFrame:
    from pyspark.sql import functions as f

    late = source.withColumn("g", f.expr(by)).withWatermark("t", delay)
    return late.groupBy(f.window("t", length), "g").agg(f.sum("v").alias("sum"))


@pytest.mark.slow
def test_a_changed_window_delay_or_key_is_noticed_although_the_state_looks_the_same(
    spark: SparkSession, tmp_path: Path
) -> None:
    from pyspark.sql import functions as f

    input_folder = write_input(tmp_path / "input", epochs=1)
    bars(spark, input_folder, tmp_path, by_window).run()

    def checked(wanted: Callable[[DataFrame], DataFrame]) -> CompatibilityCheck:
        return bars(spark, input_folder, tmp_path, wanted).check()

    assert checked(by_window).fit is Compatibility.SAME
    for wanted, words in (
        (partial(by_window, length="40 seconds"), "window length 20 seconds → 40 seconds"),
        (partial(by_window, delay="1 minute"), "watermark delay 10 seconds → 1 minute"),
        (partial(by_window, by="id % 5"), "key k → (id % 5)"),
    ):
        verdict = checked(wanted)
        assert verdict.fit is Compatibility.REFUSED
        assert verdict.changes == [f"output 'bars': {words}"]

    def with_more(source: DataFrame) -> DataFrame:
        late = source.withColumn("g", f.col("k")).withWatermark("t", "10 seconds")
        grouped = late.groupBy(f.window("t", "20 seconds"), "g")
        return grouped.agg(f.sum("v").alias("sum"), f.max("v").alias("max"))

    p = Pipeline("bars", tmp_path / "store", policy="warn")
    source = p.source("orders", orders(spark, input_folder))
    p.sink("bars", with_more(source), FileSink(tmp_path / "bars"))
    with pytest.raises(RefusedError, match="max\\(v\\) was added") as refused:
        p.run()
    assert "cannot load state of another shape" in str(refused.value)
    assert "working copy" not in str(refused.value)


def test_options_that_may_lose_rows_are_told_before_and_at_the_start(
    spark: SparkSession, tmp_path: Path
) -> None:
    input_folder = write_input(tmp_path / "input", epochs=1)

    def build(**options: str) -> Pipeline:
        p = Pipeline("lossy", tmp_path / "store")
        reader = spark.readStream.schema("id int, k int").options(**options)
        source = p.source("orders", reader.json(str(input_folder / "orders")))
        p.sink("all", source, FileSink(tmp_path / "all"))
        return p

    words = "source 'orders' may lose rows by ignoreCorruptFiles=true"
    build().run()
    with pytest.raises(RefusedError, match=words):
        build(ignoreCorruptFiles="true").run()
    assert words in build(ignoreCorruptFiles="true").explain()
    with (
        settings_of(spark, {"spark.sql.files.ignoreCorruptFiles": "true"}),
        pytest.raises(RefusedError, match=r"may lose rows by spark\.sql\.files"),
    ):
        build().run()
    shutil.rmtree(tmp_path / "store")
    shutil.rmtree(tmp_path / "all")
    started = build(ignoreCorruptFiles="true").run()
    assert any(words in note for note in started.report.notes)
    again = build(ignoreCorruptFiles="true").run()
    assert any(words in note for note in again.report.notes)
    assert build().check().fit is Compatibility.GOES_ON


@pytest.mark.parametrize(
    ("setting", "value"),
    [("ignoreInvalidPartitionPaths", "true"), ("ignoredPathSegmentRegex", "^new")],
)
def test_a_setting_that_passes_over_files_is_refused_when_it_is_added(
    spark: SparkSession, tmp_path: Path, setting: str, value: str
) -> None:
    orders_of_a_day = write_input(tmp_path / "input", epochs=1) / "orders"

    def build(**options: str) -> Pipeline:
        p = Pipeline("passing", tmp_path / "store")
        reader = spark.readStream.schema("id int, k int").options(**options)
        source = p.source("orders", reader.json(str(orders_of_a_day)))
        p.sink("all", source, FileSink(tmp_path / "all"))
        return p

    build().run()
    with pytest.raises(RefusedError, match=f"may lose rows by {setting}="):
        build(**{setting: value}).run()
    with (
        settings_of(spark, {f"spark.sql.files.{setting}": value}),
        pytest.raises(RefusedError, match=rf"may lose rows by spark\.sql\.files\.{setting}="),
    ):
        build().run()


def test_settings_that_may_lose_rows_of_state_are_told_where_there_is_such_state(
    spark: SparkSession, input_folder: Path, tmp_path: Path
) -> None:
    def explained(kind: str) -> str:
        p = Pipeline("states", tmp_path / "store")
        reader = spark.readStream.schema("id int, k int, at timestamp")
        source = p.source("orders", reader.json(str(input_folder / "orders")))
        late = source.withWatermark("at", "1 minute")
        if kind == "joined":
            late = late.alias("a").join(late.alias("b"), "id").select("id")
        elif kind == "single":
            late = late.dropDuplicates(["id", "at"])
        elif kind == "several":
            late = late.dropDuplicates(["id", "at"]).dropDuplicates(["k", "at"])
        p.sink("all", late, FileSink(tmp_path / "all"))
        return p.explain()

    switches = {SKIPS_NULLS: "true", CHECKS_OPERATORS: "false", CHECKS_STATE: "false"}
    for kind, told in {
        "plain": [],
        "single": [CHECKS_STATE],
        "joined": [SKIPS_NULLS, CHECKS_STATE],
        "several": [CHECKS_OPERATORS, CHECKS_STATE],
    }.items():
        assert "may lose rows" not in explained(kind)
        with settings_of(spark, switches):
            text = explained(kind)
        assert [name for name in switches if name in text] == told


def test_explain_says_what_operators_compute_and_what_it_cannot_see(
    spark: SparkSession, input_folder: Path, tmp_path: Path
) -> None:
    from pyspark.sql.functions import udf

    @udf("int", useArrow=False)
    def halved(v: int) -> int:
        return v // 2

    def wanted(source: DataFrame) -> DataFrame:
        return by_window(source.withColumn("v", halved("v")))

    text = bars(spark, input_folder, tmp_path, wanted).explain()
    for words in (
        "bars: aggregation · by window(t, length 20 seconds, slide 20 seconds), k",
        "sum(v) [v: halved(v)]",
        "10 s late at most, later rows are dropped",
        "what Python functions do is not compared between starts, only their names (halved)",
    ):
        assert words in text


# refusing


def test_a_mode_that_spark_refuses_is_refused_in_words(
    spark: SparkSession, input_folder: Path, tmp_path: Path
) -> None:
    p = Pipeline("counts", tmp_path / "store")
    source = p.source("orders", orders(spark, input_folder))
    p.sink("counts", source.groupBy("k").count(), FileSink(tmp_path / "counts"))
    with pytest.raises(RefusedError, match="cannot run output 'counts' in append mode") as refused:
        p.run()
    assert "watermark" in str(refused.value)
    assert "one output mode" in str(refused.value)


def test_a_stream_that_was_not_declared_is_refused(
    spark: SparkSession, input_folder: Path, tmp_path: Path
) -> None:
    p = Pipeline("stray", tmp_path / "store")
    p.source("orders", orders(spark, input_folder))
    p.sink("paid", payments(spark, input_folder), FileSink(tmp_path / "paid"))
    with pytest.raises(RefusedError, match="not a source of the pipeline") as refused:
        p.run()
    assert "p.source(" in str(refused.value)


def test_outputs_that_share_no_source_cannot_share_a_watermark(
    spark: SparkSession, input_folder: Path, tmp_path: Path
) -> None:
    p = Pipeline("apart", tmp_path / "store")
    ordered = p.source("orders", orders(spark, input_folder))
    paid = p.source("payments", payments(spark, input_folder))
    p.sink("main", windowed(ordered), FileSink(tmp_path / "main"))
    p.sink("paid", paid, FileSink(tmp_path / "paid"))
    with pytest.raises(RefusedError, match="share no source") as refused:
        p.run()
    assert "main read orders; paid read payments" in str(refused.value)


def test_secrets_in_options_reach_no_file_no_log_and_no_error(
    spark: SparkSession,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    capsys: pytest.CaptureFixture[str],
) -> None:
    caplog.set_level(logging.DEBUG)

    class Refusing(FileSink):
        def commit(self, committable: Committable) -> None:
            raise OSError(f"https://user:{SECRET}@example.org/ said no to password={SECRET}")

    def build(sink: FileSink) -> Pipeline:
        p = Pipeline("secretive", tmp_path / "store", commit_tries=1)
        reader = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 5)
        reader = reader.option("kafka.sasl.jaas.config", f'password="{SECRET}"')
        reader = reader.option("password", SECRET).option("numPartitions", 1)
        p.sink("all", p.source("ticks", reader.load()), sink)
        return p

    assert SECRET not in build(FileSink(tmp_path / "all")).explain()
    with pytest.raises(SeamarkError, match="not every sink has committed") as failed:
        build(Refusing(tmp_path / "all")).run(available_now=False)
    running = build(FileSink(tmp_path / "all")).start()
    try:
        while running.epoch < 2:
            assert not running.await_termination(0.1)
    finally:
        running.stop()
    with pytest.raises(RefusedError, match="target was") as refused:
        build(FileSink(tmp_path / "elsewhere")).run()
    stored = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert any(path.name == "manifest.json" for path in stored)
    logged = [record.getMessage() for record in caplog.records if record.name.startswith("seamark")]
    assert logged
    told = [str(failed.value), str(refused.value), capsys.readouterr().out, *logged]
    assert all(SECRET not in text for text in told)
    assert all(SECRET.encode() not in path.read_bytes() for path in stored)


# other modes, other sinks


@pytest.mark.slow
def test_complete_mode_shows_the_whole_result_with_every_epoch(
    spark: SparkSession, input_folder: Path, tmp_path: Path
) -> None:
    memory = MemorySink()
    p = Pipeline("counts", tmp_path / "store", output_mode="complete")
    source = p.source("orders", orders(spark, input_folder))
    p.sink("counts", source.groupBy("k").count(), memory)
    p.run()
    assert sorted(memory.epochs) == [1, 2, 3, 4, 5, 6]
    assert {len(rows) for rows in memory.epochs.values()} == {5}
    assert sum(row["count"] for row in memory.epochs[1]) == 60
    assert sum(row["count"] for row in memory.epochs[6]) == 361


@pytest.mark.slow
def test_update_mode_shows_what_changed_and_goes_on_after_a_restart(
    spark: SparkSession, input_folder: Path, tmp_path: Path
) -> None:
    def build(memory: MemorySink, **options: Any) -> Pipeline:
        p = Pipeline("counts", tmp_path / "store", output_mode="update", **options)
        source = p.source("orders", orders(spark, input_folder))
        p.sink("counts", source.groupBy("k").count(), memory)
        p.sink("large", source.where("v > 50"), FileSink(tmp_path / "large"))
        return p

    class Enough(Exception):
        pass

    def fail(step: str, when: str, epoch: int) -> None:
        if (step, when, epoch) == ("write", "before", 4):
            raise Enough

    first, second = MemorySink(), MemorySink()
    with pytest.raises(Enough):
        build(first, on_step=fail).run()
    build(second).run()
    assert sorted(first.epochs) == [1, 2, 3]
    assert sorted(second.epochs) == [4, 5, 6]
    newest = {row["k"]: row["count"] for row in first.rows + second.rows}
    assert sum(newest.values()) == 361
    assert len(second.epochs[6]) == 1


@pytest.mark.slow
@pytest.mark.parametrize("beside", [False, True], ids=["alone", "beside-files"])
def test_a_function_that_reads_only_some_of_its_rows_breaks_nothing(
    spark: SparkSession,
    input_folder: Path,
    tmp_path: Path,
    uninterrupted: Uninterrupted,
    beside: bool,
) -> None:
    seen: list[int] = []

    def look(df: DataFrame, epoch: int) -> None:
        df.limit(1).collect()
        seen.append(epoch)

    def build(**options: Any) -> Pipeline:
        p = Pipeline("glance", tmp_path / "store", **options)
        source = p.source("orders", orders(spark, input_folder))
        p.sink("looked", windowed(source), ForeachBatchSink(look))
        if beside:
            p.sink("large", source.where("v > 50"), FileSink(tmp_path / "large"))
        return p

    def fail(step: str, when: str, epoch: int) -> None:
        if (step, when, epoch) == ("prepare", "before", 4):
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        build(on_step=fail).run()
    assert build().run().epoch == 7
    assert seen == [1, 2, 3, 4, 4, 5, 6, 7]
    if beside:
        assert rows_in(tmp_path / "large") == uninterrupted("windowed")["large"]


def test_a_function_that_ends_the_program_does_not_leave_spark_waiting(
    spark: SparkSession, input_folder: Path, tmp_path: Path
) -> None:
    def leave(df: DataFrame, epoch: int) -> None:
        raise SystemExit(3)

    p = Pipeline("leaver", tmp_path / "store")
    source = p.source("orders", orders(spark, input_folder))
    p.sink("left", source, ForeachBatchSink(leave))
    with pytest.raises(SystemExit):
        p.run(timeout=280)


def test_an_error_of_a_function_is_told_with_its_sink_and_epoch(
    spark: SparkSession, tmp_path: Path
) -> None:
    input_folder = write_input(tmp_path / "input", epochs=1)

    def to_lake(df: DataFrame, epoch: int) -> None:
        if epoch == 2:
            raise ValueError(f"no such table, password={SECRET}")

    p = Pipeline("failing", tmp_path / "store")
    p.sink("lake", p.source("orders", orders(spark, input_folder)), ForeachBatchSink(to_lake))
    with pytest.raises(SeamarkError, match="sink 'lake' failed in epoch 2") as failed:
        p.run()
    assert "to_lake: ValueError: no such table" in str(failed.value)
    assert SECRET not in str(failed.value)
    assert isinstance(failed.value.__cause__, ValueError)


def test_an_error_of_spark_inside_a_function_names_the_sink_and_the_epoch(
    spark: SparkSession, tmp_path: Path
) -> None:
    input_folder = write_input(tmp_path / "input", epochs=1)

    def misspelt(df: DataFrame, epoch: int) -> None:
        df.select("no_such_column").collect()

    p = Pipeline("failing", tmp_path / "store")
    p.sink("lake", p.source("orders", orders(spark, input_folder)), ForeachBatchSink(misspelt))
    with pytest.raises(SeamarkError, match="no_such_column") as failed:
        p.run()
    assert "while sink 'lake' was written in epoch 1" in str(failed.value)


def test_a_missing_connector_is_told_with_the_package_that_it_comes_in(
    spark: SparkSession, tmp_path: Path
) -> None:
    p = Pipeline("trades", tmp_path / "store")
    reader = spark.readStream.format("kafka").option("kafka.bootstrap.servers", "localhost:1")
    with pytest.raises(RefusedError, match="no connector for kafka") as refused:
        p.source("trades", reader.option("subscribe", "trades"))
    assert "config(map=seamark.kafka_packages())" in str(refused.value)
    assert "spark.jars.packages" in str(refused.value)


def test_what_a_sink_raises_is_what_the_caller_gets(
    spark: SparkSession, input_folder: Path, tmp_path: Path
) -> None:
    def fail(df: DataFrame, epoch: int) -> None:
        raise SeamarkError("no room in the lake", hint="Make some.")

    p = Pipeline("failing", tmp_path / "store")
    source = p.source("orders", orders(spark, input_folder))
    p.sink("failed", source, ForeachBatchSink(fail))
    with pytest.raises(SeamarkError, match="no room in the lake"):
        p.run()
