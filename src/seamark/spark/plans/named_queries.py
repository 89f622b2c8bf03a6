"""Queries with a name (``WITH``) in a plan, written out where they are used.

Spark keeps such a query beside the plan that uses it, and writes it out when it optimizes. Whatever
reads a plan before that would find a reference in the place of a stream.

Tests: ``tests/pipeline/test_named_queries.py``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from py4j.protocol import Py4JError

from seamark.spark.plans.plan import analyzed
from seamark.spark.plans.shared_plan import dataframe_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def written_out(df: DataFrame) -> DataFrame:
    """The same rows without named queries, as far as Spark writes them out too.

    One that is used several times and not deterministic stays: each use of it would get other rows.
    """
    jvm: Any = df.sparkSession.sparkContext._jvm
    plan = analyzed(df)
    pattern = jvm.org.apache.spark.sql.catalyst.trees.TreePattern.CTE()
    if not df.isStreaming or not plan.containsPattern(pattern):
        return df
    return dataframe_of(df.sparkSession, _rule(jvm).apply(plan))


def _rule(jvm: Any) -> Any:
    """Spark's own rule; by default it keeps what has to be computed once."""
    rule = jvm.org.apache.spark.sql.catalyst.optimizer.InlineCTE
    try:
        return rule(False, False, False)
    except Py4JError:  # Spark 4.0 has two of these switches
        return rule(False, False)
