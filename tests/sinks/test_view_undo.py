"""A view that keeps what it replaces shows what it showed before, whatever happens on the way."""

from __future__ import annotations

import os
import random
from typing import Any

import pytest

from seamark.errors import DamageError, LineageError, RefusedError
from seamark.progress import open_progress
from seamark.testing.conformance.sink_examples import NEW
from seamark.testing.crashes import SimulatedCrash
from tests.conftest import SEED
from tests.sinks.support.view_attacks import dying
from tests.sinks.support.views import Row, World, rows_of, told

EPOCHS = 7
Snapshot = dict[str, Any]


def snapshot(world: World) -> Snapshot:
    """All that a view holds, but for what it remembers about its epochs."""
    with open_progress(world.url, read_only=True) as store:
        return {
            "view": dict(store.items("view")),
            "times": dict(store.items("times")),
            "sources": store.read_all_checkpoints(),
            "hash": store.read_config_hash(),
        }


def some_rows(dice: random.Random, number: int) -> list[Row]:
    """Rows of some keys: new ones, changed ones, some that go, late ones, some without a time."""
    keys = dice.sample(range(12), dice.randrange(8))
    return [
        {
            "n": key,
            "at": number,
            "gone": dice.random() < 0.3,
            "time": dice.choice([None, number * 10 - 5, number * 10 + 15, 500]),
        }
        for key in keys
    ]


def history(world: World, dice: random.Random, **options: Any) -> list[Snapshot]:
    sink = world.handle(undo=True, keep_epochs=20, **options)
    found = [snapshot(world)]
    for number in range(1, EPOCHS + 1):
        world.show(sink, told(number, watermark=number * 10), *some_rows(dice, number))
        found.append(snapshot(world))
    return found


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"delete_where": "gone"},
        {"expire": "time"},
        {"delete_where": "gone", "expire": "time"},
        {"replace": True},
        {"replace": True, "expire": "time"},
    ],
    ids=str,
)
def test_each_epoch_can_be_taken_back_to_exactly_what_was(
    world: World, options: dict[str, Any]
) -> None:
    dice = random.Random(os.environ[SEED])
    found = history(world, dice, **options)
    sink = world.handle(undo=True, keep_epochs=20, **options)
    for epoch in (6, 3, 2):
        taken = sink.unpublish_after(epoch)
        assert min(taken) == epoch + 1
        assert snapshot(world) == found[epoch], f"back at {epoch}"
        newest = sink.newest()
        assert newest is not None
        assert newest.epoch == epoch
    world.show(sink, told(3, NEW, watermark=30), {"n": 99, "time": 900, "gone": False})
    assert "99" in world.rows()
    assert sink.unpublish_after(2) == [3]
    assert snapshot(world) == found[2]
    assert sink.unpublish_after(0) == [1, 2]
    assert snapshot(world)["view"] == {}


def test_taking_back_dies_around_any_commit_and_is_simply_done_again(world: World) -> None:
    found = history(world, random.Random(5), expire="time")
    for at in (1, 2, 3):
        for when in ("before", "after"):
            sink = world.handle(undo=True, keep_epochs=20, expire="time")
            with dying(at, when), pytest.raises(SimulatedCrash):
                sink.unpublish_after(4)
            again = world.handle(undo=True, keep_epochs=20, expire="time")
            again.unpublish_after(4)
            assert snapshot(world) == found[4], f"died {when} commit {at}"
            for number in range(5, EPOCHS + 1):
                world.show(again, told(number, watermark=number * 10), *rows_of(number))


def test_a_view_that_fell_behind_and_was_brought_up_can_go_back_too(world: World) -> None:
    sink = world.handle(undo=True)
    first = world.show(sink, told(1), *rows_of(1))
    older, at_one = world.save(), snapshot(world)
    sink = world.handle(undo=True)
    for number in (2, 3, 4):
        last = world.show(sink, told(number), *rows_of(number, keys=number))
    world.bring_back(older)
    sink = world.handle(undo=True)
    sink.commit(last)
    assert sink.unpublish_after(1) == [2, 3, 4]
    assert snapshot(world) == at_one
    sink.commit(first)
    with pytest.raises((LineageError, DamageError)):
        sink.commit(last)
    assert snapshot(world) == at_one


def test_what_is_not_known_any_more_is_refused_and_nothing_changes(world: World) -> None:
    sink = world.handle(undo=True, keep_epochs=3)
    for number in range(1, 7):
        world.show(sink, told(number), *rows_of(number))
    before = snapshot(world)
    with pytest.raises(RefusedError, match="undo=True") as refused:
        sink.unpublish_after(2)
    assert "epoch 2" in str(refused.value)
    with pytest.raises(RefusedError):
        sink.require_unpublish_after(2)
    assert snapshot(world) == before
    sink.require_unpublish_after(3)
    assert sink.unpublish_after(3) == [4, 5, 6]


@pytest.mark.parametrize("epoch", [4, 5])
def test_I7_damage_in_what_was_kept_is_found_before_anything_changes(
    world: World, epoch: int
) -> None:
    sink = world.handle(undo=True)
    for number in range(1, 6):
        world.show(sink, told(number), *rows_of(number))
    before = snapshot(world)
    (rows,) = world.staging.glob(f"kept/a{epoch}-*/before-*/rows.parquet")
    whole = rows.read_bytes()
    rows.write_bytes(whole[:40] + bytes([whole[40] ^ 8]) + whole[41:])
    with pytest.raises(DamageError):
        world.handle(undo=True).unpublish_after(3)
    assert snapshot(world) == before, "either all of it or nothing, and it says 'nothing'"
    rows.write_bytes(whole)
    assert world.handle(undo=True).unpublish_after(3) == [4, 5]
    assert world.epoch() == 3


def test_a_reset_needs_nothing_of_what_was_kept(world: World) -> None:
    sink = world.handle(undo=True)
    for number in range(1, 4):
        world.show(sink, told(number), *rows_of(number))
    for path in world.staging.glob("kept/*/*/*"):
        path.write_bytes(b"damaged")
    assert sink.unpublish_after(0) == [1, 2, 3]
    assert (world.epoch(), world.kept()) == (0, [])
    world.show(sink, told(1, NEW), *rows_of(1))
    assert world.epoch() == 1
