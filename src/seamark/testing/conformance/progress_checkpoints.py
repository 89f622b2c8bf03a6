"""Sequence and position of each source: what is kept, what is refused."""

from __future__ import annotations

from typing import ClassVar

import pytest

from seamark.errors import InvalidInputError, RefusedError
from seamark.progress import MAX_POSITION_BYTES, SourceCheckpoint, SourceCheckpointStore
from seamark.testing.conformance.progress_examples import (
    HOSTILE_NAMES,
    LAST,
    OpenStore,
    all_of,
    commit,
)


class ProgressCheckpoints:
    """Staging and reading checkpoints."""

    is_persistent: ClassVar[bool]

    def test_an_empty_store_has_nothing(self, store: SourceCheckpointStore) -> None:
        assert all_of(store, "data") == ({}, None, {"data": {}})
        assert store.read_checkpoint("s") is None
        assert store.get("data", b"key") is None
        with store.session() as s:
            assert (s.read_checkpoint("s"), s.get("data", b"key")) == (None, None)

    def test_a_store_says_whether_it_outlives_the_process(
        self, store: SourceCheckpointStore
    ) -> None:
        assert store.is_persistent() is self.is_persistent

    def test_a_checkpoint_reads_back_as_it_was_committed(
        self, store: SourceCheckpointStore, reader: SourceCheckpointStore
    ) -> None:
        expected = {}
        for length in (1, 8, 20, 80, 1000):
            source, position = f"s{length}", bytes(index % 256 for index in range(length))
            commit(store, source, length, position)
            expected[source] = SourceCheckpoint(length, position)
        for handle in (store, reader):
            assert handle.read_all_checkpoints() == expected
            assert {name: handle.read_checkpoint(name) for name in expected} == expected

    def test_the_last_of_several_stagings_counts(self, store: SourceCheckpointStore) -> None:
        with store.session() as s:
            for number in range(5):
                s.stage_checkpoint("s", number, b"%d" % number)
                store.stage_checkpoint("t", number, b"%d" % number)
        assert store.read_checkpoint("s") == SourceCheckpoint(4, b"4")
        assert store.read_checkpoint("t") == SourceCheckpoint(4, b"4")

    def test_an_empty_position_is_a_position(self, store: SourceCheckpointStore) -> None:
        commit(store, "s", 1, b"before")
        commit(store, "s", 2, b"")
        assert store.read_checkpoint("s") == SourceCheckpoint(2, b"")
        assert store.read_all_checkpoints() == {"s": SourceCheckpoint(2, b"")}

    def test_no_position_keeps_the_one_before(self, store: SourceCheckpointStore) -> None:
        commit(store, "s", 1)
        assert store.read_checkpoint("s") == SourceCheckpoint(1, None)
        commit(store, "s", 2, b"two")
        commit(store, "s", 3)
        assert store.read_checkpoint("s") == SourceCheckpoint(3, b"two")
        with store.session() as s:
            s.stage_checkpoint("s", 4, b"four")
            s.stage_checkpoint("s", 5, None)
            assert s.read_checkpoint("s") == SourceCheckpoint(5, b"four")
        assert store.read_checkpoint("s") == SourceCheckpoint(5, b"four")

    def test_a_cleared_position_is_gone_and_the_sequence_stays(
        self, store: SourceCheckpointStore
    ) -> None:
        commit(store, "s", 1, b"one")
        commit(store, "t", 1, b"one")
        with store.session() as s:
            s.clear_position("s")
            s.clear_position("never seen")
            assert s.read_checkpoint("s") == SourceCheckpoint(1, None)
        expected = {"s": SourceCheckpoint(1, None), "t": SourceCheckpoint(1, b"one")}
        assert store.read_all_checkpoints() == expected
        commit(store, "s", 2)
        assert store.read_checkpoint("s") == SourceCheckpoint(2, None)
        with store.session():
            store.stage_checkpoint("s", 3, b"three")
            store.clear_position("s")
        assert store.read_checkpoint("s") == SourceCheckpoint(3, None)

    def test_a_position_of_64_kib_is_kept(
        self, store: SourceCheckpointStore, reader: SourceCheckpointStore
    ) -> None:
        largest = b"\x00\xff" * (MAX_POSITION_BYTES // 2)
        commit(store, "s", 1, largest)
        assert reader.read_checkpoint("s") == SourceCheckpoint(1, largest)

    def test_a_larger_position_is_refused_and_the_last_good_one_stays(
        self, store: SourceCheckpointStore
    ) -> None:
        commit(store, "s", 1, b"good")
        with store.session() as s:
            with pytest.raises(InvalidInputError, match="65537"):
                s.stage_checkpoint("s", 2, b"x" * (MAX_POSITION_BYTES + 1))
            assert s.read_checkpoint("s") == SourceCheckpoint(1, b"good")
            s.put("data", b"key", b"the session goes on")
        assert store.read_checkpoint("s") == SourceCheckpoint(1, b"good")
        assert store.get("data", b"key") == b"the session goes on"

    def test_an_equal_sequence_is_fine(self, store: SourceCheckpointStore) -> None:
        commit(store, "s", 5, b"one")
        commit(store, "s", 5, b"two")
        assert store.read_checkpoint("s") == SourceCheckpoint(5, b"two")

    def test_a_sequence_that_goes_back_is_refused(self, store: SourceCheckpointStore) -> None:
        commit(store, "s", 5, b"five")
        with store.session() as s:
            with pytest.raises(RefusedError, match="from 5 to 4"):
                s.stage_checkpoint("s", 4, b"four")
            s.stage_checkpoint("s", 8, b"eight")
            with pytest.raises(RefusedError, match="from 8 to 7"):
                s.stage_checkpoint("s", 7, b"seven")
            s.stage_checkpoint("t", 4)
        expected = {"s": SourceCheckpoint(8, b"eight"), "t": SourceCheckpoint(4)}
        assert store.read_all_checkpoints() == expected

    def test_a_rewind_that_is_allowed_goes_back(self, store: SourceCheckpointStore) -> None:
        commit(store, "s", 5, b"five")
        with store.session() as s:
            s.stage_checkpoint("s", 2, b"two", allow_rewind=True)
            with pytest.raises(RefusedError, match="from 2 to 1"):
                s.stage_checkpoint("s", 1)
            s.stage_checkpoint("s", 3)
        assert store.read_checkpoint("s") == SourceCheckpoint(3, b"two")
        with store.session():
            store.stage_checkpoint("s", 0, allow_rewind=True)
        assert store.read_checkpoint("s") == SourceCheckpoint(0, b"two")

    def test_sequences_reach_from_0_to_the_last_of_64_bits(
        self, store: SourceCheckpointStore, reader: SourceCheckpointStore
    ) -> None:
        numbers = [0, 1, 2**31, 2**32, 2**53 + 1, 2**63 - 1, 2**63, LAST]
        for number in numbers:
            commit(store, f"s{number}", number)
            commit(store, "all", number)
            assert reader.read_checkpoint("all") == SourceCheckpoint(number)
        checkpoints = reader.read_all_checkpoints()
        assert [checkpoints[f"s{number}"].sequence for number in numbers] == numbers

    @pytest.mark.parametrize("wrong", [-1, LAST + 1, 1.0, "1", True, None])
    def test_what_is_no_sequence_is_refused(self, store: SourceCheckpointStore, wrong: int) -> None:
        with store.session() as s, pytest.raises(InvalidInputError):
            s.stage_checkpoint("s", wrong)
        assert store.read_checkpoint("s") is None

    def test_source_ids_of_all_kinds_are_kept_apart(
        self, store: SourceCheckpointStore, reader: SourceCheckpointStore
    ) -> None:
        names = [*HOSTILE_NAMES, "a\x00b", "\x00", "x" * 1000]
        with store.session() as s:
            for number, name in enumerate(names):
                s.stage_checkpoint(name, number, name.encode())
        expected = {name: SourceCheckpoint(n, name.encode()) for n, name in enumerate(names)}
        assert reader.read_all_checkpoints() == expected
        assert {name: reader.read_checkpoint(name) for name in names} == expected

    def test_a_name_that_is_no_source_id_is_refused(self, store: SourceCheckpointStore) -> None:
        for wrong in ("", "\ud800"):
            with store.session() as s, pytest.raises(InvalidInputError):
                s.stage_checkpoint(wrong, 1)
            with pytest.raises(InvalidInputError):
                store.read_checkpoint(wrong)
        assert store.read_all_checkpoints() == {}

    def test_a_store_that_persists_is_found_by_the_next_process(
        self, open_store: OpenStore
    ) -> None:
        if not self.is_persistent:
            pytest.skip("this store says that it does not outlive its process")
        with open_store() as first:
            with first.session() as s:
                s.stage_checkpoint("s", 7, b"seven")
                s.put("data", b"key", b"value")
            first.write_config_hash(9)
            expected = all_of(first, "data")
        with open_store() as second:
            assert all_of(second, "data") == expected
            assert second.read_checkpoint("s") == SourceCheckpoint(7, b"seven")
            with second.session() as s, pytest.raises(RefusedError, match="from 7 to 6"):
                s.stage_checkpoint("s", 6)
            commit(second, "s", 8)
        with open_store() as third:
            assert third.read_checkpoint("s") == SourceCheckpoint(8, b"seven")
