"""Rows reach the tasks of a sink whole, whatever their size, and batches stay bounded."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from deltalake import DeltaTable
from pyspark.sql import functions as f
from pyspark.sql.types import LongType, StringType, StructField, StructType

from seamark.sinks import DeltaSink, IcebergSink
from seamark.sinks.contract import Sink
from seamark.sinks.tables.row_transfer import LARGEST_ROW, RowTransfer, guard, has_known_sizes
from seamark.spark.arrow_batches import ROWS
from seamark.testing.conformance.sink_examples import PIPELINE, SINK, epoch
from tests.sinks.support.iceberg import TABLE, make_table, properties, table_at

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SPARKS_LIMIT = 64 << 20


def facts(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        texts = pc.sum(pc.binary_length(batch.column("word"))).as_py() or 0
        yield pa.RecordBatch.from_pydict(
            {"rows": [batch.num_rows], "bytes": [batch.nbytes], "texts": [texts]}
        )


def sent(df: DataFrame, transfer: RowTransfer) -> tuple[list[int], int, int]:
    """Rows of each batch, bytes of the largest one, and bytes of all texts."""
    rows = transfer.collect(df, facts, "rows long, bytes long, texts long")
    return (
        [row.rows for row in rows],
        max(row.bytes for row in rows),
        sum(row.texts for row in rows),
    )


def words(spark: SparkSession, rows: int, size: int, last: int | None = None) -> DataFrame:
    """Rows in one partition with texts of a size; the last row has one of another."""
    length = f.when(f.col("id") == rows - 1, size if last is None else last).otherwise(size)
    word = f.when(f.col("id") % 7 == 3, None).otherwise(f.repeat(f.lit("x"), length))
    return spark.range(0, rows, 1, 1).select(f.col("id").alias("n"), word.alias("word"))


@pytest.mark.warm
def test_small_rows_are_sent_in_batches_of_a_fixed_count(spark: SparkSession) -> None:
    batches, _, texts = sent(words(spark, 3 * ROWS, 5), RowTransfer())
    assert batches == [ROWS] * 3
    assert texts == 5 * sum(n % 7 != 3 for n in range(3 * ROWS))


@pytest.mark.warm
def test_the_largest_rows_that_are_not_measured_make_batches_within_the_limit_of_spark(
    spark: SparkSession,
) -> None:
    # a column of a fixed size and one text, with their share of marks and offsets
    df = words(spark, ROWS, LARGEST_ROW - 32)
    batches, largest, _ = sent(df, RowTransfer())
    assert batches == [ROWS]
    assert largest <= SPARKS_LIMIT


@pytest.mark.slow
@pytest.mark.warm
def test_after_a_large_row_all_rows_are_sent_within_the_limits_of_spark(
    spark: SparkSession,
) -> None:
    transfer = RowTransfer()
    count = 2 * ROWS
    batches, _, texts = sent(words(spark, count, 1, last=LARGEST_ROW), transfer)
    assert sum(batches) == count
    assert texts == sum(n % 7 != 3 for n in range(count - 1)) + LARGEST_ROW
    again, _, _ = sent(words(spark, count, 1), transfer)
    assert again == batches != [ROWS] * 2, "it does not try its luck in each epoch"


@pytest.mark.warm
def test_a_job_that_fails_for_another_reason_is_not_run_again(
    spark: SparkSession, tmp_path: Path
) -> None:
    def fails(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        with (tmp_path / "runs").open("a") as runs:
            runs.write("x")
        for batch in batches:
            if batch.num_rows:
                raise ArithmeticError("died on the way")
            yield batch

    transfer = RowTransfer()
    with pytest.raises(Exception, match="died on the way"):
        transfer.collect(words(spark, 3, 1), fails, "rows long")
    assert (tmp_path / "runs").read_text() == "x"
    assert sent(words(spark, 2 * ROWS, 1), transfer)[0] == [ROWS] * 2


def columns(text: str) -> StructType:
    made = StructType.fromDDL(text)
    assert isinstance(made, StructType)
    return made


@pytest.mark.warm
@pytest.mark.usefixtures("spark")
@pytest.mark.parametrize("kind", ["array<int>", "struct<a:int>", "map<string,int>", "variant"])
def test_rows_with_nested_columns_have_no_known_size(kind: str) -> None:
    assert not has_known_sizes(columns(f"a int, b {kind}"))


@pytest.mark.warm
@pytest.mark.usefixtures("spark")
def test_rows_with_very_many_columns_have_no_known_size() -> None:
    few, many = (", ".join(f"c{n} int" for n in range(count)) for count in (100, 1000))
    assert has_known_sizes(columns(few))
    assert not has_known_sizes(columns(many))
    assert has_known_sizes(
        columns(
            "a string, b binary, c decimal(38, 2), d date, e timestamp, f timestamp_ntz, "
            "g boolean, h tinyint, i smallint, j bigint, k float, l double"
        )
    )


def shown(sink: Sink, df: DataFrame, number: int) -> None:
    sink.stage(df, epoch(number), f"a{number}")
    sink.commit(sink.prepare())


@pytest.mark.warm
def test_a_delta_table_shows_large_rows_once_and_keeps_no_file_of_the_first_run(
    spark: SparkSession, tmp_path: Path
) -> None:
    sink = DeltaSink(tmp_path / "t", coalesce=None)
    small = words(spark, 3, 5)
    # the task of the small rows may have finished when the other one fails
    df = small.union(words(spark, 2, 1, last=LARGEST_ROW))
    sink.open(PIPELINE, SINK, df.schema)
    for number in (1, 2):
        shown(sink, df, number)
    table = DeltaTable(tmp_path / "t")
    lengths = pc.binary_length(table.to_pyarrow_table().column("word")).to_pylist()
    assert sorted(lengths) == sorted([5, 5, 5, 1, LARGEST_ROW] * 2)
    listed = {*table.get_add_actions().column("path").to_pylist()}
    files = (tmp_path / "t" / "seamark").rglob("*.parquet")
    there = {str(file.relative_to(tmp_path / "t")) for file in files}
    assert there == listed


@pytest.mark.slow
@pytest.mark.warm
def test_an_iceberg_table_shows_large_rows_once_and_keeps_no_file_of_the_first_run(
    spark: SparkSession, tmp_path: Path
) -> None:
    df = words(spark, 3, 5).union(words(spark, 2, 1, last=LARGEST_ROW))
    make_table(tmp_path, pa.schema([("n", pa.int64()), ("word", pa.string())]))
    sink = IcebergSink(properties(tmp_path), TABLE)
    sink.open(PIPELINE, SINK, df.schema)
    for number in (1, 2):
        shown(sink, df, number)
    table = table_at(tmp_path)
    lengths = pc.binary_length(table.scan().to_arrow().column("word")).to_pylist()
    assert sorted(lengths) == sorted([5, 5, 5, 1, LARGEST_ROW] * 2)
    listed = {file.file.file_path.removeprefix("file://") for file in table.scan().plan_files()}
    there = {str(file) for file in tmp_path.rglob("data/**/*.parquet")}
    assert there == listed


def test_a_name_with_quotes_stays_a_name_in_the_condition() -> None:
    schema = StructType([StructField("a`b", StringType()), StructField("n", LongType())])
    condition = guard(schema)
    assert condition is not None
    assert condition.startswith("CASE WHEN coalesce(octet_length(`a``b`), 0L) > ")
    assert guard(StructType([StructField("n", LongType())])) is None


@pytest.mark.warm
def test_columns_with_dots_and_backticks_in_their_names_arrive(
    spark: SparkSession, tmp_path: Path
) -> None:
    """PySpark's own ``mapInArrow`` takes such a name for a field of a struct."""
    names = ["n", "a.b", ".dot", "back`tick"]
    df = spark.sql("SELECT 1L, 2L, 3L, 4L").toDF(*names)
    sink = DeltaSink(tmp_path / "table")
    sink.open(PIPELINE, SINK, df.schema)
    sink.prepare_target()
    sink.stage(df, epoch(1), "a1")
    sink.commit(sink.prepare())
    rows = DeltaTable(str(tmp_path / "table")).to_pyarrow_table().to_pylist()
    assert rows == [dict(zip(names, (1, 2, 3, 4), strict=True))]
