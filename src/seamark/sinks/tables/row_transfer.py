"""Rows on their way to the Python functions of a sink, in batches of a bounded size.

A batch has at most 64 MiB, which is Spark's own limit. Spark keeps to it by measuring the batch
after each row, and that takes longer than all else on the way. So the rows are measured instead,
each once, by their texts and bytes, and batches are cut by count. A row that is too large for that
makes the job fail. It is run again with Spark's own limits, and so are later ones of the sink.

Tests: ``tests/sinks/test_row_transfer.py``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, Final

from seamark._common.logs import logger_named
from seamark._common.text import backquoted
from seamark.spark.arrow_batches import ROWS, Batch, current_batch, cut_by_count, may_cut_by_count
from seamark.spark.type_names import FIXED_SIZE

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

    Task = Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]

log = logger_named("seamark.sinks")

LARGEST_ROW: Final = (64 << 20) // ROWS
_FIXED: Final = 16
"""Bytes that a value of a fixed size has at most; also the offset and the mark of any other."""
_IS_PATH: Final = re.compile("[.`]")
_TOO_LARGE: Final = "seamark: a row is too large to be sent unmeasured"


class RowTransfer:
    """How rows of one sink are sent. It remembers whether some were large."""

    def __init__(self) -> None:
        self._has_large_rows = False
        self._decided: tuple[Batch, bool] | None = None

    def collect(self, df: DataFrame, task: Task, schema: str) -> list[Any]:
        """Give all rows to a task for each partition; the rows that the tasks return.

        A job that fails because of a large row is run again, so a task must bear a second try.
        """
        if not self._has_large_rows and self._may_cut_by_count(df):
            rows = df if (condition := guard(df.schema)) is None else df.where(condition)
            try:
                with cut_by_count(df.sparkSession.sparkContext):
                    return mapped_in_arrow(rows, task, schema).collect()
            except Exception as error:
                if _TOO_LARGE not in str(error):
                    raise
            log.info("a row has more than %d bytes: batches are measured from now on", LARGEST_ROW)
            self._has_large_rows = True
        return mapped_in_arrow(df, task, schema).collect()

    def _may_cut_by_count(self, df: DataFrame) -> bool:
        if not has_known_sizes(df.schema):
            return False
        batch = current_batch(df.sparkSession.sparkContext)
        if batch is None:
            return may_cut_by_count(df)
        if self._decided is None or self._decided[0] != batch:
            # the plan of a query does not change in kind while it runs
            self._decided = batch, may_cut_by_count(df)
        return self._decided[1]


def mapped_in_arrow(df: DataFrame, task: Task, schema: str) -> DataFrame:
    """``df.mapInArrow``, also for columns with names that it takes for more than a name.

    PySpark looks each of them up as an expression: a dot is a field of a struct to it.
    """
    names = df.columns
    if not any(_IS_PATH.search(name) for name in names):
        return df.mapInArrow(task, schema)

    def with_names(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return task(batch.rename_columns(names) for batch in batches)

    return df.toDF(*(f"c{number}" for number in range(len(names)))).mapInArrow(with_names, schema)


def has_known_sizes(schema: StructType) -> bool:
    """Whether the size of a row is plain from its columns: none is nested. Pure."""
    kinds = {column.dataType.typeName() for column in schema}
    few_enough = len(schema) * _FIXED <= LARGEST_ROW // 2
    return few_enough and kinds <= FIXED_SIZE | {"string", "binary"}


def guard(schema: StructType) -> str | None:
    """A condition in SQL that is true for small rows and raises an error for a large one. Pure.

    It is a text because that takes one call of the JVM, and columns take one for each function.
    """
    sizes = [
        f"coalesce(octet_length({backquoted(column.name)}), 0L)"
        for column in schema
        if column.dataType.typeName() not in FIXED_SIZE
    ]
    if not sizes:
        return None
    most = LARGEST_ROW - len(schema) * _FIXED
    too_large = f"CAST(raise_error('{_TOO_LARGE}') AS BOOLEAN)"
    return f"CASE WHEN {' + '.join(sizes)} > {most} THEN {too_large} ELSE true END"
