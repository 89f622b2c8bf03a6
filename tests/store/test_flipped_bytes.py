"""Every byte of a small store is changed once, and a plain store notices each of them (I7)."""

from __future__ import annotations

from pathlib import Path

import pytest

from seamark import open_store
from seamark.blobs.memory import MemoryBlobs
from seamark.errors import DamageError
from seamark.store import CheckpointStore
from seamark.store.layout import OWNER_KEY, ObjectLayout
from seamark.store.shared_objects import SHARED_PREFIX
from tests.capture.test_capture_and_restore import Stored

POINTER = ObjectLayout().pointer


@pytest.fixture(scope="module")
def contents(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """Three checkpoints with inline state, a sidecar, packs and an object of its own."""
    root = tmp_path_factory.mktemp("flips")
    url = f"memory://{root.name}"
    stored = Stored(root / "copy", inline=False, store=open_store(url))
    stored.store.claim()
    stored.take(0)
    stored.sizes = type(stored.sizes)(inline_operator=10_000)
    stored.take(1)
    stored.sizes = type(stored.sizes)(inline_operator=10_000, inline_manifest=0)
    stored.take(2)
    blobs = stored.store.backend
    everything = {}
    for entry in blobs.entries(""):
        blob = blobs.read(entry.key, 1 << 30)
        assert blob is not None
        everything[entry.key] = blob.data
    kinds = {key.partition("/")[0] for key in everything}
    assert {SHARED_PREFIX[:-1], OWNER_KEY, "checkpoints", "manifests"} <= kinds, everything.keys()
    return everything


def reopened(contents: dict[str, bytes]) -> tuple[MemoryBlobs, CheckpointStore]:
    blobs = MemoryBlobs()
    for key, data in contents.items():
        blobs.create(key, data)
    return blobs, CheckpointStore(blobs, ObjectLayout())


def is_noticed(store: CheckpointStore, key: str) -> bool:
    """Whether a check of the newest checkpoint sees it. A pointer is only a hint."""
    try:
        result = store.validate_checkpoint(3)
    except DamageError:
        return True
    return result.valid == (key == POINTER)


@pytest.mark.slow
def test_I7_every_byte_of_a_store_is_verified(contents: dict[str, bytes]) -> None:
    blobs, store = reopened(contents)
    assert store.recover_latest_validated().chosen_id == 3
    flips = 0
    for key, data in contents.items():
        for at in range(len(data)):
            changed = bytearray(data)
            changed[at] ^= 1 << at % 8
            _overwrite(blobs, key, bytes(changed))
            # a handle of its own each time: nothing is remembered
            plain = CheckpointStore(blobs, ObjectLayout())
            assert is_noticed(plain, key), f"byte {at} of {len(data)} of {key}"
            flips += 1
        _overwrite(blobs, key, data)
    assert flips == sum(map(len, contents.values())) > 1000
    assert store.recover_latest_validated().chosen_id == 3


def test_I7_a_store_that_lacks_any_of_its_values_is_noticed(contents: dict[str, bytes]) -> None:
    for key in contents:
        if key in (POINTER, OWNER_KEY):
            continue
        _, store = reopened({other: data for other, data in contents.items() if other != key})
        assert store.recover_latest_validated().chosen_id != 3, key


def _overwrite(blobs: MemoryBlobs, key: str, data: bytes) -> None:
    blob = blobs.read(key, 1 << 30)
    assert blob is not None
    blobs.replace(key, data, blob.tag, durable=False)


def test_the_error_for_an_object_that_is_gone_names_it_and_says_what_to_do(tmp_path: Path) -> None:
    stored = Stored(tmp_path / "a", inline=False)
    stored.take(0)
    (shared,) = stored.capture.index.shared_objects
    stored.store.backend.delete([SHARED_PREFIX + shared.name])
    with pytest.raises(DamageError, match=f"shared/{shared.name} is not there") as caught:
        stored.restored(tmp_path / "b")
    assert caught.value.hint is not None
    assert "seamark copy" in caught.value.hint
    assert shared.name in str(stored.store.validate_checkpoint(1).damage)
