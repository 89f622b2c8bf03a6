"""How values become JSON in every sink that writes some: nothing is left out, nothing is cut off.

Tests: ``tests/sinks/test_json_texts.py``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pyspark.sql import Column
    from pyspark.sql.types import DataType

JSON_OPTIONS: Final = {
    "ignoreNullFields": "false",
    "timeZone": "UTC",
    # Spark's own default cuts off microseconds, which makes one key of two
    "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX",
    "timestampNTZFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSS",
}
"""Options of Spark's ``to_json``."""


def json_text(value: Column, kind: DataType) -> Column:
    """A value as JSON.

    Of the keys of a map Spark writes what Java calls them: of bytes where they are in memory, of a
    time a number. Here they are the same texts as values.
    """
    from pyspark.sql import functions as f

    return f.to_json(_with_plain_keys(value, kind), JSON_OPTIONS)


def json_object(columns: Mapping[str, tuple[Column, DataType]]) -> Column:
    """Columns as a JSON object, by their names."""
    from pyspark.sql import functions as f

    members = [_with_plain_keys(*column).alias(name) for name, column in columns.items()]
    return f.to_json(f.struct(*members), JSON_OPTIONS)


def json_element(value: Column, kind: DataType) -> Column:
    """A value of any type as it stands in a list of JSON; null for null."""
    from pyspark.sql import functions as f

    text = f.to_json(f.array(_with_plain_keys(value, kind)), JSON_OPTIONS)
    return f.when(value.isNotNull(), f.substring(text, f.lit(2), f.length(text) - 2))


def plain_text(value: Column, kind: DataType) -> Column:
    """A value that is no text itself, as in JSON and without the quotes; null for null."""
    from pyspark.sql import functions as f

    return f.regexp_replace(json_element(value, kind), '^"|"$', "")


def _with_plain_keys(value: Column, kind: DataType) -> Column:
    """The same value; where a map has keys that JSON cannot have, with texts instead."""
    from pyspark.sql import functions as f
    from pyspark.sql.types import ArrayType, MapType, StructType

    if not _has_other_keys(kind):
        return value
    if isinstance(kind, StructType):
        fields = [
            _with_plain_keys(value.getField(field.name), field.dataType).alias(field.name)
            for field in kind.fields
        ]
        return f.when(value.isNotNull(), f.struct(*fields))
    if isinstance(kind, ArrayType):
        element = kind.elementType
        return f.transform(value, lambda item: _with_plain_keys(item, element))
    assert isinstance(kind, MapType)
    names, items = kind.keyType, kind.valueType
    made = f.transform_values(value, lambda _, item: _with_plain_keys(item, items))
    if _is_plain(names):
        return made
    return f.transform_keys(made, lambda name, _: plain_text(name, names))


def _has_other_keys(kind: DataType) -> bool:
    from pyspark.sql.types import ArrayType, MapType, StructType

    if isinstance(kind, StructType):
        return any(_has_other_keys(field.dataType) for field in kind.fields)
    if isinstance(kind, ArrayType):
        return _has_other_keys(kind.elementType)
    if isinstance(kind, MapType):
        return not _is_plain(kind.keyType) or _has_other_keys(kind.valueType)
    return False


def _is_plain(kind: DataType) -> bool:
    """Whether what Java calls a key is what it is."""
    from pyspark.sql.types import BooleanType, CharType, NumericType, StringType, VarcharType

    return isinstance(kind, BooleanType | CharType | NumericType | StringType | VarcharType)


def can_be_read_back(kind: DataType) -> bool:
    """Whether Spark can read values of a type from JSON: it knows only texts as keys of a map."""
    from pyspark.sql.types import ArrayType, MapType, StringType, StructType

    if isinstance(kind, StructType):
        return all(can_be_read_back(field.dataType) for field in kind.fields)
    if isinstance(kind, ArrayType):
        return can_be_read_back(kind.elementType)
    if isinstance(kind, MapType):
        return isinstance(kind.keyType, StringType) and can_be_read_back(kind.valueType)
    return True


def has_unnamed_keys(kind: DataType) -> bool:
    """Whether Spark, when it writes JSON itself, loses the keys of a map in values of a type."""
    from pyspark.sql.types import ArrayType, BinaryType, MapType, StructType

    if isinstance(kind, StructType):
        return any(has_unnamed_keys(field.dataType) for field in kind.fields)
    if isinstance(kind, ArrayType):
        return has_unnamed_keys(kind.elementType)
    if isinstance(kind, MapType):
        is_lost = isinstance(kind.keyType, ArrayType | BinaryType | StructType)
        return is_lost or has_unnamed_keys(kind.valueType)
    return False
