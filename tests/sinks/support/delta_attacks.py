"""What a Delta table is put through: each attack is a promise that a broken sink falls to."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from seamark.errors import DamageError, InvalidInputError, LineageError, RefusedError
from seamark.sinks import Committable
from seamark.testing.conformance.sink_examples import NEW, SINK, epoch, through_json
from seamark.testing.conformance.sink_visibility import together
from tests.sinks.support.deltas import (
    HandWrittenDelta,
    data_files,
    files_in_log,
    numbers,
    numbers_in,
)
from tests.sinks.support.starting import started


class DeltaWorld:
    """A table, and handles of one kind of sink on it."""

    def __init__(self, table: Path, kind: type[HandWrittenDelta] = HandWrittenDelta) -> None:
        self.table = table
        self.kind = kind

    def handle(self, sink: str = SINK, **options: Any) -> HandWrittenDelta:
        made = self.kind(self.table, **options)
        return started(made, numbers([]).schema, name=sink)

    def prepare(self, rows: list[int], number: int, attempt: str, **about: Any) -> Committable:
        sink = self.handle()
        sink.stage(numbers(rows), epoch(number, **about), attempt)
        return through_json(sink.prepare())

    def show(self, rows: list[int], number: int, attempt: str) -> Committable:
        committable = self.prepare(rows, number, attempt)
        self.handle().commit(committable)
        return committable

    def write(self, *rows: int) -> None:
        """Somebody else appends."""
        words = [str(n) for n in rows]
        table = pa.table({"n": pa.array(rows, pa.int64()), "word": words})
        write_deltalake(self.table, table, mode="append")

    def rows(self) -> list[int]:
        return numbers_in(self.table)

    def entries(self, number: int) -> int:
        """How many entries of the log show an epoch."""
        history = DeltaTable(str(self.table)).history()
        shown = [entry.get("seamark", {}).get("shows", {}) for entry in history]
        return sum(about.get("epoch") == number for about in shown)


Attack = Callable[[DeltaWorld], None]
ATTACKS: list[Attack] = []


def attack(function: Attack) -> Attack:
    ATTACKS.append(function)
    return function


@attack
def of_many_committers_one_wins(world: DeltaWorld) -> None:
    for number in range(1, 4):
        committable = world.prepare([number], number, f"a{number}")
        handles = [world.handle() for _ in range(6)]
        together([lambda h=h, c=committable: h.commit(c) for h in handles])  # type: ignore[misc]
        assert world.rows() == [*range(1, number + 1)]


@attack
def two_attempts_that_commit_at_once_are_not_both_shown(world: DeltaWorld) -> None:
    for number in range(1, 4):
        tries = [world.prepare([number], number, f"a{number}-{i}") for i in range(4)]

        def commit(committable: Committable) -> bool:
            try:
                world.handle().commit(committable)
            except LineageError:
                return False
            return True

        with ThreadPoolExecutor(4) as pool:
            assert sum(pool.map(commit, tries)) == 1
        assert world.rows() == [*range(1, number + 1)]


@attack
def who_stopped_across_its_commit_shows_nothing_twice(world: DeltaWorld) -> None:
    """As SIGSTOP between the look and the write: the successor commits, then it wakes up."""
    looked, go_on = threading.Event(), threading.Event()
    committable = world.prepare([1], 1, "a1")
    asleep = world.handle()
    write_entry = asleep._write_entry

    def stopped(*arguments: Any) -> None:
        looked.set()
        assert go_on.wait(60)
        write_entry(*arguments)

    vars(asleep)["_write_entry"] = stopped
    with ThreadPoolExecutor(1) as pool:
        done = pool.submit(asleep.commit, committable)
        assert looked.wait(60)
        world.handle().commit(committable)
        world.show([2], 2, "a2")
        go_on.set()
        done.result(60)
    assert world.rows() == [1, 2]
    assert world.entries(1) == 1


@attack
def who_stopped_across_a_rollback_brings_nothing_back(world: DeltaWorld) -> None:
    world.show([1], 1, "a1")
    looked, go_on = threading.Event(), threading.Event()
    committable = world.prepare([2], 2, "a2")
    asleep = world.handle()
    write_entry = asleep._write_entry

    def stopped(*arguments: Any) -> None:
        looked.set()
        assert go_on.wait(60)
        write_entry(*arguments)

    vars(asleep)["_write_entry"] = stopped
    with ThreadPoolExecutor(1) as pool:
        done = pool.submit(asleep.commit, committable)
        assert looked.wait(60)
        world.handle().commit(committable)
        world.handle().unpublish_after(1)
        go_on.set()
        with pytest.raises((DamageError, LineageError)):
            done.result(60)
    assert world.rows() == [1]


@attack
def who_stopped_across_an_abort_shows_nothing(world: DeltaWorld) -> None:
    """The successor has rolled back: it removes the files of a commit that is on its way."""
    world.show([1], 1, "a1")
    committable = world.prepare([2], 2, "a2")
    asleep = world.handle()
    write_entry = asleep._write_entry

    def stopped(*arguments: Any) -> None:
        world.handle().abort("a2")
        write_entry(*arguments)

    vars(asleep)["_write_entry"] = stopped
    with pytest.raises(DamageError, match="neither shown nor staged"):
        asleep.commit(committable)
    assert world.rows() == [1]
    assert world.handle().leftovers() == []


@attack
def an_abort_after_a_look_that_missed_the_commit_takes_nothing(world: DeltaWorld) -> None:
    world.show([1], 1, "a1")
    committable = world.prepare([2], 2, "a2")
    late = world.handle()
    withdraw = late._epochs.staging.withdraw

    def overtaken(attempt: str) -> None:
        world.handle().commit(committable)
        withdraw(attempt)

    vars(late._epochs.staging)["withdraw"] = overtaken
    late.abort("a2")
    assert world.rows() == [1, 2]
    newest = world.handle().newest()
    assert newest is not None
    assert newest.epoch == 2
    world.show([3], 3, "a3")
    assert world.handle().unpublish_after(1) == [2, 3]


@attack
def only_what_may_be_decided_is_shut_out_by_an_entry(world: DeltaWorld) -> None:
    world.show([1], 1, "a1")
    world.handle().stage(numbers([2]), epoch(2), "a2")
    own = world.handle()
    own.stage(numbers([3]), epoch(2), "a3")
    own.prepare()
    own.abort("a3")
    world.handle().abort("a2")
    assert DeltaTable(str(world.table)).version() == 1
    world.prepare([4], 2, "a4")
    world.handle().abort("a4")
    assert DeltaTable(str(world.table)).version() == 2
    assert world.handle().leftovers() == []
    world.show([5], 2, "a5")
    assert world.handle().unpublish_after(1) == [2], "it is not in the way of a rollback"
    assert world.rows() == [1]


@attack
def a_lost_answer_is_looked_up(world: DeltaWorld) -> None:
    committable = world.prepare([1], 1, "a1")
    sink = world.handle()
    write_entry = sink._write_entry

    def unheard(*arguments: Any) -> None:
        write_entry(*arguments)
        raise OSError("the connection was closed before the answer came")

    vars(sink)["_write_entry"] = unheard
    sink.commit(committable)
    assert world.rows() == [1]


@attack
def others_may_write_at_any_time(world: DeltaWorld) -> None:
    world.handle()
    done = threading.Event()

    def others() -> int:
        count = 0
        while not done.is_set():
            world.write(1000 + count)
            count += 1
        return count

    with ThreadPoolExecutor(2) as pool:
        counts = [pool.submit(others) for _ in range(2)]
        try:
            for number in range(1, 13):
                world.show([number], number, f"a{number}")
                if number % 4 == 0:
                    DeltaTable(str(world.table)).optimize.compact()
        finally:
            done.set()
        written = [count.result() for count in counts]
    theirs = sorted(1000 + n for count in written for n in range(count))
    assert world.rows() == [*range(1, 13), *theirs]


@attack
def what_others_wrote_is_not_taken_back(world: DeltaWorld) -> None:
    world.show([1], 1, "a1")
    world.show([2], 2, "a2")
    world.write(99)
    with pytest.raises(RefusedError, match="others have written"):
        world.handle().require_unpublish_after(1)
    with pytest.raises(RefusedError, match="others have written"):
        world.handle().unpublish_after(1)
    assert world.rows() == [1, 2, 99]


@attack
def what_others_write_during_a_rollback_is_not_taken_back(world: DeltaWorld) -> None:
    world.show([1], 1, "a1")
    world.show([2], 2, "a2")
    sink = world.handle()
    plan = sink._epochs.plan_take_back

    def slow(table: DeltaTable, number: int) -> Any:
        made = plan(table, number)
        if 99 not in world.rows():
            world.write(99)
        return made

    vars(sink._epochs)["plan_take_back"] = slow
    with pytest.raises(RefusedError, match="others have written"):
        sink.unpublish_after(1)
    assert world.rows() == [1, 2, 99]


@attack
def the_epochs_of_two_sinks_in_one_table_are_not_mixed_up(world: DeltaWorld) -> None:
    one, other = world.handle(), world.handle(sink="other")
    one.stage(numbers([1]), epoch(1), "a1")
    theirs = replace(epoch(1), sink="other")
    other.stage(numbers([2]), theirs, "a1")
    first = one.prepare()
    other.abort("a1")
    one.commit(first)
    other.stage(numbers([3]), theirs, "a1")
    other.commit(other.prepare())
    assert other.committed("", 2) is None
    newest = other.newest()
    assert newest is not None
    assert world.rows() == [1, 3]


@attack
def an_abort_never_takes_rows_that_are_shown(world: DeltaWorld) -> None:
    world.show([1], 1, "a1")
    world.show([2], 2, "a2")
    for attempt in ("a1", "a2"):
        world.handle().abort(attempt)
    world.handle().unpublish_after(1)
    world.handle().abort("a2")
    assert world.rows() == [1]
    assert numbers_in(world.table, version=2) == [1, 2]


@attack
def an_attempt_that_is_shown_is_not_staged_again(world: DeltaWorld) -> None:
    world.show([1], 1, "a1")
    with pytest.raises(InvalidInputError, match="has been shown"):
        world.handle().stage(numbers([2]), epoch(1), "a1")
    assert world.rows() == [1]


@attack
def an_abort_removes_every_file(world: DeltaWorld) -> None:
    world.show([1], 1, "a1")
    world.prepare([2, 3], 2, "a2")
    sink = world.handle()
    sink.stage(numbers([4]), epoch(2), "a3")
    for attempt in world.handle().leftovers():
        world.handle().abort(attempt)
    assert data_files(world.table) == files_in_log(world.table)
    assert world.handle().leftovers() == []


@attack
def a_file_that_is_cut_off_is_not_shown(world: DeltaWorld) -> None:
    committable = world.prepare([1, 2, 3], 1, "a1")
    (name,) = data_files(world.table)
    path = world.table / name
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(DamageError):
        world.handle().commit(committable)
    assert DeltaTable(str(world.table)).version() == 0


@attack
def another_history_is_never_taken_for_this_one(world: DeltaWorld) -> None:
    world.show([1], 1, "a1")
    for about in ({"timeline": NEW}, {"fingerprint": "of other rows"}):
        committable = world.prepare([2], 1, f"b-{next(iter(about))}", **about)
        with pytest.raises(LineageError):
            world.handle().commit(committable)
    assert world.rows() == [1]
