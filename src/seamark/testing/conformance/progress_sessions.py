"""Sessions: what is staged becomes true together, or not at all."""

from __future__ import annotations

from typing import ClassVar

import pytest

from seamark.errors import RefusedError
from seamark.progress import Session, SourceCheckpoint, SourceCheckpointStore
from seamark.testing.conformance.progress_examples import (
    NOTHING,
    ONE,
    all_of,
    all_raise,
    commit,
    put,
    stage_one,
)


class ProgressSessions:
    """begin, commit, rollback, and ``with``."""

    is_persistent: ClassVar[bool]

    def test_staging_without_a_session_is_refused_where_it_could_be_lost(
        self, store: SourceCheckpointStore
    ) -> None:
        if self.is_persistent:
            all_raise(
                RefusedError,
                "session",
                lambda: store.stage_checkpoint("s", 1, b"one"),
                lambda: store.clear_position("s"),
            )
            assert store.read_all_checkpoints() == {}
        else:
            store.stage_checkpoint("s", 1, b"one")
            assert store.read_checkpoint("s") == SourceCheckpoint(1, b"one")
            store.clear_position("s")
            assert store.read_checkpoint("s") == SourceCheckpoint(1, None)

    def test_reads_show_only_what_is_committed(
        self, store: SourceCheckpointStore, reader: SourceCheckpointStore
    ) -> None:
        stage_one(store)
        for handle in (store, reader):
            assert all_of(handle, "data") == NOTHING
            assert (handle.read_checkpoint("s"), handle.get("data", b"key")) == (None, None)
        store.commit()
        for handle in (store, reader):
            assert all_of(handle, "data") == ONE

    def test_a_session_sees_what_it_has_staged(self, store: SourceCheckpointStore) -> None:
        commit(store, "s", 1, b"one")
        put(store, "data", kept="1", gone="1")
        with store.session() as s:
            s.stage_checkpoint("s", 2)
            s.stage_checkpoint("t", 5, b"five")
            s.put("data", b"new", b"2")
            s.delete("data", b"gone")
            assert s.read_checkpoint("s") == SourceCheckpoint(2, b"one")
            assert s.read_checkpoint("t") == SourceCheckpoint(5, b"five")
            assert [s.get("data", k) for k in (b"kept", b"gone", b"new")] == [b"1", None, b"2"]

    def test_a_rollback_leaves_nothing(
        self, store: SourceCheckpointStore, reader: SourceCheckpointStore
    ) -> None:
        stage_one(store)
        store.rollback()
        for handle in (store, reader):
            assert all_of(handle, "data") == NOTHING
        stage_one(store)
        store.commit()
        store.begin().clear("data")
        store.stage_checkpoint("s", 2, b"two")
        store.clear_position("s")
        store.rollback()
        for handle in (store, reader):
            assert all_of(handle, "data") == ONE

    @pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt, GeneratorExit])
    def test_any_exception_rolls_back(
        self, store: SourceCheckpointStore, error: type[BaseException]
    ) -> None:
        def fails() -> None:
            with store.session():
                stage_one(store)
                store.commit()
                raise error

        with pytest.raises(error):
            fails()
        assert all_of(store, "data") == NOTHING
        assert not store.in_session

    def test_the_end_of_the_block_commits(self, store: SourceCheckpointStore) -> None:
        with store.session() as s:
            s.put("data", b"key", b"one")
            s.stage_checkpoint("s", 1, b"one")
        assert not store.in_session
        assert all_of(store, "data") == ONE

    def test_a_commit_without_a_session_is_refused(self, store: SourceCheckpointStore) -> None:
        with pytest.raises(RefusedError, match="no session"):
            store.commit()
        commit(store, "s", 1)
        with pytest.raises(RefusedError, match="no session"):
            store.commit()

    def test_a_rollback_without_a_session_is_harmless(self, store: SourceCheckpointStore) -> None:
        store.rollback()
        commit(store, "s", 1, b"one")
        store.rollback()
        assert store.read_checkpoint("s") == SourceCheckpoint(1, b"one")

    def test_a_session_in_which_nothing_happens_can_be_committed(
        self, store: SourceCheckpointStore
    ) -> None:
        put(store, "data", key="one")
        with store.session():
            pass
        store.begin()
        store.commit()
        assert dict(store.items("data")) == {b"key": b"one"}

    def test_a_session_that_has_ended_takes_nothing_more(
        self, store: SourceCheckpointStore
    ) -> None:
        with store.session() as committed:
            committed.put("data", b"key", b"one")
        rolled_back = store.begin()
        rolled_back.put("data", b"key", b"two")
        store.rollback()
        takes_nothing_more(committed)
        takes_nothing_more(rolled_back)
        assert dict(store.items("data")) == {b"key": b"one"}

    def test_a_commit_that_fails_leaves_nothing_and_ends_the_session(
        self, store: SourceCheckpointStore, reader: SourceCheckpointStore
    ) -> None:
        if not self.is_persistent:
            pytest.skip("a commit in memory cannot fail")
        session = store.begin()
        session.put("data", b"key", b"two")
        session.stage_checkpoint("s", 2, b"two")
        impossible: dict[bytes, bytes | None] = {b"key": object()}  # type: ignore[dict-item]
        session.changes.data["zzz"] = impossible
        with pytest.raises(Exception):  # noqa: B017, PT011 - as the backend says it
            store.commit()
        for handle in (store, reader):
            assert all_of(handle, "data") == NOTHING
        assert not store.in_session
        stage_one(store)
        store.commit()
        assert all_of(store, "data") == ONE


def takes_nothing_more(ended: Session) -> None:
    """Every method of a session that has ended says so."""
    all_raise(
        RefusedError,
        "ended",
        lambda: ended.put("data", b"key", b"late"),
        lambda: ended.put("elsewhere", b"key", b"late"),
        lambda: ended.put_many("data", [(b"key", b"late")]),
        lambda: ended.delete("data", b"key"),
        lambda: ended.delete_many("data", [b"key"]),
        lambda: ended.clear("data"),
        lambda: ended.get("data", b"key"),
        lambda: ended.get_many("data", [b"key"]),
        lambda: ended.read_checkpoint("s"),
        lambda: ended.stage_checkpoint("s", 9),
        lambda: ended.stage_config_hash(9),
        lambda: ended.clear_position("s"),
    )
