"""Which columns of an output go into which columns of a table, found out before the first epoch.

Tests: ``tests/sinks/test_iceberg_columns.py``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import count
from typing import TYPE_CHECKING, Final

from seamark.errors import RefusedError

if TYPE_CHECKING:
    from pyiceberg.schema import Schema
    from pyiceberg.types import IcebergType, NestedField
    from pyspark.sql.types import DataType, StructType

_CHANGE: Final = "Change the output, or the table. schema='merge' adds columns and widens types."
_UNFIT_KEYS: Final = ("float", "double", "array", "map", "struct")


def check_columns(
    schema: StructType, table: Schema, delete_where: str | None, where: str
) -> list[str]:
    """The columns that are written. :class:`RefusedError` names what does not fit."""
    given = {field.name: field for field in schema.fields if field.name != delete_where}
    _refuse_twins(schema, where)
    known = {field.name: field for field in table.fields}
    for name, field in given.items():
        if name not in known:
            near = next((other for other in known if other.lower() == name.lower()), None)
            raise RefusedError(
                f"the table has no column {name!r}",
                where=where,
                hint=f"It has {near!r}: names are compared as they are." if near else _CHANGE,
            )
        problem = misfit(field.dataType, known[name].field_type, name)
        if problem is not None:
            raise RefusedError(problem, where=where, hint=_CHANGE)
    for name, column in known.items():
        if column.required and name not in given and column.initial_default is None:
            raise RefusedError(
                f"the table requires column {name!r}, which the output does not have",
                where=where,
                hint="Add it to the output, or make it optional.",
            )
    return list(given)


def check_keys(
    schema: StructType, keys: Sequence[str], delete_where: str | None, where: str
) -> None:
    """:class:`RefusedError` when rows cannot be told apart or removed by these columns."""
    kinds = {field.name: field.dataType.typeName() for field in schema.fields}
    for key in keys:
        if key not in kinds or key == delete_where:
            raise RefusedError(f"the output has no column {key!r} to be a key", where=where)
        if kinds[key] in _UNFIT_KEYS:
            raise RefusedError(
                f"column {key!r} is of type {kinds[key]}, which is not fit for a key",
                where=where,
                hint="Use whole numbers, decimals, text, bytes, booleans, dates or timestamps.",
            )
    if delete_where is not None and kinds.get(delete_where) != "boolean":
        raise RefusedError(
            f"delete_where names {delete_where!r}, which is not a boolean column", where=where
        )
    maps = [field.name for field in schema.fields if "map<" in field.dataType.simpleString()]
    if keys and maps:
        raise RefusedError(
            f"column {maps[0]!r} holds a map, which cannot be compared",
            where=where,
            hint="An upsert must know whether two rows are equal. Use an array of structs.",
        )


def _refuse_twins(schema: StructType, where: str) -> None:
    seen: set[str] = set()
    for field in schema.fields:
        if field.name.lower() in seen:
            raise RefusedError(f"the output has two columns {field.name!r}", where=where)
        seen.add(field.name.lower())


def misfit(given: DataType, column: IcebergType, name: str) -> str | None:
    """Why values of a Spark type do not go into a column of a table; None when they do."""
    from pyiceberg import types as iceberg
    from pyspark.sql import types as spark

    if isinstance(given, spark.StructType) and isinstance(column, iceberg.StructType):
        return _struct_misfit(given, column, name)
    if isinstance(given, spark.ArrayType) and isinstance(column, iceberg.ListType):
        if column.element_required and given.containsNull:
            return f"the elements of column {name!r} may be null, and the table requires values"
        return misfit(given.elementType, column.element_type, f"{name}.element")
    if isinstance(given, spark.MapType) and isinstance(column, iceberg.MapType):
        if column.value_required and given.valueContainsNull:
            return f"the values of column {name!r} may be null, and the table requires values"
        return misfit(given.keyType, column.key_type, f"{name}.key") or misfit(
            given.valueType, column.value_type, f"{name}.value"
        )
    if str(column) in _targets(given):
        return None
    if (
        isinstance(given, spark.DecimalType)
        and isinstance(column, iceberg.DecimalType)
        and column.scale == given.scale
        and column.precision >= given.precision
    ):
        return None
    return f"column {name!r} is {given.simpleString()}, and {column} in the table"


def _struct_misfit(given: StructType, column: IcebergType, name: str) -> str | None:
    known: dict[str, NestedField] = {field.name: field for field in column.fields}  # type: ignore[attr-defined]
    for field in given.fields:
        inner = f"{name}.{field.name}"
        if field.name not in known:
            return f"the table has no column {inner!r}"
        target = known.pop(field.name)
        if target.required and field.nullable:
            return f"column {inner!r} may be null, and the table requires values"
        problem = misfit(field.dataType, target.field_type, inner)
        if problem is not None:
            return problem
    for missing in known.values():
        if missing.required:
            return f"the table requires column '{name}.{missing.name}'"
    return None


_FITTING: Final = {
    "boolean": ("boolean",),
    "byte": ("int", "long"),
    "short": ("int", "long"),
    "integer": ("int", "long"),
    "long": ("long",),
    "float": ("float", "double"),
    "double": ("double",),
    "string": ("string",),
    "varchar": ("string",),
    "char": ("string",),
    "binary": ("binary",),
    "date": ("date",),
    "timestamp": ("timestamptz",),
    "timestamp_ntz": ("timestamp",),
}


def _targets(given: DataType) -> Sequence[str]:
    return _FITTING.get(given.typeName().split("(", maxsplit=1)[0], ())


# what a table would look like that has these columns


def as_iceberg(schema: StructType, without: str | None, where: str) -> Schema:
    """The schema of a table for an output, to be merged into one by name."""
    from pyiceberg.schema import Schema
    from pyiceberg.types import NestedField

    ids = count(1)
    fields = [
        NestedField(next(ids), field.name, _iceberg(field.dataType, field.name, ids, where))
        for field in schema.fields
        if field.name != without
    ]
    return Schema(*fields)


def _iceberg(given: DataType, name: str, ids: Iterator[int], where: str) -> IcebergType:
    from pyiceberg import types as iceberg
    from pyspark.sql import types as spark

    if isinstance(given, spark.StructType):
        return iceberg.StructType(
            *(
                iceberg.NestedField(
                    next(ids), one.name, _iceberg(one.dataType, f"{name}.{one.name}", ids, where)
                )
                for one in given.fields
            )
        )
    if isinstance(given, spark.ArrayType):
        element = _iceberg(given.elementType, f"{name}.element", ids, where)
        return iceberg.ListType(next(ids), element, element_required=False)
    if isinstance(given, spark.MapType):
        key = _iceberg(given.keyType, f"{name}.key", ids, where)
        value = _iceberg(given.valueType, f"{name}.value", ids, where)
        return iceberg.MapType(next(ids), key, next(ids), value, value_required=False)
    if isinstance(given, spark.DecimalType):
        return iceberg.DecimalType(given.precision, given.scale)
    targets = _targets(given)
    if not targets:
        raise RefusedError(
            f"column {name!r} is {given.simpleString()}, which Iceberg has no type for", where=where
        )
    made: IcebergType = getattr(iceberg, _CLASSES[targets[0]])()
    return made


_CLASSES: Final = {
    "boolean": "BooleanType",
    "int": "IntegerType",
    "long": "LongType",
    "float": "FloatType",
    "double": "DoubleType",
    "string": "StringType",
    "binary": "BinaryType",
    "date": "DateType",
    "timestamptz": "TimestamptzType",
    "timestamp": "TimestampType",
}
