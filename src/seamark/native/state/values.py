"""Values of Spark's types as JSON has them.

Tests: ``tests/native/test_state_rows.py``.
"""

from __future__ import annotations

import base64
import math
from collections.abc import Sequence
from datetime import UTC, date, datetime, time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql.types import DataType


def plain(value: Any, kind: DataType) -> Any:
    """A value of a collected row, without loss of what it was.

    Structs and maps with string keys are objects, other maps lists of ``key`` and ``value``. A
    decimal is a string of its digits, bytes are base64, a time with a zone is ISO 8601 in UTC, and
    numbers that JSON lacks are ``"NaN"``, ``"Infinity"`` and ``"-Infinity"``.
    """
    from pyspark.sql import types

    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(kind, types.StructType):
        return {
            field.name: plain(inner, field.dataType)
            for field, inner in zip(kind.fields, value, strict=True)
        }
    if isinstance(kind, types.ArrayType):
        return [plain(inner, kind.elementType) for inner in value]
    if isinstance(kind, types.MapType):
        pairs = [(plain(k, kind.keyType), plain(v, kind.valueType)) for k, v in value.items()]
        if isinstance(kind.keyType, types.StringType):
            return dict(pairs)
        return [{"key": k, "value": v} for k, v in pairs]
    if isinstance(value, float):
        return value if math.isfinite(value) else _not_finite(value)
    if isinstance(value, bytes | bytearray):
        return base64.b64encode(value).decode()
    if isinstance(value, datetime):
        # Spark gives a time with a zone as the wall clock of this machine
        zoned = isinstance(kind, types.TimestampType)
        return value.astimezone(UTC).isoformat() if zoned else value.isoformat()
    if isinstance(value, date | time):
        return value.isoformat()
    return str(value)


def _not_finite(value: float) -> str:
    if math.isnan(value):
        return "NaN"
    return "Infinity" if value > 0 else "-Infinity"


def plain_row(row: Sequence[Any], kind: DataType) -> dict[str, Any]:
    """A collected row by the names of its columns."""
    values = plain(row, kind)
    assert isinstance(values, dict)
    return values
