"""Which columns of an output fit a table of PostgreSQL.

Tests: ``tests/sinks/test_postgres_columns.py``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from seamark.errors import RefusedError

if TYPE_CHECKING:
    from pyspark.sql.types import DataType, StructType

_FROM_TEXT: Final = (
    "text", "varchar", "bpchar", "citext", "uuid", "json", "jsonb", "xml", "inet", "cidr",
    "macaddr", "time", "interval",
)  # fmt: skip
"""What a text can be read as. Whether each value can be is found out while it is staged."""

# by the name of the type in Spark: the types of PostgreSQL that hold every value of it
_FITTING: Final[Mapping[str, tuple[str, ...]]] = {
    "boolean": ("bool",),
    "byte": ("int2", "int4", "int8", "numeric"),
    "short": ("int2", "int4", "int8", "numeric"),
    "integer": ("int4", "int8", "numeric"),
    "long": ("int8", "numeric"),
    "float": ("float4", "float8"),
    "double": ("float8",),
    "decimal": ("numeric",),
    "string": _FROM_TEXT,
    "varchar": _FROM_TEXT,
    "char": _FROM_TEXT,
    "binary": ("bytea",),
    "date": ("date",),
    "timestamp": ("timestamptz",),
    "timestamp_ntz": ("timestamp",),
    "struct": ("jsonb", "json"),
    "map": ("jsonb", "json"),
}
_SECOND_DIGITS: Final = 6
"""As many as a time of Spark has, and a column of PostgreSQL without another number."""
_DIGITS: Final[Mapping[str, int]] = {"byte": 3, "short": 5, "integer": 10, "long": 19}


@dataclass(frozen=True)
class TableColumn:
    """A column of the table."""

    name: str
    type: str
    """The name of its type; of its elements' type for an array; ``text`` for an enum."""
    is_array: bool = False
    precision: int | None = None
    scale: int | None = None
    is_nullable: bool = True
    has_default: bool = False
    is_generated: bool = False
    """Whether PostgreSQL computes it and accepts no value."""
    is_numbered: bool = False
    """Whether its default is the next number of a sequence."""
    length: int | None = None
    """How many characters its texts may have."""
    second_digits: int | None = None
    """To how many digits of a second it rounds; 0 for an interval without some of its fields."""

    @property
    def described(self) -> str:
        """Its type as people write it."""
        size = "" if self.precision is None else f"({self.precision},{self.scale})"
        if self.second_digits is not None:
            size = f"({self.second_digits})"
        return f"{self.type}{size}{'[]' if self.is_array else ''}"


def check_columns(
    schema: StructType, table: Sequence[TableColumn], where: str, without: str | None = None
) -> list[str]:
    """The columns to write, all but one; :class:`RefusedError` names the first that cannot be."""
    columns = {column.name: column for column in table}
    fields = [field for field in schema.fields if field.name != without]
    names = [field.name for field in fields]
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise RefusedError(f"two columns of the output are named {twice!r}", where=where)
    for field in fields:
        column = columns.get(field.name)
        if column is None:
            raise RefusedError(
                f"the table has no column {field.name!r}",
                where=where,
                hint=f"It has {', '.join(columns)}. Rename the column in the output (capitals "
                "count), drop it there, or add it to the table.",
            )
        if column.is_generated:
            raise RefusedError(
                f"PostgreSQL computes the column {field.name!r} itself",
                where=where,
                hint="Drop it in the output.",
            )
        if problem := _misfit(field.dataType, column):
            raise RefusedError(f"column {field.name!r}: {problem}", where=where)
    for column in table:
        can_be_left_out = column.is_nullable or column.has_default or column.is_generated
        if column.name not in names and not can_be_left_out:
            raise RefusedError(
                f"the table's column {column.name!r} may not be null, and the output lacks it",
                where=where,
                hint="Add it to the output, or give it a default in the table.",
            )
    return names


def _misfit(kind: DataType, column: TableColumn) -> str | None:
    """Why a column cannot hold all values of a type, or None when it can."""
    from pyspark.sql.types import ArrayType

    if isinstance(kind, ArrayType) != column.is_array:
        return f"the output has {kind.simpleString()}, and the table {column.described}"
    while isinstance(kind, ArrayType):  # PostgreSQL's arrays have any number of dimensions
        kind = kind.elementType
    name = kind.typeName().partition("(")[0].partition(" ")[0]
    fitting = _FITTING.get(name)
    if fitting is None:
        return f"PostgreSQL has no type for {kind.simpleString()}; convert it to a string"
    if column.type not in fitting:
        return f"{kind.simpleString()} does not fit {column.described}, only {', '.join(fitting)}"
    if column.second_digits is not None and column.second_digits < _SECOND_DIGITS:
        return f"{column.described} rounds times to fewer than {_SECOND_DIGITS} digits of a second"
    if column.precision is not None:
        return _lost_digits(kind, name, column.precision, column.scale or 0, column.described)
    return None


def _lost_digits(kind: DataType, name: str, precision: int, scale: int, type_: str) -> str | None:
    """Whether a number has digits before or after the point that a numeric column has not."""
    from pyspark.sql.types import DecimalType

    if isinstance(kind, DecimalType):
        before, after = kind.precision - kind.scale, kind.scale
    else:
        before, after = _DIGITS[name], 0
    if after > scale or before > precision - scale:
        return f"{kind.simpleString()} has digits that {type_} cannot hold"
    return None


def text_lengths(schema: StructType, table: Sequence[TableColumn]) -> dict[str, int]:
    """How many characters texts may have, by the columns that have a limit."""
    return _lengths(schema, table, in_arrays=False)


def element_lengths(schema: StructType, table: Sequence[TableColumn]) -> dict[str, int]:
    """How many characters the texts in arrays may have, by the columns that have a limit."""
    return _lengths(schema, table, in_arrays=True)


def rounding_columns(schema: StructType, table: Sequence[TableColumn]) -> dict[str, str]:
    """The types of columns that take texts for times, and keep microseconds of them."""
    names = {field.name for field in schema.fields}
    return {
        column.name: column.type
        for column in table
        if column.type in ("time", "interval") and column.name in names
    }


def _lengths(
    schema: StructType, table: Sequence[TableColumn], *, in_arrays: bool
) -> dict[str, int]:
    names = {field.name for field in schema.fields}
    return {
        column.name: column.length
        for column in table
        if column.length is not None and column.is_array == in_arrays and column.name in names
    }
