"""Batches that Spark sends to Python workers: cut after so many rows, without measuring each row.

Spark cuts a batch at so many rows or bytes. To know the bytes it asks all columns after every row,
which takes longer than writing the row (seen in 4.3: 0.45 of 0.75 s for a million rows of four
columns). A job whose rows are known to be small need not ask.

The limits are properties of the thread that starts the job. They hold in all of its tasks, so also
for Python functions whose rows nobody has looked at: :func:`may_cut_by_count` looks for those.

Tests: ``tests/spark/test_arrow_batches.py``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from py4j.protocol import Py4JError

from seamark.spark.plans.plan import leaves
from seamark.spark.plans.trees import class_name

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import DataFrame

ROWS: Final = 4096
"""Rows of a batch that is cut by count."""
_MOST_ROWS: Final = "spark.sql.execution.arrow.maxRecordsPerBatch"
_MOST_BYTES: Final = "spark.sql.execution.arrow.maxBytesPerBatch"
_NO_LIMIT: Final = str((1 << 31) - 1)
"""With this limit Spark does not measure."""

_PYTHON: Final = re.compile("Python|Pandas|PySpark|InArrow")
_STATE: Final = re.compile("State|Streaming[A-Z]")
"""What operators with Python functions, and with state, are called in the text of a plan."""


class Batch(NamedTuple):
    """A query whose batch is being computed."""

    query_id: str
    run_id: str


def current_batch(context: SparkContext) -> Batch | None:
    """The query whose batch this thread computes; None outside of a batch."""
    query_id = context.getLocalProperty("sql.streaming.queryId")
    run_id = context.getLocalProperty("spark.jobGroup.id")
    return Batch(query_id, run_id) if query_id and run_id else None


@contextmanager
def cut_by_count(context: SparkContext) -> Iterator[None]:
    """Have jobs that this thread starts cut their batches at :data:`ROWS` rows and no size.

    Limits that the user has set for the session go first.
    """
    limits = {_MOST_ROWS: str(ROWS), _MOST_BYTES: _NO_LIMIT}
    properties: Any = context  # None removes one
    before = {name: context.getLocalProperty(name) for name in limits}
    for name, value in limits.items():
        properties.setLocalProperty(name, value)
    try:
        yield
    finally:
        for name, old in before.items():
            properties.setLocalProperty(name, old)


def may_cut_by_count(df: DataFrame) -> bool:
    """Whether a job that computes a DataFrame can do without measuring, and can be run again.

    Not when the user has set limits; when other Python functions are called in it, whose rows may
    be large; or when it writes state, which a second run would write again. Nor when Spark does not
    tell.
    """
    jdf: Any = df._jdf
    session: Any = df.sparkSession._jsparkSession
    try:
        settings = session.sessionState().conf()
        if settings.contains(_MOST_ROWS) or settings.contains(_MOST_BYTES):
            return False
        plans = [jdf.queryExecution()]
        if any("RDD" in class_name(leaf) for leaf in leaves(df)):
            # the rows of a batch: what computes them is in the plan of the query
            plans.append(_execution(df).lastExecution())
        texts = [str(plan.executedPlan().toString()) for plan in plans]
    except (Py4JError, LookupError):
        return False
    return not any(_PYTHON.search(text) or _STATE.search(text) for text in texts)


def _execution(df: DataFrame) -> Any:
    """The query whose batch this thread computes. :class:`LookupError` when there is none."""
    context = df.sparkSession.sparkContext
    batch = current_batch(context)
    if batch is None:
        raise LookupError("rows of an RDD outside of a batch may come from anywhere")
    session: Any = df.sparkSession._jsparkSession
    jvm: Any = context._jvm
    query = session.sharedState().activeStreamingQueries()
    execution = query.get(jvm.java.util.UUID.fromString(batch.query_id))
    if execution is None:
        raise LookupError(batch.query_id)
    return execution
