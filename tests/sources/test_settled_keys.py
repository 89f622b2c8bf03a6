"""No key is read while a smaller one can still appear, and reading does not stand still."""

from __future__ import annotations

import itertools
import logging
import random
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seamark.sources.table.settled_keys import Delay, Horizon


class Transactions:
    """A database in which keys are handed out in order and committed in any order."""

    def __init__(self) -> None:
        self.visible: set[int] = set()
        self.open: dict[str, set[int]] = {}
        self._keys = itertools.count(1)
        self._names = itertools.count(1)

    def begin(self) -> str:
        name = f"3/{next(self._names)}"
        self.open[name] = set()
        return name

    def insert(self, name: str) -> int:
        key = next(self._keys)
        self.open[name].add(key)
        return key

    def commit(self, name: str) -> None:
        self.visible |= self.open.pop(name)

    def roll_back(self, name: str) -> None:
        del self.open[name]

    def prepare(self, name: str) -> str:
        prepared = f"-1/{next(self._names)}"
        self.open[prepared] = self.open.pop(name)
        return prepared

    def newest(self) -> int | None:
        return max(self.visible, default=None)

    def writers(self) -> frozenset[str]:
        return frozenset(self.open)


class Reader:
    """Reads up to what is settled and goes on after it, as a stream does."""

    def __init__(self, database: Transactions, settled: Callable[[], int | None]) -> None:
        self._database = database
        self._settled = settled
        self._position = 0
        self.read: list[int] = []

    def poll(self) -> None:
        upto = self._settled() or 0
        found = sorted(k for k in self._database.visible if self._position < k <= upto)
        self.read += found
        self._position = max([self._position, *found])


def random_history(seed: int, settled: Callable[[Transactions], Callable[[], int | None]]) -> bool:
    """Whether a reader got every committed row of some overlapping transactions."""
    chance = random.Random(seed)
    database = Transactions()
    reader = Reader(database, settled(database))
    for _ in range(60):
        names = list(database.open)
        step = chance.choice(
            ["begin", "insert", "insert", "commit", "roll_back", "prepare", "poll"]
        )
        if step == "poll":
            reader.poll()
        elif step == "begin" or not names:
            database.begin()
        else:
            getattr(database, step)(chance.choice(names))
    for name in list(database.open):
        database.commit(name)
    for _ in range(3):
        reader.poll()
    return reader.read == sorted(database.visible)


@given(st.integers())
def test_with_the_horizon_no_row_is_lost_in_any_history(seed: int) -> None:
    assert random_history(seed, lambda db: Horizon(db.newest, db.writers).settled)


def test_without_it_rows_are_lost() -> None:
    outcomes = [
        random_history(seed, lambda db: Delay(db.newest, 0.0).settled) for seed in range(50)
    ]
    assert not all(outcomes)


def test_without_an_eye_on_prepared_transactions_rows_are_lost() -> None:
    def naive(database: Transactions) -> Callable[[], int | None]:
        def writers() -> frozenset[str]:
            return frozenset(name for name in database.open if not name.startswith("-1/"))

        return Horizon(database.newest, writers).settled

    assert not all(random_history(seed, naive) for seed in range(50))


def test_asking_who_writes_before_looking_for_the_newest_key_would_lose_rows() -> None:
    database = Transactions()
    writers = database.writers()  # the wrong order: nobody yet
    first, second = database.begin(), database.begin()
    database.insert(first)
    database.insert(second)
    database.commit(second)
    assert Horizon(database.newest, lambda: writers).settled() == 2
    assert Horizon(database.newest, database.writers).settled() is None


def test_writers_that_never_rest_do_not_starve_the_reader() -> None:
    database = Transactions()
    reader = Reader(database, Horizon(database.newest, database.writers).settled)
    running = [database.begin()]
    for _ in range(100):
        running.append(database.begin())  # there is always one that has not ended
        database.insert(running[-1])
        database.insert(running[0])
        database.commit(running.pop(0))
        reader.poll()
    assert len(reader.read) > 150


def test_a_writer_that_lasts_holds_back_only_what_came_after_it() -> None:
    database = Transactions()
    horizon = Horizon(database.newest, database.writers)
    done = database.begin()
    database.insert(done)
    database.commit(done)
    assert horizon.settled() == 1
    lasting, quick = database.begin(), database.begin()
    database.insert(lasting)
    database.insert(quick)
    database.commit(quick)
    for _ in range(5):
        assert horizon.settled() == 1
    database.commit(lasting)
    assert horizon.settled() == 3


def test_a_delay_reads_a_key_so_long_after_it_was_seen() -> None:
    now, newest = 0.0, 5
    delay = Delay(lambda: newest, 10, lambda: now)
    assert delay.settled() is None
    now, newest = 5.0, 8
    assert delay.settled() is None
    now = 10.0
    assert delay.settled() == 5
    now = 15.0
    assert delay.settled() == 8


def test_a_delay_remembers_few_keys_however_often_it_is_asked() -> None:
    now, newest = 0.0, 0
    delay = Delay(lambda: newest, 10, lambda: now)
    for _ in range(10_000):
        now, newest = now + 0.01, newest + 1
        delay.settled()
    assert len(delay._seen) <= 11
    assert newest - 1_200 < (delay.settled() or 0) <= newest - 1_000


def test_without_delay_it_is_read_at_once() -> None:
    newest = 1
    delay = Delay(lambda: newest, 0)
    assert delay.settled() == 1
    newest = 2
    assert delay.settled() == 2


def test_available_now_waits_for_those_who_write_and_then_for_no_one() -> None:
    database = Transactions()
    first, second = database.begin(), database.begin()
    database.insert(first)
    database.insert(second)
    database.commit(second)
    looks = 0

    def writers() -> frozenset[str]:
        nonlocal looks
        looks += 1
        if looks == 3:
            database.commit(first)
            database.insert(database.begin())
        return database.writers()

    assert Horizon(database.newest, writers).settled_now(patience=5) == 2


def test_available_now_does_not_wait_for_ever(caplog: pytest.LogCaptureFixture) -> None:
    database = Transactions()
    first, second = database.begin(), database.begin()
    database.insert(first)
    database.insert(second)
    database.commit(second)
    with caplog.at_level(logging.WARNING):
        assert Horizon(database.newest, database.writers).settled_now(patience=0.15) is None
    assert "1 transactions are still writing after 0.15 s" in caplog.text


def test_an_empty_table_is_not_waited_for() -> None:
    assert Horizon(lambda: None, frozenset).settled_now(patience=60) is None
    assert Delay(lambda: None, 60).settled_now(patience=60) is None
    assert Delay(lambda: None, 0.0).settled_now(patience=60) is None
