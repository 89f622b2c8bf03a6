"""Rows become data files of the right partitions, and none is lost on the way."""

from __future__ import annotations

import math
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.transforms import (
    BucketTransform,
    DayTransform,
    HourTransform,
    IdentityTransform,
    MonthTransform,
    Transform,
    TruncateTransform,
    VoidTransform,
    YearTransform,
)

from seamark.errors import RefusedError
from seamark.sinks.iceberg.data_files import FileWriter, metadata_for_tasks
from seamark.sinks.iceberg.spark_job import Job, write_batches
from seamark.sinks.iceberg.staging import Staging
from seamark.testing.conformance.sink_examples import PIPELINE, SINK, epoch
from tests.sinks.support import iceberg

MOMENTS = [
    datetime(1969, 12, 31, 23, 59, 59, 999999, UTC),
    datetime(1970, 1, 1, tzinfo=UTC),
    datetime(2024, 2, 29, 12, 30, tzinfo=UTC),
    None,
]
CASES: list[tuple[Transform[Any, Any], pa.DataType, list[Any]]] = [
    (IdentityTransform(), pa.int64(), [1, -1, 0, None]),
    (IdentityTransform(), pa.string(), ["a/b c", "", "ä=1", None]),
    (IdentityTransform(), pa.date32(), [date(2024, 2, 29), date(1969, 12, 31), None]),
    (IdentityTransform(), pa.decimal128(9, 2), [Decimal("1.50"), Decimal("-0.01"), None]),
    (IdentityTransform(), pa.bool_(), [True, False, None]),
    (IdentityTransform(), pa.timestamp("us", "UTC"), MOMENTS),
    (BucketTransform(16), pa.int64(), [*range(-20, 20), None]),
    (BucketTransform(16), pa.string(), ["iceberg", "", "ä", None]),
    (BucketTransform(16), pa.timestamp("us", "UTC"), MOMENTS),
    (BucketTransform(16), pa.binary(), [b"", b"\0\1", None]),
    (TruncateTransform(10), pa.int64(), [-11, -10, -1, 0, 9, 10, None]),
    (TruncateTransform(2), pa.string(), ["iceberg", "a", "äöü", "", None]),
    (YearTransform(), pa.timestamp("us", "UTC"), MOMENTS),
    (MonthTransform(), pa.timestamp("us", "UTC"), MOMENTS),
    (DayTransform(), pa.timestamp("us", "UTC"), MOMENTS),
    (DayTransform(), pa.date32(), [date(2024, 2, 29), date(1969, 12, 31), None]),
    (HourTransform(), pa.timestamp("us", "UTC"), MOMENTS),
    (VoidTransform(), pa.int64(), [1, 2, None]),
]


@pytest.mark.parametrize(
    ("transform", "kind", "values"), CASES, ids=[f"{t}-{kind}" for t, kind, _ in CASES]
)
def test_every_row_is_in_the_partition_that_its_value_belongs_to(
    tmp_path: Path, transform: Transform[Any, Any], kind: pa.DataType, values: list[Any]
) -> None:
    table = iceberg.make_table(tmp_path, pa.schema([("v", kind)]))
    with table.update_spec() as update:
        update.add_field("v", transform, "part")
    table = iceberg.table_at(tmp_path)
    writer = FileWriter(table.metadata, Staging.of(table, iceberg.OUTPUT), "a1")
    files = writer.write(pa.table({"v": pa.array(values, kind)}))
    assert sum(file.record_count for file in files) == len(values)
    source = table.schema().find_type("v")
    expected = transform.transform(source)
    physical = {_physical(value) for value in values}
    assert {file.partition[0] for file in files} == {expected(value) for value in physical}


def _physical(value: Any) -> Any:
    """As Iceberg holds it: moments in microseconds, dates in days."""
    from pyiceberg.utils.datetime import date_to_days, datetime_to_micros

    if isinstance(value, datetime):
        return datetime_to_micros(value)
    return date_to_days(value) if isinstance(value, date) else value


def test_a_row_that_pyiceberg_would_drop_is_refused(tmp_path: Path) -> None:
    table = iceberg.make_table(tmp_path, pa.schema([("v", pa.float64())]))
    with table.update_spec() as update:
        update.add_identity("v")
    table = iceberg.table_at(tmp_path)
    writer = FileWriter(table.metadata, Staging.of(table, iceberg.OUTPUT), "a1")
    with pytest.raises(RefusedError, match="1 rows have a partition value that equals nothing"):
        writer.write(pa.table({"v": [1.0, math.nan]}))


@pytest.mark.parametrize("given", [None, "2097152"])
def test_values_that_are_all_different_do_not_fill_a_large_dictionary(
    tmp_path: Path, given: str | None
) -> None:
    table = iceberg.make_table(tmp_path, pa.schema([("v", pa.int64())]))
    if given is not None:  # what the table says counts
        with table.transaction() as transaction:
            transaction.set_properties({"write.parquet.dict-size-bytes": given})
    metadata = metadata_for_tasks(iceberg.table_at(tmp_path).metadata)
    writer = FileWriter(metadata, Staging.of(table, iceberg.OUTPUT), "a1")
    different = np.random.default_rng(1).integers(1 << 62, size=200_000)  # 1.6 MB
    (file,) = writer.write(pa.table({"v": different}))
    column = pq.read_metadata(file.file_path.removeprefix("file://")).row_group(0).column(0)
    dictionary = column.data_page_offset - column.dictionary_page_offset
    assert (dictionary < (800 << 10)) is (given is None)


def test_a_task_holds_back_a_bounded_number_of_rows(tmp_path: Path) -> None:
    table = iceberg.make_table(tmp_path)
    job = Job(table.metadata, table.io, iceberg.OUTPUT, "a1", flush_bytes=1)
    batches = [batch for n in range(5) for batch in iceberg.lines([n]).to_batches()]
    written = write_batches(job, batches)
    assert (len(written.files), written.rows) == (5, 5)
    assert len({file.file_path for file in written.files}) == 5


@pytest.mark.parametrize("transform", [IdentityTransform(), BucketTransform(4), VoidTransform()])
def test_a_partition_column_that_the_output_lacks_is_null(
    tmp_path: Path, transform: Transform[Any, Any]
) -> None:
    iceberg.make_table(tmp_path, schema=iceberg.COLUMNS.append(pa.field("region", pa.string())))
    with iceberg.table_at(tmp_path).update_spec() as change:
        change.add_field("region", transform, "part")
    sink = iceberg.HandWritten(iceberg.properties(tmp_path), iceberg.TABLE)
    sink.open(PIPELINE, SINK, iceberg.SCHEMA)
    sink.stage(iceberg.frame([1, 2]), epoch(1), "a1")
    sink.commit(sink.prepare())
    rows = iceberg.table_at(tmp_path).scan().to_arrow().to_pylist()
    assert sorted((row["n"], row["region"]) for row in rows) == [(1, None), (2, None)]


@pytest.mark.parametrize("inside", [False, True])
@pytest.mark.parametrize(
    ("kind", "column", "least"),
    [
        (pa.int8(), pa.int32(), -(1 << 7)),
        (pa.int16(), pa.int32(), -(1 << 15)),
        (pa.int16(), pa.int64(), -(1 << 15)),
        (pa.int32(), pa.int64(), -(1 << 31)),
    ],
    ids=str,
)
@pytest.mark.parametrize("transform", [TruncateTransform(10), BucketTransform(16)], ids=str)
def test_a_number_of_a_narrower_type_is_in_the_partition_that_its_value_belongs_to(
    tmp_path: Path,
    transform: Transform[Any, Any],
    kind: pa.DataType,
    column: pa.DataType,
    least: int,
    *,
    inside: bool,
) -> None:
    def of(number: pa.DataType) -> pa.DataType:
        return pa.struct([("word", pa.string()), ("v", number)]) if inside else number

    table = iceberg.make_table(tmp_path, pa.schema([("x", of(column))]))
    with table.update_spec() as update:
        update.add_field("x.v" if inside else "x", transform, "part")
    table = iceberg.table_at(tmp_path)
    writer = FileWriter(table.metadata, Staging.of(table, iceberg.OUTPUT), "a1")
    for value in (least, 5, None):
        row = {"word": "a", "v": value} if inside else value
        (file,) = writer.write(pa.table({"x": pa.array([row], of(kind))}))
        source = table.schema().find_type("x.v" if inside else "x")
        assert file.partition[0] == transform.transform(source)(value)


_STRUCT = pa.struct([("a", pa.int32())])


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        (pa.list_(_STRUCT), [None, [], [None], [{"a": 1}]]),
        (pa.map_(pa.int32(), _STRUCT), [None, [], [(1, None)], [(1, {"a": 2})]]),
        (pa.struct([("l", pa.list_(_STRUCT))]), [None, {"l": None}, {"l": []}]),
        (pa.struct([("m", pa.map_(pa.int32(), _STRUCT))]), [None, {"m": None}, {"m": []}]),
        (pa.list_(pa.list_(_STRUCT)), [None, [None], [[]], [[None]]]),
        (pa.map_(pa.int32(), pa.list_(_STRUCT)), [None, [(1, None)], [(1, [])]]),
    ],
    ids=str,
)
def test_null_and_empty_lists_and_maps_of_structs_stay_apart(
    tmp_path: Path, kind: pa.DataType, values: list[Any]
) -> None:
    table = iceberg.make_table(tmp_path, pa.schema([("x", kind)]))
    writer = FileWriter(table.metadata, Staging.of(table, iceberg.OUTPUT), "a1")
    rows = pa.table({"x": pa.array([None, *values], kind)}).slice(1)
    (file,) = writer.write(rows)
    file.spec_id = 0  # as it is when it is listed
    (again,) = writer.rewrite(rows, file)
    for each in (file, again):
        name = each.file_path.removeprefix("file://")
        assert pq.read_table(name)["x"].to_pylist() == values
