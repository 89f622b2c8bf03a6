"""Values that a target would change without a word, found while an epoch is staged.

Tests: ``tests/sinks/test_unfit_values.py``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from seamark._common.text import backquoted
from seamark.errors import RefusedError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import DataType, StructType

Test = Callable[[str, "DataType"], str | None]
"""From a value of a plain type, in SQL, to the condition that it is unfit; None when none is."""
_FOUND: Final = "seamark: unfit for column "
_NAME: Final = re.compile(rf"{_FOUND}([0-9a-f]*)\.")


def unfit(value: str, kind: DataType, test: Test, depth: int = 0) -> str | None:
    """The condition that a value, or one inside it, is unfit; None when no value is. Pure."""
    from pyspark.sql.types import ArrayType, MapType, StructType

    if isinstance(kind, StructType):
        inner = [unfit(f"{value}.{backquoted(f.name)}", f.dataType, test, depth) for f in kind]
    elif isinstance(kind, ArrayType):
        inner = [_of_any(value, kind.elementType, test, depth)]
    elif isinstance(kind, MapType):
        inner = [
            _of_any(f"map_keys({value})", kind.keyType, test, depth),
            _of_any(f"map_values({value})", kind.valueType, test, depth),
        ]
    else:
        return test(value, kind)
    found = [condition for condition in inner if condition is not None]
    return " OR ".join(f"coalesce({condition}, false)" for condition in found) or None


def _of_any(values: str, kind: DataType, test: Test, depth: int) -> str | None:
    item = f"seamark_{depth}"
    condition = unfit(item, kind, test, depth + 1)
    return None if condition is None else f"exists({values}, {item} -> {condition})"


def guards(schema: StructType, tests: Mapping[str, Test]) -> dict[str, str]:
    """By column: its value in SQL, which raises an error for one that its test finds. Pure."""
    made = {}
    for field in schema.fields:
        column, test = backquoted(field.name), tests.get(field.name)
        condition = None if test is None else unfit(column, field.dataType, test)
        if condition is not None:
            told = f"{_FOUND}{field.name.encode().hex()}."
            made[field.name] = f"CASE WHEN {condition} THEN raise_error('{told}') ELSE {column} END"
    return made


def without_unfit(df: DataFrame, tests: Mapping[str, Test]) -> DataFrame:
    """The same rows; whatever reads them fails at a value that a test of its column finds.

    It is a part of the plan, so the rows are not read once more. See :func:`refusing_unfit`.
    """
    from pyspark.sql import functions as f

    made = guards(df.schema, tests)
    return df.withColumns({name: f.expr(text) for name, text in made.items()}) if made else df


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
