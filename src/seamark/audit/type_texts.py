"""Types of columns as a checkpoint has written them down, read without Spark's own parser.

That one takes seconds for a hundred types inside each other and minutes for some thousand, and a
checkpoint may be anybody's.

Tests: ``tests/audit/test_type_texts.py``.
"""

from __future__ import annotations

import re
from functools import cache
from typing import TYPE_CHECKING, Any, Final

from seamark import limits

if TYPE_CHECKING:
    from pyspark.sql.types import DataType, StructField, StructType

_FIELD: Final = re.compile(r"(\w++):")
_ATOM: Final = re.compile(r"[a-z][\w ]*+(?:\([0-9]{1,9}(?:,[0-9]{1,2})?\))?+")
_SIZED: Final = re.compile(r"([a-z]++)\(([0-9]++)(?:,([0-9]++))?\)")
_COLLATED: Final = re.compile(r"string collate \w{1,100}")
_MOST_COLLATIONS: Final = 20


class TypeReader:
    """Reads the types of one output's columns.

    :class:`ValueError` for a text that is not what ``simpleString()`` gives for a type, as for
    fields of a struct whose names need quotes, for types inside each other more deeply than
    :mod:`seamark.limits` allows, and when there were more of them.
    """

    def __init__(self) -> None:
        self._count = 0
        self._collated: dict[str, DataType] = {}

    def read(self, text: str) -> DataType:
        """The type that a text stands for."""
        kind, end = self._type_at(text, 0, 0)
        if end != len(text):
            raise ValueError("more than one type")
        return kind

    def _type_at(self, text: str, at: int, depth: int) -> tuple[DataType, int]:
        """The type that begins there, and where it ends."""
        from pyspark.sql import types as t

        self._count += 1 + depth
        if self._count > limits.MOST_TYPES or depth > limits.DEEPEST_TYPE:
            raise ValueError("too many types")
        if text.startswith("array<", at):
            element, at = self._type_at(text, at + len("array<"), depth + 1)
            return t.ArrayType(element), _after(">", text, at)
        if text.startswith("map<", at):
            key, at = self._type_at(text, at + len("map<"), depth + 1)
            value, at = self._type_at(text, _after(",", text, at), depth + 1)
            return t.MapType(key, value), _after(">", text, at)
        if text.startswith("struct<", at):
            fields, at = self._fields_at(text, at + len("struct<"), depth + 1)
            return t.StructType(fields), at
        atom = _ATOM.match(text, at)
        if atom is None:
            raise ValueError("no type")
        return self._atom(atom[0]), atom.end()

    def _fields_at(self, text: str, at: int, depth: int) -> tuple[list[StructField], int]:
        from pyspark.sql.types import StructField

        fields: list[StructField] = []
        while not text.startswith(">", at):
            if fields:
                at = _after(",", text, at)
            name = _FIELD.match(text, at)
            if name is None or len(name[1]) > limits.LONGEST_PREFIX:
                raise ValueError("no field")
            kind, at = self._type_at(text, name.end(), depth)
            fields.append(StructField(name[1], kind))
        return fields, at + 1

    def _atom(self, text: str) -> DataType:
        if (known := _atoms().get(text) or self._collated.get(text)) is not None:
            return known
        if (sized := _SIZED.fullmatch(text)) is not None:
            return _sized(sized[1], int(sized[2]), sized[3])
        if _COLLATED.fullmatch(text) and len(self._collated) < _MOST_COLLATIONS:
            return self._collated.setdefault(text, _collated(text))
        raise ValueError("no type")


def has_too_many_types(schema: StructType) -> bool:
    """Whether rows whose schema does not come from a text have more types than one may have."""
    from pyspark.sql import types as t

    count, waiting = 0, [(each.dataType, 0) for each in schema.fields]
    while waiting:
        kind, depth = waiting.pop()
        count += 1 + depth
        if count > limits.MOST_TYPES or depth > limits.DEEPEST_TYPE:
            return True
        if isinstance(kind, t.ArrayType):
            waiting.append((kind.elementType, depth + 1))
        elif isinstance(kind, t.MapType):
            waiting += [(kind.keyType, depth + 1), (kind.valueType, depth + 1)]
        elif isinstance(kind, t.StructType):
            waiting += [(each.dataType, depth + 1) for each in kind.fields]
    return False


def _after(mark: str, text: str, at: int) -> int:
    if not text.startswith(mark, at):
        raise ValueError(f"no {mark}")
    return at + 1


@cache
def _atoms() -> dict[str, DataType]:
    """Types without parts, by their texts."""
    from pyspark.sql import types as t

    kinds: list[Any] = [
        t.NullType, t.StringType, t.BinaryType, t.BooleanType, t.DateType, t.TimestampType,
        t.TimestampNTZType, t.DoubleType, t.FloatType, t.ByteType, t.ShortType, t.IntegerType,
        t.LongType, t.CalendarIntervalType, t.VariantType,
    ]  # fmt: skip
    found: list[DataType] = [kind() for kind in kinds]
    found += [t.DayTimeIntervalType(a, b) for a in range(4) for b in range(a, 4)]
    found += [t.YearMonthIntervalType(a, b) for a in range(2) for b in range(a, 2)]
    return {kind.simpleString(): kind for kind in found}


def _sized(name: str, size: int, scale: str | None) -> DataType:
    from pyspark.sql import types as t

    if name == "decimal" and scale is not None and 1 <= size <= 38 and int(scale) <= size:
        return t.DecimalType(size, int(scale))
    if scale is None and name == "char" and size:
        return t.CharType(size)
    if scale is None and name == "varchar" and size:
        return t.VarcharType(size)
    if scale is None and name == "time" and size <= 6:  # new in Spark 4.1
        time: DataType = t.TimeType(size)
        return time
    raise ValueError("no type")


def _collated(text: str) -> DataType:
    """A text with a collation: only Spark knows whether there is one of that name."""
    from pyspark.errors import PySparkException
    from pyspark.sql.types import DataType

    try:
        return DataType.fromDDL(text)
    except PySparkException as error:
        raise ValueError(str(error)) from None
