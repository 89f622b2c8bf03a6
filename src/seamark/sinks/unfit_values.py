"""Values that a target would change without a word, found while an epoch is staged.

Tests: ``tests/sinks/test_file_values.py``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import reduce
from operator import or_
from typing import TYPE_CHECKING, Any, Final

from seamark._common.text import backquoted
from seamark.errors import RefusedError

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import DataType

Test = Callable[[Any, "DataType"], "Column | None"]
"""From a value of a plain type to the condition that it is unfit; None when no value is."""
_FOUND: Final = "seamark: unfit for column "
_NAME: Final = re.compile(rf"{_FOUND}([0-9a-f]*)\.")


def unfit(value: Column, kind: DataType, test: Test) -> Column | None:
    """The condition that a value, or one inside it, is unfit; None when no value is."""
    from pyspark.sql import functions as f
    from pyspark.sql.types import ArrayType, MapType, StructType

    if isinstance(kind, StructType):
        inner = [unfit(value.getField(field.name), field.dataType, test) for field in kind]
    elif isinstance(kind, ArrayType):
        inner = [_of_any(value, kind.elementType, test)]
    elif isinstance(kind, MapType):
        inner = [
            _of_any(f.map_keys(value), kind.keyType, test),
            _of_any(f.map_values(value), kind.valueType, test),
        ]
    else:
        inner = [test(value, kind)]
    found = [f.coalesce(each, f.lit(False)) for each in inner if each is not None]
    return reduce(or_, found) if found else None


def _of_any(values: Column, kind: DataType, test: Test) -> Column | None:
    from pyspark.sql import functions as f

    if not _is_tested(kind, test):
        return None

    def is_unfit(item: Column) -> Column:
        condition = unfit(item, kind, test)
        return f.lit(False) if condition is None else condition

    return f.exists(values, is_unfit)


def _is_tested(kind: DataType, test: Test) -> bool:
    from pyspark.sql import functions as f

    return unfit(f.lit(None), kind, test) is not None


def without_unfit(df: DataFrame, tests: Mapping[str, Test]) -> DataFrame:
    """The same rows; whatever reads them fails at a value that a test of its column finds.

    It is a part of the plan, so the rows are not read once more. See :func:`refusing_unfit`.
    """
    from pyspark.sql import functions as f

    made = {}
    for field in df.schema.fields:
        column, test = f.col(backquoted(field.name)), tests.get(field.name)
        condition = None if test is None else unfit(column, field.dataType, test)
        if condition is not None:
            told = f.raise_error(f.lit(f"{_FOUND}{field.name.encode().hex()}."))
            made[field.name] = f.when(condition, told).otherwise(column)
    return df.withColumns(made) if made else df


@contextmanager
def refusing_unfit(why: Callable[[str], str], where: str, hint: str) -> Iterator[None]:
    """Makes the failure of :func:`without_unfit` a :class:`RefusedError`, in words for a column."""
    try:
        yield
    except Exception as error:
        found = _NAME.search(str(error))
        if found is None:
            raise
        name = bytes.fromhex(found[1]).decode()
        raise RefusedError(why(name), where=where, hint=hint) from error
