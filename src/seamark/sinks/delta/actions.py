"""Files as a Delta log names them: partition values as text, statistics as JSON.

Tests: ``tests/sinks/test_delta_actions.py``.
"""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final

import msgspec

from seamark.sinks.tables.parquet_files import ColumnFacts, WrittenFile

if TYPE_CHECKING:
    from deltalake import Schema

_INDEXED: Final = 32
"""Columns with statistics, as Delta has it by default."""
_LONGEST: Final = 32
"""Characters of a text in statistics, as Delta has it."""
_AFTER_ALL: Final = "\U0010ffff"
_MILLISECOND: Final = dt.timedelta(milliseconds=1)


class StagedFile(msgspec.Struct, frozen=True, omit_defaults=True):
    """A file that waits for its epoch, as its entry of the log will have it."""

    path: str
    size: int
    partition: dict[str, str | None] = {}
    stats: str = ""


def staged_files(
    files: Iterable[WrittenFile], columns: Sequence[str], schema: Schema
) -> list[StagedFile]:
    """What the log of a table says about files with these columns beside their partition's."""
    structs = [field.name for field in schema.fields if field.type.type == "struct"]
    return [
        StagedFile(
            path=file.path,
            size=file.size,
            partition={name: partition_text(value) for name, value in file.partition.items()},
            stats=statistics(file.rows, file.columns, columns, structs),
        )
        for file in files
    ]


def partition_text(value: Any) -> str | None:
    """A partition value as Delta's protocol writes it. The empty text is null there."""
    if value is None or value == "":
        return None
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, dt.datetime):
        if value.tzinfo is None:
            return value.strftime("%Y-%m-%d %H:%M:%S.%f").zfill(26)
        # without a zone Spark would take it for the time of its session
        at = value.astimezone(dt.UTC)
        return at.strftime("%Y-%m-%dT%H:%M:%S.%fZ").zfill(27)
    if isinstance(value, dt.date):
        return value.isoformat()
    if isinstance(value, float):
        return _float_text(value)
    if isinstance(value, Decimal):
        return f"{value:f}"
    return str(value)


def _float_text(value: float) -> str:
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "Infinity" if value > 0 else "-Infinity"
    return repr(value)


def statistics(
    rows: int,
    facts: Mapping[str, ColumnFacts],
    columns: Sequence[str],
    structs: Sequence[str] = (),
) -> str:
    """The statistics of a file, for the first columns, as JSON text.

    If the bounds of one are not known, there are none: where only some columns have bounds,
    deltalake 1.6 leaves the file out for whoever filters by another one. A struct that has none
    beside columns that have some is named without them, or no row of it would be null to it.
    """
    known = {name: facts[name] for name in columns[:_INDEXED] if name in facts}
    bounds: dict[str, tuple[Any, Any]] | None = {}
    for name, fact in known.items():
        least, most = _lower(fact.minimum), _upper(fact.maximum)
        if least is not None and most is not None and bounds is not None:
            bounds[name] = least, most
        elif fact.nulls < rows and not isinstance(fact.minimum, bytes):
            bounds = None
    found: dict[str, Any] = {"numRecords": rows}
    if bounds is not None:
        unknown: dict[str, Any] = {name: {} for name in structs}
        found["minValues"] = {name: least for name, (least, _) in bounds.items()} | unknown
        found["maxValues"] = {name: most for name, (_, most) in bounds.items()} | unknown
    found["nullCount"] = {name: fact.nulls for name, fact in known.items()}
    return msgspec.json.encode(found).decode()


def _lower(value: Any) -> Any:
    if isinstance(value, str):
        return value[:_LONGEST]
    if isinstance(value, dt.datetime):
        return _instant(value - dt.timedelta(microseconds=value.microsecond % 1000))
    return _number_or_date(value)


def _upper(value: Any) -> Any:
    if isinstance(value, str):
        if len(value) <= _LONGEST:
            return value
        return None if value[_LONGEST] == _AFTER_ALL else value[:_LONGEST] + _AFTER_ALL
    if isinstance(value, dt.datetime):
        over = value.microsecond % 1000
        try:
            return _instant(
                value if not over else value - dt.timedelta(microseconds=over) + _MILLISECOND
            )
        except OverflowError:
            return value.replace(tzinfo=None).isoformat() + ("Z" if value.tzinfo else "")
    return _number_or_date(value)


def _instant(value: dt.datetime) -> str:
    text = value.replace(tzinfo=None).isoformat(timespec="milliseconds")
    if value.tzinfo is None:
        return text
    at = value.astimezone(dt.UTC).replace(tzinfo=None)
    return f"{at.isoformat(timespec='milliseconds')}Z"


def _number_or_date(value: Any) -> Any:
    """What can be compared in JSON: whether a file can be left out is not worth a guess."""
    if isinstance(value, bytes) or value is None:
        return None
    if isinstance(value, dt.date):
        return value.isoformat()
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, Decimal):
        # of 1E-7 deltalake makes null, and no reader finds a row by it
        return msgspec.Raw(f"{value:f}".encode())
    return value
