"""An output may be written with named queries (``WITH``), as in stock Spark."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from seamark import Pipeline
from seamark.errors import RefusedError
from seamark.sinks import FileSink
from tests.pipeline.support.workloads import values_in

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

pytestmark = pytest.mark.warm

COUNTED = "WITH c AS (SELECT k, v FROM {rows}) SELECT k, count(*) AS n FROM c GROUP BY k"
JOINED = "WITH c AS (SELECT k, v FROM {rows}) SELECT a.k, b.v FROM c a JOIN c b ON a.k = b.k"
NESTED = "WITH a AS (SELECT k FROM {rows}), b AS (SELECT k + 1 AS k FROM a) SELECT * FROM b"
BY_CHANCE = "WITH c AS (SELECT k, rand() AS r FROM {rows}) SELECT k, r FROM c UNION ALL TABLE c"


def pipeline(spark: SparkSession, folder: Path, query: str, mode: Any = "append") -> Pipeline:
    read = spark.readStream.schema("k int, v int").option("maxFilesPerTrigger", 1)
    p = Pipeline("named", folder / "store", output_mode=mode)
    rows = p.source("rows", read.json(str(folder / "input")))
    p.sink("out", spark.sql(query, rows=rows), FileSink(folder / "out"))
    return p


@pytest.mark.parametrize(
    ("query", "expected", "more"),
    [
        (JOINED, [(1, 2), (1, 2), (1, 3), (1, 3)], [(1, 2), (1, 3), (1, 4), (1, 4), (1, 4)]),
        (NESTED, [(2,), (2,)], [(2,)]),
    ],
)
def test_an_output_of_named_queries_has_the_rows_that_stock_spark_computes(
    spark: SparkSession,
    tmp_path: Path,
    query: str,
    expected: list[tuple[int, ...]],
    more: list[tuple[int, ...]],
) -> None:
    (tmp_path / "input").mkdir()
    (tmp_path / "input" / "1.json").write_text('{"k": 1, "v": 2}\n{"k": 1, "v": 3}\n')
    pipeline(spark, tmp_path, query).run()
    assert rows_of(tmp_path) == expected
    (tmp_path / "input" / "2.json").write_text('{"k": 1, "v": 4}\n')
    pipeline(spark, tmp_path, query).run()
    assert rows_of(tmp_path) == sorted(expected + more)


def rows_of(folder: Path) -> list[tuple[int, ...]]:
    rows = values_in(folder / "out")
    return sorted(tuple(v for k, v in row.items() if k != "epoch") for row in rows)


def test_what_a_named_query_makes_of_a_stream_counts_as_part_of_the_computation(
    spark: SparkSession, tmp_path: Path
) -> None:
    (tmp_path / "input").mkdir()

    def computes(query: str) -> str:
        return pipeline(spark, tmp_path, query, "update").explain()

    assert computes(COUNTED) == computes(COUNTED)
    assert computes(COUNTED) != computes(COUNTED.replace("SELECT k, v", "SELECT k + 1 AS k, v"))


def test_a_named_query_of_chance_that_is_used_twice_is_refused_with_words(
    spark: SparkSession, tmp_path: Path
) -> None:
    (tmp_path / "input").mkdir()
    with pytest.raises(RefusedError, match="a query with a name"):
        pipeline(spark, tmp_path, BY_CHANCE).explain()
