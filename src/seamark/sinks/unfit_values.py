"""Values that a target would change without a word, found while an epoch is staged.

Tests: ``tests/sinks/test_file_values.py``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
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
_TEXT: Final = "text"
"""The fault of a broken text."""


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


def without_unfit(df: DataFrame, tests: Mapping[str, Test], fault: str) -> DataFrame:
    """The same rows; whatever reads them fails at a value that a test of its column finds.

    It is a part of the plan, so the rows are not read once more. ``fault`` is a word by which
    :func:`refusing_unfit` knows the failure.
    """
    from pyspark.sql import functions as f

    made = {}
    for field in df.schema.fields:
        column, test = f.col(backquoted(field.name)), tests.get(field.name)
        condition = None if test is None else unfit(column, field.dataType, test)
        if condition is not None:
            told = f.raise_error(f.lit(f"{_found(fault)}{field.name.encode().hex()}."))
            made[field.name] = f.when(condition, told).otherwise(column)
    return df.withColumns(made) if made else df


def _found(fault: str) -> str:
    return f"seamark: unfit {fault} in column "


@contextmanager
def refusing_unfit(fault: str, why: Callable[[str], str], where: str, hint: str) -> Iterator[None]:
    """Makes the failure of :func:`without_unfit` a :class:`RefusedError`, in words for a column."""
    try:
        yield
    except Exception as error:
        found = re.search(rf"{_found(fault)}([0-9a-f]*)\.", str(error))
        if found is None:
            raise
        name = bytes.fromhex(found[1]).decode()
        raise RefusedError(why(name), where=where, hint=hint) from error


def with_whole_texts(df: DataFrame, names: Iterable[str]) -> DataFrame:
    """The same rows; reading them fails at a text in these columns that is not UTF-8.

    Where Spark writes such a text as JSON or csv, it puts another letter for what it cannot read.
    See :func:`refusing_broken_texts`.
    """
    return without_unfit(df, dict.fromkeys(names, _broken_text), _TEXT)


def _broken_text(value: Column, kind: DataType) -> Column | None:
    from pyspark.sql import functions as f
    from pyspark.sql.types import StringType

    return ~f.is_valid_utf8(value) if isinstance(kind, StringType) else None


def refusing_broken_texts(where: str, target: str = "JSON") -> AbstractContextManager[None]:
    """Makes the failure of :func:`with_whole_texts` a refusal of the column."""
    return refusing_unfit(
        _TEXT,
        lambda name: (
            f"column {name!r} has a text that is not UTF-8, of which {target} would keep only the "
            "readable part"
        ),
        where,
        "Mend it in the output with make_valid_utf8(), or write it as binary.",
    )
