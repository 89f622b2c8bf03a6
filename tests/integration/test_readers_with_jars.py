"""Delta's and Iceberg's own jars read what our sinks wrote, and write between two epochs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.transforms import IdentityTransform
from pyspark.sql import types as t

from seamark.testing.conformance.sink_examples import PIPELINE, SINK, epoch
from tests.integration.support.spark_with_jars import SparkWithJars, spark_with_jars
from tests.sinks.support import iceberg
from tests.sinks.support.deltas import NUMBERS, HandWrittenDelta, arrow_frame, numbers_in
from tests.support.skipped import or_skip

pytestmark = [pytest.mark.integration, pytest.mark.slow]

DELTA = "io.delta:delta-spark_2.13:4.0.0"
ICEBERG = "org.apache.iceberg:iceberg-spark-runtime-4.0_2.13:1.11.0"


@pytest.fixture(scope="module")
def spark_with_delta() -> Iterator[SparkWithJars]:
    conf = {
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    }
    with or_skip("Delta jars", spark_with_jars(DELTA, **conf)) as started:
        yield started


@pytest.fixture(scope="module")
def spark_with_iceberg() -> Iterator[SparkWithJars]:
    with or_skip("Iceberg jars", spark_with_jars(ICEBERG)) as started:
        yield started


def rows(numbers: list[int], word: str = "x") -> list[dict[str, Any]]:
    return [{"n": n, "word": f"{word}{n % 2}"} for n in numbers]


def show(sink: HandWrittenDelta, number: int, given: list[dict[str, Any]]) -> None:
    sink.stage(arrow_frame(NUMBERS, given), epoch(number), f"a{number}")
    sink.commit(sink.prepare())


def opened(table: Path, **options: Any) -> HandWrittenDelta:
    sink = HandWrittenDelta(table, partition_by="word", **options)
    sink.open(PIPELINE, SINK, NUMBERS)
    return sink


def all_of(spark: SparkWithJars, table: Path) -> list[list[Any]]:
    return spark.sql(f"SELECT n, word FROM delta.`{table}` ORDER BY n")


@pytest.mark.parametrize("options", [{}, {"mode": "upsert", "keys": ["n", "word"]}])
def test_deltas_own_spark_reads_epochs_and_writes_between_them(
    spark_with_delta: SparkWithJars, tmp_path: Path, options: dict[str, Any]
) -> None:
    table = tmp_path / "rows"
    sink = opened(table, **options)
    show(sink, 1, rows([1, 2, 3]))
    show(sink, 2, rows([4]))
    assert all_of(spark_with_delta, table) == [[1, "x1"], [2, "x0"], [3, "x1"], [4, "x0"]]
    first = f"SELECT n FROM delta.`{table}` VERSION AS OF 1 ORDER BY n"
    assert spark_with_delta.sql(first) == [[1], [2], [3]]
    spark_with_delta.sql(f"INSERT INTO delta.`{table}` VALUES (100, 'x0')")
    spark_with_delta.sql(f"OPTIMIZE delta.`{table}`")
    spark_with_delta.sql(f"DELETE FROM delta.`{table}` WHERE n = 2")
    again = rows([4]) if options else []
    show(sink, 3, [*rows([5]), *again])
    expected = [1, 3, 4, 5, 100]
    assert [row[0] for row in all_of(spark_with_delta, table)] == expected
    assert numbers_in(table) == expected
    filtered = f"SELECT n FROM delta.`{table}` WHERE word = 'x1' AND n > 1 ORDER BY n"
    assert spark_with_delta.sql(filtered) == [[3], [5]]
    newest = opened(table, **options).newest()
    assert newest is not None
    assert newest.epoch == 3


def test_an_entry_that_shuts_an_attempt_out_is_read_by_deltas_own_spark(
    spark_with_delta: SparkWithJars, tmp_path: Path
) -> None:
    table = tmp_path / "rows"
    sink = opened(table)
    show(sink, 1, rows([1]))
    sink.stage(arrow_frame(NUMBERS, rows([2])), epoch(2), "a2")
    sink.prepare()
    opened(table).abort("a2")
    show(sink, 2, rows([3]))
    assert sink.unpublish_after(1) == [2]
    assert all_of(spark_with_delta, table) == [[1, "x1"]]


@pytest.mark.parametrize("options", [{}, {"mode": "upsert", "keys": ["n"]}])
def test_icebergs_own_spark_reads_epochs_at_each_snapshot(
    spark_with_iceberg: SparkWithJars, tmp_path: Path, options: dict[str, Any]
) -> None:
    iceberg.make_table(tmp_path, schema=iceberg.COLUMNS.append(pa.field("region", pa.string())))
    with iceberg.table_at(tmp_path).update_spec() as change:
        change.add_field("word", IdentityTransform(), "word")
        change.add_field("region", IdentityTransform(), "region")
    columns = t.StructType(iceberg.SCHEMA.fields)
    sink = iceberg.HandWritten(iceberg.properties(tmp_path), iceberg.TABLE, **options)
    sink.open(PIPELINE, SINK, columns)
    points = []
    for number, given in enumerate(([1, 2], [2, 3]), start=1):
        sink.stage(iceberg.frame(given), epoch(number), f"a{number}")
        committable = sink.prepare()
        sink.commit(committable)
        points.append(sink.read_point(committable))
    sink.stage(iceberg.frame([9]), epoch(3), "a3")
    sink.prepare()
    other = iceberg.HandWritten(iceberg.properties(tmp_path), iceberg.TABLE, **options)
    other.open(PIPELINE, SINK, columns)
    other.abort("a3")
    seen = []
    for point in points:
        assert point is not None
        at = {"snapshot-id": point.at["snapshot_id"]}
        metadata = point.at["metadata_location"].removeprefix("file://")
        seen.append(sorted(row[0] for row in spark_with_iceberg.load("iceberg", metadata, **at)))
    both = [1, 2, 3] if options else [1, 2, 2, 3]
    assert seen == [[1, 2], both]
    newest = iceberg.table_at(tmp_path).metadata_location.removeprefix("file://")
    now = spark_with_iceberg.load("iceberg", newest)
    assert sorted((row[0], row[2]) for row in now) == [(n, None) for n in both]
