"""Files that tasks write for a table: whole, named once, and described as they are."""

from __future__ import annotations

import datetime as dt
import io
import math
import pickle
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from seamark.blobs.filesystem import FilesystemBlobs
from seamark.blobs.memory import MemoryBlobs
from seamark.sinks.tables.executor_files import write_by_executors
from seamark.sinks.tables.parquet_files import (
    ColumnFacts,
    FileLayout,
    FileWriter,
    WrittenFile,
    split,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

UTC = dt.UTC


def written(
    rows: list[dict[str, Any]], schema: pa.Schema, layout: FileLayout, batch: int = 2
) -> tuple[MemoryBlobs, list[WrittenFile]]:
    blobs = MemoryBlobs()
    writer = FileWriter(blobs, "here", layout)
    for start in range(0, len(rows), batch):
        writer.add(pa.RecordBatch.from_pylist(rows[start : start + batch], schema=schema))
    return blobs, writer.close()


def rows_of(blobs: MemoryBlobs, file: WrittenFile) -> list[dict[str, Any]]:
    blob = blobs.read(file.path, 1 << 30)
    assert blob is not None
    assert len(blob.data) == file.size
    rows: list[dict[str, Any]] = pq.read_table(io.BytesIO(blob.data)).to_pylist()
    assert len(rows) == file.rows
    return rows


def test_every_row_is_in_the_file_of_its_partition() -> None:
    schema = pa.schema([("n", pa.int64()), ("p", pa.string()), ("q", pa.float64())])
    rows = [
        {"n": n, "p": [None, "", "a/b=c %"][n % 3], "q": [1.5, math.nan, None][n // 3 % 3]}
        for n in range(40)
    ]
    layout = FileLayout(partition_by=("p", "q"), leave_out=frozenset({"p", "q"}))
    blobs, files = written(rows, schema, layout, batch=7)
    assert len(files) == 9, "one for each pair of values, over all batches"
    seen = []
    for file in files:
        assert [*file.partition] == ["p", "q"]
        for row in rows_of(blobs, file):
            assert [*row] == ["n"]
            seen.append((row["n"], file.partition["p"], repr(file.partition["q"])))
    assert sorted(seen) == sorted((row["n"], row["p"], repr(row["q"])) for row in rows)


def test_the_facts_of_a_file_are_those_of_its_rows() -> None:
    when = dt.datetime(2026, 1, 2, 3, 4, 5, 678901, UTC)
    schema = pa.schema(
        [
            ("n", pa.int64()),
            ("at", pa.timestamp("us", "Asia/Tokyo")),
            ("local", pa.timestamp("us")),
            ("day", pa.date32()),
            ("price", pa.decimal128(12, 3)),
            ("deep", pa.struct([("n", pa.int64()), ("words", pa.list_(pa.string()))])),
            ("text", pa.string()),
            ("empty", pa.int32()),
        ]
    )
    first = {
        "n": -3,
        "at": when,
        "local": when.replace(tzinfo=None),
        "day": when.date(),
        "price": Decimal("-1.250"),
        "deep": {"n": 1, "words": ["x"]},
        "text": "b",
        "empty": None,
    }
    second: dict[str, Any] = dict.fromkeys(first)
    second |= {"n": 9, "price": Decimal("7.000"), "text": "a"}
    _, (file,) = written([first, second], schema, FileLayout())
    assert "deep" not in file.columns
    facts = dict(file.columns)
    assert facts.pop("at").maximum == when
    assert facts == {
        "n": ColumnFacts(0, -3, 9),
        "local": ColumnFacts(1, first["local"], first["local"]),
        "day": ColumnFacts(1, first["day"], first["day"]),
        "price": ColumnFacts(0, Decimal("-1.250"), Decimal("7.000")),
        "text": ColumnFacts(0, "a", "b"),
        "empty": ColumnFacts(2),
    }
    assert pickle.loads(pickle.dumps(file)) == file


def test_a_column_with_nan_has_no_bounds() -> None:
    schema = pa.schema([("x", pa.float64()), ("y", pa.float32())])
    rows = [{"x": 1.0, "y": 1.0}, {"x": math.nan, "y": 2.0}]
    _, (file,) = written(rows, schema, FileLayout())
    assert file.columns == {"x": ColumnFacts(0), "y": ColumnFacts(0, 1.0, 2.0)}


def test_a_file_ends_when_it_is_large_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("seamark.sinks.tables.parquet_files._ROW_GROUP", 1000)
    rows = [{"n": n} for n in range(1000)]
    layout = FileLayout(target_size=2000, compression="none")
    blobs, files = written(rows, pa.schema([("n", pa.int64())]), layout, batch=100)
    assert len(files) > 2
    assert len({file.path for file in files}) == len(files)
    assert sorted(row["n"] for file in files for row in rows_of(blobs, file)) == [*range(1000)]
    assert files[0].columns["n"] == ColumnFacts(0, 0, files[0].rows - 1), "over its row groups"


def test_many_partitions_do_not_fill_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("seamark.sinks.tables.parquet_files._MOST_HELD", 3000)
    rows = [{"n": n, "p": n % 20} for n in range(400)]
    schema = pa.schema([("n", pa.int64()), ("p", pa.int64())])
    blobs, files = written(rows, schema, FileLayout(partition_by=("p",)), batch=50)
    assert len(files) > 20
    assert sorted(row["n"] for file in files for row in rows_of(blobs, file)) == [*range(400)]


def test_columns_are_turned_into_those_of_the_layout() -> None:
    meant = pa.schema([pa.field("n", pa.int64(), metadata={"PARQUET:field_id": "7"})])
    blobs, (file,) = written([{"n": 1}], pa.schema([("n", pa.int32())]), FileLayout(schema=meant))
    blob = blobs.read(file.path, 1 << 20)
    assert blob is not None
    assert pq.read_schema(io.BytesIO(blob.data)).field("n").metadata[b"PARQUET:field_id"] == b"7"


def partitions(values: pa.Array) -> list[tuple[Any, list[int]]]:
    """The value of each partition, and the rows in its files."""
    schema = pa.schema([("n", pa.int64()), ("p", values.type)])
    numbered = pa.RecordBatch.from_arrays([pa.array(range(len(values))), values], schema=schema)
    blobs = MemoryBlobs()
    writer = FileWriter(blobs, "f", FileLayout(partition_by=("p",)))
    writer.add(numbered)
    files = writer.close()
    return [(f.partition["p"], [row["n"] for row in rows_of(blobs, f)]) for f in files]


def test_hours_that_a_clock_shows_twice_are_two_partitions() -> None:
    hours = [dt.datetime(2020, 11, 1, hour, tzinfo=dt.UTC) for hour in (5, 6)]
    found = partitions(pa.array(hours, pa.timestamp("us", "America/New_York")))
    assert [(value.astimezone(dt.UTC), rows) for value, rows in found] == [
        (hours[0], [0]),
        (hours[1], [1]),
    ]


def test_the_first_day_of_year_1_is_a_partition_also_where_clocks_are_behind_utc() -> None:
    first = dt.datetime(1, 1, 1, tzinfo=dt.UTC)
    microseconds = pa.array([first], pa.timestamp("us", "UTC")).cast(pa.int64())
    found = partitions(microseconds.cast(pa.timestamp("us", "America/New_York")))
    assert [value for value, _ in found] == [first]


def test_zeros_keep_their_sign_as_partitions() -> None:
    found = partitions(pa.array([-0.0, 0.0, math.nan, math.nan, None]))
    assert [(str(value), rows) for value, rows in found] == [
        ("-0.0", [0]),
        ("0.0", [1]),
        ("nan", [2, 3]),
        ("None", [4]),
    ]


def test_a_batch_without_rows_makes_no_file() -> None:
    schema = pa.schema([("n", pa.int64())])
    assert [*split(pa.RecordBatch.from_pylist([], schema=schema), ["n"])] == []
    assert written([], schema, FileLayout())[1] == []


@pytest.mark.spark
@pytest.mark.warm
def test_executors_write_what_the_frame_holds(spark: SparkSession, tmp_path: Path) -> None:
    blobs = FilesystemBlobs(str(tmp_path))
    df = spark.range(1000).selectExpr(
        "id", "id % 3 AS p", "timestamp_millis(id) AS at", "timestamp_ntz'2026-01-01' AS local"
    )
    layout = FileLayout(partition_by=("p",), leave_out=frozenset({"p"}))
    files = write_by_executors(df, blobs, "rows", layout, coalesce=2)
    assert sorted({file.partition["p"] for file in files}) == [0, 1, 2]
    assert sum(file.rows for file in files) == 1000
    read = spark.read.parquet(*[str(tmp_path / file.path) for file in files])
    assert dict(read.dtypes) == {"id": "bigint", "at": "timestamp", "local": "timestamp_ntz"}
    assert sorted(row.id for row in read.collect()) == [*range(1000)]
