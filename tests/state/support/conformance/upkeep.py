"""Removing: what goes, what stays because something needs it, and what is nobody's."""

from __future__ import annotations

import time

import pytest

from seamark.blobs.contract import Blobs
from seamark.errors import CheckpointNotFoundError, InvalidInputError, RefusedError
from seamark.state import CheckpointId, PartitionState
from tests.state.support.examples import (
    ALONE,
    LARGE,
    PATHS,
    OpenState,
    chain_of,
    keys,
    objects,
    restored,
    write,
)
from tests.store.support.examples import flip


class StateUpkeep:
    """delete, prune, cleanup_orphans."""

    def test_delete_removes_a_checkpoint_and_its_objects(
        self, open_state: OpenState, blobs: Blobs
    ) -> None:
        store = open_state(pack_below=ALONE)
        first = write(store, {("agg", 0): LARGE, ("agg", 1): b"small"})
        second = write(store, {("agg", 0): LARGE, ("agg", 1): b"small"})
        store.delete(first)
        assert open_state().list() == [second]
        assert all(key.startswith(PATHS.checkpoint_dir(second)) for key in objects(blobs))
        assert open_state().verify(second).valid
        with pytest.raises(CheckpointNotFoundError):
            store.delete(first)

    def test_delete_refuses_a_parent(self, open_state: OpenState, blobs: Blobs) -> None:
        store = open_state()
        first, second, third = chain_of(store, 3)
        before = keys(blobs)
        for parent in (first, second):
            with pytest.raises(RefusedError, match="parent"):
                store.delete(parent)
        assert keys(blobs) == before
        for checkpoint_id in (third, second, first):
            store.delete(checkpoint_id)
        assert (open_state().list(), objects(blobs)) == ([], [])

    def test_delete_leaves_what_a_rebase_refers_to(
        self, open_state: OpenState, blobs: Blobs
    ) -> None:
        store = open_state(pack_below=0)
        first = write(store, {("agg", 0): b"kept " * 5, ("agg", 1): b"replaced"})
        second = write(store, {("agg", 1): b"new"}, {("agg", 0): b"d"}, parent=first, rebase=True)
        store.delete(first)
        assert open_state().list() == [second]
        assert open_state().verify(second).valid
        assert restored(open_state(), second)["agg", 0] == PartitionState(b"kept " * 5, [b"d"])
        assert PATHS.snapshot(first, "agg", 1) not in objects(blobs)
        assert PATHS.snapshot(first, "agg", 0) in objects(blobs)
        assert store.cleanup_orphans(min_age=0) == 0
        store.delete(second)
        store.cleanup_orphans(min_age=0)
        assert objects(blobs) == []

    def test_prune_keeps_the_newest(self, open_state: OpenState, blobs: Blobs) -> None:
        store = open_state()
        ids = [write(store, {("agg", 0): b"%d" % number}) for number in range(5)]
        assert open_state().prune(2) == 3
        assert open_state().list() == ids[3:]
        assert len(objects(blobs)) == 2
        assert all(open_state().verify(checkpoint_id).valid for checkpoint_id in ids[3:])
        assert open_state().prune(2) == 0
        assert open_state().prune(9) == 0

    def test_prune_keeps_the_parents_of_what_it_keeps(self, open_state: OpenState) -> None:
        store = open_state()
        write(store, {("agg", 0): b"old"})
        line = chain_of(store, 4)
        assert store.prune(1) == 1
        assert open_state().list() == line
        assert open_state().restore(line[-1], "agg", 0).deltas == [b"1", b"2", b"3"]
        assert open_state().verify(line[-1]).valid

    def test_prune_keeps_what_rebases_refer_to(self, open_state: OpenState, blobs: Blobs) -> None:
        store = open_state(pack_below=0, longest_chain=1)
        ids = [write(store, {("agg", n): b"%d" % n * 20 for n in range(6)})]
        for number in range(5):
            ids.append(write(store, {("agg", number): b"new"}, parent=ids[-1]))
        expected = restored(store, ids[-1])
        store.prune(1)
        reader = open_state()
        assert reader.list()[-1] == ids[-1]
        assert ids[0] not in reader.list()
        assert restored(reader, ids[-1]) == expected
        assert all(reader.verify(checkpoint_id).valid for checkpoint_id in reader.list())
        assert PATHS.snapshot(ids[0], "agg", 5) in objects(blobs)
        assert PATHS.snapshot(ids[0], "agg", 0) not in objects(blobs)

    def test_prune_across_a_rebase_loses_nothing_of_a_chain(self, open_state: OpenState) -> None:
        store = open_state(longest_chain=3)
        last = write(store, {("agg", 0): b"0" * 99, ("agg", 1): b"same"})
        for number in range(1, 30):
            with store.begin(number, parent=last) as writer:
                full = writer.needs_snapshot("agg", 0)
                writer.put("agg", 0, b"%d" % number * (50 if full else 1), is_delta=not full)
                last = writer.commit().checkpoint_id
            expected = restored(store, last)
            store.prune(1)
            assert restored(open_state(), last) == expected
            assert all(open_state().verify(i).valid for i in open_state().list())
        assert len(open_state().list()) <= 4

    def test_prune_counts_only_whole_checkpoints(self, open_state: OpenState, blobs: Blobs) -> None:
        store = open_state()
        ids = [write(store, {("agg", 0): b"%d" % number}) for number in range(4)]
        flip(blobs, PATHS.manifest(ids[3]), 40)
        flip(blobs, PATHS.manifest(ids[2]), 40)
        assert store.prune(1) == 1
        assert open_state().list() == ids[1:]
        assert open_state().restore(ids[1], "agg", 0).snapshot == b"1"

    def test_prune_does_not_count_a_checkpoint_whose_objects_are_gone(
        self, open_state: OpenState, blobs: Blobs
    ) -> None:
        store = open_state(pack_below=0)
        good = write(store, {("agg", 0): b"good"})
        bad = write(store, {("agg", 0): b"bad"})
        blobs.delete([PATHS.snapshot(bad, "agg", 0)])
        store.prune(1)
        assert good in open_state().list()
        assert open_state().restore(good, "agg", 0).snapshot == b"good"

    def test_prune_with_nothing_whole_removes_nothing(
        self, open_state: OpenState, blobs: Blobs
    ) -> None:
        ids = [write(open_state(), {("agg", 0): b"x"}) for _ in range(3)]
        for checkpoint_id in ids:
            flip(blobs, PATHS.manifest(checkpoint_id), 40)
        before = keys(blobs)
        assert open_state().prune(1) == 0
        assert keys(blobs) == before

    @pytest.mark.parametrize("keep", [0, -1, True, 1.0, None])
    def test_prune_to_nothing_is_refused(self, open_state: OpenState, keep: int) -> None:
        new = write(open_state(), {})
        with pytest.raises(InvalidInputError):
            open_state().prune(keep)
        assert open_state().list() == [new]

    def test_prune_leaves_a_checkpoint_in_the_making(self, open_state: OpenState) -> None:
        store = open_state(pack_below=0)
        old = write(store, {("agg", 0): b"old"})
        with store.begin(2) as writer:
            task = store.task(writer.checkpoint_id, "a")
            task.put("agg", 0, b"in the making")
            writer.add(task.finish())
            write(store, {("agg", 0): b"newer"})
            assert open_state().prune(1) == 1
            new = writer.commit().checkpoint_id
        assert old not in open_state().list()
        assert open_state().verify(new).valid

    def test_clean_up_removes_what_nobody_names(self, open_state: OpenState, blobs: Blobs) -> None:
        store = open_state(pack_below=ALONE)
        first = write(store, {("agg", 0): LARGE, ("agg", 1): b"small"})
        second = write(store, {}, {("agg", 0): b"d"}, parent=first)
        before = keys(blobs)
        with store.begin(3) as dies:
            task = store.task(dies.checkpoint_id, "a")
            task.put("agg", 0, LARGE)
            task.put("agg", 1, b"small")
            task.finish()
        again = store.task(second, "of a first try")
        again.put("agg", 0, LARGE)
        again.finish()
        assert len(keys(blobs)) == len(before) + 3
        assert open_state().cleanup_orphans(min_age=0) == 3
        assert keys(blobs) == before
        assert open_state().cleanup_orphans(min_age=0) == 0
        assert all(open_state().verify(i).valid for i in (first, second))

    def test_clean_up_leaves_what_is_young(self, open_state: OpenState, blobs: Blobs) -> None:
        store = open_state(pack_below=0)
        with store.begin(1) as writer:
            task = store.task(writer.checkpoint_id, "a")
            task.put("agg", 0, LARGE)
            writer.add(task.finish())
            assert open_state().cleanup_orphans() == 0
            assert open_state().cleanup_orphans(min_age=60) == 0
            new = writer.commit().checkpoint_id
        assert open_state().restore(new, "agg", 0).snapshot == LARGE

    @pytest.mark.slow
    def test_clean_up_leaves_what_a_second_try_relies_on(self, open_state: OpenState) -> None:
        store = open_state(pack_below=0)
        with store.begin(1) as writer:
            dead = store.task(writer.checkpoint_id, "a")
            dead.put("agg", 0, LARGE)
            dead.finish()
            time.sleep(6.1)  # some stores tell times in whole seconds, and some machines are slow
            task = store.task(writer.checkpoint_id, "a")
            task.put("agg", 0, LARGE)
            writer.add(task.finish())
            open_state().cleanup_orphans(min_age=5)
            new = writer.commit().checkpoint_id
        assert open_state().verify(new).issues == []

    def test_clean_up_leaves_other_things_below_the_same_prefix(
        self, open_state: OpenState, blobs: Blobs
    ) -> None:
        new = write(open_state(), {("agg", 0): b"state"})
        others = [
            f"{PATHS.prefix}checkpoint_000001/manifest.json",
            f"{PATHS.prefix}checkpoint_000001/state.bin",
            f"{PATHS.prefix}latest.txt",
            f"{PATHS.prefix}state-000001.bin",
            f"{PATHS.prefix}batch-000001.lz4",
            f"{PATHS.prefix}{str(new).upper()}/operators/agg/partition-0.snap",
            f"{PATHS.prefix}notes/{new}/x",
            "manifests/manifest-000001.json",
            f"other/{CheckpointId.now()}/x",
        ]
        for key in others:
            blobs.create(key, b"not yours")
        store = open_state()
        assert store.list() == [new]
        assert store.cleanup_orphans(min_age=0) == 0
        assert store.prune(1) == 0
        store.delete(new)
        assert all(blobs.stat(key) is not None for key in others)

    def test_clean_up_leaves_the_offset_files_of_a_checkpoint(
        self, open_state: OpenState, blobs: Blobs
    ) -> None:
        new = write(open_state(), {("agg", 0): b"state"})
        key = PATHS.source_offset(new, "trades")
        blobs.create(key, b'{"0":"17"}')  # the documented tree has them; other writers make them
        assert open_state().cleanup_orphans(min_age=0) == 0
        assert blobs.stat(key) is not None
        open_state().delete(new)
        assert blobs.stat(key) is None

    def test_clean_up_beside_a_damaged_manifest_is_refused(
        self, open_state: OpenState, blobs: Blobs
    ) -> None:
        store = open_state(pack_below=0)
        first = write(store, {("agg", 0): LARGE})
        second = write(store, {}, parent=first, rebase=True)
        flip(blobs, PATHS.manifest(second), 40)
        blobs.delete([PATHS.manifest(first)])
        before = keys(blobs)
        with pytest.raises(RefusedError, match=str(second)):
            store.cleanup_orphans(min_age=0)
        assert keys(blobs) == before

    @pytest.mark.parametrize("age", [-1, float("nan"), float("inf"), True, "1"])
    def test_an_age_that_is_none_is_refused(self, open_state: OpenState, age: float) -> None:
        with pytest.raises(InvalidInputError):
            open_state().cleanup_orphans(min_age=age)
