"""Values of every reader in one form, in which they are equal if and only if they are the same.

Floats are compared by their bits (NaN is one value), decimals as numbers, texts by their bytes and
times by their microseconds.
"""

from __future__ import annotations

import base64
import datetime as dt
import json
import struct
from collections.abc import Sequence
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame
    from pyspark.sql.types import DataType

Row = dict[str, Any]
_EPOCH: Final = dt.datetime(1970, 1, 1)  # noqa: DTZ001 - times are without a zone here
_MICROSECOND: Final = dt.timedelta(microseconds=1)


def rows_of(df: DataFrame) -> list[Row]:
    """The rows of a DataFrame. What Arrow has no form for is compared as Spark's text of it."""
    from pyspark.sql import functions as f

    from seamark._common.text import backquoted

    names = df.columns
    made = []
    for number, each in enumerate(df.schema.fields):
        column, kind = f.col(backquoted(each.name)), each.dataType.simpleString()
        if kind == "variant":
            column = f.concat(f.schema_of_variant(column), f.lit(" "), f.to_json(column))
        elif kind.startswith("interval"):
            column = column.cast("string")
        made.append(column.alias(f"c{number}"))
    return rows_in(df.select(*made).toArrow(), names)


def rows_in(table: pa.Table, names: Sequence[str] | None = None) -> list[Row]:
    """The rows of a table of Arrow."""
    columns = [plain(column.combine_chunks()) for column in table.columns]
    names = names or table.column_names
    return [dict(zip(names, values, strict=True)) for values in zip(*columns, strict=True)]


def plain(column: Any) -> list[Any]:
    """The values of an array of Arrow."""
    import pyarrow as pa
    from pyarrow import types

    kind = column.type
    if isinstance(column, pa.ChunkedArray):
        return [value for chunk in column.chunks for value in plain(chunk)]
    if types.is_dictionary(kind):
        return plain(column.dictionary_decode())
    if types.is_floating(kind):
        return [floating(value) for value in column.to_pylist()]
    if types.is_decimal(kind):
        return [number(value) for value in column.to_pylist()]
    if types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind):
        binary = column.cast(pa.binary_view() if types.is_string_view(kind) else pa.large_binary())
        return [None if value is None else ("text", value) for value in binary.to_pylist()]
    if types.is_timestamp(kind):
        micros = column.cast(pa.timestamp("us", kind.tz)).cast(pa.int64()).to_pylist()
        form = "local" if kind.tz is None else "time"
        return [None if value is None else (form, value) for value in micros]
    if types.is_date32(kind):
        days = column.cast(pa.int32()).to_pylist()
        return [None if value is None else ("date", value) for value in days]
    if types.is_map(kind):
        pairs = zip(column.offsets[:-1], column.offsets[1:], strict=True)
        keys, items = plain(column.keys), plain(column.items)
        return [
            _map_of(keys[a.as_py() : b.as_py()], items[a.as_py() : b.as_py()]) if valid else None
            for (a, b), valid in zip(pairs, column.is_valid().to_pylist(), strict=True)
        ]
    if types.is_struct(kind):
        members = [plain(column.field(n)) for n in range(kind.num_fields)]
        names = [kind.field(n).name for n in range(kind.num_fields)]
        return [
            tuple((name, values[row]) for name, values in zip(names, members, strict=True))
            if valid
            else None
            for row, valid in enumerate(column.is_valid().to_pylist())
        ]
    if types.is_list(kind) or types.is_large_list(kind):
        return [None if not each.is_valid else tuple(plain(each.values)) for each in column]
    return [bytes_of(v) if isinstance(v, bytes) else v for v in column.to_pylist()]


def _map_of(keys: Sequence[Any], items: Sequence[Any]) -> tuple[Any, ...]:
    return ("map", *sorted(zip(keys, items, strict=True), key=repr))


def bytes_of(value: bytes) -> tuple[str, bytes]:
    return "bytes", value


def floating(value: float | None) -> Any:
    return None if value is None else ("float", "nan" if value != value else value.hex())  # noqa: PLR0124


def number(value: Decimal | None) -> Any:
    return None if value is None else ("number", format(value.normalize() + 0, "f"))


# JSON, as docs/sinks.md has it


def json_rows(texts: Sequence[bytes]) -> list[list[tuple[str, Any]]]:
    """The members of objects of JSON, with numbers as they are written."""
    return [parsed(text).members for text in texts]


class Members:
    """An object of JSON, of which no name may be there twice."""

    def __init__(self, members: list[tuple[str, Any]]) -> None:
        self.members = members
        assert len(dict(members)) == len(members), f"a name is there twice: {members}"


def parsed(text: bytes | str) -> Any:
    return json.loads(text, parse_int=str, parse_float=str, object_pairs_hook=Members)


def from_json(value: Any, kind: DataType) -> Any:
    """A value of JSON as what it was in Spark."""
    from pyspark.sql.types import ArrayType, BooleanType, MapType, StructType

    if value is None:
        return None
    if isinstance(kind, StructType):
        members = dict(value.members)
        assert list(members) == kind.names, f"{list(members)} for {kind.names}"
        return tuple((each.name, from_json(members[each.name], each.dataType)) for each in kind)
    if isinstance(kind, ArrayType):
        return tuple(from_json(each, kind.elementType) for each in value)
    if isinstance(kind, MapType):
        keys = [from_key(name, kind.keyType) for name, _ in value.members]
        return _map_of(keys, [from_json(item, kind.valueType) for _, item in value.members])
    if isinstance(kind, BooleanType):
        assert isinstance(value, bool)
        return value
    return from_plain_text(value, kind)


def from_key(text: str, kind: DataType) -> Any:
    """The key of a map of JSON as what it was in Spark."""
    from pyspark.sql.types import ArrayType, BooleanType, MapType, StructType

    if isinstance(kind, StructType | ArrayType | MapType):
        return from_json(parsed(text), kind)
    return (
        {"true": True, "false": False}[text]
        if isinstance(kind, BooleanType)
        else (from_plain_text(text, kind))
    )


def from_plain_text(text: str, kind: DataType) -> Any:
    """A text in JSON as the plain value that it was in Spark."""
    from pyspark.sql import types as spark

    if isinstance(kind, spark.BinaryType):
        return bytes_of(base64.b64decode(text, validate=True))
    if isinstance(kind, spark.FloatType):
        value = float(text)
        return floating(struct.unpack("f", struct.pack("f", value))[0] if value == value else value)  # noqa: PLR0124
    if isinstance(kind, spark.DoubleType):
        return floating(float(text))
    if isinstance(kind, spark.DecimalType):
        return number(Decimal(text))
    if isinstance(kind, spark.IntegralType):
        return int(text)
    if isinstance(kind, spark.DateType):
        return "date", (dt.date.fromisoformat(text) - _EPOCH.date()).days
    if isinstance(kind, spark.TimestampType):
        assert text.endswith("Z"), text
        return "time", micros(text.removesuffix("Z"))
    if isinstance(kind, spark.TimestampNTZType):
        return "local", micros(text)
    return "text", text.encode()


def micros(text: str) -> int:
    assert len(text) == 26, text
    return (dt.datetime.fromisoformat(text) - _EPOCH) // _MICROSECOND
