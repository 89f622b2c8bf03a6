"""Positions in an Iceberg table: what maintenance may remove, and what must not be passed over."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from seamark.errors import PositionUnavailable, SourceUnavailableError
from seamark.sources.offsets import BEGINNING, Offset
from seamark.sources.sequence_reader import SequenceReader
from tests.sources.test_iceberg import World

pytest.importorskip("pyiceberg")
pytest.importorskip("sqlalchemy")


@pytest.fixture
def world(tmp_path: Path) -> World:
    world = World(tmp_path)
    world.append(0, 1)
    world.append(2, 3)
    return world


def position_after(world: World, rows: int) -> Any:
    [*_, (_, position)] = world.source().read_from(None, rows)
    return position


def snapshots(world: World) -> list[int]:
    return [snapshot.snapshot_id for snapshot in world.table.metadata.snapshots]


def expire(world: World, *ids: int) -> None:
    world.table.maintenance.expire_snapshots().by_ids(list(ids)).commit()


def reader_of(world: World) -> SequenceReader:
    source = world.source()
    return SequenceReader(source, "seamark_iceberg", source.schema().fieldNames(), 100)


def test_a_snapshot_that_was_read_to_its_end_may_expire(world: World) -> None:
    position = position_after(world, 4)
    world.append(4)
    expire(world, *snapshots(world)[:-1])
    known = world.source().check(position)
    assert known is not None
    assert known.wanted == str(snapshots(world)[-1])
    assert world.all_of(100, position) == [4]


def test_a_snapshot_that_was_not_read_to_its_end_may_not(world: World) -> None:
    position = position_after(world, 3)
    world.append(4)
    first, second, third = snapshots(world)
    expire(world, first, second)
    for read in (lambda: world.all_of(100, position), lambda: world.source().check(position)):
        with pytest.raises(PositionUnavailable, match=f"no longer has snapshot {second}") as gone:
            read()
        assert f"the oldest that is left is {third}" in str(gone.value)
        assert gone.value.earliest == str(third).encode()


def test_a_snapshot_that_expired_unread_between_two_is_never_passed_over(world: World) -> None:
    position = position_after(world, 2)
    world.append(4)
    expire(world, *snapshots(world)[:-1])
    with pytest.raises(PositionUnavailable, match="no longer has snapshot"):
        world.all_of(100, position)


def test_a_table_that_was_rolled_back_is_not_gone_on_from(world: World) -> None:
    position = position_after(world, 4)
    world.table.manage_snapshots().rollback_to_snapshot(snapshots(world)[0]).commit()
    with pytest.raises(PositionUnavailable, match="was rolled back"):
        world.source().check(position)


def test_a_table_that_was_rolled_back_and_has_grown_since_is_not_gone_on_from(
    world: World,
) -> None:
    position = position_after(world, 4)
    first, second = snapshots(world)
    world.table.manage_snapshots().rollback_to_snapshot(first).commit()
    world.append(30)
    expire(world, first, second)
    (left,) = world.table.metadata.snapshots
    assert (left.parent_snapshot_id, left.sequence_number) == (None, 3)
    for read in (lambda: world.all_of(100, position), lambda: world.source().check(position)):
        with pytest.raises(PositionUnavailable, match=f"no longer has snapshot {second}") as gone:
            read()
        assert "nothing proves that the oldest one that is left comes right after" in str(
            gone.value
        )


def without_earlier_metadata(world: World) -> None:
    current = Path(world.table.metadata_location.removeprefix("file://"))
    for file in current.parent.glob("*.metadata.json"):
        if file != current:
            file.unlink()


def with_an_earlier_metadata_file_that_is_none(world: World) -> None:
    current = Path(world.table.metadata_location.removeprefix("file://"))
    for file in current.parent.glob("*.metadata.json"):
        if file != current:
            file.write_text('{"format-version": 2}')


@pytest.mark.parametrize("merges", [False, True])
def test_rows_that_are_left_of_an_expired_snapshot_prove_what_comes_after_it(
    world: World, merges: bool
) -> None:
    with world.table.transaction() as change:
        change.set_properties(
            {
                "commit.manifest-merge.enabled": str(merges).lower(),
                "commit.manifest.min-count-to-merge": "1",
            }
        )
    position = position_after(world, 4)
    world.append(4)
    (*read, last) = snapshots(world)
    expire(world, *read)
    without_earlier_metadata(world)
    (left,) = world.table.metadata.snapshots
    added_by = {each.added_snapshot_id for each in left.manifests(world.table.io)}
    assert (added_by == {last}) == merges
    assert world.all_of(100, position) == [4]


@pytest.mark.parametrize(
    "happens", [without_earlier_metadata, with_an_earlier_metadata_file_that_is_none]
)
def test_an_earlier_metadata_file_proves_what_comes_after_a_snapshot_without_rows(
    world: World, happens: Callable[[World], None]
) -> None:
    world.append()
    position = position_after(world, 100)
    assert position[1] == str(snapshots(world)[-1])
    world.append(4)
    expire(world, *snapshots(world)[:-1])
    assert world.all_of(100, position) == [4]
    happens(world)
    with pytest.raises(PositionUnavailable, match="nothing proves"):
        world.source().check(position)


def test_another_table_of_the_same_name_is_told_before_a_start(world: World) -> None:
    position = position_after(world, 4)
    world.catalog.drop_table("shop.orders")
    world.make()
    with pytest.raises(PositionUnavailable, match="another Iceberg table"):
        world.source().check(position)
    empty = world.source().check(None)
    assert empty is not None
    assert (empty.wanted, empty.newest) == ("the next one", "none")


@pytest.mark.parametrize(("rows", "snapshot", "done"), [(1, 0, 1), (2, 0, 2), (4, 1, 2)])
def test_what_an_earlier_seamark_has_planned_runs_again_and_goes_on(
    world: World, rows: int, snapshot: int, done: int
) -> None:
    end = reader_of(world).end_after(BEGINNING, rows)
    table_id = str(world.table.metadata.table_uuid)
    position = [table_id, str(snapshots(world)[snapshot]), done]
    planned = Offset(end.sequence, position, end.digest)
    assert [row[0] for row in reader_of(world).rows_between(BEGINNING, planned)] == [*range(rows)]
    assert world.all_of(100, position) == [*range(rows, 4)]


def test_a_file_that_cannot_be_read_now_is_an_outage_and_one_that_is_gone_a_loss(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from pyiceberg.io.pyarrow import ArrowScan

    def fails(*_: Any) -> Any:
        raise OSError("connection refused")

    monkeypatch.setattr(ArrowScan, "to_record_batches", fails)
    with pytest.raises(SourceUnavailableError, match="connection refused"):
        world.all_of(100)
    monkeypatch.undo()
    for file in tmp_path.rglob("*.parquet"):
        file.unlink()
    with pytest.raises(PositionUnavailable, match="is gone"):
        world.all_of(100)
