"""The configuration's hash, and starting over."""

from __future__ import annotations

import pytest

from seamark.errors import InvalidInputError, RefusedError
from seamark.progress import SourceCheckpoint, SourceCheckpointStore
from seamark.testing.conformance.progress_examples import LAST, all_of, commit, put


class ProgressConfiguration:
    """write_config_hash, read_config_hash, forget_config_hash."""

    @pytest.mark.parametrize("value", [0, 1, 2**53 + 1, 2**63, LAST])
    def test_a_hash_reads_back_as_it_was_written(
        self, store: SourceCheckpointStore, reader: SourceCheckpointStore, value: int
    ) -> None:
        assert store.read_config_hash() is None
        store.write_config_hash(value)
        assert (store.read_config_hash(), reader.read_config_hash()) == (value, value)

    def test_a_hash_is_replaced_by_the_next(self, store: SourceCheckpointStore) -> None:
        for value in (LAST, 0, 5, 5):
            store.write_config_hash(value)
            assert store.read_config_hash() == value

    @pytest.mark.parametrize("wrong", [-1, LAST + 1, "1", True, None])
    def test_what_is_no_hash_is_refused(self, store: SourceCheckpointStore, wrong: int) -> None:
        store.write_config_hash(3)
        with pytest.raises(InvalidInputError):
            store.write_config_hash(wrong)
        assert store.read_config_hash() == 3

    def test_a_hash_written_inside_a_session_does_not_wait_for_it(
        self, store: SourceCheckpointStore
    ) -> None:
        store.begin().put("data", b"key", b"value")
        store.write_config_hash(1)
        assert store.read_config_hash() == 1
        store.rollback()
        assert all_of(store, "data") == ({}, 1, {"data": {}})
        with store.session() as s:
            s.stage_checkpoint("s", 1)
            s.put("data", b"key", b"value")
            store.write_config_hash(2)
        assert all_of(store, "data") == (
            {"s": SourceCheckpoint(1)},
            2,
            {"data": {b"key": b"value"}},
        )

    def test_a_hash_that_is_staged_is_committed_with_the_rest(
        self, store: SourceCheckpointStore
    ) -> None:
        store.write_config_hash(1)
        session = store.begin()
        session.stage_config_hash(2)
        assert store.read_config_hash() == 1
        store.rollback()
        assert store.read_config_hash() == 1
        with store.session() as s:
            s.stage_config_hash(2)
        assert store.read_config_hash() == 2

    def test_forgetting_the_hash_takes_nothing_else(self, store: SourceCheckpointStore) -> None:
        commit(store, "s", 1, b"one")
        put(store, "data", key="value")
        store.write_config_hash(1)
        for _ in range(2):
            store.forget_config_hash()
            expected = ({"s": SourceCheckpoint(1, b"one")}, None, {"data": {b"key": b"value"}})
            assert all_of(store, "data") == expected


class ProgressClearing:
    """clear_checkpoints."""

    def test_clearing_takes_all_checkpoints_and_the_hash_and_leaves_data(
        self, store: SourceCheckpointStore, reader: SourceCheckpointStore
    ) -> None:
        for number in range(20):
            commit(store, f"s{number}", number, b"position" if number % 2 else None)
        put(store, "data", key="value")
        store.write_config_hash(0)
        store.clear_checkpoints()
        for handle in (store, reader):
            assert all_of(handle, "data") == ({}, None, {"data": {b"key": b"value"}})
            assert handle.read_checkpoint("s1") is None

    def test_clearing_what_is_empty_is_harmless(self, store: SourceCheckpointStore) -> None:
        store.clear_checkpoints()
        store.clear_checkpoints()
        store.forget_config_hash()
        assert all_of(store) == ({}, None, {})

    def test_a_source_begins_anew_after_clearing(self, store: SourceCheckpointStore) -> None:
        commit(store, "s", 9, b"old")
        store.clear_checkpoints()
        commit(store, "s", 1)
        assert store.read_all_checkpoints() == {"s": SourceCheckpoint(1, None)}

    def test_clearing_inside_a_session_is_refused_and_takes_nothing(
        self, store: SourceCheckpointStore
    ) -> None:
        commit(store, "s", 1, b"one")
        store.write_config_hash(5)
        with store.session() as s:
            s.stage_checkpoint("s", 2, b"two")
            with pytest.raises(RefusedError, match="part of a session"):
                store.clear_checkpoints()
        assert all_of(store) == ({"s": SourceCheckpoint(2, b"two")}, 5, {})

    def test_a_session_that_forgets_all_checkpoints_can_begin_anew(
        self, store: SourceCheckpointStore, reader: SourceCheckpointStore
    ) -> None:
        commit(store, "s", 9, b"old")
        commit(store, "t", 9, b"old")
        store.write_config_hash(5)
        put(store, "data", key="value")
        store.begin().forget_checkpoints()
        store.rollback()
        assert reader.read_checkpoint("s") == SourceCheckpoint(9, b"old")
        with store.session() as s:
            s.stage_checkpoint("u", 1)
            s.forget_checkpoints()
            assert s.read_checkpoint("s") is None
            s.stage_checkpoint("s", 1)
            assert s.read_checkpoint("s") == SourceCheckpoint(1, None)
            assert reader.read_checkpoint("s") == SourceCheckpoint(9, b"old")
        expected = ({"s": SourceCheckpoint(1, None)}, None, {"data": {b"key": b"value"}})
        assert all_of(reader, "data") == expected
