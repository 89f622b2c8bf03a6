"""Which epochs may have been decided after the checkpoint that a start goes on from."""

from __future__ import annotations

import pytest

from seamark.blobs.memory import MemoryBlobs
from seamark.manifest import CheckpointManifest
from seamark.pipeline.recovery.lost_epochs import last_lost_epoch
from seamark.store import CheckpointStore
from seamark.store.layout import ObjectLayout

EPOCHS = (1, 2, 3, 3, 4)
"""By checkpoint: a run that has ended well may have saved its last epoch twice."""


@pytest.fixture
def blobs() -> MemoryBlobs:
    return MemoryBlobs()


@pytest.fixture
def store(blobs: MemoryBlobs) -> CheckpointStore:
    store = CheckpointStore(blobs, ObjectLayout())
    store.claim(pipeline="orders")
    for number, epoch in enumerate(EPOCHS, 1):
        manifest = CheckpointManifest.new(number, epoch=epoch)
        store.save_with_state(manifest, [b"state of %d" % number])
    return store


def damage(blobs: MemoryBlobs, kind: str, *numbers: int, cut: int | None = None) -> None:
    for number in numbers:
        keys = [e.key for e in blobs.entries("") if f"{number:06}" in e.key and kind in e.key]
        assert keys
        for key in keys:
            blob = blobs.read(key, 1 << 20)
            assert blob is not None
            blobs.delete([key])
            blobs.create(key, b"{" if cut is None else blob.data[:cut])


def last_lost(store: CheckpointStore, chosen: int) -> int:
    walk = store.recover_latest_validated()
    assert walk.chosen_id == chosen
    manifest = store.load_by_id(chosen)
    assert manifest is not None
    return last_lost_epoch(store, manifest, walk)


def test_nothing_is_lost_when_the_newest_checkpoint_is_whole(store: CheckpointStore) -> None:
    assert last_lost(store, 5) == 4


def test_every_manifest_that_cannot_be_read_may_have_decided_an_epoch(
    store: CheckpointStore, blobs: MemoryBlobs
) -> None:
    damage(blobs, "manifest", 5)
    assert last_lost(store, 4) == 4
    damage(blobs, "manifest", 3, 4)
    assert last_lost(store, 2) == 5  # as far as anybody can tell


def test_a_manifest_that_can_be_read_says_which_epoch_it_was(
    store: CheckpointStore, blobs: MemoryBlobs
) -> None:
    damage(blobs, "state", 3, 4, 5)
    assert last_lost(store, 2) == 4


def test_a_second_checkpoint_of_the_chosen_epoch_has_decided_nothing_more(
    store: CheckpointStore, blobs: MemoryBlobs
) -> None:
    manifest = CheckpointManifest.new(6, epoch=4)
    store.save_with_state(manifest, [b"state of 6"])
    damage(blobs, "state", 6)
    assert last_lost(store, 5) == 4


def test_what_is_left_of_a_manifest_often_says_which_epoch_it_was(
    store: CheckpointStore, blobs: MemoryBlobs
) -> None:
    damage(blobs, "manifest", 3, 4, 5, cut=-9)
    assert last_lost(store, 2) == 4  # one epoch was saved twice


def test_a_damaged_tombstone_has_decided_nothing(
    store: CheckpointStore, blobs: MemoryBlobs
) -> None:
    CheckpointStore(blobs, ObjectLayout()).claim(pipeline="orders")
    damage(blobs, "manifest", 6, cut=-9)
    assert last_lost(store, 5) == 4
