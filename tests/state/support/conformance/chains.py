"""Checkpoints that build on others: what they inherit, how long chains get, what a rebase costs."""

from __future__ import annotations

import itertools
from uuid import UUID

import pytest

from seamark.blobs.contract import Blobs
from seamark.errors import CheckpointNotFoundError, RefusedError
from seamark.state import CheckpointId, PartitionState
from tests.state.support.examples import (
    ALONE,
    LARGE,
    OpenState,
    chain_of,
    objects,
    restored,
    stored_bytes,
    write,
)


class StateChains:
    """begin(parent=…), deltas, rebase, forget."""

    def test_partitions_that_were_not_put_are_inherited(
        self, open_state: OpenState, blobs: Blobs
    ) -> None:
        store = open_state(pack_below=ALONE)
        first = write(store, {("agg", 0): b"zero", ("agg", 1): LARGE, ("join", 0): b"join"})
        before = len(objects(blobs))
        second = write(store, {("agg", 0): b"ZERO"}, parent=first)
        third = write(store, {("new", 5): b"five"}, parent=second)
        assert len(objects(blobs)) == before + 2
        reader = open_state()
        assert restored(reader, third) == {
            ("agg", 0): PartitionState(b"ZERO", []),
            ("agg", 1): PartitionState(LARGE, []),
            ("join", 0): PartitionState(b"join", []),
            ("new", 5): PartitionState(b"five", []),
        }
        assert reader.load(third).parent_id == second
        assert reader.restore(first, "agg", 0).snapshot == b"zero"

    def test_deltas_come_in_the_order_in_which_they_were_made(self, open_state: OpenState) -> None:
        store = open_state()
        *_, last = chain_of(store, 8)
        deltas = [b"%d" % number for number in range(1, 8)]
        reader = open_state()
        assert reader.restore(last, "agg", 0) == PartitionState(b"0" * 99, deltas)
        assert restored(reader, last)["agg", 0].deltas == deltas
        streamed = [(d, b"".join(pieces)) for d, pieces in reader.stream(last, "agg", 0)]
        assert streamed == [(False, b"0" * 99), *((True, delta) for delta in deltas)]

    def test_a_snapshot_ends_the_chain_below_it(self, open_state: OpenState) -> None:
        store = open_state()
        *_, last = chain_of(store, 3)
        fresh = write(store, {("agg", 0): b"fresh and long enough"}, parent=last)
        after = write(store, {}, {("agg", 0): b"more"}, parent=fresh)
        reader = open_state()
        assert reader.restore(after, "agg", 0) == PartitionState(
            b"fresh and long enough", [b"more"]
        )
        assert reader.restore(last, "agg", 0).deltas == [b"1", b"2"]

    def test_two_children_of_one_parent_do_not_mix(self, open_state: OpenState) -> None:
        store = open_state()
        first = write(store, {("agg", 0): b"snapshot"})
        left = write(store, {}, {("agg", 0): b"left"}, parent=first)
        right = write(store, {}, {("agg", 0): b"right"}, parent=first)
        reader = open_state()
        assert reader.restore(left, "agg", 0).deltas == [b"left"]
        assert reader.restore(right, "agg", 0).deltas == [b"right"]

    def test_a_delta_without_a_snapshot_is_refused(self, open_state: OpenState) -> None:
        store = open_state()
        first = write(store, {("agg", 0): b"snapshot"})
        for parent, partition in ((None, 0), (first, 1)):
            with store.begin(2, parent=parent) as writer:
                assert writer.needs_snapshot("agg", partition)
                with pytest.raises(RefusedError):
                    writer.put("agg", partition, b"changes", is_delta=True)

    def test_a_chain_of_ten_deltas_needs_a_snapshot(self, open_state: OpenState) -> None:
        store = open_state()
        *_, last = chain_of(store, 11)
        with store.begin(12, parent=last) as writer:
            assert writer.needs_snapshot("agg", 0)
            assert not writer.needs_snapshot("agg", 1)
            with pytest.raises(RefusedError):
                writer.put("agg", 0, b"one too many", is_delta=True)

    def test_deltas_that_outweigh_their_snapshot_need_a_new_one(
        self, open_state: OpenState
    ) -> None:
        store = open_state()
        first = write(store, {("agg", 0): b"12345678"})
        second = write(store, {}, {("agg", 0): b"1234"}, parent=first)
        assert not store.begin(3, parent=second).needs_snapshot("agg", 0)
        third = write(store, {}, {("agg", 0): b"12345"}, parent=second)
        assert store.begin(4, parent=third).needs_snapshot("agg", 0)

    def test_after_ten_parents_a_checkpoint_stands_alone_and_writes_nothing_again(
        self, open_state: OpenState, blobs: Blobs
    ) -> None:
        store = open_state(pack_below=ALONE)
        states = {("agg", n): bytes([n]) * 500 for n in range(20)}
        line = [write(store, states)]
        for number in range(1, 12):
            before, size = len(objects(blobs)), stored_bytes(blobs)
            changed = {("agg", number): b"%d" % number}
            line.append(write(store, {}, changed, parent=line[-1], epoch=number + 1))
            assert len(objects(blobs)) == before + 1
            assert stored_bytes(blobs) < size + 300
            assert store.load(line[-1]).parent_id == (line[-2] if number <= 10 else None)
        assert len(store.load(line[-1]).operators["agg"].partitions) == 20 + 11
        expected = {
            k: PartitionState(s, [b"%d" % k[1]] if 1 <= k[1] <= 11 else [])
            for k, s in states.items()
        }
        reader = open_state()
        assert restored(reader, line[-1]) == expected
        assert reader.verify(line[-1]).valid

    def test_a_chain_survives_a_rebase(self, open_state: OpenState) -> None:
        store = open_state()
        *_, last = chain_of(store, 3)
        based = write(store, {}, {("agg", 0): b"3"}, parent=last, rebase=True)
        after = write(store, {}, {("agg", 0): b"4"}, parent=based)
        reader = open_state()
        assert reader.load(based).parent_id is None
        assert reader.restore(based, "agg", 0).deltas == [b"1", b"2", b"3"]
        assert reader.restore(after, "agg", 0).deltas == [b"1", b"2", b"3", b"4"]
        assert reader.restore(after, "agg", 1).snapshot == b"never changed"

    def test_rebases_of_rebases_name_where_an_object_really_is(
        self, open_state: OpenState, blobs: Blobs
    ) -> None:
        store = open_state(longest_chain=1)
        last = write(store, {("agg", n): b"%d" % n * 9 for n in range(9)})
        for number in range(8):
            last = write(store, {("agg", number): b"new"}, parent=last)
            expected = {n: b"new" if n <= number else b"%d" % n * 9 for n in range(9)}
            found = restored(open_state(), last)
            assert {n: found["agg", n].snapshot for n in range(9)} == expected
        assert len(objects(blobs)) == 9

    def test_what_is_forgotten_is_gone_and_the_rest_stays(
        self, open_state: OpenState, blobs: Blobs
    ) -> None:
        store = open_state()
        places = itertools.product(("agg", "join"), (0, 1))
        first = write(store, {(name, n): f"{name} {n}".encode() for name, n in places})
        before = len(objects(blobs))
        with store.begin(2, parent=first) as writer:
            writer.forget("agg", 0)
            writer.forget("join")
            writer.forget("never seen")
            assert writer.needs_snapshot("agg", 0)
            second = writer.commit().checkpoint_id
        assert restored(open_state(), second) == {("agg", 1): PartitionState(b"agg 1", [])}
        assert len(objects(blobs)) == before
        third = write(store, {("join", 0): b"back"}, parent=second)
        assert sorted(restored(open_state(), third)) == [("agg", 1), ("join", 0)]
        assert len(restored(open_state(), first)) == 4

    def test_a_parent_that_is_missing_is_refused(self, open_state: OpenState) -> None:
        with pytest.raises(CheckpointNotFoundError, match="missing"):
            open_state().begin(1, parent=CheckpointId.now())

    @pytest.mark.parametrize("rebase", [False, True])
    def test_a_parent_that_vanished_meanwhile_is_not_built_on(
        self, open_state: OpenState, rebase: bool
    ) -> None:
        store = open_state()
        first = write(store, {("agg", 0): b"0" * 50, ("agg", 1): b"1" * 50})
        with store.begin(2, parent=first, rebase=rebase) as writer:
            writer.put("agg", 1, b"changes", is_delta=True)
            other = write(open_state(), {("agg", 0): b"of another writer"})
            open_state().prune(1)
            with pytest.raises(CheckpointNotFoundError, match=str(first)):
                writer.commit()
        assert open_state().list() == [other]

    def test_a_clock_that_went_back_does_not_stop_the_writing(self, open_state: OpenState) -> None:
        store, tomorrow = open_state(), a_day_ahead()
        with store.begin(1, checkpoint_id=tomorrow) as writer:
            writer.put("agg", 0, b"made before the clock was set right")
            writer.commit()
        child = write(store, {}, {("agg", 0): b"changes"}, parent=tomorrow)
        assert open_state().list() == [tomorrow, child]
        assert open_state().restore(child, "agg", 0).deltas == [b"changes"]

    def test_two_children_of_a_parent_from_tomorrow_have_ids_of_their_own(
        self, open_state: OpenState
    ) -> None:
        store, tomorrow = open_state(), a_day_ahead()
        with store.begin(1, checkpoint_id=tomorrow) as writer:
            writer.put("agg", 0, b"made before the clock was set right")
            writer.commit()
        children = [write(store, {("agg", 0): b"%d" % n}, parent=tomorrow) for n in range(3)]
        assert open_state().list() == [tomorrow, *children]
        for number, child in enumerate(children):
            assert open_state().restore(child, "agg", 0).snapshot == b"%d" % number


def a_day_ahead() -> CheckpointId:
    """An id as a process makes it whose clock is wrong."""
    now = CheckpointId.now().as_uuid()
    return CheckpointId.from_uuid(UUID(int=now.int + (86_400_000 << 80)))
