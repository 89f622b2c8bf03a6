"""Attacks that a live view has to withstand; each one raises when it does not."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, Final, Literal

from seamark.errors import DamageError, LineageError
from seamark.progress import Session, SourceCheckpointStore
from seamark.sinks import Committable
from seamark.testing.conformance.sink_examples import NEW, PIPELINE
from seamark.testing.crashes import SimulatedCrash
from tests.sinks.support.views import World, lines, rows_of, told

Attack = Callable[[World], None]


def the_server_falls_behind(world: World) -> None:
    for number in (1, 2):
        world.show(world.handle(), told(number), {"n": number, "at": 2})
    older = world.save()
    sink = world.handle()
    for number in (3, 4):
        last = world.show(sink, told(number), {"n": number, "at": 2})
    world.bring_back(older)
    world.handle().commit(last)
    assert world.rows().keys() == {"1", "2", "3", "4"}


def the_server_falls_behind_in_a_run(world: World) -> None:
    world.run(range(1, 2))
    older = world.save()
    sink = world.handle()
    world.show(sink, told(2), {"n": 20, "at": 2})
    world.bring_back(older)
    with suppress(LineageError):  # it may say that it cannot go on, but not leave an epoch out
        world.show(sink, told(3), {"n": 30, "at": 3})
    assert ("20" in world.rows()) == ("30" in world.rows())


def an_older_epoch_is_committed_again(world: World) -> None:
    sink = world.handle()
    first = world.show(sink, told(1), *rows_of(1))
    world.show(sink, told(2), *rows_of(2))
    for by in (sink, world.handle()):
        by.commit(first)
        assert world.epoch() == 2


def another_history_has_the_epoch(world: World) -> None:
    world.run(range(1, 3))
    sink = world.handle()
    other = world.prepare(sink, told(2, NEW), *rows_of(9))
    with suppress(LineageError):
        sink.commit(other)
    assert world.epoch() == 2


def the_staged_rows_are_damaged(world: World) -> None:
    committable = world.prepare(world.handle(), told(1), *rows_of(1))
    for path in sorted(world.staging.glob("staging/*/epoch=*/part-*")):
        whole = path.read_bytes()
        at = whole.rindex(b'"at": 1')  # the footer knows the greatest value too
        path.write_bytes(whole[: at + 6] + b"7" + whole[at + 7 :])
    with suppress(DamageError, OSError):
        world.handle().commit(committable)
    assert world.rows() == {}


def rows_come_late(world: World) -> None:
    sink = world.handle(expire="time")
    world.show(sink, told(1), {"n": 1, "time": 200}, {"n": 2, "time": 100})
    late = [{"n": 1, "time": 90}, {"n": 2, "time": 100}, {"n": 3, "time": 50}]
    world.show(sink, told(2, watermark=100), *late)
    assert world.rows() == {"1": {"n": 1, "time": 200}}


def keys_expire_after_a_restart(world: World) -> None:
    world.show(world.handle(expire="time"), told(1), {"n": 1, "time": 100}, {"n": 2, "time": 300})
    world.show(world.handle(expire="time"), told(2, watermark=200))
    assert world.rows().keys() == {"2"}


def two_views_stage_in_one_folder(world: World) -> None:
    if world.given is None:
        world.given = world.staging.parent.with_name("staging")
    other = world.kind(world.url_of_another("other"), staging=world.given)
    other.open(PIPELINE, "other", None)
    mine = world.handle()
    mine.stage(lines({"n": 1, "at": 1}), told(1), "a1")
    other.stage(lines({"n": 2, "at": 1}), told(1), "a1")
    try:
        mine.commit(mine.prepare())
        assert world.rows().keys() == {"1"}
    finally:
        other.close()


def it_dies_around_any_commit(world: World) -> None:
    """Before and after each commit of the store: all of the epoch is there, or nothing."""
    for number, (at, when) in enumerate(_deaths(), start=2):
        if number == 2:
            world.run(range(1, 2))
        committable = world.prepare(world.handle(), told(number), *rows_of(number))
        with dying(at, when) as reached, suppress(SimulatedCrash):
            world.handle().commit(committable)
        assert world.epoch() in (number - 1, number), f"died {when} commit {at}"
        assert reached or world.epoch() == number
        _finish(world, committable)
        assert world.epoch() == number


def _deaths() -> Iterator[tuple[int, Literal["before", "after"]]]:
    for at in (1, 2, 3):
        yield at, "before"
        yield at, "after"


def _finish(world: World, committable: Committable) -> None:
    """What the next start does."""
    sink = world.handle()
    sink.commit(committable)
    for attempt in sink.leftovers():
        sink.abort(attempt)
    assert sink.leftovers() == []


@contextmanager
def dying(at: int, when: Literal["before", "after"]) -> Iterator[list[int]]:
    """Die around the n-th commit that the store makes meanwhile."""
    commit = SourceCheckpointStore._commit
    reached: list[int] = []

    def commit_or_die(store: SourceCheckpointStore, session: Session | None) -> None:
        reached.append(1)
        if len(reached) == at and when == "before":
            store.rollback()
            raise SimulatedCrash("before the commit")
        commit(store, session)
        if len(reached) == at:
            raise SimulatedCrash("after the commit")

    store: Any = SourceCheckpointStore
    store._commit = commit_or_die
    try:
        yield reached
    finally:
        store._commit = commit


ATTACKS: Final[tuple[Attack, ...]] = (
    the_server_falls_behind,
    the_server_falls_behind_in_a_run,
    an_older_epoch_is_committed_again,
    another_history_has_the_epoch,
    the_staged_rows_are_damaged,
    rows_come_late,
    keys_expire_after_a_restart,
    two_views_stage_in_one_folder,
    it_dies_around_any_commit,
)
