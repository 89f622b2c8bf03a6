"""Jobs of Spark that take as long as they are told."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def rest(spark: SparkSession, seconds: int) -> None:
    """Have Spark do nothing for so long, in short pieces as when it reads rows."""
    slept = "java_method('java.lang.Thread', 'sleep', 100L + id % 1)"
    spark.range(10 * seconds).selectExpr(slept).repartition(1).collect()
