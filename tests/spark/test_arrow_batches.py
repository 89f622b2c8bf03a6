"""Which jobs may send rows to Python without measuring them, and that only those are affected."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from pyspark.sql import functions as f

from seamark.spark.arrow_batches import ROWS, current_batch, cut_by_count, may_cut_by_count

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.warm

_LIMITS = (
    "spark.sql.execution.arrow.maxRecordsPerBatch",
    "spark.sql.execution.arrow.maxBytesPerBatch",
)


def sizes(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        yield pa.RecordBatch.from_pydict({"rows": [batch.num_rows]})


def sizes_of(df: DataFrame) -> list[int]:
    return [row.rows for row in df.mapInArrow(sizes, "rows long").collect()]


def test_batches_are_cut_by_count_in_the_block_and_as_before_after_it(spark: SparkSession) -> None:
    df = spark.range(0, 3 * ROWS, 1, 1)
    before = sizes_of(df)
    with cut_by_count(spark.sparkContext):
        assert sizes_of(df) == [ROWS] * 3
    assert sizes_of(df) == before != [ROWS] * 3
    assert [spark.sparkContext.getLocalProperty(name) for name in _LIMITS] == [None, None]


@pytest.mark.parametrize("limit", _LIMITS)
def test_limits_that_the_user_has_set_are_left_alone(spark: SparkSession, limit: str) -> None:
    df = spark.range(0, 100, 1, 1)
    assert may_cut_by_count(df)
    spark.conf.set(limit, "10")
    try:
        assert not may_cut_by_count(df)
        before = sizes_of(df)
        with cut_by_count(spark.sparkContext):
            assert sizes_of(df) == before
    finally:
        spark.conf.unset(limit)


def _scalar(df: DataFrame) -> DataFrame:
    return df.select(f.udf(lambda n: n, "long")("id").alias("id"))


def _in_arrow(df: DataFrame) -> DataFrame:
    return df.mapInArrow(lambda batches: batches, "id long")


def _grouped(df: DataFrame) -> DataFrame:
    return df.groupBy("id").applyInArrow(lambda table: table, "id long")


def _table_function(df: DataFrame) -> DataFrame:
    class Twice:
        def eval(self, n: int) -> Iterator[tuple[int]]:
            yield (n,)
            yield (n,)

    function: Any = f.udtf(Twice, returnType="id: bigint")
    df.sparkSession.udtf.register("twice", function)
    df.createOrReplaceTempView("numbers")
    return df.sparkSession.sql("SELECT t.id FROM numbers, LATERAL twice(numbers.id) t")


def _cached(df: DataFrame) -> DataFrame:
    return _scalar(df).persist().where("id > 1")


def _below_a_shuffle(df: DataFrame) -> DataFrame:
    return _scalar(df).repartition(2).groupBy("id").count()


@pytest.mark.parametrize(
    "calls_python", [_scalar, _in_arrow, _grouped, _table_function, _cached, _below_a_shuffle]
)
def test_a_job_that_calls_python_elsewhere_is_measured(
    spark: SparkSession, calls_python: Callable[[DataFrame], DataFrame]
) -> None:
    df = calls_python(spark.range(10))
    try:
        assert not may_cut_by_count(df)
    finally:
        spark.catalog.clearCache()


def test_rows_of_an_rdd_may_come_from_anywhere_and_are_measured(spark: SparkSession) -> None:
    assert not may_cut_by_count(spark.createDataFrame([(1,)], "id long").union(spark.range(1)))
    assert may_cut_by_count(spark.range(4).repartition(2).join(spark.range(3), "id"))


def in_batches(folder: Path, df: DataFrame, look: Callable[[DataFrame], Any]) -> list[Any]:
    """What a look at each batch of a stream says."""
    seen: list[Any] = []

    def batch(rows: DataFrame, number: int) -> None:
        seen.append(look(rows))
        rows.collect()

    writer = df.writeStream.outputMode("update").option("checkpointLocation", str(folder / "c"))
    writer.foreachBatch(batch).trigger(availableNow=True).start().awaitTermination()
    return seen


@pytest.fixture
def stream(spark: SparkSession, tmp_path: Path) -> DataFrame:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.json").write_text('{"id": 1}\n{"id": 2}\n')
    return spark.readStream.schema("id long").json(str(tmp_path / "in"))


def test_of_a_batch_it_is_the_plan_of_its_query_that_counts(
    stream: DataFrame, tmp_path: Path
) -> None:
    cases = {
        "plain": stream,
        "python": _scalar(stream),
        "aggregation": stream.groupBy("id").count(),
        "deduplication": stream.dropDuplicates(["id"]),
    }
    for name, df in cases.items():
        seen = in_batches(tmp_path / name, df, may_cut_by_count)
        assert seen == [name == "plain"], name


def test_what_is_put_on_the_rows_of_a_batch_counts_too(stream: DataFrame, tmp_path: Path) -> None:
    seen = in_batches(tmp_path, stream, lambda rows: may_cut_by_count(_scalar(rows.coalesce(1))))
    assert seen == [False]


def test_a_batch_is_known_by_its_query_and_run(
    spark: SparkSession, stream: DataFrame, tmp_path: Path
) -> None:
    def look(_: DataFrame) -> Any:
        return current_batch(spark.sparkContext)

    first, again = (
        in_batches(tmp_path / "one", stream, look),
        in_batches(tmp_path / "two", stream, look),
    )
    assert first[0] is not None
    assert first != again
    assert current_batch(spark.sparkContext) is None
