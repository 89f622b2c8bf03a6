"""Rows without those that are there twice, each as it was.

Tests: ``tests/sinks/test_equal_rows.py``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from seamark._common.text import backquoted

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import DataType

_EXACT: Final = "__seamark_exact_"


def distinct_rows(df: DataFrame) -> DataFrame:
    """Each row once; rows are equal only if all of their bytes are.

    Spark's own ``distinct`` makes ``0.0`` of ``-0.0``, and takes texts for equal that a collation
    does not tell apart.
    """
    from pyspark.sql import functions as f

    exact = {
        f"{_EXACT}{number}": _exact(f.col(backquoted(field.name)), field.dataType)
        for number, field in enumerate(df.schema.fields)
        if _is_inexact(field.dataType)
    }
    if not exact:
        return df.distinct()
    plain = [field.name for field in df.schema.fields if not _is_inexact(field.dataType)]
    return df.withColumns(exact).dropDuplicates([*plain, *exact]).drop(*exact)


def _exact(value: Column, kind: DataType) -> Column:
    """What is equal for equal values only."""
    from pyspark.sql import functions as f
    from pyspark.sql.types import ArrayType, DoubleType, FloatType, StringType, StructType

    if not _is_inexact(kind):
        return value
    if isinstance(kind, FloatType | DoubleType):
        return value.cast("string")
    if isinstance(kind, StringType):
        return value.cast("binary")
    if isinstance(kind, ArrayType):
        element = kind.elementType
        return f.transform(value, lambda item: _exact(item, element))
    assert isinstance(kind, StructType)
    fields = [_exact(value.getField(each.name), each.dataType).alias(each.name) for each in kind]
    return f.when(value.isNotNull(), f.struct(*fields))


def _is_inexact(kind: DataType) -> bool:
    from pyspark.sql.types import ArrayType, DoubleType, FloatType, StringType, StructType

    if isinstance(kind, ArrayType):
        return _is_inexact(kind.elementType)
    if isinstance(kind, StructType):
        return any(_is_inexact(field.dataType) for field in kind)
    if isinstance(kind, StringType):
        return kind != StringType()
    return isinstance(kind, FloatType | DoubleType)
