"""One flipped bit in any stored byte of a state checkpoint is noticed (I7)."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from seamark.blobs.memory import MemoryBlobs
from seamark.errors import DamageError
from seamark.state import CheckpointId, PartitionState, StateStore

LONE = b"an object of its own, not packed"


@pytest.fixture(scope="module")
def blobs() -> MemoryBlobs:
    return MemoryBlobs()


@pytest.fixture(scope="module")
def newest(blobs: MemoryBlobs) -> CheckpointId:
    store = StateStore(blobs, pack_below=20, parallelism=1)
    with store.begin(1) as writer:
        writer.put("agg", 0, b"packed zero")
        writer.put("agg", 1, b"1" * 19)  # this one is compressed
        writer.put("join", 0, LONE)
        parent = writer.commit().checkpoint_id
    with store.begin(2, parent=parent) as writer:
        writer.put("agg", 0, b"a delta", is_delta=True)
        writer.put("join", 0, LONE[:25], is_delta=True)
        return writer.commit().checkpoint_id


def flipped(blobs: MemoryBlobs, key: str) -> Iterator[str]:
    """Every version of a value with one bit changed, one after the other."""
    blob = blobs.read(key, 1 << 20)
    assert blob is not None
    tag = blob.tag
    try:
        for position, byte in enumerate(blob.data):
            for bit in range(8):
                bad = bytearray(blob.data)
                bad[position] ^= 1 << bit
                tag = blobs.replace(key, bytes(bad), tag)
                yield f"bit {bit} of byte {position} of {len(blob.data)} ({chr(byte)!r})"
    finally:
        blobs.replace(key, blob.data, tag)


def keys(blobs: MemoryBlobs, ending: str) -> list[str]:
    found = [entry.key for entry in blobs.entries("") if entry.key.endswith(ending)]
    assert found
    return found


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["manifest.json", ".lcb", ".snap", ".delta"])
def test_I7_a_flipped_bit_is_found_by_verify(
    blobs: MemoryBlobs, newest: CheckpointId, kind: str
) -> None:
    store = StateStore(blobs, parallelism=1)
    unseen = []
    for key in keys(blobs, kind):
        for what in flipped(blobs, key):
            if store.verify(newest).valid:
                unseen.append(f"{key}: {what}")
    assert not unseen, f"{len(unseen)} flips pass unseen, such as {unseen[0]} and {unseen[-1]}"
    assert store.verify(newest).valid


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["manifest.json", ".lcb", ".snap", ".delta"])
def test_I7_nothing_wrong_is_restored(blobs: MemoryBlobs, newest: CheckpointId, kind: str) -> None:
    store = StateStore(blobs, parallelism=1)
    places = {("agg", 0), ("agg", 1), ("join", 0)}
    truth = {place: store.restore(newest, *place) for place in places}
    assert truth["join", 0] == PartitionState(LONE, [LONE[:25]])
    refused = 0
    for key in keys(blobs, kind):
        for what in flipped(blobs, key):
            for place in places:
                try:
                    assert store.restore(newest, *place) == truth[place], f"{key}: {what}"
                except DamageError:
                    refused += 1
    assert refused > 100


def test_a_flipped_bit_of_the_pointer_loses_nothing(
    blobs: MemoryBlobs, newest: CheckpointId
) -> None:
    for what in flipped(blobs, "checkpoints/_latest"):
        store = StateStore(blobs)
        latest = store.latest()
        assert latest is not None, what
        assert latest.checkpoint_id == newest, what
        assert len(store.list()) == 2, what
