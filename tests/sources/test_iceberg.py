"""An Iceberg table as a stream: every appended row once, in order; anything else is an error."""

from __future__ import annotations

import json
from collections.abc import Callable
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
from seamark.sources import IcebergSource

pytest.importorskip("pyiceberg")
pytest.importorskip("sqlalchemy")

SCHEMA = pa.schema([("id", pa.int64()), ("name", pa.string())])


class World:
    """A catalog on SQLite with one table."""

    def __init__(self, root: Path) -> None:
        from pyiceberg.catalog import load_catalog

        self.properties = {
            "type": "sql",
            "uri": f"sqlite:///{root}/catalog.db",
            "warehouse": f"file://{root}/lake",
        }
        (root / "lake").mkdir()
        self.catalog = load_catalog("lake", **self.properties)
        self.catalog.create_namespace("shop")
        self.make()

    def make(self) -> None:
        self.table = self.catalog.create_table("shop.orders", SCHEMA)

    def append(self, *numbers: int) -> None:
        rows = {"id": list(numbers), "name": [f"n{n}" for n in numbers]}
        self.table.append(pa.table(rows, SCHEMA))

    def source(self, **more: str) -> IcebergSource:
        given = {f"catalog.{name}": value for name, value in self.properties.items()}
        return IcebergSource({"table": "shop.orders", "catalog": "lake", **given, **more})

    def all_of(self, limit: int, position: Any = None) -> list[int]:
        """All ids, read in pieces, each by a new source as after a restart."""
        found: list[int] = []
        while placed := list(self.source().read_from(position, limit)):
            rows = [row for row, _ in placed if row is not None]
            assert len(rows) <= limit
            found += [row[0] for row in rows]
            position = placed[-1][1]
        return found


@pytest.fixture
def world(tmp_path: Path) -> World:
    world = World(tmp_path)
    world.append(0, 1, 2)
    world.append(3)
    world.append(4, 5, 6, 7)
    return world


@pytest.mark.parametrize("limit", [1, 3, 100])
def test_every_row_comes_once_and_in_order_however_small_the_pieces_are(
    world: World, limit: int
) -> None:
    assert world.all_of(limit) == list(range(8))


def test_a_table_without_a_snapshot_has_no_rows_yet(tmp_path: Path) -> None:
    world = World(tmp_path)
    assert list(world.source().read_from(None, 10)) == []
    bounded = world.source()
    bounded.stop_at_present()
    world.append(1)
    assert list(bounded.read_from(None, 10)) == []
    assert world.all_of(10) == [1]


def test_what_comes_later_is_read_from_the_position_on(world: World) -> None:
    *_, (row, end) = world.source().read_from(None, 100)
    assert row == (7, "n7")
    assert world.source().schema().simpleString() == "struct<id:bigint,name:string>"
    bounded = world.source()
    bounded.stop_at_present()
    world.append(8)
    assert world.all_of(100, end) == [8]
    assert len(list(bounded.read_from(None, 100))) == 8


def test_a_renamed_column_keeps_its_values(world: World) -> None:
    with world.table.update_schema() as change:
        change.rename_column("name", "title")
    assert [row for row, _ in world.source().read_from(None, 1)] == [(0, "n0")]


def _change_rows(world: World) -> None:
    world.table.delete("id = 1")


def _expire(world: World) -> None:
    first = world.table.metadata.snapshots[0].snapshot_id
    world.table.maintenance.expire_snapshots().by_id(first).commit()


def _make_again(world: World) -> None:
    world.catalog.drop_table("shop.orders")
    world.make()
    world.append(*range(50))


@pytest.mark.parametrize(
    ("happens", "error", "told"),
    [
        (_change_rows, RefusedError, "has changed or removed rows"),
        (_expire, PositionUnavailable, "no longer has snapshot"),
        (_make_again, PositionUnavailable, "another Iceberg table"),
    ],
)
def test_what_is_no_appended_row_is_never_passed_over(
    world: World, happens: Callable[[World], None], error: type[Exception], told: str
) -> None:
    [(_, early), *_] = world.source().read_from(None, 1)
    happens(world)
    with pytest.raises(error, match=told):
        world.all_of(100, early)


def test_expired_history_is_told_to_a_first_start_with_the_way_on(world: World) -> None:
    _expire(world)
    with pytest.raises(PositionUnavailable, match="starting_snapshot"):
        world.all_of(100)
    later = str(world.table.metadata.snapshots[0].snapshot_id)
    rows = world.source(starting_snapshot=later).read_from(None, 100)
    assert [row[0] for row, _ in rows if row is not None] == [3, 4, 5, 6, 7]


def test_wrong_options_and_missing_tables_are_errors_with_words(world: World) -> None:
    with pytest.raises(InvalidInputError, match="by its name"):
        IcebergSource({})
    with pytest.raises(InvalidInputError, match="starting_snapshot"):
        world.source(starting_snapshot="first")
    with pytest.raises(SourceUnavailableError, match="no Iceberg table"):
        list(world.source(table="shop.none").read_from(None, 1))
    with pytest.raises(RefusedError, match="not a position"):
        list(world.source().read_from("odd", 1))


def test_snapshots_that_go_in_a_circle_are_damage_and_have_an_end(world: World) -> None:
    place = Path(world.table.metadata_location.removeprefix("file://"))
    metadata = json.loads(place.read_text())
    first, *_, last = metadata["snapshots"]
    first["parent-snapshot-id"] = last["snapshot-id"]
    place.write_text(json.dumps(metadata))
    with pytest.raises(DamageError, match="go in a circle"):
        list(world.source().read_from(None, 10))


@pytest.mark.parametrize("kind", ["list of manifests", "manifest", "rows"])
@pytest.mark.parametrize("damage", ["empty", "half", "zeros", "text"])
def test_a_damaged_file_is_damage_of_the_table(world: World, kind: str, damage: str) -> None:
    if kind == "rows":
        [file] = world.table.inspect.files()["file_path"].to_pylist()[:1]
    else:
        snapshot = world.table.metadata.snapshots[0]
        [manifest] = snapshot.manifests(world.table.io)
        file = manifest.manifest_path if kind == "manifest" else snapshot.manifest_list
    place = Path(file.removeprefix("file://"))
    whole = place.read_bytes()
    half = len(whole) // 2
    place.write_bytes(
        {
            "empty": b"",
            "half": whole[:half],
            "zeros": whole[:half] + bytes(len(whole) - half),
            "text": b"\xff" * len(whole),
        }[damage]
    )
    with pytest.raises(DamageError, match="a file of the Iceberg table is damaged") as raised:
        world.all_of(100)
    assert "lake:shop.orders" in str(raised.value)
    if kind == "list of manifests":
        with pytest.raises(DamageError, match="a file of the Iceberg table is damaged"):
            world.source().check(None)
