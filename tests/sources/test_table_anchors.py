"""Going on in a table whose next rows are gone: what was read never comes again, the rest once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from seamark.errors import InvalidInputError, PositionUnavailable, RefusedError
from seamark.sources import DeltaSource
from tests.sources.test_delta import append, ids_after, source
from tests.sources.test_iceberg import World

deltalake = pytest.importorskip("deltalake")


def position_after(delta: DeltaSource, rows: int) -> Any:
    [*_, (_, position)] = delta.read_from(None, rows)
    return position


def remove_entries(table: Path, *versions: int) -> None:
    deltalake.DeltaTable(table).create_checkpoint()
    for version in versions:
        (table / "_delta_log" / f"{version:020}.json").unlink()


@pytest.fixture
def table(tmp_path: Path) -> Path:
    """Five versions with two rows each: 0 and 1, 10 and 11, and so on."""
    for version in range(5):
        append(tmp_path / "t", version * 10, version * 10 + 1)
    return tmp_path / "t"


@pytest.mark.parametrize("rows", [1, 2, 3])
def test_earliest_reads_a_delta_table_from_the_oldest_version_that_is_left(
    table: Path, rows: int
) -> None:
    at = position_after(source(table), rows)
    remove_entries(table, 0, 1, 2)
    with pytest.raises(PositionUnavailable):
        source(table).check(at)
    anchored = source(table).anchored(at, "earliest")
    assert anchored.goes_on == "version 3"
    assert anchored.wanted == f"version {rows // 2}"
    source(table).check(anchored.position)
    assert sorted(ids_after(table, anchored.position)) == [30, 31, 40, 41]


def test_latest_reads_what_is_added_to_a_delta_table_from_now_on(table: Path) -> None:
    at = position_after(source(table), 1)
    remove_entries(table, 0, 1)
    anchored = source(table).anchored(at, "latest")
    assert anchored.goes_on == "version 5"
    assert ids_after(table, anchored.position) == []
    append(table, 50)
    assert ids_after(table, anchored.position) == [50]


def test_a_number_is_the_first_version_of_a_delta_table_that_is_read(table: Path) -> None:
    at = position_after(source(table), 1)
    remove_entries(table, 0, 1)
    anchored = source(table).anchored(at, 4)
    assert sorted(ids_after(table, anchored.position)) == [40, 41]
    for gone in (1, 5):
        with pytest.raises(RefusedError, match=f"at version {gone}: it is not there"):
            source(table).anchored(at, gone)
    mapping: Any = {"t": {0: 1}}
    with pytest.raises(InvalidInputError, match="number of a version"):
        source(table).anchored(at, mapping)


@pytest.mark.parametrize("rows", [2, 3])
def test_a_vacuumed_file_is_found_before_the_start_and_its_version_is_left_out(
    table: Path, rows: int
) -> None:
    at = position_after(source(table), rows)  # before, or in the middle of version 1
    older = deltalake.DeltaTable(table, version=0).file_uris()
    for file in set(deltalake.DeltaTable(table, version=1).file_uris()).difference(older):
        Path(file).unlink()
    with pytest.raises(PositionUnavailable, match="has added is gone"):
        source(table).check(at)
    anchored = source(table).anchored(at, "earliest")
    assert anchored.goes_on == "version 2"
    assert sorted(ids_after(table, anchored.position)) == [20, 21, 30, 31, 40, 41]
    with pytest.raises(RefusedError, match="at version 0: it was read before"):
        source(table).anchored(at, 0)
    with pytest.raises(RefusedError, match=r"at version 1: it (is not there|was read before)"):
        source(table).anchored(at, 1)


def test_a_delta_table_that_was_made_anew_is_read_from_its_first_version(tmp_path: Path) -> None:
    append(tmp_path / "old", 1, 2)
    append(tmp_path / "old", 3)
    at = position_after(source(tmp_path / "old"), 3)
    append(tmp_path / "new", 7)
    append(tmp_path / "new", 8)
    with pytest.raises(PositionUnavailable, match="another Delta table"):
        source(tmp_path / "new").check(at)
    anchored = source(tmp_path / "new").anchored(at, "earliest")
    assert ids_after(tmp_path / "new", anchored.position) == [7, 8]


def test_nothing_left_but_what_was_read_means_the_end(table: Path) -> None:
    at = position_after(source(table), 9)  # in the middle of the newest version
    for file in Path(table).rglob("*.parquet"):
        if "_delta_log" not in file.parts:
            file.unlink()
    assert source(table).anchored(at, "earliest").goes_on == "version 5"


# Iceberg


def expire(world: World, count: int) -> None:
    """Remove the oldest snapshots, as ``expire_snapshots`` of any engine does."""
    oldest = sorted(world.table.snapshots(), key=lambda each: each.sequence_number or 0)[:count]
    with world.table.maintenance.expire_snapshots() as expiring:
        expiring.by_ids([each.snapshot_id for each in oldest])
    world.table.refresh()


@pytest.fixture
def world(tmp_path: Path) -> World:
    """Five snapshots with two rows each."""
    world = World(tmp_path)
    for number in range(5):
        world.append(number * 10, number * 10 + 1)
    return world


def iceberg_position(world: World, rows: int) -> Any:
    [*_, (_, position)] = world.source().read_from(None, rows)
    return position


def snapshot_ids(world: World) -> list[int]:
    return [each.snapshot_id for each in world.table.snapshots()]


@pytest.mark.parametrize("rows", [1, 2, 3])
def test_earliest_reads_an_iceberg_table_from_the_oldest_snapshot_that_is_left(
    world: World, rows: int
) -> None:
    at = iceberg_position(world, rows)
    ids = snapshot_ids(world)
    expire(world, 3)
    with pytest.raises(PositionUnavailable):
        world.source().check(at)
    anchored = world.source().anchored(at, "earliest")
    assert anchored.goes_on == f"snapshot {ids[3]}"
    assert str(ids[(rows - 1) // 2]) in anchored.wanted
    world.source().check(anchored.position)
    assert sorted(world.all_of(100, anchored.position)) == [30, 31, 40, 41]


def test_latest_reads_what_is_added_to_an_iceberg_table_from_now_on(world: World) -> None:
    at = iceberg_position(world, 1)
    expire(world, 2)
    anchored = world.source().anchored(at, "latest")
    assert world.all_of(100, anchored.position) == []
    world.append(50)
    assert world.all_of(100, anchored.position) == [50]


def test_a_number_is_the_first_snapshot_of_an_iceberg_table_that_is_read(world: World) -> None:
    at = iceberg_position(world, 2)
    ids = snapshot_ids(world)
    expire(world, 2)
    anchored = world.source().anchored(at, ids[4])
    assert sorted(world.all_of(100, anchored.position)) == [40, 41]
    with pytest.raises(RefusedError, match="it is not there"):
        world.source().anchored(at, ids[0])
    mapping: Any = {"t": {0: 1}}
    with pytest.raises(InvalidInputError, match="id of a snapshot"):
        world.source().anchored(at, mapping)


def test_snapshots_that_were_read_before_a_rollback_of_the_table_do_not_come_again(
    world: World,
) -> None:
    at = iceberg_position(world, 8)
    ids = snapshot_ids(world)
    with world.table.manage_snapshots() as manage:
        manage.rollback_to_snapshot(ids[1])
    world.table.refresh()
    with pytest.raises(PositionUnavailable):
        world.source().check(at)
    with pytest.raises(RefusedError, match="it was read before"):
        world.source().anchored(at, ids[1])
    end = world.source().anchored(at, "earliest")
    assert end.goes_on == f"the end of snapshot {ids[1]}"
    world.append(50)
    assert world.all_of(100, end.position) == [50]
    assert world.all_of(100, world.source().anchored(at, "earliest").position) == [50]


def test_an_iceberg_table_that_was_made_anew_is_read_from_its_first_snapshot(world: World) -> None:
    at = iceberg_position(world, 2)
    world.catalog.drop_table("shop.orders")
    world.make()
    with pytest.raises(RefusedError, match="no snapshot to go on from"):
        world.source().anchored(at, "earliest")
    world.append(7)
    world.append(8)
    anchored = world.source().anchored(at, "earliest")
    assert world.all_of(100, anchored.position) == [7, 8]
