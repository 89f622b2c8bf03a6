"""A server that comes back with less than it had, or with something else, is never believed."""

from __future__ import annotations

import logging
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from seamark.errors import DamageError, LineageError
from seamark.sinks.keyvalue.view import EPOCHS
from seamark.testing.conformance.sink_examples import NEW, OLD
from tests.sinks.support.views import World, lines, rows_of, told
from tests.support.databases import redis_server
from tests.support.processes import ServerUnavailable


def test_a_view_that_fell_behind_is_brought_up_from_the_epochs_that_are_kept(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    world.run(range(1, 4))
    older = world.save()
    last = world.run(range(4, 8))
    world.bring_back(older)
    assert world.epoch() == 3
    with caplog.at_level(logging.WARNING, "seamark.sinks"):
        world.handle().commit(last)
    assert world.epoch() == 7
    again = [int(r.message.split()[-2]) for r in caplog.records if "fell behind" in r.message]
    assert again == [4, 5, 6]


def test_as_many_epochs_as_are_kept_can_be_made_up_for_and_not_one_more(world: World) -> None:
    saves = {}
    for number in range(1, 7):
        last = world.run(range(number, number + 1), keep_epochs=3)
        saves[number] = world.save()
    assert world.kept() == [4, 5, 6]
    world.bring_back(saves[3])
    world.handle().commit(last)
    assert world.epoch() == 6
    world.bring_back(saves[2])
    with pytest.raises(LineageError) as refused:
        world.handle().commit(last)
    assert "shows epoch 2" in str(refused.value)
    assert "epoch 6 was made to follow epoch 5" in str(refused.value)
    assert str(world.staging.parent) in str(refused.value)
    assert world.epoch() == 2


def test_an_emptied_server_is_filled_again_when_every_epoch_is_kept(world: World) -> None:
    last = world.run(range(1, 31), keep_epochs=50)
    world.empty()
    assert world.handle().newest() is None
    world.handle().commit(last)
    assert world.epoch() == 30


def test_a_server_that_goes_back_between_two_epochs_of_one_run_loses_none(
    redis_world: World,
) -> None:
    """The next epoch may not be taken for the one that follows what the server still has."""
    world = redis_world
    world.run(range(1, 3))
    older = world.save()
    sink = world.handle()
    for number in (3, 4, 5):
        world.show(sink, told(number), {"n": number, "at": number})
    world.bring_back(older)  # as a restart of Redis without appendfsync always would
    committable = world.prepare(sink, told(6), {"n": 6, "at": 6})
    sink.commit(committable)
    assert world.rows().keys() == {"0", "1", "2", "3", "4", "5", "6"}
    assert world.handle().newest() is not None
    world.show(sink, told(7), {"n": 7, "at": 7})
    assert "7" in world.rows()


def test_a_server_that_goes_back_and_cannot_be_brought_up_stops_the_run(
    redis_world: World,
) -> None:
    world = redis_world
    world.handle()
    older = world.save()
    sink = world.handle(keep_epochs=1)
    for number in (1, 2, 3):
        world.show(sink, told(number), *rows_of(number))
    world.bring_back(older)
    committable = world.prepare(sink, told(4), *rows_of(4))
    with pytest.raises(LineageError, match="shows nothing"):
        sink.commit(committable)
    assert world.rows() == {}


def test_a_server_that_goes_back_to_before_a_rollback_stops_the_run(redis_world: World) -> None:
    world = redis_world
    world.run(range(1, 4), undo=True)
    older = world.save()
    sink = world.handle(undo=True)
    assert sink.unpublish_after(2) == [3]
    world.show(sink, told(3, NEW), {"n": 30, "at": 30})
    world.bring_back(older)  # it shows epoch 3 of the history that was given up
    with pytest.raises(LineageError, match="epoch 4 cannot follow it"):
        world.prepare(sink, told(4, NEW), {"n": 40, "at": 40})


def test_the_redis_of_an_older_log_is_brought_up(tmp_path: Path) -> None:
    data, aside = tmp_path / "redis", tmp_path / "aside"
    data.mkdir()
    try:
        server = redis_server(data)
        with server as redis:
            world = World(f"{redis.url}?namespace=views", tmp_path / "staging")
            world.run(range(1, 4))
            redis.stop()
            shutil.copytree(data, aside)
            redis.start()
            last = world.run(range(4, 7))
            redis.kill()
            shutil.rmtree(data)
            shutil.copytree(aside, data)
            redis.start()
            assert world.epoch() == 3
            world.handle().commit(last)
            redis.restart()
            assert world.epoch() == 6
            world.close()
    except ServerUnavailable as error:
        pytest.skip(str(error))


# ahead, or of another history


def test_later_epochs_than_the_checkpoint_are_told_with_their_plans(world: World) -> None:
    world.run(range(1, 6))
    sink = world.handle()
    newest = sink.newest()
    assert newest is not None
    assert newest.epoch == 5
    found = [sink.committed(OLD, number) for number in (4, 5, 6)]
    assert [each and (each.epoch, each.plan) for each in found] == [
        (4, told(4).plan),
        (5, told(5).plan),
        None,
    ]


def test_an_epoch_of_long_ago_is_not_written_over_what_came_after(world: World) -> None:
    """A store brought back from a copy that is older than anything the view remembers."""
    world.run(range(1, 70))
    sink = world.handle()
    sink.stage(lines(*rows_of(3)), told(3), "b3")
    with pytest.raises(LineageError, match=r"shows epoch 69 .* epoch 3 cannot follow"):
        sink.prepare()
    sink.abort("b3")
    assert world.epoch() == 69


def test_a_checkpoint_of_long_ago_is_not_told_that_its_rows_are_gone(world: World) -> None:
    """The rows are neither staged nor kept any more, and that is as it should be."""
    sink = world.handle()
    shown = [world.show(sink, told(n), *rows_of(n)) for n in range(1, 71)]
    with pytest.raises(LineageError, match=r"shows epoch 70 .* epoch 3 was made to follow epoch 2"):
        world.handle().commit(shown[2])
    assert world.epoch() == 70


def test_a_view_whose_folder_is_gone_with_it_is_told_what_can_be_done(world: World) -> None:
    last = world.run(range(1, 4))
    world.empty()
    shutil.rmtree(world.staging)
    with pytest.raises(LineageError, match="the view shows nothing, and epoch 3") as refused:
        world.handle().commit(last)
    assert "start over" in (refused.value.hint or "")


def test_a_view_that_was_away_for_some_epochs_is_not_gone_on_with(world: World) -> None:
    world.run(range(1, 4))
    sink = world.handle()
    sink.stage(lines(*rows_of(6)), told(6), "b6")
    with pytest.raises(LineageError, match=r"shows epoch 3 .* epoch 6 cannot follow") as refused:
        sink.prepare()
    assert refused.value.hint
    assert world.epoch() == 3


def test_what_another_history_has_committed_is_never_taken_for_this_ones(world: World) -> None:
    last = world.run(range(1, 4))
    sink = world.handle()
    other = world.prepare(sink, told(3, NEW), *rows_of(99))
    with pytest.raises(LineageError, match="another timeline"):
        sink.commit(other)
    assert world.epoch() == 3
    sink.commit(last)
    unknown = {**last, "epoch": 4, "attempt": "zz", "after": {**last["after"], "epoch": 3}}
    with pytest.raises((LineageError, DamageError)):
        sink.commit(unknown)
    assert world.epoch() == 3


def test_a_reset_forgets_the_epochs_that_are_kept_also_of_an_emptied_server(world: World) -> None:
    """Epochs of the old history have higher numbers: they would push the new ones out."""
    world.run(range(1, 9), keep_epochs=2)
    world.empty()
    assert world.handle().unpublish_after(0) == []
    assert world.kept() == []
    last = world.run(range(1, 4), keep_epochs=2)
    assert world.kept() == [2, 3]
    world.empty()
    with pytest.raises(LineageError):
        world.handle().commit(last)


def test_a_reset_clears_away_keys_that_are_no_numbers_of_epochs(world: World) -> None:
    sink = world.handle()
    world.show(sink, told(1), *rows_of(1))
    with sink._view.store.session() as session:
        session.put(EPOCHS, b"9" * 5000, b"{}")
    assert sink.unpublish_after(0) == [1]
    assert (world.epoch(), sink.newest()) == (0, None)


def test_a_reset_empties_the_view_and_the_checkpoints_with_it(world: World) -> None:
    world.run(range(1, 4))
    sink = world.handle()
    assert sink.unpublish_after(0) == [1, 2, 3]
    assert (world.epoch(), sink.newest()) == (0, None)
    fresh = replace(told(1, NEW), fingerprint="another")
    world.show(sink, fresh, *rows_of(1))
    assert world.epoch() == 1
