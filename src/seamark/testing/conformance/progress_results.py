"""The sequence of the last result of each query: committed with the rest, and never reused."""

from __future__ import annotations

from typing import ClassVar

import pytest

from seamark.errors import InvalidInputError, RefusedError
from seamark.progress import SourceCheckpoint, SourceCheckpointStore
from seamark.testing.conformance.progress_examples import (
    HOSTILE_NAMES,
    LAST,
    OpenStore,
    all_raise,
    commit,
    put,
)


def emit(store: SourceCheckpointStore, query: str, sequence: int) -> None:
    """One session with one result sequence."""
    with store.session() as s:
        s.write_result_sequence(query, sequence)


class ProgressResults:
    """write_result_sequence, read_result_sequence."""

    is_persistent: ClassVar[bool]

    def test_a_query_that_emitted_nothing_has_no_result_sequence(
        self, store: SourceCheckpointStore, reader: SourceCheckpointStore
    ) -> None:
        commit(store, "q", 1)
        assert (store.read_result_sequence("q"), reader.read_result_sequence("q")) == (None, None)
        with store.session() as s:
            assert s.read_result_sequence("q") is None

    def test_result_sequences_reach_from_0_to_the_last_of_64_bits(
        self, store: SourceCheckpointStore, reader: SourceCheckpointStore
    ) -> None:
        for number in (0, 1, 1, 2**32, 2**53 + 1, 2**63, LAST):
            emit(store, "q", number)
            assert store.read_result_sequence("q") == number
            assert reader.read_result_sequence("q") == number

    def test_a_result_sequence_is_committed_with_the_rest_of_the_session(
        self, store: SourceCheckpointStore, reader: SourceCheckpointStore
    ) -> None:
        emit(store, "q", 1)
        session = store.begin()
        session.put("results", b"2", b"two")
        session.write_result_sequence("q", 2)
        store.write_result_sequence("q", 3)  # joins this thread's session
        assert session.read_result_sequence("q") == 3
        assert (store.read_result_sequence("q"), reader.read_result_sequence("q")) == (1, 1)
        store.rollback()
        assert store.read_result_sequence("q") == 1
        with store.session() as s:
            s.put("results", b"2", b"two")
            s.stage_checkpoint("s", 7)
            s.write_result_sequence("q", 2)
        assert reader.read_result_sequence("q") == 2
        assert reader.read_checkpoint("s") == SourceCheckpoint(7)
        assert reader.get("results", b"2") == b"two"

    def test_a_result_sequence_without_a_session_is_refused_where_it_could_be_lost(
        self, store: SourceCheckpointStore
    ) -> None:
        if self.is_persistent:
            with pytest.raises(RefusedError, match="needs a session"):
                store.write_result_sequence("q", 1)
            assert store.read_result_sequence("q") is None
        else:
            store.write_result_sequence("q", 1)
            assert store.read_result_sequence("q") == 1

    def test_a_result_sequence_that_goes_back_is_refused(
        self, store: SourceCheckpointStore
    ) -> None:
        emit(store, "q", 5)
        with store.session() as s:
            with pytest.raises(RefusedError, match="from 5 to 4"):
                s.write_result_sequence("q", 4)
            s.write_result_sequence("q", 8)
            with pytest.raises(RefusedError, match="from 8 to 7"):
                store.write_result_sequence("q", 7)
            s.write_result_sequence("r", 1)
        assert (store.read_result_sequence("q"), store.read_result_sequence("r")) == (8, 1)
        with store.session() as s:
            s.write_result_sequence("q", 2, allow_rewind=True)
            store.write_result_sequence("r", 0, allow_rewind=True)
        assert (store.read_result_sequence("q"), store.read_result_sequence("r")) == (2, 0)

    def test_what_is_no_result_sequence_is_refused(self, store: SourceCheckpointStore) -> None:
        with store.session() as s:
            for wrong in (-1, LAST + 1, 1.0, "1", True, None):
                with pytest.raises(InvalidInputError):
                    s.write_result_sequence("q", wrong)  # type: ignore[arg-type]
            for name in ("", "\ud800"):
                all_raise(
                    InvalidInputError,
                    "query id",
                    lambda name=name: s.write_result_sequence(name, 1),  # type: ignore[misc]
                    lambda name=name: s.read_result_sequence(name),  # type: ignore[misc]
                    lambda name=name: store.read_result_sequence(name),  # type: ignore[misc]
                )
        assert store.read_result_sequence("q") is None

    def test_queries_and_sources_of_all_names_are_kept_apart(
        self, store: SourceCheckpointStore, reader: SourceCheckpointStore
    ) -> None:
        names = [*HOSTILE_NAMES, "result_sequence:a", "a\x00b", "\x00", "x" * 1000]
        with store.session() as s:
            for number, name in enumerate(names):
                s.write_result_sequence(name, number)
                s.stage_checkpoint(name, 1000 + number)
        assert [reader.read_result_sequence(name) for name in names] == [*range(len(names))]
        assert reader.read_all_checkpoints() == {
            name: SourceCheckpoint(1000 + number) for number, name in enumerate(names)
        }

    def test_clearing_the_checkpoints_takes_the_result_sequences(
        self, store: SourceCheckpointStore, reader: SourceCheckpointStore
    ) -> None:
        emit(store, "q", 5)
        emit(store, "r", 6)
        put(store, "data", key="value")
        store.clear_checkpoints()
        assert (reader.read_result_sequence("q"), reader.read_result_sequence("r")) == (None, None)
        assert reader.get("data", b"key") == b"value"
        emit(store, "q", 5)
        with store.session() as s:
            s.write_result_sequence("r", 9)
            s.forget_checkpoints()
            assert s.read_result_sequence("q") is None
            s.write_result_sequence("q", 1)
            assert reader.read_result_sequence("q") == 5
        assert (reader.read_result_sequence("q"), reader.read_result_sequence("r")) == (1, None)

    def test_result_numbers_go_on_in_the_next_process(self, open_store: OpenStore) -> None:
        if not self.is_persistent:
            pytest.skip("this store says that it does not outlive its process")
        with open_store() as first:
            emit(first, "q", 7)
        with open_store() as second:
            assert second.read_result_sequence("q") == 7
            with second.session() as s, pytest.raises(RefusedError, match="from 7 to 1"):
                s.write_result_sequence("q", 1)
