"""The digest of rows that somebody else's action reads, taken on their way.

A filter that lets all rows pass adds up their numbers inside the code that Spark generates for the
stage (``RowSums.java``). Spark's own ``observe`` does it outside of that code, row by row, which
costs a third of an epoch that only copies rows, and tells the result some milliseconds late.

Tests: ``tests/spark/test_observed_digests.py``.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any

from py4j.protocol import Py4JError

from seamark._common.logs import logger_named
from seamark.spark.executor_classes import executor_object
from seamark.spark.row_digests import SECOND, RowDigest, digest_columns

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

log = logger_named("seamark.spark")


class ObservedDigest:
    """The digest of rows that an action reads."""

    def __init__(self, sums: Any) -> None:
        self._sums = sums
        self._last: list[int] | None = None

    def was_read_twice(self) -> bool:
        """Whether several stages have read rows, as those of two actions do."""
        stages = self._numbers()[0]
        return stages > 1

    def result(self) -> RowDigest | None:
        """The digest of what was read; None when some rows were, or may have been, read twice.

        Spark reads rows again when the results of a task are lost with an executor.
        """
        stages, again, rows, *sums = self._numbers()
        return RowDigest.of_sums(rows, sums) if stages <= 1 and not again else None

    def _numbers(self) -> list[int]:
        if self._last is None:
            self._last = [int(each) for each in self._sums.result().split()]
        return self._last


class DigestObserver:
    """Observes rows of one schema, as often as wanted."""

    def __init__(self, spark: SparkSession, schema: StructType) -> None:
        """Prepare it. :class:`InvalidInputError` for columns that have no digest."""
        self.columns = digest_columns(schema)
        number: Any = self.columns.number
        self._number = number._jc
        self._spark = spark

    @cached_property
    def _sums(self) -> Any:
        """Compiled when it is needed: rows that are only read by an action of ours do without."""
        return _sums(self._spark)

    @property
    def is_possible(self) -> bool:
        """Whether this Spark takes classes of ours."""
        return self._sums is not None

    def observe(self, rows: DataFrame) -> tuple[DataFrame, ObservedDigest]:
        """The same rows, and their digest once one action has read all of them.

        Actions that read some of them, or read them again, spoil the digest, and it says so.
        """
        from pyspark.sql.classic.column import Column

        sums = self._sums.next()
        return rows.where(Column(sums.condition(self._number))), ObservedDigest(sums)


def _sums(spark: SparkSession) -> Any:
    context: Any = spark.sparkContext
    try:
        return executor_object(spark, "seamark.spark", "RowSums", context._jsc.sc(), SECOND)
    except (Py4JError, TypeError) as error:
        log.warning("rows are digested by an action of their own: %s", error)
        return None
