"""Whatever happens to an Iceberg table, an audit finds it, and names the epoch where it can."""

from __future__ import annotations

import random
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from seamark.sinks import IcebergSink
from tests.audit.support.pipelines import (
    ROW_DAMAGE,
    audited,
    damage_found,
    pipeline,
    rewrite,
    write_input,
)
from tests.sinks.support import iceberg

if TYPE_CHECKING:
    from pyiceberg.table import Table
    from pyiceberg.table.snapshots import Snapshot
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]

COLUMNS = pa.schema(
    [
        ("n", pa.int64()),
        ("name", pa.string()),
        ("price", pa.float64()),
        ("at", pa.timestamp("us", "UTC")),
    ]
)


@pytest.fixture
def world(spark: SparkSession, tmp_path: Path) -> Path:
    write_input(tmp_path / "input", 3)
    iceberg.make_table(tmp_path, COLUMNS)
    sink = IcebergSink(iceberg.properties(tmp_path), iceberg.TABLE)
    pipeline(spark, tmp_path, sink).run(available_now=True)
    return tmp_path


def file_of(world: Path, number: int) -> Path:
    """A file that the number-th snapshot has added."""
    table = iceberg.table_at(world)
    snapshots = [snapshot.snapshot_id for snapshot in table.metadata.snapshots]
    files = [
        {task.file.file_path for task in table.scan(snapshot_id=each).plan_files()}
        for each in snapshots
    ]
    added = files[number - 1] - (files[number - 2] if number > 1 else set())
    return Path(min(added).removeprefix("file://"))


def test_what_was_written_is_what_is_shown(spark: SparkSession, world: Path) -> None:
    found = audited(spark, world / "store")
    assert not found.is_damaged
    results = [(v.epochs, v.result.value) for v in found.sinks[0].verdicts]
    assert results[:4] == [("1", "ok"), ("2", "ok"), ("3", "ok"), ("1 to 3", "ok")]


@pytest.mark.sampled(3)
@pytest.mark.parametrize("kind", ROW_DAMAGE)
def test_rows_that_are_lost_doubled_or_edited_in_a_file_are_found(
    spark: SparkSession, world: Path, kind: str
) -> None:
    rewrite(file_of(world, 2), lambda rows: ROW_DAMAGE[kind](rows, random.Random(1)))
    assert damage_found(audited(spark, world / "store")) == [
        ("trades", "2", kind),
        ("trades", "1 to 3", kind),
    ]


def test_a_file_that_is_gone_is_found(spark: SparkSession, world: Path) -> None:
    file_of(world, 3).unlink()
    found = damage_found(audited(spark, world / "store"))
    assert found == [("trades", "3", "unreadable"), ("trades", "1 to 3", "unreadable")]


def test_epochs_that_were_replaced_and_have_expired_are_no_damage(
    spark: SparkSession, tmp_path: Path
) -> None:
    """The metadata of the newest epoch still names them."""
    write_input(tmp_path / "input", 3)
    iceberg.make_table(tmp_path, COLUMNS)
    sink = IcebergSink(iceberg.properties(tmp_path), iceberg.TABLE, mode="overwrite")
    pipeline(spark, tmp_path, sink).run(available_now=True)
    expire_all_but_the_newest(tmp_path)
    found = audited(spark, tmp_path / "store")
    assert not found.is_damaged
    results = [(v.epochs, v.result.value) for v in found.sinks[0].verdicts]
    assert results[:3] == [("1", "not compared"), ("2", "not compared"), ("3", "ok")]
    (task,) = iceberg.table_at(tmp_path).scan().plan_files()
    Path(task.file.file_path.removeprefix("file://")).unlink()
    assert ("trades", "3", "unreadable") in damage_found(audited(spark, tmp_path / "store"))


def expire_all_but_the_newest(folder: Path) -> None:
    """As Spark's procedure does it: with their files."""
    table = iceberg.table_at(folder)
    newest = table.current_snapshot()
    assert newest is not None
    old = [each for each in table.metadata.snapshots if each != newest]
    gone = set().union(*(files_with(table, each) for each in old)) - files_with(table, newest)
    table.maintenance.expire_snapshots().by_ids([each.snapshot_id for each in old]).commit()
    for path in gone:
        Path(path.removeprefix("file://")).unlink()


def files_with(table: Table, snapshot: Snapshot) -> set[str]:
    """All that only a table with this snapshot needs."""
    manifests = {each.manifest_path for each in snapshot.manifests(table.io)}
    tasks = table.scan(snapshot_id=snapshot.snapshot_id).plan_files()
    return manifests | {task.file.file_path for task in tasks} | {snapshot.manifest_list}


def test_what_others_have_changed_is_seen_through_the_catalog(
    spark: SparkSession, world: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    iceberg.table_at(world).delete("n = 5")
    metadata = iceberg.table_at(world).metadata_location
    assert not audited(spark, world / "store").is_damaged, "as the newest epoch has left it"
    found = audited(spark, world / "store", trades=metadata)
    assert not found.is_damaged, "the snapshot of the newest epoch is still there"
