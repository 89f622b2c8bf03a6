"""Several threads and several handles on one store."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import pytest

from seamark.errors import RefusedError
from seamark.progress import SourceCheckpoint, SourceCheckpointStore
from seamark.testing.conformance.progress_examples import OpenStore, all_of, all_raise, commit, put

SPACES = ("a", "b")
T = TypeVar("T")


class ProgressThreads:
    """Sessions take turns; each belongs to its thread."""

    def test_threads_take_turns(self, store: SourceCheckpointStore) -> None:
        def count(_: int) -> None:
            for _ in range(10):
                with store.session() as s:
                    number = int(s.get("data", b"count") or b"0")
                    before = s.read_checkpoint("s")
                    assert number == (before.sequence if before else 0)
                    s.put("data", b"count", b"%d" % (number + 1))
                    s.stage_checkpoint("s", number + 1)

        with ThreadPoolExecutor(4) as pool:
            [*pool.map(count, range(4))]
        assert store.get("data", b"count") == b"40"
        assert store.read_checkpoint("s") == SourceCheckpoint(40)

    def test_a_session_belongs_to_its_thread(self, store: SourceCheckpointStore) -> None:
        store.begin().put("data", b"key", b"value")
        assert not in_another_thread(lambda: store.in_session)
        in_another_thread(store.rollback)
        assert isinstance(in_another_thread(lambda: _error(store.commit)), RefusedError)
        store.commit()
        assert dict(store.items("data")) == {b"key": b"value"}

    def test_others_read_while_a_session_is_open(self, store: SourceCheckpointStore) -> None:
        put(store, "data", key="before")
        store.begin().put("data", b"key", b"after")
        assert in_another_thread(lambda: store.get("data", b"key")) == b"before"
        store.commit()
        assert in_another_thread(lambda: store.get("data", b"key")) == b"after"

    def test_a_thread_that_dies_in_a_session_holds_nobody_up(
        self, store: SourceCheckpointStore
    ) -> None:
        in_another_thread(lambda: store.begin().put("data", b"key", b"of the dead"))
        commit(store, "s", 1, b"one")
        assert all_of(store, "data") == ({"s": SourceCheckpoint(1, b"one")}, None, {"data": {}})

    def test_readers_never_see_half_a_session(
        self, store: SourceCheckpointStore, open_store: OpenStore
    ) -> None:
        look_beside_commits(store, open_store, see_whole_sessions)

    def test_an_overview_is_of_one_moment(
        self, store: SourceCheckpointStore, open_store: OpenStore
    ) -> None:
        look_beside_commits(store, open_store, see_one_overview)
        assert store.read_overview().checkpoints == store.read_all_checkpoints()
        assert store.read_overview().config_hash == store.read_config_hash()


class ProgressHandles:
    """Closing, and reading alongside the writer."""

    def test_a_reader_sees_every_commit(
        self, store: SourceCheckpointStore, reader: SourceCheckpointStore
    ) -> None:
        for number in range(5):
            commit(store, "s", number, b"%d" % number)
            assert reader.read_checkpoint("s") == SourceCheckpoint(number, b"%d" % number)
            put(store, "data", key=str(number))
            assert reader.get("data", b"key") == b"%d" % number
            store.write_config_hash(number)
            assert reader.read_config_hash() == number

    def test_a_reader_cannot_write(
        self, store: SourceCheckpointStore, reader: SourceCheckpointStore
    ) -> None:
        commit(store, "s", 1, b"one")
        store.write_config_hash(1)
        all_raise(
            RefusedError,
            "read only",
            reader.begin,
            lambda: reader.stage_checkpoint("s", 2),
            lambda: reader.clear_position("s"),
            reader.clear_checkpoints,
            lambda: reader.write_config_hash(2),
            reader.forget_config_hash,
        )
        assert all_of(store) == ({"s": SourceCheckpoint(1, b"one")}, 1, {})

    def test_a_reader_does_not_disturb_the_writer(
        self, store: SourceCheckpointStore, open_store: OpenStore
    ) -> None:
        session = store.begin()
        session.put("data", b"key", b"value")
        open_store(read_only=True).close()
        session.stage_checkpoint("s", 1)
        store.commit()
        assert all_of(store, "data") == (
            {"s": SourceCheckpoint(1)},
            None,
            {"data": {b"key": b"value"}},
        )

    def test_closing_rolls_back(
        self, store: SourceCheckpointStore, reader: SourceCheckpointStore
    ) -> None:
        put(store, "data", key="before")
        session = store.begin()
        session.put("data", b"key", b"after")
        store.close()
        assert dict(reader.items("data")) == {b"key": b"before"}
        with pytest.raises(RefusedError):
            session.put("data", b"key", b"late")

    def test_a_closed_store_says_so(self, store: SourceCheckpointStore) -> None:
        store.close()
        store.close()
        all_raise(
            RefusedError,
            "closed",
            store.begin,
            store.read_all_checkpoints,
            store.read_config_hash,
            store.read_overview,
            store.clear_checkpoints,
            lambda: store.read_checkpoint("s"),
            lambda: store.get("data", b"key"),
            lambda: store.items("data"),
            lambda: store.write_config_hash(1),
        )


def look_beside_commits(
    store: SourceCheckpointStore,
    open_store: OpenStore,
    look: Callable[[SourceCheckpointStore], None],
) -> None:
    """Have a reader look again and again while sessions are committed."""
    stop = threading.Event()
    looks = 0

    def read() -> None:
        nonlocal looks
        with open_store(read_only=True) as reader:
            while not stop.is_set():
                look(reader)
                looks += 1

    with ThreadPoolExecutor(1) as pool:
        reading = pool.submit(read)
        for number in range(1, 1000):
            if reading.done() or (looks >= 25 and number > 25):
                break
            commit_everywhere(store, number)
        stop.set()
        reading.result(30)
    assert looks


def commit_everywhere(store: SourceCheckpointStore, number: int) -> None:
    """A session that writes its number to forty keys, two checkpoints and the hash."""
    with store.session() as s:
        for space in SPACES:
            s.put_many(space, [(b"%d" % key, b"%d" % number) for key in range(20)])
        for source in SPACES:
            s.stage_checkpoint(source, number, b"%d" % number)
        s.stage_config_hash(number)


def see_whole_sessions(reader: SourceCheckpointStore) -> None:
    """All that belongs to one look carries one number."""
    for space in SPACES:
        values = [value for _, value in reader.items(space)]
        assert len(values) in (0, 20)
        assert len({*values}) <= 1
    checkpoints = reader.read_all_checkpoints()
    assert len(checkpoints) in (0, len(SPACES))
    assert len({*checkpoints.values()}) <= 1
    for checkpoint in checkpoints.values():
        assert checkpoint.source_position == b"%d" % checkpoint.sequence


def see_one_overview(reader: SourceCheckpointStore) -> None:
    """The hash beside the checkpoints is the one that was committed with them."""
    overview = reader.read_overview()
    for checkpoint in overview.checkpoints.values():
        assert checkpoint.sequence == overview.config_hash
    assert overview.checkpoints or overview.config_hash is None


def in_another_thread(action: Callable[[], T]) -> T:
    """What the action returns in a thread that ends afterwards."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(action).result(30)


def _error(action: Callable[[], object]) -> Exception | None:
    try:
        action()
    except RefusedError as error:
        return error
    return None
