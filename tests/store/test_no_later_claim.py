"""A store is listed a few times, however many of its manifests ``owner.json`` does not know of."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from seamark import CheckpointManifest
from seamark._common.json_documents import seal, unseal
from seamark.blobs.contract import Entry
from seamark.blobs.memory import MemoryBlobs
from seamark.errors import DamageError
from seamark.reports.checkpoint_summary import summarize_checkpoints
from seamark.reports.verification import check_checkpoints
from seamark.store import CheckpointStore
from seamark.store.layout import OWNER_KEY, ObjectLayout
from seamark.store.owner import OddGeneration, OutdatedOwner

MANY = 60


class CountedListings(MemoryBlobs):
    """Counts how often the manifests are listed."""

    def __init__(self) -> None:
        super().__init__()
        self.listings = 0

    def entries(self, prefix: str) -> list[Entry]:
        self.listings += prefix == "manifests/"
        return super().entries(prefix)


@pytest.fixture
def blobs() -> Iterator[CountedListings]:
    blobs = CountedListings()
    yield blobs
    blobs.close()


def opened(blobs: CountedListings) -> CheckpointStore:
    return CheckpointStore(blobs, ObjectLayout())


def save(store: CheckpointStore, first: int, last: int) -> None:
    for checkpoint_id in range(first, last + 1):
        store.save(CheckpointManifest.new(checkpoint_id, epoch=checkpoint_id))


def put(blobs: CountedListings, key: str, data: bytes) -> None:
    blobs.delete([key])
    blobs.create(key, data)


def read(blobs: CountedListings, key: str) -> bytes:
    blob = blobs.read(key, 1 << 20)
    assert blob is not None
    return blob.data


def give_generation(blobs: CountedListings, checkpoint_id: int, generation: int) -> None:
    key = ObjectLayout().manifest(checkpoint_id)
    manifest = json.loads(unseal(read(blobs, key)))
    put(blobs, key, seal(json.dumps(manifest | {"generation": generation}).encode()))


def without_fences(blobs: CountedListings) -> None:
    owner = json.loads(unseal(read(blobs, OWNER_KEY)))
    put(blobs, OWNER_KEY, seal(json.dumps(owner | {"fences": []}).encode()))


def looks(blobs: CountedListings) -> None:
    """List and verify all of them, by a few listings."""
    blobs.listings = 0
    store = opened(blobs)
    ids = [*summarize_checkpoints(store)]
    assert len(ids) >= MANY
    assert len(check_checkpoints(store, ids, read=())) == len(ids)
    assert blobs.listings < 10


def test_a_store_without_its_owner_is_not_listed_for_each_manifest(blobs: CountedListings) -> None:
    store = opened(blobs)
    store.claim()
    save(store, 1, MANY)
    blobs.delete([OWNER_KEY])
    looks(blobs)
    with pytest.raises(OutdatedOwner):
        opened(blobs).load_latest()


def test_an_old_owner_that_was_put_back_has_no_manifest_list_the_store(
    blobs: CountedListings,
) -> None:
    opened(blobs).claim()
    old = read(blobs, OWNER_KEY)
    second = opened(blobs)
    second.claim()
    save(second, 1, MANY)
    put(blobs, OWNER_KEY, old)
    without_fences(blobs)
    looks(blobs)
    with pytest.raises(OutdatedOwner):
        opened(blobs).load_latest()


def test_manifests_of_senseless_generations_are_damaged_by_one_listing(
    blobs: CountedListings,
) -> None:
    store = opened(blobs)
    store.claim()
    save(store, 1, MANY)
    without_fences(blobs)
    for checkpoint_id in range(1, MANY):
        give_generation(blobs, checkpoint_id, 77)
    looks(blobs)
    blobs.listings = 0
    assert sum(verdict.reason == "damaged" for verdict in opened(blobs).plan_prune(1)) == MANY - 1
    assert blobs.listings < 10


def test_a_doubt_ends_when_the_owner_saves_above_it(blobs: CountedListings) -> None:
    writer, reader = opened(blobs), opened(blobs)
    writer.claim()
    save(writer, 1, 2)
    without_fences(blobs)
    give_generation(blobs, 2, 77)
    for _ in range(2):
        with pytest.raises(OutdatedOwner):
            reader.load_by_id(2)
    save(writer, 3, 3)
    with pytest.raises(OddGeneration):
        reader.load_by_id(2)


def test_a_proof_says_nothing_of_what_came_after_it(blobs: CountedListings) -> None:
    writer, reader = opened(blobs), opened(blobs)
    writer.claim()
    save(writer, 1, 2)
    without_fences(blobs)
    old = read(blobs, OWNER_KEY)
    give_generation(blobs, 1, 77)
    with pytest.raises(OddGeneration):
        reader.load_by_id(1)
    second = opened(blobs)
    second.claim()
    save(second, 3, 3)
    put(blobs, OWNER_KEY, old)
    with pytest.raises(OutdatedOwner):
        reader.load_by_id(3)
    with pytest.raises(DamageError):
        reader.load_latest()
