"""A Delta table as a stream: every appended row once, in order; anything else is an error."""

from __future__ import annotations

import datetime
import json
import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from seamark.errors import (
    DamageError,
    InvalidInputError,
    PositionUnavailable,
    RefusedError,
    SourceUnavailableError,
)
from seamark.sources import DeltaSource
from seamark.sources.delta.log import LogEntry
from seamark.table_formats.delta_addresses import is_known_address

deltalake = pytest.importorskip("deltalake")


def append(path: Path, *numbers: int, **more: Any) -> None:
    rows = {"id": pa.array(numbers, pa.int64()), "day": pa.array([_day(n) for n in numbers])}
    deltalake.write_deltalake(path, pa.table(rows), mode="append", partition_by=["day"], **more)


def _day(number: int) -> datetime.date:
    return datetime.date(2026, 1, 1 + number % 3)


def source(path: Path, **options: str) -> DeltaSource:
    return DeltaSource({"path": str(path), **options})


def all_of(path: Path, limit: int, **options: str) -> list[int]:
    """All ids, read in pieces, each by a new source as after a restart."""
    found: list[int] = []
    position: Any = None
    while placed := list(source(path, **options).read_from(position, limit)):
        rows = [row for row, _ in placed if row is not None]
        assert len(rows) <= limit
        found += [row[0] for row in rows]
        position = placed[-1][1]
    return found


def ids_after(path: Path, position: Any) -> list[int]:
    return [row[0] for row, _ in source(path).read_from(position, 100) if row is not None]


@pytest.fixture
def table(tmp_path: Path) -> Path:
    append(tmp_path / "t", *range(7))
    append(tmp_path / "t", 7)
    append(tmp_path / "t", *range(8, 20))
    return tmp_path / "t"


@pytest.mark.parametrize("limit", [1, 2, 3, 5, 100])
def test_every_row_comes_once_however_small_the_pieces_are(table: Path, limit: int) -> None:
    found = all_of(table, limit)
    assert sorted(found) == list(range(20))
    assert found == all_of(table, 100)
    assert sorted(found[:7]) == list(range(7)), "version by version"


def test_values_and_partition_values_have_the_types_of_the_table(table: Path) -> None:
    [(row, position), *_] = source(table).read_from(None, 1)
    assert row is not None
    assert isinstance(row[0], int)
    assert row[1] == _day(row[0])
    assert isinstance(position, list)
    assert (position[1], position[3:]) == (0, [0, 1])
    assert source(table).schema().simpleString() == "struct<id:bigint,day:date>"


def test_what_was_read_is_not_read_again_and_what_comes_later_is(table: Path) -> None:
    *_, (_, end) = source(table).read_from(None, 100)
    assert list(source(table).read_from(end, 100)) == []
    append(table, 20)
    assert ids_after(table, end) == [20]


def test_a_run_of_what_is_there_does_not_follow_a_busy_writer(table: Path) -> None:
    bounded = source(table)
    bounded.stop_at_present()
    append(table, 20)
    assert len(list(bounded.read_from(None, 100))) == 20


def test_compaction_changes_nothing_and_is_not_read(table: Path) -> None:
    deltalake.DeltaTable(table).optimize.compact()
    append(table, 20)
    assert sorted(all_of(table, 4)) == list(range(21))


def test_a_change_of_rows_is_refused_and_never_read_as_new_rows(table: Path) -> None:
    deltalake.DeltaTable(table).delete("id = 3")
    with pytest.raises(RefusedError, match="version 3 of the Delta table has changed or removed"):
        all_of(table, 100)


def test_a_log_that_was_cleaned_up_and_a_vacuumed_file_are_positions_that_are_gone(
    table: Path,
) -> None:
    next(table.rglob("*.parquet")).unlink()
    with pytest.raises(PositionUnavailable, match="is gone"):
        all_of(table, 100)
    deltalake.DeltaTable(table).create_checkpoint()
    (table / "_delta_log" / f"{0:020}.json").unlink()
    with pytest.raises(PositionUnavailable, match="no longer has its entry for version 0"):
        all_of(table, 100)
    assert sorted(all_of(table, 100, starting_version="3")) == []


def test_a_table_whose_rows_were_all_read_may_be_compacted_and_vacuumed(table: Path) -> None:
    *_, (_, end) = source(table).read_from(None, 100)
    deltalake.DeltaTable(table).optimize.compact()
    deltalake.DeltaTable(table).vacuum(0, dry_run=False, enforce_retention_duration=False)
    assert ids_after(table, end) == []
    append(table, 20)
    assert ids_after(table, end) == [20]


def test_a_table_whose_files_name_their_columns_otherwise_is_refused(tmp_path: Path) -> None:
    """Else every column would be null."""
    table = tmp_path / "t"
    deltalake.write_deltalake(table, pa.table({"id": [1]}))
    first = table / "_delta_log" / f"{0:020}.json"
    lines = [json.loads(line) for line in first.read_text().splitlines()]
    for line in lines:
        if "metaData" in line:
            line["metaData"]["configuration"]["delta.columnMapping.mode"] = "name"
            schema = json.loads(line["metaData"]["schemaString"])
            for number, field in enumerate(schema["fields"]):
                about = {"id": number, "physicalName": f"col-{number}"}
                field["metadata"] = {f"delta.columnMapping.{k}": v for k, v in about.items()}
            line["metaData"]["schemaString"] = json.dumps(schema)
        if "protocol" in line:
            line["protocol"] = {"minReaderVersion": 2, "minWriterVersion": 5}
    first.write_text("\n".join(map(json.dumps, lines)))
    for read in (source(table).schema, lambda: all_of(table, 100)):
        with pytest.raises(RefusedError, match=r"column mapping \(by name\)"):
            read()


@pytest.mark.parametrize("zone", ["", "Z", "+02:00"])
def test_a_partition_by_time_is_read_whether_or_not_the_log_has_its_zone(
    tmp_path: Path, zone: str
) -> None:
    at = datetime.datetime(2026, 3, 4, 5, 6, 7, 89, datetime.UTC)
    rows = pa.table({"id": [1], "at": pa.array([at], pa.timestamp("us", "UTC"))})
    deltalake.write_deltalake(tmp_path / "t", rows, partition_by=["at"])
    first = tmp_path / "t/_delta_log" / f"{0:020}.json"
    written = '"2026-03-04 05:06:07.000089"'
    assert written in first.read_text()
    local = "2026-03-04T07" if zone == "+02:00" else "2026-03-04T05"
    named = f'"{local}:06:07.000089{zone}"'
    first.write_text(first.read_text().replace(written, named if zone else written))
    [(row, _)] = source(tmp_path / "t").read_from(None, 10)
    assert row == (1, at)


def test_another_table_at_the_same_place_is_not_taken_for_the_old_one(table: Path) -> None:
    *_, (_, end) = source(table).read_from(None, 100)
    shutil.rmtree(table)
    append(table, *range(50))
    with pytest.raises(PositionUnavailable, match="another Delta table"):
        list(source(table).read_from(end, 100))


def test_a_table_that_was_restored_to_an_older_state_is_told(table: Path) -> None:
    append(table, 20)
    append(table, 21)
    *_, (_, end) = source(table).read_from(None, 100)
    for number in (3, 4):
        (table / "_delta_log" / f"{number:020}.json").unlink()
    with pytest.raises(PositionUnavailable, match="at version 2, and version 4 was read"):
        list(source(table).read_from(end, 100))


def test_a_column_that_came_later_is_null_in_older_rows(table: Path) -> None:
    rows = pa.table({"id": [20], "day": [_day(0)], "note": ["new"]})
    deltalake.write_deltalake(table, rows, mode="append", schema_mode="merge")
    found = {row[0]: row[2] for row, _ in source(table).read_from(None, 100) if row is not None}
    assert (found[0], found[20]) == (None, "new")


@pytest.mark.parametrize("url", ["hdfs://name/t", "HTTP://me:secret1@name/t", "file://name/t"])
def test_a_table_at_a_server_of_another_kind_is_refused_before_it_is_spoken_to(url: str) -> None:
    with pytest.raises(InvalidInputError, match="no Delta table can be at") as refused:
        DeltaSource({"path": url})
    assert "secret1" not in str(refused.value)


@pytest.mark.parametrize("url", ["/data/t", "data/t", "./a:b", "file:///data/t", "S3://lake/t"])
def test_a_path_and_a_bucket_are_places_of_tables(url: str) -> None:
    assert is_known_address(url)


@pytest.mark.parametrize(
    "content",
    [
        b"[" * 100_000,
        b'{"x":"\xff"}',
        b'{"add":{}}',
        b'{"add":{"path":1}}',
        b'{"add":{"path":"x","partitionValues":[1]}}',
        b'{"add":{"path":"x","partitionValues":{"day":[]}}}',
    ],
)
def test_an_entry_that_nobody_can_have_written_is_damage(content: bytes) -> None:
    with pytest.raises(DamageError, match="cannot be read"):
        LogEntry(0, "00.json", content).added("here")


def test_statistics_that_cannot_be_read_are_none() -> None:
    stats = "[" * 100_000
    content = json.dumps({"add": {"path": "x", "stats": stats}}).encode()
    (added,) = LogEntry(0, "00.json", content).added("here")
    assert added.rows is None


def test_wrong_options_and_missing_tables_are_errors_with_words(tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError, match="by its path"):
        DeltaSource({})
    with pytest.raises(InvalidInputError, match="starting_version"):
        source(tmp_path, starting_version="first")
    with pytest.raises(SourceUnavailableError, match="no Delta table here"):
        list(source(tmp_path / "none").read_from(None, 1))
    append(tmp_path / "t", 1)
    with pytest.raises(RefusedError, match="not a position"):
        list(source(tmp_path / "t").read_from("odd", 1))
