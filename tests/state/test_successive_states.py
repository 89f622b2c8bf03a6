"""Checkpoints that are restored on top of each other give each object once."""

from __future__ import annotations

import pytest

from seamark.errors import DamageError
from seamark.state import CheckpointId, ReadStates, StateStore
from tests.state.support.chains import chain
from tests.support.counted_blobs import CountedBlobs

LINKS = 30


def restored(
    store: StateStore, checkpoint_id: CheckpointId, known: ReadStates
) -> dict[tuple[str, int], bytes]:
    return {
        (operator, partition): state.snapshot
        for operator, partition, state in store.restore_all(checkpoint_id, known)
    }


def test_what_builds_on_each_other_is_restored_once(blobs: CountedBlobs) -> None:
    store, known = StateStore(blobs, pack_below=0), ReadStates()
    ids = chain(store, LINKS)
    blobs.forget()
    for number, checkpoint_id in enumerate(ids):
        assert restored(store, checkpoint_id, known) == {("agg", number): b"state %d" % number}
        assert restored(store, checkpoint_id, known) == {}
    assert blobs.reads == 2 * LINKS  # a manifest and an object each
    assert len(restored(store, ids[-1], ReadStates())) == LINKS


def test_what_is_only_named_again_is_not_restored_again(store: StateStore) -> None:
    known, ids = ReadStates(), list[CheckpointId]()
    for epoch in range(3):
        with store.begin(epoch, parent=ids[-1] if ids else None, rebase=True) as writer:
            writer.put("agg", epoch, b"%d" % epoch)
            writer.put("empty", epoch, b"")
            writer.put("changed", 0, b"at %d" % epoch)
            ids.append(writer.commit().checkpoint_id)
    for epoch, checkpoint_id in enumerate(ids):
        assert restored(store, checkpoint_id, known) == {
            ("agg", epoch): b"%d" % epoch,
            ("changed", 0): b"at %d" % epoch,
            ("empty", epoch): b"",
        }


def test_a_delta_alone_is_no_new_snapshot(store: StateStore) -> None:
    known = ReadStates()
    with store.begin(0) as writer:
        writer.put("agg", 0, b"all of it")
        first = writer.commit().checkpoint_id
    with store.begin(1, parent=first) as writer:
        writer.put("agg", 0, b"more", is_delta=True)
        second = writer.commit().checkpoint_id
    assert restored(store, first, known) == {("agg", 0): b"all of it"}
    assert restored(store, second, known) == {}


@pytest.mark.parametrize("rebase", [True, False])
def test_a_partition_never_goes_back_to_what_was_replaced(store: StateStore, rebase: bool) -> None:
    with store.begin(0) as writer:
        writer.put("agg", 0, b"first")
        first = writer.commit().checkpoint_id
    with store.begin(1, parent=first) as writer:
        writer.put("agg", 0, b"second")
        second = writer.commit().checkpoint_id
    with store.begin(2, parent=first, rebase=rebase) as writer:
        writer.put("other", 0, b"third")
        third = writer.commit().checkpoint_id
    for back in (first, third):
        known = ReadStates()
        assert restored(store, first, known) == {("agg", 0): b"first"}
        assert restored(store, second, known) == {("agg", 0): b"second"}
        with pytest.raises(DamageError, match="operator 'agg' partition 0 goes back"):
            restored(store, back, known)
