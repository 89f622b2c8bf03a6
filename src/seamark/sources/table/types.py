"""Types of columns as Spark knows them, and values as Spark wants them.

Tests: ``tests/sources/test_table_sqlite.py``.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any, Final
from uuid import UUID

from pyspark.sql.types import (
    BinaryType,
    BooleanType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    ShortType,
    StringType,
    TimestampNTZType,
    TimestampType,
)

from seamark.errors import InvalidInputError

Converter = Callable[[Any], Any]

_DECIMAL: Final = re.compile(r"(?:numeric|decimal)\((\d{1,9})(?:, *(\d{1,9}))?\)")
_WIDEST: Final = 38

_POSTGRES: Final[Mapping[str, DataType]] = {
    "smallint": ShortType(),
    "integer": IntegerType(),
    "bigint": LongType(),
    "real": FloatType(),
    "double precision": DoubleType(),
    "numeric": DecimalType(_WIDEST, 18),
    "boolean": BooleanType(),
    "bytea": BinaryType(),
    "date": DateType(),
    "timestamp without time zone": TimestampNTZType(),
    "timestamp with time zone": TimestampType(),
    "text": StringType(),
    "character varying": StringType(),
    "character": StringType(),
    "uuid": StringType(),
    "json": StringType(),
    "jsonb": StringType(),
}


def from_postgres(declared: str, category: str) -> DataType | None:
    """The type of a PostgreSQL column; None when there is no obvious one."""
    if category == "e":  # an enumeration
        return StringType()
    if declared.startswith("numeric("):
        return _decimal(declared)
    return _POSTGRES.get(re.sub(r"\(\d+\)", "", declared))  # a length or a precision


def from_sqlite(declared: str) -> DataType | None:
    """The type of an SQLite column, by what it was declared as; None without an obvious one.

    SQLite itself would store anything in it; a value that does not fit is an error when read.
    """
    text = declared.lower()
    for words, kind in (
        (("bool",), BooleanType()),
        (("int",), LongType()),
        (("char", "clob", "text"), StringType()),
        (("blob",), BinaryType()),
        (("real", "floa", "doub"), DoubleType()),
        (("timestamp", "datetime"), TimestampNTZType()),
        (("date",), DateType()),
    ):
        if any(word in text for word in words):
            return kind
    return _decimal(text) or (DecimalType(_WIDEST, 18) if text in ("numeric", "decimal") else None)


def converter_to(kind: DataType, column: str) -> Converter:
    """What turns a driver's value into one for a column; what does not fit is refused."""
    convert = _CONVERTERS.get(type(kind))
    if convert is None:
        raise InvalidInputError(
            f"column {column!r} cannot be read as {kind.simpleString()}",
            hint="Columns are numbers, decimals, strings, booleans, binary, dates or timestamps.",
        )

    def converted(value: Any) -> Any:
        if value is None:
            return None
        try:
            return convert(value)
        except (TypeError, ValueError, ArithmeticError):
            raise InvalidInputError(
                f"column {column!r} has a value of the type {type(value).__name__}, which is not "
                f"{kind.simpleString()}",
                hint="Give a schema that fits by spark.readStream.schema(…).",
            ) from None

    return converted


def _decimal(declared: str) -> DataType | None:
    match = _DECIMAL.fullmatch(declared)
    if match is None or int(match[1]) > _WIDEST:
        return None
    return DecimalType(int(match[1]), int(match[2] or 0))


def is_whole(value: Decimal) -> bool:
    """Whether it is a whole number of a size that a column can have; NaN is none.

    ``int()`` writes all digits out, and ten bytes can ask for a billion of them.
    """
    return value.is_finite() and value.adjusted() < _WIDEST and value == int(value)


def _whole(value: Any) -> int:
    if isinstance(value, Decimal) and not is_whole(value):
        raise ValueError
    whole = int(value)
    if isinstance(value, str | bytes) or whole != value:
        raise ValueError
    return whole


def _number(value: Any) -> float:
    if isinstance(value, str | bytes):
        raise TypeError
    return float(value)


def _exact(value: Any) -> Decimal:
    # by its text: a float as it is shown, not as it is stored
    return value if isinstance(value, Decimal) else Decimal(str(value))


def _text(value: Any) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, UUID):
        return str(value)
    if isinstance(value, dict | list):
        return json.dumps(value, sort_keys=True, ensure_ascii=False)
    raise TypeError


def _truth(value: Any) -> bool:
    if isinstance(value, bool) or value in (0, 1):
        return bool(value)
    raise ValueError


def _bytes(value: Any) -> bytes:
    if isinstance(value, str):
        raise TypeError
    return bytes(memoryview(value))


def _day(value: Any) -> date:
    if isinstance(value, datetime):
        raise TypeError
    return value if isinstance(value, date) else date.fromisoformat(value)


def _moment(value: Any) -> datetime:
    time = value if isinstance(value, datetime) else datetime.fromisoformat(value)
    if time.tzinfo is None:
        raise ValueError  # a moment without a zone is another one on every machine
    return time.astimezone(UTC)


def _wall_clock(value: Any) -> datetime:
    time = value if isinstance(value, datetime) else datetime.fromisoformat(value)
    if time.tzinfo is not None:
        raise ValueError
    return time


_CONVERTERS: Final[Mapping[type[DataType], Converter]] = {
    ShortType: _whole,
    IntegerType: _whole,
    LongType: _whole,
    FloatType: _number,
    DoubleType: _number,
    DecimalType: _exact,
    BooleanType: _truth,
    StringType: _text,
    BinaryType: _bytes,
    DateType: _day,
    TimestampType: _moment,
    TimestampNTZType: _wall_clock,
}
