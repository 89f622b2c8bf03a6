"""Epochs are taken back where nobody else wrote since; else it is said what is in the way."""

from __future__ import annotations

from pathlib import Path

import pytest

from seamark.errors import LineageError, RefusedError
from seamark.testing.conformance.sink_examples import NEW, OLD, Writer, epoch, receipt
from tests.sinks.support import iceberg
from tests.sinks.support.iceberg import HandWritten


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    iceberg.make_table(tmp_path)
    return tmp_path


@pytest.fixture
def writer(folder: Path) -> Writer:
    return Writer(lambda: HandWritten(iceberg.properties(folder), iceberg.TABLE), iceberg.frame)


def append_as_somebody_else(folder: Path, number: int) -> str:
    table = iceberg.table_at(folder)
    table.append(iceberg.lines([number]), snapshot_properties={"engine-name": "elsewhere"})
    return str(table.metadata.current_snapshot_id)


def test_what_somebody_else_has_written_since_stands_in_the_way(
    writer: Writer, folder: Path
) -> None:
    writer.show([1], epoch(1), "a1")
    writer.show([2], epoch(2), "a2")
    foreign = append_as_somebody_else(folder, 100)
    writer.show([3], epoch(3), "a3")
    sink = writer.new_handle()
    for refused in (sink.require_unpublish_after, sink.unpublish_after):
        with pytest.raises(RefusedError, match=f"{foreign} .append by elsewhere"):
            refused(1)
    assert iceberg.numbers(folder) == [1, 2, 3, 100]
    assert sink.unpublish_after(2) == [3], "only ours came after that"
    assert iceberg.numbers(folder) == [1, 2, 100]


@pytest.mark.parametrize("writes_on", [False, True], ids=["rolls back", "rolls back and writes"])
def test_a_rollback_by_somebody_else_is_noticed(
    writer: Writer, folder: Path, writes_on: bool
) -> None:
    first = writer.show([1], epoch(1), "a1")
    second = writer.show([2], epoch(2), "a2")
    third = writer.prepare([3], epoch(3), "a3")
    table = iceberg.table_at(folder)
    start, end = (snapshot.snapshot_id for snapshot in table.snapshots())
    table.manage_snapshots().rollback_to_snapshot(start).commit()
    theirs = [100] if writes_on else []
    for number in theirs:
        append_as_somebody_else(folder, number)
    sink = writer.new_handle()
    assert sink.newest() == receipt(1, "a1")
    assert sink.committed(OLD, 2) is None
    sink.commit(first)
    for gone in (second, third):
        with pytest.raises(LineageError, match=f"epoch 2 was shown by snapshot {end}"):
            sink.commit(gone)
    assert iceberg.numbers(folder) == [1, *theirs]
    writer.show([20], epoch(2, NEW), "b2")
    assert iceberg.numbers(folder) == [1, 20, *theirs]
    assert writer.new_handle().newest() == receipt(2, "b2", NEW)


def test_a_table_that_is_set_to_where_it_was_shows_its_epochs_again(
    writer: Writer, folder: Path
) -> None:
    writer.show([1], epoch(1), "a1")
    second = writer.show([2], epoch(2), "a2")
    start, end = (snapshot.snapshot_id for snapshot in iceberg.table_at(folder).snapshots())
    for snapshot in (start, end):
        iceberg.table_at(folder).manage_snapshots().set_current_snapshot(snapshot).commit()
    writer.new_handle().commit(second)
    writer.show([3], epoch(3), "a3")
    assert iceberg.numbers(folder) == [1, 2, 3]


def test_snapshots_that_have_expired_in_between_are_not_taken_for_a_rollback(
    writer: Writer, folder: Path
) -> None:
    writer.show([1], epoch(1), "a1")
    second = writer.show([2], epoch(2), "a2")
    between = int(append_as_somebody_else(folder, 100))
    append_as_somebody_else(folder, 101)
    iceberg.table_at(folder).maintenance.expire_snapshots().by_ids([between]).commit()
    writer.new_handle().commit(second)
    assert writer.new_handle().newest() == receipt(2, "a2")
    writer.show([3], epoch(3), "a3")
    assert iceberg.numbers(folder) == [1, 2, 3, 100, 101]


def test_what_was_there_before_the_pipeline_stays(writer: Writer, folder: Path) -> None:
    append_as_somebody_else(folder, 100)
    writer.show([1], epoch(1), "a1")
    assert writer.new_handle().unpublish_after(0) == [1]
    assert iceberg.numbers(folder) == [100]
    assert writer.new_handle().newest() is None


@pytest.mark.parametrize("version", ["1", "2"])
def test_a_snapshot_that_has_expired_stands_in_the_way(tmp_path: Path, version: str) -> None:
    iceberg.make_table(tmp_path, properties={"format-version": version})
    writer = Writer(lambda: HandWritten(iceberg.properties(tmp_path), iceberg.TABLE), iceberg.frame)
    for number in (1, 2, 3):
        writer.show([number], epoch(number), f"a{number}")
    table = iceberg.table_at(tmp_path)
    first, second, _ = (s.snapshot_id for s in table.snapshots())
    table.maintenance.expire_snapshots().by_ids([first, second]).commit()
    for gone in (0, 1):
        with pytest.raises(RefusedError, match=f"the snapshot of epoch {gone} has expired"):
            writer.new_handle().unpublish_after(gone)
    assert iceberg.numbers(tmp_path) == [1, 2, 3]


def test_what_was_taken_back_can_still_be_read_by_its_snapshot(
    writer: Writer, folder: Path
) -> None:
    writer.show([1], epoch(1), "a1")
    second = writer.show([2], epoch(2), "a2")
    point = writer.new_handle().read_point(second)
    assert point is not None
    writer.new_handle().unpublish_after(1)
    old = iceberg.table_at(folder).scan(snapshot_id=int(point.at["snapshot_id"])).to_arrow()
    assert sorted(old.column("n").to_pylist()) == [1, 2]


def test_a_late_commit_for_the_state_before_a_rollback_finds_another_state(
    writer: Writer, folder: Path
) -> None:
    """A step back to the old snapshot would let it through."""
    first = writer.show([1], epoch(1), "a1")
    before = iceberg.table_at(folder).metadata.current_snapshot_id
    writer.show([2], epoch(2), "a2")
    writer.new_handle().unpublish_after(1)
    assert iceberg.table_at(folder).metadata.current_snapshot_id != before
    writer.show([20], epoch(2, NEW), "b2")
    writer.new_handle().commit(first)
    assert iceberg.numbers(folder) == [1, 20]
    assert writer.new_handle().committed(NEW, 1) == receipt(1, "a1")
