"""Reference tables: which version is read, and what is told when it is not what it was."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from seamark.errors import PositionUnavailable, RefusedError
from seamark.manifest import ConnectorCheckpoint
from seamark.spark.reference_tables import changed_tables, delta_version, version_recorded

deltalake = pytest.importorskip("deltalake")


@pytest.fixture
def path(tmp_path: Path) -> str:
    """A Delta table with three versions."""
    path = str(tmp_path / "symbols")
    for number in range(3):
        rows = pa.table({"symbol": [f"S{number}"], "venue": ["X"]})
        deltalake.write_deltalake(path, rows, mode="append", partition_by=["venue"])
    return path


def test_a_version_has_the_files_of_its_time(path: str) -> None:
    newest, first = delta_version("symbols", path, None), delta_version("symbols", path, 0)
    assert (newest.version, len(newest.files)) == (2, 3)
    assert (first.version, len(first.files)) == (0, 1)
    assert set(first.files) < set(newest.files)


def test_what_a_checkpoint_records_leads_back_to_the_same_version(path: str) -> None:
    second = delta_version("symbols", path, 1)
    recorded = version_recorded("symbols", second.recorded)
    assert recorded is not None
    assert delta_version("symbols", path, *recorded) == second


def test_partition_values_come_from_the_log_in_the_types_of_the_table(tmp_path: Path) -> None:
    at = dt.datetime(2026, 1, 2, 3, 4, 5, 6, dt.UTC)
    local = at.replace(tzinfo=None)
    columns: dict[str, Any] = {
        "day": pa.array([at.date(), None]),
        "at": pa.array([at, None], pa.timestamp("us", "UTC")),
        "local": pa.array([local, None], pa.timestamp("us")),
        "price": pa.array([Decimal("1.50"), None], pa.decimal128(10, 2)),
        "word": ["a b%/c=é", None],
    }
    rows = pa.table({"n": [1, 2], **columns})
    deltalake.write_deltalake(tmp_path / "t", rows, partition_by=list(columns))
    log = tmp_path / "t/_delta_log" / f"{0:020}.json"
    # deltalake cannot write such a value, and others do
    log.write_text(log.read_text().replace('"price":"1.50"', '"price":"-1.50"'))
    version = delta_version("t", str(tmp_path / "t"), None)
    assert version.partition_columns == tuple(columns)
    first = (at.date(), at, local, Decimal("-1.50"), "a b%/c=é")
    assert {first, (None,) * 5} == set(version.partition_values)


def test_a_binary_partition_column_is_refused_by_name(tmp_path: Path) -> None:
    rows = pa.table({"n": [1], "raw": pa.array([b"x"], pa.binary())})
    deltalake.write_deltalake(tmp_path / "t", rows, partition_by=["raw"])
    with pytest.raises(RefusedError, match="partitioned by 'raw', which is binary"):
        delta_version("t", str(tmp_path / "t"), None)


def test_a_version_that_is_gone_and_a_table_made_anew_are_errors_with_the_way_on(
    path: str,
) -> None:
    with pytest.raises(PositionUnavailable, match="no longer has version 7") as gone:
        delta_version("symbols", path, 7)
    assert 'version="latest"' in str(gone.value)
    with pytest.raises(PositionUnavailable, match="it was made anew"):
        delta_version("symbols", path, 1, "another id")


def test_a_vacuumed_file_is_found_before_the_first_epoch(path: str) -> None:
    Path(delta_version("symbols", path, 0).files[0]).unlink()
    with pytest.raises(PositionUnavailable, match="vacuumed"):
        delta_version("symbols", path, 1)


def test_what_is_no_delta_table_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(RefusedError, match="no Delta table for table 'symbols'"):
        delta_version("symbols", str(tmp_path), None)


def test_a_table_that_changed_is_told_and_a_new_one_is_not() -> None:
    before = {
        "symbols": ConnectorCheckpoint({"version": "3"}),
        "codes": ConnectorCheckpoint({"files": "2", "listing_sha256": "ab" * 32}),
        "same": ConnectorCheckpoint({"files": "1"}),
    }
    now = {
        "symbols": ConnectorCheckpoint({"version": "4"}),
        "codes": ConnectorCheckpoint({"files": "2", "listing_sha256": "cd" * 32}),
        "same": ConnectorCheckpoint({"files": "1"}),
        "new": ConnectorCheckpoint({"files": "1"}),
    }
    assert changed_tables(before, now) == [
        "table 'symbols' is not what it was: version 3 → version 4",
        "table 'codes' is not what it was: 2 files (abababab) → 2 files (cdcdcdcd)",
    ]


def test_a_recorded_version_that_cannot_be_read_is_refused() -> None:
    assert version_recorded("symbols", ConnectorCheckpoint({"files": "1"})) is None
    with pytest.raises(RefusedError, match="cannot be read"):
        version_recorded("symbols", ConnectorCheckpoint({"version": "x"}, 0, {"format": "delta"}))
