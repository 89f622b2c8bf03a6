"""What Spark writes through a FileSink, and what Spark, pyarrow and pandas read from it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb
import pandas as pd
import pyarrow.dataset as ds
import pytest

from seamark.sinks import ConsoleSink, FileSink, ForeachBatchSink, MemorySink
from seamark.sinks.reader_calls import calls_for
from seamark.testing.conformance.sink_examples import epoch

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.warm


def numbers(spark: SparkSession, first: int = 0, partitions: int = 8) -> DataFrame:
    rows = spark.range(first, first + 60, 1, partitions)
    return rows.selectExpr("id as n", "concat('w', id % 3) as word", "id % 2 = 0 as even")


def publish(sink: FileSink, df: DataFrame, number: int = 1) -> dict[str, Any]:
    sink.open("trades", "bars", df.schema)
    sink.stage(df, epoch(number), f"a{number}")
    committable = sink.prepare()
    sink.commit(committable)
    return committable


def names(path: Path) -> list[str]:
    return sorted(str(file.relative_to(path)) for file in path.rglob("*") if file.is_file())


@pytest.mark.parametrize("file_format", ["parquet", "json", "csv", "orc"])
def test_each_format_is_read_again_with_the_epochs_number(
    file_format: Any, spark: SparkSession, tmp_path: Path
) -> None:
    sink = FileSink(tmp_path, format=file_format, options={"header": "true"})
    publish(sink, numbers(spark), 1)
    publish(sink, numbers(spark, 60), 2)
    publish(sink, numbers(spark).where("n < 0"), 3)
    found = spark.read.option("header", "true").format(file_format).load(str(tmp_path))
    assert dict(found.dtypes)["epoch"] == "int"
    rows = {(int(row.n), row.word, row.epoch) for row in found.collect()}
    assert rows == {(n, f"w{n % 3}", 1 + n // 60) for n in range(120)}
    table = ds.dataset(tmp_path, format=file_format, partitioning="hive").to_table()
    assert sorted(table["n"].to_pylist()) == [*range(120)]
    assert set(table["epoch"].to_pylist()) == {1, 2}


def test_csv_keeps_blanks_and_lines_for_whoever_reads_it_as_told(
    spark: SparkSession, tmp_path: Path
) -> None:
    texts = ["one\ntwo", "a\rb", "c\r\nd", "  padded  ", 'quo"te\n', "plain", "\t"]
    df = spark.createDataFrame([*enumerate(texts)], "n int, word string")
    sink = FileSink(tmp_path, format="csv")
    point = sink.read_point(publish(sink, df))
    reader = spark.read.schema("n int, word string, epoch int")
    found = reader.options(**point.at["options"]).csv(str(tmp_path)).collect()
    assert sorted((row.n, row.word) for row in found) == [*enumerate(texts)]
    assert ".option('lineSep', '\\n').option('multiLine', 'true')" in calls_for(point)["spark"]
    rows = duckdb.sql(calls_for(point)["duckdb"]).fetchall()
    assert sorted((row[0], row[1]) for row in rows if "\r" not in row[1]) == [
        (n, text) for n, text in enumerate(texts) if "\r" not in text
    ]


@pytest.mark.parametrize("text", ["\r", "a\rb", "a\r\nb"])
def test_a_carriage_return_ends_no_row_of_csv_for_whoever_reads_it_as_told(
    spark: SparkSession, tmp_path: Path, text: str
) -> None:
    df = spark.createDataFrame([(1, text), (2, "b"), (3, "c")], "n int, word string")
    sink = FileSink(tmp_path, format="csv")
    point = sink.read_point(publish(sink, df.coalesce(1)))
    assert point is not None
    reader = spark.read.schema("n int, word string, epoch int").options(**point.at["options"])
    found = reader.csv(str(tmp_path)).collect()
    assert sorted((row.n, row.word) for row in found) == [(1, text), (2, "b"), (3, "c")]


def test_csv_drops_blanks_when_it_is_told_to(spark: SparkSession, tmp_path: Path) -> None:
    df = spark.createDataFrame([(1, "  padded  ")], "n int, word string")
    options = {"IgnoreLeadingWhitespace": "true"}
    publish(FileSink(tmp_path, format="csv", options=options), df)
    assert spark.read.csv(str(tmp_path)).first()[1] == "padded  "  # type: ignore[index]


def test_pandas_shows_the_epochs_number(spark: SparkSession, tmp_path: Path) -> None:
    sink = FileSink(tmp_path)
    publish(sink, numbers(spark), 1)
    publish(sink, numbers(spark, 60), 2)
    found = pd.read_parquet(tmp_path)
    assert found.groupby("epoch", observed=True).size().to_dict() == {1: 60, 2: 60}


@pytest.mark.parametrize("by", ["word", ["word", "even"]])
def test_partitions_are_folders_below_the_epoch(
    by: str | Sequence[str], spark: SparkSession, tmp_path: Path
) -> None:
    sink = FileSink(tmp_path, partition_by=by)
    publish(sink, numbers(spark), 1)
    publish(sink, numbers(spark).where("n < 0"), 2)
    publish(sink, numbers(spark, 60), 3)
    parts = [name for name in names(tmp_path) if name.startswith("epoch=") and "part-" in name]
    assert all(name.split("/")[1] in ("word=w0", "word=w1", "word=w2") for name in parts)
    depth = 3 if isinstance(by, str) else 4
    assert {len(name.split("/")) for name in parts} == {depth}
    found = {(row.n, row.word, row.epoch) for row in spark.read.parquet(str(tmp_path)).collect()}
    assert found == {(n, f"w{n % 3}", 1 if n < 60 else 3) for n in range(120)}
    again = pd.read_parquet(tmp_path)
    assert sorted(again["n"]) == [*range(120)]
    assert {"epoch", "word"} <= {*again.columns}


def test_nothing_of_hadoops_is_left_beside_the_rows(spark: SparkSession, tmp_path: Path) -> None:
    publish(FileSink(tmp_path, partition_by="word"), numbers(spark))
    for name in names(tmp_path):
        last = name.split("/")[-1]
        assert last.startswith("part-") or last in ("_seamark.json", "sink.json"), name


def test_spark_renames_no_file_twice_and_leaves_no_marker(
    spark: SparkSession, tmp_path: Path
) -> None:
    sink = FileSink(tmp_path)
    sink.stage(numbers(spark), epoch(1), "a1")
    staged = names(tmp_path / "_seamark" / "staging" / "a1")
    assert len([name for name in staged if name.endswith(".parquet")]) == 2
    assert not [name for name in staged if "_SUCCESS" in name or "_temporary" in name]


@pytest.mark.parametrize(("coalesce", "files"), [("auto", 2), (None, 8), (3, 3), (50, 8)])
def test_an_epoch_has_as_many_files_as_asked_for(
    coalesce: Any, files: int, spark: SparkSession, tmp_path: Path
) -> None:
    sink = FileSink(tmp_path, coalesce=coalesce)
    assert publish(sink, numbers(spark, partitions=8))["files"] == files
    assert spark.read.parquet(str(tmp_path)).count() == 60


def test_few_partitions_do_not_become_more(spark: SparkSession, tmp_path: Path) -> None:
    assert publish(FileSink(tmp_path), numbers(spark, partitions=1))["files"] == 1


@pytest.mark.slow
def test_staging_runs_exactly_one_action_over_every_row(
    spark: SparkSession, tmp_path: Path
) -> None:
    context = spark.sparkContext
    for name, sink in (("files", FileSink(tmp_path)), ("memory", MemorySink())):
        assert sink.consumes_all
        read = context.accumulator(0)

        def counted(batches: Any, read: Any = read) -> Any:
            for batch in batches:
                read.add(len(batch))
                yield batch

        df = numbers(spark).mapInPandas(counted, "n long, word string, even boolean")
        context.setJobGroup(f"staging-{name}", "")
        sink.stage(df, epoch(1), "a1")
        assert len(context.statusTracker().getJobIdsForGroup(f"staging-{name}")) == 1
        assert read.value == 60
    context.setJobGroup("other", "")


def test_a_path_with_odd_letters_is_written_where_it_says(
    spark: SparkSession, tmp_path: Path
) -> None:
    path = tmp_path / "a b%20c ü{x}[1]"
    publish(FileSink(path), numbers(spark))
    assert ds.dataset(path, format="parquet").count_rows() == 60
    assert [entry.name for entry in tmp_path.iterdir()] == [path.name]


def test_the_other_sinks_take_a_real_frame(
    spark: SparkSession, capsys: pytest.CaptureFixture[str]
) -> None:
    counted: list[int] = []
    memory, console = MemorySink(), ConsoleSink(rows=2)
    function = ForeachBatchSink(lambda df, _: counted.append(df.count()))
    for sink in (memory, console, function):
        sink.open("trades", "bars", numbers(spark).schema)
        sink.stage(numbers(spark), epoch(1), "a1")
        sink.commit(sink.prepare())
    assert [row.n for row in memory.rows] == [*range(60)]
    assert counted == [60]
    shown = "+-+----+-----+\n|n|word| even|\n+-+----+-----+\n|0|  w0| true|\n|1|  w1|false|\n"
    assert shown in capsys.readouterr().out
