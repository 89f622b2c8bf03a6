"""Histories of one view that end and begin anew, and runs of it with other options."""

from __future__ import annotations

import logging

import pytest

from seamark.errors import LineageError
from seamark.progress import open_progress
from seamark.testing.conformance.sink_examples import NEW
from tests.sinks.support.views import World, rows_of, told


def times(world: World) -> dict[str, int]:
    with open_progress(world.url, read_only=True) as store:
        return {key.decode(): int.from_bytes(value) for key, value in store.items("times")}


# epochs that are kept


def test_kept_epochs_of_an_older_history_do_not_push_out_those_of_the_new_one(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    """A server that was replaced, and a pipeline that begins anew, in the same staging folder."""
    world.run(range(1, 9), keep_epochs=4)
    assert world.kept() == [5, 6, 7, 8]
    world.empty()
    sink = world.handle(keep_epochs=4)
    for number in (1, 2):
        world.show(sink, told(number, NEW), *rows_of(number))
    assert world.kept() == [1, 2]
    older = world.save()
    sink = world.handle(keep_epochs=4)
    for number in (3, 4):
        last = world.show(sink, told(number, NEW), *rows_of(number))
    world.bring_back(older)
    assert world.epoch() == 2
    with caplog.at_level(logging.WARNING, "seamark.sinks"):
        world.handle().commit(last)
    assert world.epoch() == 4
    assert "applying epoch 3 again" in caplog.text


def test_an_older_epoch_that_is_committed_again_forgets_no_later_one(world: World) -> None:
    sink = world.handle()
    first = world.show(sink, told(1), *rows_of(1))
    world.show(sink, told(2), *rows_of(2))
    for by in (sink, world.handle()):
        by.commit(first)
    assert world.kept() == [1, 2]


# attempts that were taken back


def test_an_epoch_that_was_taken_back_is_not_shown_again_by_who_still_has_it_prepared(
    world: World,
) -> None:
    old = world.handle(undo=True)
    for number in (1, 2):
        world.show(old, told(number), *rows_of(number))
    decided = world.prepare(old, told(3), *rows_of(3))  # and it sleeps before its commit
    new = world.handle(undo=True)
    new.commit(decided)
    assert new.unpublish_after(2) == [3]
    with pytest.raises(LineageError, match="epoch 3 was shown once and has been taken back"):
        old.commit(decided)
    assert world.epoch() == 2
    world.show(new, told(3, NEW), *rows_of(3, keys=1))
    assert world.rows()["0"] == {"n": 0, "at": 3}
    with pytest.raises(LineageError, match="another timeline"):
        old.commit(decided)


def test_an_epoch_from_before_a_reset_is_not_shown_again_by_who_still_has_it_prepared(
    world: World,
) -> None:
    old = world.handle()
    decided = world.prepare(old, told(1), *rows_of(1))
    new = world.handle()
    new.commit(decided)
    assert new.unpublish_after(0) == [1]
    for by in (old, new, world.handle()):
        with pytest.raises(LineageError, match="epoch 1 was shown once and has been taken back"):
            by.commit(decided)
    assert (world.rows(), world.epoch()) == ({}, 0)
    world.show(new, told(1, NEW), *rows_of(1))
    assert world.epoch() == 1


def test_what_was_taken_back_stays_so_after_more_rollbacks(world: World) -> None:
    old = world.handle(undo=True)
    world.show(old, told(1), *rows_of(1))
    decided = world.prepare(old, told(2), *rows_of(2))
    new = world.handle(undo=True)
    new.commit(decided)
    for _ in range(2):
        assert new.unpublish_after(1) == [2]
        world.show(new, told(2, NEW), *rows_of(2))
    assert new.unpublish_after(1) == [2]
    with pytest.raises(LineageError, match="taken back"):
        old.commit(decided)
    assert world.epoch() == 1


def test_what_was_taken_back_stays_so_after_a_reset_that_is_done_again(world: World) -> None:
    old = world.handle()
    decided = world.prepare(old, told(1), *rows_of(1))
    new = world.handle()
    new.commit(decided)
    for taken in ([1], [], []):
        assert new.unpublish_after(0) == taken
        with pytest.raises(LineageError, match="taken back"):
            old.commit(decided)
    assert world.rows() == {}


# runs with and without expire


def test_an_epoch_of_which_every_row_is_left_out_as_late_is_told(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    """As of windows in append mode, which come out when the watermark has reached their end."""
    sink = world.handle(expire="time")
    with caplog.at_level(logging.WARNING, "seamark.sinks"):
        world.show(sink, told(1, watermark=100), {"n": 1, "time": 100}, {"n": 2, "time": 900})
        world.show(sink, told(2, watermark=200))
        assert not caplog.messages
        world.show(sink, told(3, watermark=300), {"n": 3, "time": 200}, {"n": 4, "time": 300})
    (message,) = caplog.messages
    assert "all 2 rows of epoch 3 are left out" in message
    assert "append mode" in message
    assert world.rows().keys() == {"2"}


def test_a_start_without_expire_that_shows_nothing_forgets_no_times(world: World) -> None:
    """As one does that is refused because the option has changed."""
    world.show(world.handle(expire="time"), told(1), {"n": 1, "time": 100}, {"n": 2, "time": 900})
    world.close()
    world.handle()
    world.close()
    world.show(world.handle(expire="time"), told(2, watermark=200), {"n": 3, "time": 900})
    assert world.rows().keys() == {"2", "3"}


def test_times_are_forgotten_by_a_run_that_lets_nothing_expire(world: World) -> None:
    rows = [{"n": 1, "time": 100}, {"n": 2, "time": 300}]
    world.show(world.handle(expire="time"), told(1, watermark=0), *rows)
    assert times(world) == {"1": 100, "2": 300}
    world.close()
    world.show(world.handle(), told(2, watermark=50), {"n": 1, "v": "stays"})
    assert times(world) == {}
    world.close()
    again = world.handle(expire="time")
    world.show(again, told(3, watermark=500), {"n": 3, "time": 900})
    assert world.rows().keys() == {"1", "2", "3"}, "nobody has said when those expire"
    world.show(again, told(4, watermark=900))
    assert world.rows().keys() == {"1", "2"}
