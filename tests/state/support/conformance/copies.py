"""Copies to another store, and the pointer to the newest checkpoint."""

from __future__ import annotations

from contextlib import suppress

import pytest

from seamark.blobs.contract import Blobs
from seamark.errors import (
    CheckpointNotFoundError,
    DamageError,
    FencedError,
    StoreUnavailableError,
)
from seamark.state import CheckpointId, StateStore
from tests.state.support.examples import (
    ALONE,
    LARGE,
    PATHS,
    OpenState,
    chain_of,
    fail_writes,
    keys,
    objects,
    point_at,
    pointer,
    restored,
    write,
)
from tests.store.support.examples import flip, overwrite


def a_bit_of_everything(store: StateStore) -> CheckpointId:
    """A checkpoint with packs, large objects, deltas, a parent and objects of a rebased chain."""
    line = chain_of(store, 3)
    states = {("join", 0): LARGE, ("join", 1): b"small"}
    based = write(store, states, parent=line[-1], rebase=True)
    return write(store, {}, {("join", 0): LARGE[:200], ("agg", 0): b"last"}, parent=based)


class StateCopies:
    """copy (I9)."""

    def test_a_copy_restores_to_the_same(
        self, open_state: OpenState, other_blobs: Blobs, blobs: Blobs
    ) -> None:
        store = open_state(pack_below=ALONE)
        write(store, {("agg", 0): b"not asked for"})
        last = a_bit_of_everything(store)
        expected = restored(store, last)
        target = StateStore(other_blobs)
        assert store.copy(last, target) == len(objects(other_blobs)) > 0
        assert restored(StateStore(other_blobs), last) == expected
        for checkpoint_id in StateStore(other_blobs).list():
            assert StateStore(other_blobs).verify(checkpoint_id).valid
            assert target.load(checkpoint_id) == store.load(checkpoint_id)
        assert pointer(other_blobs) == str(last)
        # and it goes on there
        new = write(target, {}, {("agg", 0): b"more"}, parent=last)
        assert target.restore(new, "agg", 0).deltas[-1] == b"more"
        assert set(keys(other_blobs)) - set(keys(blobs)) <= {
            key for key in keys(other_blobs) if str(new) in key
        }

    def test_a_copy_under_another_prefix_restores_to_the_same(self, open_state: OpenState) -> None:
        store = open_state(pack_below=ALONE)
        last = a_bit_of_everything(store)
        store.copy(last, open_state(prefix="elsewhere/deep"))
        assert restored(open_state(prefix="elsewhere/deep"), last) == restored(store, last)

    def test_a_copy_can_be_repeated(self, open_state: OpenState, other_blobs: Blobs) -> None:
        store, target = open_state(pack_below=ALONE), StateStore(other_blobs)
        last = a_bit_of_everything(store)
        assert store.copy(last, target) > 0
        before = keys(other_blobs)
        assert store.copy(last, target) == 0
        assert keys(other_blobs) == before

    def test_a_copy_that_was_interrupted_is_taken_up_again(
        self, open_state: OpenState, blobs: Blobs, other_blobs: Blobs
    ) -> None:
        store = open_state(pack_below=ALONE, parallelism=1)
        last = a_bit_of_everything(store)
        good = 0
        while last not in StateStore(other_blobs).list():
            target = StateStore(other_blobs)
            with pytest.MonkeyPatch.context() as patch, suppress(StoreUnavailableError):
                fail_writes(patch, other_blobs, good)
                store.copy(last, target)
            assert all(target.verify(checkpoint_id).valid for checkpoint_id in target.list())
            good += 1
        assert good > 2
        assert restored(StateStore(other_blobs), last) == restored(store, last)
        assert store.copy(last, StateStore(other_blobs)) == 0

    def test_a_damaged_checkpoint_is_not_copied(
        self, open_state: OpenState, blobs: Blobs, other_blobs: Blobs
    ) -> None:
        store, last = (
            open_state(pack_below=ALONE),
            a_bit_of_everything(open_state(pack_below=ALONE)),
        )
        for key in objects(blobs):
            blob = blobs.read(key, 1 << 20)
            assert blob is not None
            for at in range(0, len(blob.data), max(1, len(blob.data) // 8)):
                bad = bytearray(blob.data)
                bad[at] ^= 0x10
                overwrite(blobs, key, bytes(bad))
                target = StateStore("memory://")
                with pytest.raises(DamageError):
                    store.copy(last, target)
                assert target.list() == [], f"byte {at} of {key}"
            blobs.delete([key])
            with pytest.raises(DamageError, match="missing"):
                store.copy(last, StateStore("memory://"))
            blobs.create(key, blob.data)
        store.copy(last, StateStore(other_blobs))
        assert restored(StateStore(other_blobs), last) == restored(store, last)

    def test_a_damaged_manifest_is_not_copied(
        self, open_state: OpenState, blobs: Blobs, other_blobs: Blobs
    ) -> None:
        first, second = chain_of(open_state(), 2)
        for checkpoint_id in (second, first):
            flip(blobs, PATHS.manifest(checkpoint_id), 60)
            with pytest.raises(DamageError):
                open_state().copy(second, StateStore(other_blobs))
        assert keys(other_blobs) == []

    def test_damage_at_the_target_is_told(self, open_state: OpenState, other_blobs: Blobs) -> None:
        store, target = open_state(pack_below=0), StateStore(other_blobs)
        new = write(store, {("agg", 0): LARGE})
        other_blobs.create(PATHS.snapshot(new, "agg", 0), LARGE[::-1])
        with pytest.raises(DamageError):
            store.copy(new, target)
        assert target.list() == []

    def test_another_manifest_at_the_target_is_told(
        self, open_state: OpenState, other_blobs: Blobs
    ) -> None:
        new = write(open_state(), {("agg", 0): b"state"})
        other_blobs.create(PATHS.manifest(new), b"of somebody else")
        with pytest.raises(FencedError):
            open_state().copy(new, StateStore(other_blobs))

    def test_what_is_not_there_is_not_copied(
        self, open_state: OpenState, other_blobs: Blobs
    ) -> None:
        with pytest.raises(CheckpointNotFoundError):
            open_state().copy(CheckpointId.now(), StateStore(other_blobs))


class StatePointer:
    """``_latest``."""

    def test_the_pointer_names_the_newest(self, open_state: OpenState, blobs: Blobs) -> None:
        assert pointer(blobs) is None
        for _ in range(3):
            new = write(open_state(), {})
            assert pointer(blobs) == str(new)

    def test_the_pointer_never_moves_back(self, open_state: OpenState, blobs: Blobs) -> None:
        store = open_state()
        older = store.begin(1)
        newer = write(open_state(), {("agg", 0): b"newer"})
        old = older.commit().checkpoint_id
        assert pointer(blobs) == str(newer)
        assert open_state().list() == [old, newer]
        latest = open_state().latest()
        assert latest is not None
        assert latest.checkpoint_id == newer

    def test_a_copy_of_an_older_one_leaves_the_pointer(
        self, open_state: OpenState, other_blobs: Blobs
    ) -> None:
        old = write(open_state(), {("agg", 0): b"old"})
        newer = write(StateStore(other_blobs), {})
        open_state().copy(old, StateStore(other_blobs))
        assert pointer(other_blobs) == str(newer)

    @pytest.mark.parametrize(
        "garbage",
        [None, b"", b"\xff\xfe", b"x" * 5000, b"..", b"00000000-0000-0000-0000-00000000000g"],
    )
    def test_a_lost_pointer_loses_nothing(
        self, open_state: OpenState, blobs: Blobs, garbage: bytes | None
    ) -> None:
        first, second = chain_of(open_state(), 2)
        blobs.delete([PATHS.latest_pointer()])
        if garbage is not None:
            blobs.create(PATHS.latest_pointer(), garbage)
        reader = open_state()
        latest = reader.latest()
        assert latest is not None
        assert (reader.list(), latest.checkpoint_id) == ([first, second], second)
        assert reader.verify(second).valid
        third = write(open_state(), {}, parent=second)
        assert pointer(blobs) == str(third)
        assert open_state().list() == [first, second, third]

    def test_a_pointer_that_lags_or_names_what_is_gone_is_only_a_hint(
        self, open_state: OpenState, blobs: Blobs
    ) -> None:
        first, second = chain_of(open_state(), 2)
        for named in (first, CheckpointId.now()):
            point_at(blobs, str(named).encode())
            latest = open_state().latest()
            assert latest is not None
            assert latest.checkpoint_id == second
        open_state().delete(second)
        latest = open_state().latest()
        assert latest is not None
        assert latest.checkpoint_id == first
