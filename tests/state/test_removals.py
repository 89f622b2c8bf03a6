"""Removing many state checkpoints costs as much as they are."""

from __future__ import annotations

import pytest

from seamark import limits
from seamark.blobs.memory import MemoryBlobs
from seamark.errors import CheckpointNotFoundError, DamageError, RefusedError
from seamark.state import CheckpointId, StateStore
from tests.state.support.chains import chain
from tests.support.counted_blobs import CountedBlobs


def test_every_manifest_is_read_once_however_many_go() -> None:
    blobs = CountedBlobs()
    store = StateStore(blobs)
    ids = chain(store, 30)
    blobs.forget()
    assert [error for _, error in store.delete_each(reversed(ids))] == [None] * 30
    assert blobs.reads == 30 + 1  # each manifest, and the mark of the removal
    assert [key for key in (e.key for e in blobs.entries("")) if "_latest" not in key] == []


def test_what_another_one_needs_stays_and_the_others_go() -> None:
    blobs = MemoryBlobs()
    store = StateStore(blobs)
    kept, first, second = (chain(store, 2) for _ in range(3))
    blobs.delete([f"checkpoints/{first[1]}/manifest.json"])
    blobs.create(f"checkpoints/{first[1]}/manifest.json", b"damaged")
    order = [kept[0], first[1], CheckpointId.now(), *reversed(second)]
    told = [type(error) for _, error in store.delete_each(order)]
    assert told == [
        RefusedError, DamageError, CheckpointNotFoundError, type(None), type(None),
    ]  # fmt: skip
    assert store.list() == [*kept, *first]
    assert store.restore(kept[1], "agg", 0).snapshot == b"state 0"


def test_one_that_others_refer_to_leaves_them_its_objects() -> None:
    store = StateStore(MemoryBlobs())
    ids = chain(store, 2)
    with store.begin(2, parent=ids[-1], rebase=True) as writer:
        writer.put("agg", 2, b"state 2")
        rebased = writer.commit().checkpoint_id
    assert [error for _, error in store.delete_each(reversed(ids))] == [None, None]
    assert store.restore(rebased, "agg", 0).snapshot == b"state 0"
    with pytest.raises(CheckpointNotFoundError):
        store.delete(ids[0])


def test_no_manifest_is_read_to_remove_nothing() -> None:
    blobs = CountedBlobs()
    store = StateStore(blobs)
    chain(store, 3)
    blobs.forget()
    assert list(store.delete_each([])) == []
    assert blobs.reads == 0


def test_a_prune_does_not_look_at_damage_without_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "MOST_DAMAGED_STATES", 3)
    blobs = MemoryBlobs()
    store = StateStore(blobs, longest_chain=0)
    ids = chain(store, 8)
    for checkpoint_id in ids[-3:]:
        blobs.delete([e.key for e in blobs.entries(f"checkpoints/{checkpoint_id}/packs/")])
    assert store.prune(1) == 4
    blobs.delete([e.key for e in blobs.entries("checkpoints/") if "/packs/" in e.key])
    with pytest.raises(RefusedError, match="more than 3 state checkpoints are damaged"):
        store.prune(1)
    assert len(store.list()) == 4


@pytest.mark.parametrize("parallelism", [1, 4])
def test_what_is_removed_while_all_of_it_is_restored_is_gone_and_not_damaged(
    parallelism: int,
) -> None:
    blobs = MemoryBlobs()
    store = StateStore(blobs, pack_below=0)
    with store.begin(1) as writer:
        for partition in range(40):
            writer.put("agg", partition, b"state")
        checkpoint_id = writer.commit().checkpoint_id
    restoring = StateStore(blobs, parallelism=parallelism).restore_all(checkpoint_id)
    next(restoring)
    store.delete(checkpoint_id)
    with pytest.raises(CheckpointNotFoundError, match="removed while it was being read"):
        list(restoring)
