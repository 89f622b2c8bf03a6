"""A row whose partition would be a wrong one is refused while its epoch is staged."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.transforms import (
    BucketTransform,
    DayTransform,
    IdentityTransform,
    Transform,
    TruncateTransform,
)

from seamark.sinks.iceberg.data_files import metadata_for_tasks
from seamark.sinks.iceberg.spark_job import Job, write_batches
from tests.sinks.support import iceberg


@pytest.mark.parametrize(
    ("kind", "least", "fits"),
    [
        (pa.int32(), -(2**31), -(2**31) + 8),
        (pa.int64(), -(2**63), -(2**63) + 8),
        (pa.decimal128(9, 2), Decimal("-9999999.99"), Decimal("-9999999.90")),
        (pa.decimal128(38, 0), Decimal(1 - 10**38), Decimal(10 - 10**38)),
        (pa.struct([("least", pa.int32())]), {"least": -(2**31)}, {"least": -(2**31) + 8}),
    ],
    ids=str,
)
def test_a_number_that_leaves_its_type_when_it_is_cut_down_is_refused_while_it_is_staged(
    tmp_path: Path, kind: pa.DataType, least: object, fits: object
) -> None:
    table = iceberg.make_table(tmp_path, pa.schema([("x", kind)]))
    with table.update_spec() as update:
        update.add_field("x.least" if pa.types.is_struct(kind) else "x", TruncateTransform(10))
    table = iceberg.table_at(tmp_path)
    job = Job(metadata_for_tasks(table.metadata), table.io, iceberg.OUTPUT, "a1")
    for value, is_refused in ((fits, False), (None, False), (least, True)):
        written = write_batches(job, [pa.record_batch({"x": pa.array([value], kind)})])
        assert ("truncate[10]" in (written.problem or "")) == is_refused, written.problem
        assert bool(written.files) != is_refused


@pytest.mark.parametrize("zone", [None, "UTC"])
def test_a_time_is_in_the_partition_of_its_day_or_refused(tmp_path: Path, zone: str | None) -> None:
    kind = pa.timestamp("us", zone)
    table = iceberg.make_table(tmp_path, pa.schema([("t", kind)]))
    with table.update_spec() as update:
        update.add_field("t", DayTransform())
    table = iceberg.table_at(tmp_path)
    job = Job(metadata_for_tasks(table.metadata), table.io, iceberg.OUTPUT, "a1")
    epoch = datetime(1970, 1, 1, tzinfo=UTC if zone else None)
    last_second = timedelta(days=1) - timedelta(microseconds=999_999)
    for days in (-200_000, -365, -1, 0, 20_000):
        for within in (timedelta(0), last_second - timedelta(microseconds=1), last_second):
            moment = epoch + timedelta(days=days) + within
            written = write_batches(job, [pa.record_batch({"t": pa.array([None, moment], kind)})])
            if written.problem is None:
                assert {file.partition[0] for file in written.files} == {None, days}
            else:
                assert "the partition of the next day" in written.problem
                assert not written.files
                assert (days < 0, within) == (True, last_second)


def test_a_text_that_is_not_utf_8_is_refused_by_name_if_the_table_is_partitioned_by_it(
    tmp_path: Path,
) -> None:
    """pyiceberg would end the process, and tell nothing of a column."""
    table = iceberg.make_table(tmp_path, pa.schema([("x", pa.string())]))
    with table.update_spec() as update:
        update.add_field("x", TruncateTransform(3))
    table = iceberg.table_at(tmp_path)
    job = Job(metadata_for_tasks(table.metadata), table.io, iceberg.OUTPUT, "a1")
    broken = pa.array([b"a\xff", b"b"], pa.binary()).view(pa.string())
    written = write_batches(job, [pa.record_batch({"x": broken})])
    assert "column 'x' has a text that is not UTF-8" in (written.problem or "")
    assert not written.files


@pytest.mark.parametrize("transform", [TruncateTransform(3), BucketTransform(4)], ids=str)
def test_decimals_are_partitioned_wherever_they_lie_in_memory(
    tmp_path: Path, transform: Transform[Any, Any]
) -> None:
    """In batches of Spark they lie at multiples of 8 bytes, and pyiceberg's transforms take 16."""
    kind = pa.decimal128(38, 18)
    table = iceberg.make_table(tmp_path, pa.schema([("x", kind)]))
    with table.update_spec() as update:
        update.add_field("x", transform)
    table = iceberg.table_at(tmp_path)
    job = Job(metadata_for_tasks(table.metadata), table.io, iceberg.OUTPUT, "a1")
    for shift in (0, 8):
        memory = pa.py_buffer(bytes(64)).slice(shift, 32)
        column = pa.Array.from_buffers(kind, 2, [None, memory])
        assert write_batches(job, [pa.record_batch({"x": column})]).problem is None


def test_a_value_too_long_for_the_name_of_its_folder_is_refused(tmp_path: Path) -> None:
    table = iceberg.make_table(tmp_path, pa.schema([("x", pa.string())]))
    with table.update_spec() as update:
        update.add_field("x", IdentityTransform())
    table = iceberg.table_at(tmp_path)
    job = Job(metadata_for_tasks(table.metadata), table.io, iceberg.OUTPUT, "a1")
    written = write_batches(job, [pa.record_batch({"x": ["z" * 300]})])
    assert "too long for the name of a folder" in (written.problem or "")


def test_a_number_that_the_partition_would_cut_off_is_refused(tmp_path: Path) -> None:
    table = iceberg.make_table(tmp_path, pa.schema([("x", pa.float64())]))
    with table.update_spec() as update:
        update.add_field("x", IdentityTransform())
    table = iceberg.table_at(tmp_path)
    job = Job(metadata_for_tasks(table.metadata), table.io, iceberg.OUTPUT, "a1")
    for value, is_refused in (
        (1.5, False),
        (None, False),
        (-0.0, False),
        (0.1, True),
        (1e300, True),
    ):
        written = write_batches(job, [pa.record_batch({"x": pa.array([value], pa.float64())})])
        assert ("'x' holds" in (written.problem or "")) == is_refused
