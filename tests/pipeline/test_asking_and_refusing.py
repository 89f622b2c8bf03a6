"""What a pipeline tells about itself, what it refuses, and the modes and sinks beside files."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from seamark import Pipeline, SeamarkError, open_store
from seamark.errors import RefusedError
from seamark.pipeline.topology import Fit
from seamark.sinks import Committable, FileSink, ForeachBatchSink, MemorySink
from tests.pipeline.workloads import (
    Uninterrupted,
    orders,
    payments,
    pipeline,
    rows_in,
    run,
    windowed,
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


def test_check_compares_without_starting_claiming_or_writing_anything(
    spark: SparkSession, input_folder: Path, tmp_path: Path
) -> None:
    p = pipeline(spark, "windowed", "hdfs", input_folder, tmp_path)
    assert p.check().fit is Fit.SAME
    assert not (tmp_path / "main").exists()
    run(spark, "windowed", "hdfs", input_folder, tmp_path)
    with open_store(tmp_path / "store") as store:
        before = store.owner()
    assert pipeline(spark, "windowed", "hdfs", input_folder, tmp_path).check().fit is Fit.SAME
    other = Pipeline("windowed", tmp_path / "store")
    source = other.source("orders", orders(spark, input_folder))
    other.sink("main", windowed(source), FileSink(tmp_path / "main"))
    verdict = other.check()
    assert verdict.fit is Fit.REFUSED
    assert verdict.changes == ["sink 'large' was removed"]
    with open_store(tmp_path / "store") as store:
        assert store.owner() == before


# refusing


def test_a_mode_that_spark_refuses_is_refused_in_words(
    spark: SparkSession, input_folder: Path, tmp_path: Path
) -> None:
    p = Pipeline("counts", tmp_path / "store")
    source = p.source("orders", orders(spark, input_folder))
    p.sink("counts", source.groupBy("k").count(), FileSink(tmp_path / "counts"))
    with pytest.raises(
        RefusedError, match="Spark cannot run these outputs as one query"
    ) as refused:
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
        p.run(timeout=30)


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
