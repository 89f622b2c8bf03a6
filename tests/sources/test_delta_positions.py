"""Positions in a Delta table: which histories they belong to, and what maintenance may remove."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from seamark.errors import (
    DamageError,
    PositionUnavailable,
    RefusedError,
    SourceUnavailableError,
)
from seamark.sources import DeltaSource
from seamark.sources.delta.log import DeltaLog
from seamark.sources.offsets import BEGINNING, Offset
from seamark.sources.sequence_reader import SequenceReader
from tests.sources.test_delta import append, ids_after, source

deltalake = pytest.importorskip("deltalake")


@pytest.fixture
def table(tmp_path: Path) -> Path:
    append(tmp_path / "t", 0, 3, 6)
    append(tmp_path / "t", 9, 12)
    return tmp_path / "t"


def position_after(table: Path, rows: int) -> Any:
    [*_, (_, position)] = source(table).read_from(None, rows)
    return position


def entry(table: Path, version: int) -> Path:
    return table / "_delta_log" / f"{version:020}.json"


def clean_up(table: Path, *versions: int) -> None:
    """As ``delta.logRetentionDuration`` does."""
    deltalake.DeltaTable(table).create_checkpoint()
    for version in versions:
        entry(table, version).unlink()


def compact_and_vacuum(table: Path) -> None:
    deltalake.DeltaTable(table).optimize.compact()
    deltalake.DeltaTable(table).vacuum(0, dry_run=False, enforce_retention_duration=False)


def reader_of(table: Path, most: int = 100) -> SequenceReader:
    """As a new process has it."""
    delta = source(table)
    schema = delta.schema()
    delta.use_schema(schema)
    return SequenceReader(delta, "seamark_delta", schema.fieldNames(), most)


@pytest.mark.parametrize("rows", [4, 5])
def test_a_copy_that_is_one_version_older_is_not_gone_on_from(table: Path, rows: int) -> None:
    position = position_after(table, rows)
    entry(table, 1).unlink()
    with pytest.raises(PositionUnavailable, match="at version 0, and version 1 was read") as gone:
        ids_after(table, position)
    assert "version 1 is wanted, the oldest that the log has is 0" in str(gone.value)
    assert (gone.value.requested, gone.value.earliest) == (b"1", b"0")


@pytest.mark.parametrize("rows", [4, 5])
def test_a_copy_that_was_filled_again_is_not_taken_for_the_table_that_was_read(
    table: Path, rows: int
) -> None:
    position = position_after(table, rows)
    entry(table, 1).unlink()
    append(table, *range(15, 45, 3))
    append(table, 45)
    with pytest.raises(PositionUnavailable, match="version 1 of the Delta table is another one"):
        ids_after(table, position)
    with pytest.raises(PositionUnavailable, match="another one"):
        source(table).check(position)


def test_the_log_of_what_was_read_to_its_end_may_be_cleaned_up(table: Path) -> None:
    position = position_after(table, 5)
    append(table, 15)
    clean_up(table, 0, 1)
    source(table).check(position)
    assert ids_after(table, position) == [15]


def test_the_log_of_what_was_not_read_to_its_end_may_not(table: Path) -> None:
    position = position_after(table, 4)
    append(table, 15)
    clean_up(table, 0, 1)
    for read in (lambda: ids_after(table, position), lambda: source(table).check(position)):
        with pytest.raises(PositionUnavailable, match="no longer has its entry for version 1"):
            read()
    after_first = position_after_first_version(table)
    with pytest.raises(PositionUnavailable, match="no longer has its entry for version 1"):
        ids_after(table, after_first)


def position_after_first_version(table: Path) -> list[Any]:
    """A version that was read to its end, and is gone; the one after it was never read."""
    return [deltalake.DeltaTable(table).metadata().id, 0, "0" * 16]


def test_maintenance_of_a_quiet_table_moves_the_position_so_that_its_log_is_not_needed(
    table: Path,
) -> None:
    reader = reader_of(table)
    end = reader.end_after(BEGINNING, 100)
    compact_and_vacuum(table)
    moved = reader_of(table).end_after(end, 100)
    assert (moved.sequence, moved.digest) == (end.sequence, end.digest)
    assert moved.position != end.position
    assert reader_of(table).rows_between(end, moved) == []
    assert reader_of(table).end_after(moved, 100) == moved
    clean_up(table, *range(deltalake.DeltaTable(table).version()))
    append(table, 15)
    after = reader_of(table).end_after(moved, 100)
    assert [row[0] for row in reader_of(table).rows_between(moved, after)] == [15]


def test_an_epoch_that_ends_behind_a_compaction_is_read_again_with_the_same_end(
    table: Path,
) -> None:
    deltalake.DeltaTable(table).optimize.compact()
    planned = reader_of(table)
    end = planned.end_after(BEGINNING, 100)
    append(table, 15)
    assert reader_of(table).rows_between(BEGINNING, end) == planned.rows_between(BEGINNING, end)


def test_files_of_a_half_read_version_that_are_done_may_be_vacuumed(tmp_path: Path) -> None:
    append(tmp_path / "t", *range(7))  # three files: one for each day
    position = position_after(tmp_path / "t", 4)
    everything = ids_after(tmp_path / "t", None)
    first = next(iter(DeltaLog(str(tmp_path / "t"), {}).entry(0).added("")))  # type: ignore[union-attr]
    (tmp_path / "t" / first.path).unlink()
    assert ids_after(tmp_path / "t", position) == everything[4:]


def old_form(table: Path, version: int, rows: int) -> list[Any]:
    return [deltalake.DeltaTable(table).metadata().id, version, rows]


def test_positions_of_earlier_versions_of_seamark_are_still_read(table: Path) -> None:
    assert ids_after(table, old_form(table, 0, 3)) == [9, 12]
    assert ids_after(table, old_form(table, 1, 1)) == [12]
    assert ids_after(table, old_form(table, 1, 2)) == []
    with pytest.raises(PositionUnavailable, match="version 2 was read"):
        ids_after(table, old_form(table, 2, 1))


def test_a_damaged_file_is_damage_also_after_a_position_of_an_earlier_version(table: Path) -> None:
    first = next(iter(DeltaLog(str(table), {}).entry(0).added("")))  # type: ignore[union-attr]
    (table / first.path).write_bytes(b"PAR1" + bytes(100))
    for position in (None, old_form(table, 0, 1)):
        with pytest.raises(DamageError, match="a file of the Delta table is damaged"):
            ids_after(table, position)


@pytest.mark.parametrize(("rows", "version", "done"), [(2, 0, 2), (3, 0, 3), (5, 1, 2)])
def test_an_epoch_that_an_earlier_seamark_has_planned_runs_again(
    table: Path, rows: int, version: int, done: int
) -> None:
    end = reader_of(table).end_after(BEGINNING, rows)
    planned = Offset(end.sequence, old_form(table, version, done), end.digest)
    assert len(reader_of(table).rows_between(BEGINNING, planned)) == rows


def test_statistics_that_deny_the_rows_of_a_file_are_not_believed(tmp_path: Path) -> None:
    table = tmp_path / "t"
    append(table, 0, 3, 6)
    lines = [json.loads(line) for line in entry(table, 0).read_text().splitlines()]
    for line in lines:
        if "add" in line:
            line["add"]["stats"] = json.dumps({"numRecords": 0})
    entry(table, 0).write_text("\n".join(map(json.dumps, lines)))
    assert ids_after(table, None) == [0, 3, 6]
    assert ids_after(table, old_form(table, 0, 1)) == [3, 6]


def test_a_check_tells_what_is_wanted_and_what_there_is(table: Path) -> None:
    known = source(table).check(position_after(table, 4))
    assert known is not None
    assert (known.wanted, known.oldest, known.newest) == ("1", "0", "1")
    position = position_after(table, 5)
    shutil.rmtree(table)
    append(table, *range(50))
    with pytest.raises(PositionUnavailable, match="another Delta table"):
        source(table).check(position)
    append(table, 50)
    clean_up(table, 0)
    with pytest.raises(PositionUnavailable, match="no longer has its entry for version 0"):
        source(table).check(None)


def test_a_column_that_was_added_since_does_not_stop_an_epoch_from_running_again(
    table: Path,
) -> None:
    end = reader_of(table).end_after(BEGINNING, 4)
    rows = pa.table({"id": [15], "day": [None], "note": ["new"]})
    rows = rows.cast(pa.schema([("id", pa.int64()), ("day", pa.date32()), ("note", pa.string())]))
    deltalake.write_deltalake(table, rows, mode="append", schema_mode="merge")
    again = reader_of(table).rows_between(BEGINNING, end)
    assert [(row[0], row[2]) for row in again] == [(0, None), (3, None), (6, None), (9, None)]


def test_rows_that_differ_are_refused_with_the_columns_that_they_have_now(table: Path) -> None:
    end = reader_of(table).end_after(BEGINNING, 4)
    reader = SequenceReader(source(table), "d", ["id", "renamed"], 100)
    other = Offset(end.sequence, end.position, "a" * 64)
    with pytest.raises(RefusedError, match="with the columns id, renamed") as refused:
        reader.rows_between(BEGINNING, other)
    assert "If a column was added between others" in str(refused.value)


def test_a_store_that_does_not_answer_is_an_outage_and_no_loss(
    table: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Down:
        def open_input_file(self, path: str) -> Any:
            raise OSError("connection refused")

        def get_file_info(self, selector: Any) -> Any:
            raise OSError("connection refused")

    monkeypatch.setattr(DeltaLog, "files", Down())
    with pytest.raises(SourceUnavailableError, match="connection refused"):
        ids_after(table, None)
    with pytest.raises(SourceUnavailableError, match="connection refused"):
        _ = DeltaLog(str(table), {}).oldest
    monkeypatch.undo()
    nobody = {"storage.AWS_ENDPOINT_URL": "http://127.0.0.1:9", "storage.AWS_ALLOW_HTTP": "true"}
    keys = {"storage.AWS_ACCESS_KEY_ID": "a", "storage.AWS_SECRET_ACCESS_KEY": "geheim"}
    fast = {"storage.AWS_REGION": "x", "storage.max_retries": "0"}
    with pytest.raises(SourceUnavailableError) as away:
        DeltaSource({"path": "s3://nowhere/t", **nobody, **keys, **fast}).schema()
    assert "geheim" not in str(away.value)
