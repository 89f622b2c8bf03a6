"""Sessions of several threads: left in another one than entered, waited for, and closed."""

from __future__ import annotations

import logging
import threading
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

import pytest

from seamark.errors import RefusedError
from seamark.progress import SourceCheckpoint, SourceCheckpointStore, open_progress
from seamark.progress import ledger as turns
from seamark.progress.ledger import Turn
from seamark.progress.session import Session
from tests.support.databases import RedisServer

T = TypeVar("T")
SECONDS = 100


@pytest.fixture(params=["memory", "rocksdb", "redis"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    match request.param:
        case "memory":
            return f"memory://{uuid.uuid4()}"
        case "rocksdb":
            return f"rocksdb://{tmp_path}/progress"
    server: RedisServer = request.getfixturevalue("redis")
    return f"{server.url}?namespace={uuid.uuid4()}"


@pytest.fixture
def store(url: str) -> Iterator[SourceCheckpointStore]:
    with open_progress(url) as opened:
        yield opened


class Thread:
    """A thread that does one thing after the other, as told."""

    def __init__(self) -> None:
        self._pool = ThreadPoolExecutor(1)

    def start(self, work: Callable[[], T]) -> Future[T]:
        return self._pool.submit(work)

    def do(self, work: Callable[[], T]) -> T:
        return self.start(work).result(SECONDS)


@pytest.fixture
def one() -> Thread:
    return Thread()


@pytest.fixture
def other() -> Thread:
    return Thread()


def add(store: SourceCheckpointStore, number: int) -> None:
    with store.session() as s:
        s.put("data", b"%d" % number, b"")
        s.stage_checkpoint("source", number)


def added(store: SourceCheckpointStore) -> list[int]:
    return sorted(int(key) for key, _ in store.items("data"))


# a session that is left in another thread


def test_a_session_that_is_left_in_another_thread_is_committed_there(
    store: SourceCheckpointStore, one: Thread, other: Thread
) -> None:
    block = store.session()
    session = one.do(block.__enter__)
    session.put("data", b"1", b"")
    session.stage_checkpoint("source", 1)
    other.do(lambda: block.__exit__(None, None, None))
    assert added(store) == [1]
    for number, thread in enumerate((one, other, one), start=2):
        assert thread.do(lambda: store.in_session) is False
        thread.do(lambda number=number: add(store, number))  # type: ignore[misc]
        assert added(store) == list(range(1, number + 1)), "it is committed, not joined"
        assert store.read_checkpoint("source") == SourceCheckpoint(number, None)


def test_a_session_that_fails_in_another_thread_is_rolled_back(
    store: SourceCheckpointStore, one: Thread, other: Thread
) -> None:
    block = store.session()
    one.do(block.__enter__).put("data", b"1", b"")
    error = ZeroDivisionError()
    assert not other.do(lambda: block.__exit__(ZeroDivisionError, error, None))
    assert added(store) == []
    for number, thread in enumerate((other, one), start=2):
        thread.do(lambda number=number: add(store, number))  # type: ignore[misc]
    assert added(store) == [2, 3]


def test_a_session_that_was_ended_by_hand_is_not_ended_again(
    store: SourceCheckpointStore, one: Thread, other: Thread
) -> None:
    block = store.session()
    one.do(block.__enter__).put("data", b"1", b"")
    one.do(store.rollback)
    kept = one.do(store.begin)
    with pytest.raises(RefusedError, match="no session to commit"):
        other.do(lambda: block.__exit__(None, None, None))
    kept.put("data", b"2", b"")
    one.do(store.commit)
    assert added(store) == [2]


# waiting


@pytest.fixture
def waiting(monkeypatch: pytest.MonkeyPatch) -> threading.Event:
    """Set when somebody waits for a turn."""
    event = threading.Event()
    real = threading.Condition.wait

    def wait(condition: threading.Condition, timeout: float | None = None) -> bool:
        if timeout == turns._LOOK:
            event.set()
        return real(condition, timeout)

    monkeypatch.setattr(threading.Condition, "wait", wait)
    return event


def test_a_thread_that_waits_when_the_handle_is_closed_is_refused(
    store: SourceCheckpointStore,
    one: Thread,
    other: Thread,
    waiting: threading.Event,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    given_up = Turn.give_up

    def give_up(turn: Turn, session: Session) -> None:
        given_up(turn, session)
        threading.Event().wait(0.2)  # whoever waited goes on before the handle is closed

    one.do(store.begin)
    waits = other.start(lambda: add(store, 1))
    assert waiting.wait(SECONDS)
    monkeypatch.setattr(Turn, "give_up", give_up)
    store.close()
    with pytest.raises(RefusedError, match="closed"):
        waits.result(SECONDS)


@pytest.mark.parametrize("what", ["session", "hash"])
def test_a_thread_that_waits_for_another_handle_is_refused_when_its_own_is_closed(
    tmp_path: Path, one: Thread, other: Thread, waiting: threading.Event, what: str
) -> None:
    url = f"rocksdb://{tmp_path}/progress"
    with open_progress(url) as holder:
        mine = open_progress(url)
        one.do(holder.begin)
        work = (lambda: add(mine, 1)) if what == "session" else (lambda: mine.write_config_hash(1))
        waits = other.start(work)
        assert waiting.wait(SECONDS)
        mine.close()
        one.do(holder.rollback)
        with pytest.raises(RefusedError, match="closed"):
            waits.result(SECONDS)
        assert (added(holder), holder.read_config_hash()) == ([], None)
        add(holder, 2)
        assert added(holder) == [2]


def test_who_waits_long_says_for_whom(
    store: SourceCheckpointStore,
    one: Thread,
    other: Thread,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(turns, "_LOOK", 0.01)
    monkeypatch.setattr(turns, "_PATIENCE", 3)
    said = threading.Event()
    records: list[logging.LogRecord] = []

    def handle(record: logging.LogRecord) -> None:
        records.append(record)
        said.set()

    monkeypatch.setattr(turns.log, "handle", handle)
    one.do(store.begin)
    holder = one.do(lambda: threading.current_thread().name)
    waits = other.start(lambda: add(store, 1))
    assert said.wait(SECONDS)
    threading.Event().wait(0.1)
    one.do(store.rollback)
    waits.result(SECONDS)
    assert [record.levelno for record in records] == [logging.WARNING], "once, not at every look"
    assert records[0].getMessage() == (
        f"still waiting for the session that thread {holder} has in {store.url}"
    )
    assert added(store) == [1]
