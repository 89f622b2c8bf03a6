"""How the values of an output travel to PostgreSQL: as text that COPY reads.

Plain values are written by Arrow. Binary, structs, maps and arrays become strings in Spark first.

Tests: ``tests/sinks/test_postgres_columns.py``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Final

from seamark.sinks.json_texts import JsonTexts, date_text, json_texts, time_text
from seamark.sinks.unfit_values import Test, refusing_unfit, without_unfit

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import ArrayType, DataType, StructType

_YEAR_1: Final = -62_135_596_800_000_000
_YEAR_32768: Final = 971_890_963_200_000_000
"""When these years begin, in microseconds since 1970."""


_LENGTH: Final = "length"
"""The fault of a text that is too long."""
_EXACT: Final = "exact"
"""The fault of a text that PostgreSQL would take for less than it says."""
_CLOCK: Final = r"(?i)^\s*t?\d\d?:?\d\d(:?\d\d(\.\d{0,6}0*)?)?\s*([ap]m)?\s*$"
"""A time of day, to the microsecond. Zones and dates would be left out, further digits rounded."""
_YEARS: Final = r"\.\d*[1-9]\d*\s*(y|dec|c|mille|mil\b|mils\b|us|micro)"
_DIGITS: Final = r"\.\d{6}\d*[1-9]|\.\d{3}\d*[1-9]\d*\s*(ms|milli)|\de[-+\d]"
_ROUNDED: Final = f"(?i){_DIGITS}|{_YEARS}"
"""An interval with less than a microsecond, or with a part of a year: it is rounded to months."""


class UnstorableTextError(ValueError):
    """A value has no text that PostgreSQL would read as the same."""


def as_text(df: DataFrame, names: Sequence[str]) -> list[Column]:
    """The columns, each of a type that Arrow writes as PostgreSQL reads it."""
    from pyspark.sql import functions as f

    from seamark._common.text import backquoted

    kinds = {field.name: field.dataType for field in df.schema.fields}
    texts = json_texts(df)
    return [_converted(f.col(backquoted(name)), kinds[name], texts).alias(name) for name in names]


def rewritten_columns(schema: StructType) -> list[str]:
    """The columns whose texts Spark writes again: into JSON, or into the literal of an array."""
    return [
        field.name
        for field in schema.fields
        if re.search("struct<|map<|array<", field.dataType.simpleString())
    ]


def _converted(value: Column, kind: DataType, json: JsonTexts) -> Column:
    from pyspark.sql import functions as f
    from pyspark.sql.types import ArrayType, BinaryType, MapType, StructType

    if isinstance(kind, BinaryType):
        return f.concat(f.lit("\\x"), f.hex(value))
    if isinstance(kind, StructType | MapType):
        return json.text(value, kind)
    if isinstance(kind, ArrayType):
        return f.when(value.isNotNull(), _array(value, kind, json))
    return value


def _array(value: Column, kind: ArrayType, json: JsonTexts) -> Column:
    """The literal of an array: ``{"a",NULL,"b"}``."""
    from pyspark.sql import functions as f

    element = kind.elementType
    texts = f.transform(value, lambda item: _element(item, element, json))
    return f.concat(f.lit("{"), f.array_join(texts, ","), f.lit("}"))


def _element(item: Column, kind: DataType, json: JsonTexts) -> Column:
    from pyspark.sql import functions as f
    from pyspark.sql.types import ArrayType, DateType, TimestampType

    if isinstance(kind, ArrayType):
        text = _array(item, kind, json)
    else:
        if isinstance(kind, TimestampType):
            plain = time_text(item)
        else:
            plain = date_text(item) if isinstance(kind, DateType) else _converted(item, kind, json)
        escaped = f.regexp_replace(plain.cast("string"), r'([\\"])', r"\\$1")
        text = f.concat(f.lit('"'), escaped, f.lit('"'))
    # PostgreSQL refuses a null among inner arrays; left out it would be lost in silence
    return f.when(item.isNull(), f.lit("NULL")).otherwise(text)


def as_csv(batch: pa.RecordBatch, token: str, lengths: Mapping[str, int] | None = None) -> bytes:
    """Rows with a token at the end of each: strings in quotes, null as nothing at all.

    :class:`UnstorableTextError` for a text with a zero byte, which PostgreSQL cannot store, for one
    that is longer than ``lengths`` allow, because it would cut blanks off without a word, and for
    a time of the far future or past.
    """
    import pyarrow as pa
    from pyarrow import csv

    refuse_zero_bytes(batch)
    _refuse_long_texts(batch, lengths or {})
    _refuse_far_times(batch)
    table = pa.Table.from_batches([_in_utc(batch)])
    table = table.append_column("token", pa.repeat(token, batch.num_rows))
    sink = pa.BufferOutputStream()
    csv.write_csv(table, sink, csv.WriteOptions(include_header=False))
    return bytes(sink.getvalue())


def _in_utc(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The same times: Arrow cuts the seconds off the offset that a zone had long ago."""
    import pyarrow as pa

    fields = [
        field.with_type(pa.timestamp(field.type.unit, "UTC"))
        if pa.types.is_timestamp(field.type) and field.type.tz is not None
        else field
        for field in batch.schema
    ]
    return batch.cast(pa.schema(fields))


def _refuse_far_times(batch: pa.RecordBatch) -> None:
    """Of a year that needs more than 16 bits Arrow writes another one, such as 2024 for 67560."""
    import pyarrow as pa
    import pyarrow.compute as pc

    for field, column in zip(batch.schema, batch.columns, strict=True):
        if not pa.types.is_timestamp(field.type) or field.type.tz is None:
            continue  # without a zone it writes what PostgreSQL refuses
        ends = pc.min_max(column.cast(pa.int64()))
        low, high = ends["min"].as_py(), ends["max"].as_py()
        if low is not None and not (low >= _YEAR_1 and high < _YEAR_32768):
            raise UnstorableTextError(
                f"column {field.name!r} has a time that is not in the years 1 to 32767. Leave such "
                f"rows out, or turn it into null: CASE WHEN year({field.name}) BETWEEN 1 AND 32767 "
                f"THEN {field.name} END."
            )


def _refuse_long_texts(batch: pa.RecordBatch, lengths: Mapping[str, int]) -> None:
    import pyarrow.compute as pc

    for name, most in lengths.items():
        if pc.any(pc.greater(pc.utf8_length(batch.column(name)), most)).as_py():
            raise UnstorableTextError(
                f"{_too_long(name, most)}. Make that longer, or cut the text in the output: "
                f"left({name}, {most})."
            )


def _too_long(name: str, most: int) -> str:
    return (
        f"column {name!r} has a text of more than {most} characters, which is what the table's "
        "column holds"
    )


def without_long_elements(df: DataFrame, lengths: Mapping[str, int]) -> DataFrame:
    """The same rows; reading them fails at an array with a text that is longer than these."""
    from pyspark.sql import functions as f

    def longer_than(most: int) -> Test:
        return lambda value, _: f.char_length(value) > most

    tests = {name: longer_than(most) for name, most in lengths.items()}
    return without_unfit(df, tests, _LENGTH)


def refusing_long_elements(lengths: Mapping[str, int], where: str) -> AbstractContextManager[None]:
    """Makes the failure of :func:`without_long_elements` a refusal of the column."""
    return refusing_unfit(
        _LENGTH,
        lambda name: _too_long(name, lengths[name]),
        where,
        "Make that longer, or cut the texts in the output: transform(…, x -> left(x, …)).",
    )


def without_rounded(df: DataFrame, kinds: Mapping[str, str]) -> DataFrame:
    """The same rows; reading them fails at a text that a ``time`` or ``interval`` cannot hold.

    ``kinds`` has the types of the table's columns that are one, by name.
    """
    from pyspark.sql import functions as f

    def test(kind: str) -> Test:
        if kind == "time":
            return lambda value, _: ~f.rlike(value, f.lit(_CLOCK))
        return lambda value, _: f.rlike(value, f.lit(_ROUNDED))

    return without_unfit(df, {name: test(kind) for name, kind in kinds.items()}, _EXACT)


def refusing_rounded(kinds: Mapping[str, str], where: str) -> AbstractContextManager[None]:
    """Makes the failure of :func:`without_rounded` a refusal of the column."""
    return refusing_unfit(
        _EXACT,
        lambda name: (
            f"column {name!r} has a text of which a column of the type {kinds[name]} would keep "
            "only a part: it has microseconds, and neither a date nor a zone"
            if kinds[name] == "time"
            else f"column {name!r} has a text that a column of the type interval would round: it "
            "has whole months, and microseconds"
        ),
        where,
        "Write such a text into a column of the type text, or round it in the output.",
    )


def refuse_zero_bytes(batch: pa.RecordBatch) -> None:
    """:class:`UnstorableTextError` that names the column with a zero byte in a text."""
    import pyarrow as pa
    import pyarrow.compute as pc

    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        is_text = pa.types.is_string(column.type) or pa.types.is_large_string(column.type)
        if is_text and pc.any(pc.match_substring(column, "\0")).as_py():
            raise UnstorableTextError(
                f"column {name!r} has a text with a zero byte (U+0000), which PostgreSQL cannot "
                f"store. Remove it in the output: translate({name}, char(0), '')."
            )
