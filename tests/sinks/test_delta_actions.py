"""Files as the log of a Delta table names them."""

from __future__ import annotations

import datetime as dt
import json
import math
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from deltalake import DeltaTable
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import types as t

from seamark.sinks.delta.actions import partition_text, statistics
from seamark.sinks.tables.parquet_files import ColumnFacts
from seamark.testing.conformance.sink_examples import PIPELINE, SINK, epoch
from tests.sinks.support.deltas import HandWrittenDelta, arrow_frame, rows_in
from tests.sinks.support.starting import started
from tests.support.duck import duckdb_with

AT = dt.datetime(2026, 3, 4, 5, 6, 7, 89, dt.UTC)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, None),
        ("", None),
        ("a/b=c %20'é\n", "a/b=c %20'é\n"),
        (True, "true"),
        (-7, "-7"),
        (dt.date(1, 2, 3), "0001-02-03"),
        (AT, "2026-03-04T05:06:07.000089Z"),
        (AT.astimezone(dt.timezone(dt.timedelta(hours=9))), "2026-03-04T05:06:07.000089Z"),
        (AT.replace(tzinfo=None), "2026-03-04 05:06:07.000089"),
        (Decimal("1E+3"), "1000"),
        (1.5, "1.5"),
        (math.nan, "NaN"),
        (-math.inf, "-Infinity"),
    ],
)
def test_partition_values_are_written_as_the_protocol_says(value: Any, text: str | None) -> None:
    assert partition_text(value) == text


@given(st.datetimes(), st.datetimes())
def test_bounds_of_times_hold_every_time(one: dt.datetime, other: dt.datetime) -> None:
    low, high = sorted([one, other])
    facts = {"at": ColumnFacts(0, low, high)}
    stats = json.loads(statistics(2, facts, ["at"]))
    if stats["maxValues"]:
        assert dt.datetime.fromisoformat(stats["minValues"]["at"]) <= low
        assert dt.datetime.fromisoformat(stats["maxValues"]["at"]) >= high


@given(st.lists(st.text(max_size=40), min_size=1))
def test_bounds_of_texts_hold_every_text(texts: list[str]) -> None:
    encoded = sorted(texts, key=str.encode if all(map(_is_plain, texts)) else None)
    facts = {"s": ColumnFacts(0, encoded[0], encoded[-1])}
    stats = json.loads(statistics(1, facts, ["s"]))
    low, high = stats["minValues"]["s"], stats["maxValues"]["s"]
    assert all(low <= text <= high or "\U0010ffff" in text for text in texts)


def _is_plain(text: str) -> bool:
    return not any("\ud800" <= char <= "\udfff" for char in text)


def test_what_cannot_be_compared_has_no_bounds() -> None:
    facts = {
        "b": ColumnFacts(1, False, True),
        "x": ColumnFacts(0, b"1", b"2"),
        "f": ColumnFacts(0, -1.0, 1e-7),
        "gone": ColumnFacts(3),
        "d": ColumnFacts(0, Decimal("1.10"), Decimal("2.25")),
        "late": ColumnFacts(0, 1, 2),
    }
    columns = ["b", "x", "f", "gone", "d", *(f"c{i}" for i in range(27)), "late"]
    text = statistics(3, facts, columns)
    assert json.loads(text) == {
        "numRecords": 3,
        "minValues": {"b": False, "f": -1.0, "d": 1.1},
        "maxValues": {"b": True, "f": 1e-7, "d": 2.25},
        "nullCount": {"b": 1, "x": 0, "f": 0, "gone": 3, "d": 0},
    }, "and none beyond the first 32 columns"
    assert "1.10" in text, "a decimal keeps its digits"


@pytest.mark.parametrize(
    "unknown",
    [
        ColumnFacts(0, -math.inf, 1.0),
        ColumnFacts(0, 1.0, math.inf),
        ColumnFacts(1),
        ColumnFacts(0, "", "\U0010ffff" * 33),
    ],
    ids=repr,
)
def test_a_column_without_bounds_takes_those_of_the_others_away(unknown: ColumnFacts) -> None:
    facts = {"n": ColumnFacts(0, 1, 2), "x": unknown}
    stats = json.loads(statistics(2, facts, ["n", "x"]))
    assert stats == {"numRecords": 2, "nullCount": {"n": 0, "x": unknown.nulls}}


FAR = dt.datetime.max  # noqa: DTZ901 - a time without a zone


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        (t.BooleanType(), [True, False]),
        (t.DoubleType(), [math.inf, -math.inf, 1.5, -0.0, 5e-324]),
        (t.DoubleType(), [math.nan, 1.5]),
        (t.FloatType(), [1.5, math.inf]),
        (t.DecimalType(18, 18), [Decimal("-3E-18"), Decimal("0.999999999999999999")]),
        (t.DecimalType(10, 7), [Decimal("1E-7")]),
        (t.TimestampType(), [FAR.replace(tzinfo=dt.UTC), dt.datetime(1, 1, 1, tzinfo=dt.UTC)]),
        (t.TimestampNTZType(), [FAR]),
        (t.StringType(), ["", "\U0010ffff" * 40, "z" * 33]),
        (t.BinaryType(), [b"", b"a"]),
    ],
    ids=str,
)
def test_a_reader_that_filters_finds_each_row_by_its_value(
    tmp_path: Path, kind: t.DataType, values: list[Any]
) -> None:
    schema = t.StructType([t.StructField("x", kind), t.StructField("n", t.LongType())])
    sink = started(HandWrittenDelta(tmp_path / "table"), schema)
    sink.stage(arrow_frame(schema, [{"x": x, "n": 1} for x in values]), epoch(1), "a1")
    sink.commit(sink.prepare())
    table = DeltaTable(str(tmp_path / "table"))
    kept = table.to_pyarrow_table().schema.field("x").type
    for value in values:
        wanted = pc.equal(pc.field("x"), pa.scalar(value, kept))
        found = table.to_pyarrow_table(filters=wanted)["x"].to_pylist()
        assert found == ([value] if value == value else [])  # noqa: PLR0124 - only NaN is not


def test_a_reader_that_filters_finds_the_rows_whose_struct_is_null(tmp_path: Path) -> None:
    inner = t.StructType([t.StructField("a", t.LongType())])
    kinds = {
        "n": t.LongType(),
        "s": inner,
        "deep": t.StructType([t.StructField("s", inner)]),
        "lists": t.StructType([t.StructField("l", t.ArrayType(t.LongType()))]),
        "list": t.ArrayType(inner),
        "map": t.MapType(t.StringType(), inner),
    }
    schema = t.StructType([t.StructField(name, kind) for name, kind in kinds.items()])
    sink = started(HandWrittenDelta(tmp_path / "table"), schema)
    one = {"a": 1}
    whole = {"n": 1, "s": one, "deep": {"s": one}, "lists": {"l": [1]}, "list": [one]}
    rows = [whole | {"map": {"k": one}}, dict.fromkeys(kinds) | {"n": 2}]
    sink.stage(arrow_frame(schema, rows), epoch(1), "a1")
    sink.commit(sink.prepare())
    table = DeltaTable(str(tmp_path / "table"))
    for name in list(kinds)[1:]:
        for wanted, number in [(pc.field(name).is_valid(), 1), (pc.field(name).is_null(), 2)]:
            found = table.to_pyarrow_table(columns=["n"], filters=wanted)
            assert found["n"].to_pylist() == [number], wanted
    nested = table.to_pyarrow_table(columns=["n"], filters=pc.field("deep", "s", "a") == 1)
    assert nested["n"].to_pylist() == [1]
    fast = table.to_pyarrow_dataset().get_fragments(filter=pc.field("n") == 3)
    assert list(fast) == [], "files are left out by the other columns"


EVERY_TYPE = t.StructType(
    [
        t.StructField("n", t.LongType()),
        t.StructField("small", t.ByteType()),
        t.StructField("short", t.ShortType()),
        t.StructField("i", t.IntegerType()),
        t.StructField("f", t.FloatType()),
        t.StructField("d", t.DoubleType()),
        t.StructField("price", t.DecimalType(38, 9)),
        t.StructField("text", t.StringType()),
        t.StructField("yes", t.BooleanType()),
        t.StructField("raw", t.BinaryType()),
        t.StructField("day", t.DateType()),
        t.StructField("at", t.TimestampType()),
        t.StructField("local", t.TimestampNTZType()),
        t.StructField(
            "deep",
            t.StructType(
                [
                    t.StructField("words", t.ArrayType(t.StringType())),
                    t.StructField("by", t.MapType(t.StringType(), t.DecimalType(5, 2))),
                ]
            ),
        ),
    ]
)
FULL: dict[str, Any] = {
    "n": -(2**63),
    "small": -128,
    "short": 32767,
    "i": -(2**31),
    "f": 0.5,
    "d": math.inf,
    "price": Decimal("12345678901234567890123456789.123456789"),
    "text": "é'\"\\\n\x01" + "x" * 50,
    "yes": True,
    "raw": b"\x00\xff",
    "day": dt.date(1969, 12, 31),
    "at": AT,
    "local": AT.replace(year=1582, tzinfo=None),
    "deep": {"words": ["a", None], "by": [("k", Decimal("1.25")), ("l", None)]},
}


def test_every_type_is_read_as_it_was_written(tmp_path: Path) -> None:
    empty: dict[str, Any] = dict.fromkeys(FULL)
    sink = HandWrittenDelta(tmp_path / "rows")
    sink.open(PIPELINE, SINK, EVERY_TYPE)
    sink.stage(arrow_frame(EVERY_TYPE, [FULL, empty]), epoch(1), "a1")
    sink.commit(sink.prepare())
    rows = rows_in(tmp_path / "rows")
    assert sorted(rows, key=lambda row: row["n"] is None) == [FULL, empty]


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        (t.StringType(), ["a/b", "c=d", "e f%20g", "ü'\"\\", "..", None]),
        (t.LongType(), [-1, 2**62, None]),
        (t.BooleanType(), [True, False, None]),
        (t.DateType(), [dt.date(1, 1, 1), dt.date(2026, 12, 31), None]),
        (t.TimestampType(), [AT, AT.replace(microsecond=0), None]),
        (t.TimestampNTZType(), [AT.replace(tzinfo=None), None]),
        # deltalake 1.6.6 writes a negative one as '-1.-20' for pyarrow, which cannot read it
        (t.DecimalType(10, 2), [Decimal("1.20"), Decimal("99999999.99"), None]),
        (t.DoubleType(), [0.1, -2.5, None]),
    ],
    ids=lambda value: value.simpleString() if isinstance(value, t.DataType) else "",
)
def test_partition_values_of_any_kind_are_read_as_they_were_written(
    tmp_path: Path, kind: t.DataType, values: list[Any]
) -> None:
    schema = t.StructType([t.StructField("n", t.LongType()), t.StructField("p", kind)])
    rows = [{"n": n, "p": value} for n, value in enumerate(values)]
    table = tmp_path / "rows"
    sink = HandWrittenDelta(table, partition_by="p")
    sink.open(PIPELINE, SINK, schema)
    sink.stage(arrow_frame(schema, rows), epoch(1), "a1")
    sink.commit(sink.prepare())
    assert sorted(rows_in(table), key=lambda row: row["n"]) == rows
    for row in rows:
        where = pc.field("p").is_null() if row["p"] is None else pc.field("p") == row["p"]
        found = DeltaTable(str(table)).to_pyarrow_dataset().to_table(filter=where)
        assert [one["n"] for one in found.to_pylist()] == [row["n"]]


def test_duckdb_reads_the_same(tmp_path: Path) -> None:
    table = tmp_path / "rows"
    sink = HandWrittenDelta(table, partition_by="text")
    sink.open(PIPELINE, SINK, EVERY_TYPE)
    rows = [FULL | {"n": n, "text": text} for n, text in enumerate(["a/b", "c=d %20", None])]
    sink.stage(arrow_frame(EVERY_TYPE, rows), epoch(1), "a1")
    sink.commit(sink.prepare())
    database = duckdb_with("delta")
    columns = 'n, text, day, price, local, yes, epoch_us("at"), deep.words'
    found = database.execute(f"SELECT {columns} FROM delta_scan('{table}') ORDER BY n").fetchall()
    micros = int(AT.timestamp()) * 1_000_000 + AT.microsecond
    names = ("n", "text", "day", "price", "local", "yes")
    assert found == [(*(row[name] for name in names), micros, row["deep"]["words"]) for row in rows]


def test_statistics_leave_out_files_and_never_rows(tmp_path: Path) -> None:
    table = tmp_path / "rows"
    sink = HandWrittenDelta(table)
    sink.open(PIPELINE, SINK, EVERY_TYPE)
    for number in (1, 2, 3):
        at = AT + dt.timedelta(microseconds=number)
        row = FULL | {"n": number, "text": f"{'x' * 40}{number}", "at": at, "d": float(number)}
        sink.stage(arrow_frame(EVERY_TYPE, [row]), epoch(number), f"a{number}")
        sink.commit(sink.prepare())
    dataset = DeltaTable(str(table)).to_pyarrow_dataset()
    for number in (1, 2, 3):
        for where in (
            pc.field("n") == number,
            pc.field("text") == f"{'x' * 40}{number}",
            pc.field("at") == AT + dt.timedelta(microseconds=number),
            pc.field("d") == float(number),
        ):
            assert dataset.to_table(filter=where)["n"].to_pylist() == [number]
    kept = [*dataset.get_fragments(filter=pc.field("n") == 2)]
    assert len(kept) == 1, "the others need not be opened"
