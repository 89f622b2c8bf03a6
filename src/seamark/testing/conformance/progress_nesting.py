"""Sessions inside sessions: only the outermost one is real."""

from __future__ import annotations

import pytest

from seamark.errors import RefusedError
from seamark.progress import SourceCheckpointStore
from seamark.testing.conformance.progress_examples import (
    NOTHING,
    ONE,
    all_of,
    all_raise,
    stage_one,
)


class ProgressNesting:
    """Levels of one session."""

    def test_only_the_outermost_commit_counts(
        self, store: SourceCheckpointStore, reader: SourceCheckpointStore
    ) -> None:
        outer = store.begin()
        stage_one(store)
        store.commit()
        assert all_of(reader, "data") == NOTHING
        assert outer.get("data", b"key") == b"one"
        outer.put("data", b"more", b"two")
        store.commit()
        assert dict(reader.items("data")) == {b"key": b"one", b"more": b"two"}
        with pytest.raises(RefusedError, match="no session"):
            store.commit()

    def test_levels_share_one_session(self, store: SourceCheckpointStore) -> None:
        with store.session() as outer:
            outer.put("data", b"key", b"zero")
            with store.session() as middle:
                assert middle.get("data", b"key") == b"zero"
                with store.session() as inner:
                    inner.put("data", b"key", b"one")
                assert all_of(store, "data") == NOTHING
            assert outer.get("data", b"key") == b"one"
            outer.stage_checkpoint("s", 1, b"one")
        assert all_of(store, "data") == ONE

    def test_an_inner_rollback_dooms_the_outer_commit(
        self, store: SourceCheckpointStore, reader: SourceCheckpointStore
    ) -> None:
        stage_one(store)
        store.begin()
        store.rollback()
        with pytest.raises(RefusedError, match="rolled back"):
            store.commit()
        assert all_of(reader, "data") == NOTHING
        assert not store.in_session
        stage_one(store)
        store.commit()
        assert all_of(reader, "data") == ONE

    def test_an_inner_rollback_dooms_every_level(self, store: SourceCheckpointStore) -> None:
        stage_one(store)
        store.begin()
        store.begin()
        store.rollback()
        store.begin()
        store.commit()
        store.commit()
        with pytest.raises(RefusedError, match="rolled back"):
            store.commit()
        assert all_of(store, "data") == NOTHING

    def test_a_doomed_session_takes_nothing_more(self, store: SourceCheckpointStore) -> None:
        session = store.begin()
        session.put("data", b"key", b"before")
        store.begin()
        store.rollback()
        all_raise(
            RefusedError,
            "rolled back",
            lambda: session.put("data", b"key", b"late"),
            lambda: session.stage_checkpoint("s", 1),
            lambda: session.get("data", b"key"),
        )
        store.rollback()
        assert not store.in_session
        assert all_of(store, "data") == NOTHING

    def test_an_outer_rollback_takes_what_inner_levels_have_committed(
        self, store: SourceCheckpointStore
    ) -> None:
        store.begin()
        stage_one(store)
        store.commit()
        store.rollback()
        assert all_of(store, "data") == NOTHING
        assert not store.in_session
