"""The rows of a file of a Delta table, as Spark takes them.

Tests: ``tests/sources/test_delta_values.py``.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from typing import Any, Final

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    MapType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from seamark._redaction import redacted
from seamark.errors import DamageError, RefusedError
from seamark.sources.delta.log import AddedFile, DeltaLog, unanswered

_ROWS: Final = 1024
"""Rows that are turned into Python values at a time."""


def rows_of_file(
    log: DeltaLog, added: AddedFile, columns: StructType, skip: int
) -> Iterator[tuple[Any, ...]]:
    """The rows of a file after the first few. Raises FileNotFoundError without the file.

    Its own footer says how many there are: statistics in the log may be wrong.
    """
    import pyarrow as pa
    from pyarrow.parquet import ParquetFile

    where = redacted(f"{log.path}: {added.path}")
    opened = log.open(added.path)
    try:
        # INT96 is what Spark writes; as nanoseconds it would end in the year 2262
        with opened, ParquetFile(opened, coerce_int96_timestamp_unit="us") as file:
            if int(file.metadata.num_rows) <= skip:
                return
            before = 0
            for batch in file.iter_batches(batch_size=_ROWS):
                if before + batch.num_rows > skip:
                    yield from _values(batch, added, columns, where)[max(skip - before, 0) :]
                before += batch.num_rows
    except pa.ArrowInvalid as error:
        raise DamageError("a file of the Delta table is damaged", where=where) from error
    except OSError as error:
        raise unanswered(log.path, added.path, error) from error


def count_of_file(log: DeltaLog, added: AddedFile) -> int:
    """How many rows a file has, by its own footer."""
    import pyarrow as pa
    from pyarrow.parquet import ParquetFile

    opened = log.open(added.path)
    try:
        with opened, ParquetFile(opened) as file:
            return int(file.metadata.num_rows)
    except pa.ArrowInvalid as error:
        where = redacted(f"{log.path}: {added.path}")
        raise DamageError("a file of the Delta table is damaged", where=where) from error
    except OSError as error:
        raise unanswered(log.path, added.path, error) from error


def _values(batch: Any, added: AddedFile, columns: StructType, where: str) -> list[tuple[Any, ...]]:
    """Rows as Spark takes them; columns that a file is too old for are null."""
    import pyarrow as pa

    names = set(batch.schema.names)
    found: list[list[Any]] = []
    for field in columns.fields:
        if field.name in names:
            column = batch.column(field.name)
            try:
                typed = column.cast(_with_zones(column.type, field.dataType))
                found.append(typed.to_pylist(maps_as_pydicts="strict"))
            except (pa.ArrowInvalid, OverflowError, ValueError) as error:
                raise RefusedError(
                    f"column {field.name!r} has a value that Python cannot hold: {error}",
                    where=where,
                    hint="Python's times end with the year 9999 and have microseconds.",
                ) from error
            continue
        text = added.partition_values.get(field.name)
        # Delta writes null as an empty text
        value = partition_value(text, field) if text else None
        found.append([value] * batch.num_rows)
    return list(zip(*found, strict=True))


def _with_zones(stored: Any, wanted: DataType) -> Any:
    """The type of a column with times as the table has them; INT96 does not tell its zone."""
    import pyarrow as pa

    if pa.types.is_timestamp(stored):
        if isinstance(wanted, TimestampType):
            return pa.timestamp("us", "UTC")
        return pa.timestamp("us") if isinstance(wanted, TimestampNTZType) else stored
    if pa.types.is_struct(stored) and isinstance(wanted, StructType):
        types = {field.name: field.dataType for field in wanted.fields}
        return pa.struct(
            [
                field.with_type(_with_zones(field.type, types[field.name]))
                if field.name in types
                else field
                for field in (stored.field(number) for number in range(stored.num_fields))
            ]
        )
    if pa.types.is_list(stored) and isinstance(wanted, ArrayType):
        element = stored.value_field
        return pa.list_(element.with_type(_with_zones(element.type, wanted.elementType)))
    if pa.types.is_map(stored) and isinstance(wanted, MapType):
        key, item = stored.key_field, stored.item_field
        return pa.map_(
            key.with_type(_with_zones(key.type, wanted.keyType)),
            item.with_type(_with_zones(item.type, wanted.valueType)),
        )
    return stored


def partition_value(text: str, field: StructField) -> Any:
    """The value of a column that the log has for all rows of a file, as a text."""
    import pyarrow as pa
    from pyspark.sql.pandas.types import to_arrow_type

    if isinstance(field.dataType, BinaryType):
        raise RefusedError(
            f"the Delta table is partitioned by {field.name!r}, which is binary",
            hint="Writers do not agree on how a log has such values.",
        )
    if isinstance(field.dataType, TimestampType):
        at = dt.datetime.fromisoformat(text)
        # as deltalake writes and reads it; Delta's own writer names the zone
        return at.replace(tzinfo=dt.UTC) if at.tzinfo is None else at
    return pa.array([text]).cast(to_arrow_type(field.dataType))[0].as_py()
