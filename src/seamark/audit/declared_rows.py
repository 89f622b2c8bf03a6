"""Rows that were read back, in the columns and types that the output was declared with.

Tests: ``tests/audit/test_delta.py``.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from seamark._common.text import backquoted
from seamark.audit.type_texts import TypeReader
from seamark.errors import DamageError
from seamark.spark.row_digests import RowDigest, digest_of

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

Columns = Sequence[tuple[str, str]]


def declared_schema(columns: Columns) -> StructType | None:
    """The schema that a checkpoint describes; None when a type in it cannot be read.

    Spark is not asked, and there are no more types in it than :mod:`seamark.limits` allows.
    """
    from pyspark.sql.types import StructField, StructType

    reader = TypeReader()
    try:
        return StructType([StructField(name, reader.read(kind)) for name, kind in columns])
    except ValueError:
        return None


def as_declared(rows: DataFrame, schema: StructType, *, keep: Sequence[str] = ()) -> DataFrame:
    """The declared columns in their order and of their types, and after them those to ``keep``.

    :class:`DamageError` names a column that is not there.
    """
    from pyspark.sql import functions as f

    there = {field.name: field.dataType for field in reversed(rows.schema.fields)}
    if missing := next((each.name for each in schema.fields if each.name not in there), None):
        raise DamageError(f"there is no column {missing!r} any more")
    selected = []
    for field in schema.fields:
        column = f.col(backquoted(field.name))
        same = there[field.name] == field.dataType
        selected.append(column if same else column.cast(field.dataType).alias(field.name))
    return rows.select(*selected, *(f.col(backquoted(name)) for name in keep))


def digest_of_batches(
    spark: SparkSession, tables: Iterable[pa.Table], schema: StructType
) -> RowDigest:
    """The digest of rows that come as Arrow tables, each of which fits the memory."""
    total = RowDigest.empty()
    for table in tables:
        rows: Any = spark.createDataFrame(table)
        total += digest_of(as_declared(rows, schema))
    return total
