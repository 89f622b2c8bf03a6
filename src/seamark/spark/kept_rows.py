"""Rows of a batch that stay when the query that computed them has ended.

Spark keeps them as blocks of its executors, in memory and on their local disks, without the plan
that made them. They go when nothing refers to them any more, or when they are dropped.

Tests: ``tests/pipeline/test_replay.py``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from seamark.spark.plans.plan import analyzed
from seamark.spark.plans.shared_plan import dataframe_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def keep_rows(batch: DataFrame) -> DataFrame:
    """Compute every partition of a batch, each once, and keep the rows."""
    return batch.localCheckpoint(eager=True)


def in_session(kept: DataFrame, spark: SparkSession) -> DataFrame:
    """The same rows in another session than the one that a query had made for itself."""
    return dataframe_of(spark, analyzed(kept))


def drop_rows(kept: DataFrame) -> None:
    """Free what the rows take. They cannot be read any more."""
    context: Any = kept.sparkSession.sparkContext._jsc
    # as unpersist() does, which would also warn of what is wanted here
    context.sc().unpersistRDD(analyzed(kept).rdd().id(), False)
