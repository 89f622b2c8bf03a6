"""Compaction and vacuum, of ours and of others, beside epochs that are on their way."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal
from pathlib import Path
from typing import Any, cast

import pytest
from deltalake import DeltaTable
from pyspark.sql import types as t

from seamark.errors import DamageError, RefusedError, StoreUnavailableError
from seamark.testing.conformance.sink_examples import PIPELINE, SINK, Writer, epoch, receipt
from tests.sinks.support.deltas import (
    HandWrittenDelta,
    arrow_frame,
    data_files,
    files_in_log,
    numbers,
    numbers_in,
)


@pytest.fixture
def table(tmp_path: Path) -> Path:
    return tmp_path / "rows"


@pytest.fixture
def writer(table: Path) -> Writer:
    return Writer(lambda: HandWrittenDelta(table), numbers)


@pytest.fixture
def sink(table: Path) -> HandWrittenDelta:
    made = HandWrittenDelta(table)
    made.open(PIPELINE, SINK, numbers([]).schema)
    return made


def make_old(table: Path, days: int = 400) -> None:
    """Let all files be that old."""
    then = time.time() - days * 86400
    for path in table.rglob("*.parquet"):
        os.utime(path, (then, then))


def test_vacuum_never_takes_what_waits_for_its_epoch_however_old_it_is(
    table: Path, writer: Writer, sink: HandWrittenDelta
) -> None:
    writer.show([1], epoch(1), "a1")
    writer.show([2], epoch(2), "a2")
    decided = writer.prepare([3], epoch(3), "a3")
    writer.stage([4], epoch(3), "a4")
    stray = table / "part-of-somebody.parquet"
    stray.write_bytes(b"x")
    writer.new_handle().unpublish_after(1)
    make_old(table)
    waiting = {name for name in data_files(table) if "/a3/" in name or "/a4/" in name}
    assert len(waiting) == 2
    would = sink.vacuum(0, dry_run=True)
    assert stray.exists()
    assert sink.vacuum(0) == would
    assert "part-of-somebody.parquet" in would
    assert data_files(table) == files_in_log(table) | waiting
    writer.show([20], epoch(2), "b2")
    writer.new_handle().commit(decided)
    assert numbers_in(table) == [1, 3, 20]


def test_vacuum_leaves_files_alone_that_somebody_is_about_to_name(
    table: Path, sink: HandWrittenDelta
) -> None:
    for number in (1, 2):
        sink.stage(numbers([number]), epoch(number), f"a{number}")
        sink.commit(sink.prepare())
    sink.compact()
    replaced = {name for name in data_files(table) if "/a1/" in name}
    names = ("part-of-a-merge.parquet", "part-of-a-crash.parquet")
    for name in names:
        (table / name).write_bytes(b"x")
    then = time.time() - 2 * 3600
    os.utime(table / names[1], (then, then))
    assert set(sink.vacuum(0)) == {*replaced, names[1]}
    assert (table / names[0]).exists()
    assert numbers_in(table) == [1, 2]


def test_vacuum_takes_nothing_of_a_merge_under_way(table: Path) -> None:
    def handle() -> HandWrittenDelta:
        made = HandWrittenDelta(table, mode="upsert", keys="n")
        made.open(PIPELINE, SINK, numbers([]).schema)
        return made

    sink, rows = handle(), range(20_000)
    sink.stage(numbers(rows), epoch(1), "a1")
    sink.commit(sink.prepare())
    sink.stage(numbers(rows[::2]), epoch(2), "a2")
    committable = sink.prepare()
    other = handle()
    with ThreadPoolExecutor(1) as pool:
        merging = pool.submit(sink.commit, committable)
        while not merging.done():
            other.vacuum(0)
        merging.result()
    assert len(numbers_in(table)) == len(rows)


def test_an_epoch_whose_files_somebody_has_vacuumed_is_not_shown(
    table: Path, sink: HandWrittenDelta, writer: Writer
) -> None:
    writer.stage([1, 2], epoch(1), "a1", by=sink)
    decided = sink.prepare()
    make_old(table)
    DeltaTable(str(table)).vacuum(0, dry_run=False, enforce_retention_duration=False, full=True)
    with pytest.raises(DamageError, match="vacuumed"):
        writer.new_handle().commit(decided)
    sink.close()
    sink.open(PIPELINE, SINK, numbers([]).schema)  # the next run of the same program
    with pytest.raises(DamageError, match="vacuumed"):
        sink.commit(decided)
    assert numbers_in(table) == []


def test_compaction_by_anybody_changes_nothing_about_epochs(
    table: Path, writer: Writer, sink: HandWrittenDelta
) -> None:
    for number in range(1, 5):
        committable = writer.show([number], epoch(number), f"a{number}")
    decided = writer.prepare([5], epoch(5), "a5")
    before = data_files(table)
    assert sink.compact()["numFilesRemoved"] == 4
    DeltaTable(str(table)).optimize.z_order(["n"])
    assert before <= data_files(table)
    assert len(files_in_log(table)) == 1
    handle = writer.new_handle()
    handle.commit(committable)
    handle.commit(decided)
    assert numbers_in(table) == [1, 2, 3, 4, 5]
    assert handle.newest() == receipt(5, "a5")
    assert handle.unpublish_after(2) == [3, 4, 5], "a compaction is not in the way"
    assert numbers_in(table) == [1, 2]
    assert numbers_in(table, version=5) == [1, 2, 3, 4]


AMOUNTS = t.StructType(
    [t.StructField("n", t.LongType()), t.StructField("amount", t.DecimalType(10, 2))]
)


def test_a_table_with_negative_decimals_in_a_partition_is_not_compacted_and_stays_readable(
    table: Path,
) -> None:
    sink = HandWrittenDelta(table, partition_by="amount")
    sink.open(PIPELINE, SINK, AMOUNTS)
    for number in (1, 2):
        amounts = [{"n": number, "amount": Decimal(text)} for text in ("-1.50", "2.50")]
        sink.stage(arrow_frame(AMOUNTS, amounts), epoch(number), f"a{number}")
        sink.commit(sink.prepare())
    with pytest.raises(RefusedError, match=r"'amount' has the value '-1\.50'"):
        sink.compact()
    assert sorted(row["amount"] for row in DeltaTable(str(table)).partitions()) == ["-1.50", "2.50"]


def test_a_negative_decimal_in_a_partition_is_not_merged_and_the_table_stays_readable(
    table: Path,
) -> None:
    sink = HandWrittenDelta(table, mode="upsert", keys="n", partition_by="amount")
    sink.open(PIPELINE, SINK, AMOUNTS)
    sink.stage(arrow_frame(AMOUNTS, [{"n": 1, "amount": Decimal("1.50")}]), epoch(1), "a1")
    sink.commit(sink.prepare())
    sink.stage(arrow_frame(AMOUNTS, [{"n": 2, "amount": Decimal("-1.50")}]), epoch(2), "a2")
    with pytest.raises(RefusedError, match="a negative number in the partition column 'amount'"):
        sink.prepare()
    assert DeltaTable(str(table)).to_pyarrow_table()["n"].to_pylist() == [1]


def test_a_decimal_with_many_digits_after_the_point_is_a_partition_of_an_upsert(
    table: Path,
) -> None:
    fields = [
        t.StructField("n", t.LongType()),
        t.StructField("amount", t.DecimalType(38, 20)),
    ]
    sink = HandWrittenDelta(table, mode="upsert", keys="n", partition_by="amount")
    sink.open(PIPELINE, SINK, t.StructType(fields))
    rows = [{"n": 1, "amount": Decimal("1e-20")}, {"n": 2, "amount": Decimal(10) ** 17}]
    sink.stage(arrow_frame(t.StructType(fields), rows), epoch(1), "a1")
    sink.commit(sink.prepare())
    found = DeltaTable(str(table)).to_pyarrow_table().to_pylist()
    assert sorted(found, key=lambda row: row["n"]) == rows
    below = [{"n": 1, "amount": Decimal("-1e-20")}]
    sink.stage(arrow_frame(t.StructType(fields), below), epoch(2), "a2")
    with pytest.raises(RefusedError, match="a negative number in the partition column 'amount'"):
        sink.prepare()


@pytest.fixture
def compacted(sink: HandWrittenDelta) -> HandWrittenDelta:
    """A table whose earlier versions need files that the newest does not."""
    for number in (1, 2, 3):
        sink.stage(numbers([number]), epoch(number), f"a{number}")
        sink.commit(sink.prepare())
    sink.compact()
    return sink


def test_a_rollback_beside_a_vacuum_never_needs_what_that_removes(
    table: Path,
    writer: Writer,
    compacted: HandWrittenDelta,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    remove = compacted._place.delete_files

    def beside(paths: Sequence[str]) -> None:
        with pytest.raises(StoreUnavailableError, match="are being vacuumed"):
            writer.new_handle().unpublish_after(1)
        remove(paths)

    monkeypatch.setattr(compacted._place, "delete_files", beside)
    assert compacted.vacuum(0)
    assert numbers_in(table) == [1, 2, 3]
    with pytest.raises(RefusedError, match="of its files are gone"):
        writer.new_handle().unpublish_after(1)


def test_a_vacuum_that_begins_while_a_rollback_is_on_its_way_is_noticed(
    table: Path,
    writer: Writer,
    compacted: HandWrittenDelta,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    epochs, vacuums = compacted._epochs, iter([writer.new_handle()])
    restore = epochs._restore

    def beside(*about: Any) -> None:
        for other in vacuums:
            cast("HandWrittenDelta", other).vacuum(0)
        restore(*about)

    monkeypatch.setattr(epochs, "_restore", beside)
    with pytest.raises(RefusedError, match="of its files are gone"):
        compacted.unpublish_after(1)
    assert numbers_in(table) == [1, 2, 3]


def test_a_vacuum_keeps_what_a_rollback_needs_that_came_first(
    table: Path,
    writer: Writer,
    compacted: HandWrittenDelta,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    create = compacted._place.control.create

    def beside(key: str, data: bytes) -> object:
        writer.new_handle().unpublish_after(1)
        return create(key, data)

    monkeypatch.setattr(compacted._place.control, "create", beside)
    compacted.vacuum(0)
    assert numbers_in(table) == [1]


def test_a_vacuum_that_died_stands_in_the_way_of_a_rollback_for_an_hour(
    table: Path, writer: Writer, compacted: HandWrittenDelta
) -> None:
    compacted._place.control.create("vacuums/died.json", b"{}")
    with pytest.raises(StoreUnavailableError, match="are being vacuumed"):
        compacted.require_unpublish_after(1)
    then = time.time() - 3700
    os.utime(table / "_seamark/vacuums/died.json", (then, then))
    compacted.require_unpublish_after(1)
    assert compacted.vacuum(0)
    assert not list((table / "_seamark/vacuums").iterdir())


def test_files_that_were_vacuumed_stand_in_the_way_of_a_rollback_and_are_told_before_it(
    table: Path, writer: Writer, sink: HandWrittenDelta
) -> None:
    for number in (1, 2, 3):
        sink.stage(numbers([number]), epoch(number), f"a{number}")
        sink.commit(sink.prepare())
    sink.compact()
    sink.vacuum(0)
    version = DeltaTable(str(table)).version()
    for refused in (sink.require_unpublish_after, sink.unpublish_after):
        with pytest.raises(RefusedError, match="version 1 cannot be restored: 1 of its files"):
            refused(1)
    assert DeltaTable(str(table)).version() == version
    assert numbers_in(table) == [1, 2, 3]
    assert sink.unpublish_after(3) == []
    writer.show([4], epoch(4), "a4")
    assert writer.new_handle().unpublish_after(3) == [4]
    assert numbers_in(table) == [1, 2, 3]
