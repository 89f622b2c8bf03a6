"""Rows for the benchmarks of sinks: the same ones for each of them."""

from __future__ import annotations

from pyspark.sql import DataFrame, SparkSession


def trades(spark: SparkSession, count: int) -> DataFrame:
    """Rows that lie ready in memory."""
    rows = spark.range(0, count, 1, 4).selectExpr(
        "concat('symbol-', id % 1000) AS symbol",
        "id * 7 AS volume",
        "id / 3.0D AS price",
        "timestamp_millis(1790000000000 + id) AS at",
    )
    made = rows.persist()
    made.count()
    return made
