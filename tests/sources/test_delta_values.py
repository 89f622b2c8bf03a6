"""Values in the files of a Delta table, as others write them."""

from __future__ import annotations

import datetime as dt
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from seamark.errors import RefusedError
from seamark.sources.offsets import digest_after
from tests.sources.test_delta import source

deltalake = pytest.importorskip("deltalake")

AT = dt.datetime(2026, 7, 1, 12, 0, 0, 7, dt.UTC)
LATEST = dt.datetime(9999, 12, 31, 23, 59, 59, 999999, dt.UTC)
FIRST = dt.datetime(1, 1, 1, tzinfo=dt.UTC)


def write_int96(table: Path, rows: pa.Table) -> None:
    """A table whose one file has the timestamps that Spark writes by default."""
    deltalake.write_deltalake(table, rows)
    pq.write_table(rows, next(table.glob("*.parquet")), use_deprecated_int96_timestamps=True)


def test_int96_timestamps_are_moments_where_the_table_says_so_up_to_the_year_9999(
    tmp_path: Path,
) -> None:
    moments = [AT, LATEST, FIRST]
    local = [each.replace(tzinfo=None) for each in moments]
    times = {
        "moment": pa.array(moments, pa.timestamp("us", "UTC")),
        "local": pa.array(local, pa.timestamp("us")),
        "many": pa.array([[each] for each in moments], pa.list_(pa.timestamp("us", "UTC"))),
        "inside": pa.array(
            [{"at": each} for each in moments], pa.struct([("at", pa.timestamp("us", "UTC"))])
        ),
        "by_name": pa.array(
            [[("a", each)] for each in moments], pa.map_(pa.string(), pa.timestamp("us", "UTC"))
        ),
    }
    write_int96(tmp_path / "t", pa.table(times))
    rows = [row for row, _ in source(tmp_path / "t").read_from(None, 10)]
    expected = [(at, at.replace(tzinfo=None), [at], {"at": at}, {"a": at}) for at in moments]
    assert rows == expected
    for row in rows:
        assert row is not None
        assert row[0].tzinfo is not None
        assert row[1].tzinfo is None
        digest_after(b"", row)


def test_a_time_behind_the_year_9999_is_refused_and_never_altered(tmp_path: Path) -> None:
    times = pa.array([253_402_300_800_000_000], pa.timestamp("us", "UTC"))
    write_int96(tmp_path / "t", pa.table({"at": times}))
    with pytest.raises(RefusedError, match="column 'at' has a value that Python cannot hold"):
        list(source(tmp_path / "t").read_from(None, 10))


def test_a_partition_value_may_hold_what_ends_a_line_elsewhere(tmp_path: Path) -> None:
    rows = pa.table({"id": [1], "word": ["a\u2028b\x85c"]})
    deltalake.write_deltalake(tmp_path / "t", rows, partition_by=["word"])
    assert [row for row, _ in source(tmp_path / "t").read_from(None, 10)] == [(1, "a\u2028b\x85c")]
