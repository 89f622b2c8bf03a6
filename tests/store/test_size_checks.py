"""Sizes of shared objects are asked for once in a pass, however many checkpoints name them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

from seamark import CheckpointManifest
from seamark.blobs.contract import Entry
from seamark.blobs.memory import MemoryBlobs
from seamark.manifest.facts import SharedObject
from seamark.reports.verification import check_checkpoints
from seamark.store import CheckpointStore, shared_objects
from seamark.store.layout import ObjectLayout
from seamark.store.shared_objects import SHARED_PREFIX, ReadObjects

FEW, MANY = 10, 40


class CountedListings(MemoryBlobs):
    """Counts how often the shared objects are listed."""

    def __init__(self) -> None:
        super().__init__()
        self.listings = 0

    def entries(self, prefix: str) -> list[Entry]:
        self.listings += prefix == SHARED_PREFIX
        return super().entries(prefix)


def written(store: CheckpointStore, count: int) -> list[SharedObject]:
    return [store.shared_objects.write([b"%d" % number]) for number in range(count)]


def chain(store: CheckpointStore, length: int) -> None:
    """Checkpoints of which each builds on the one before and names some objects of its own."""
    for i in range(1, length + 1):
        named: dict[str, Any] = {"shared_objects": [list(each) for each in written(store, FEW)]}
        parent = {"is_incremental": True, "parent_id": i - 1} if i > 1 else {}
        store.save(CheckpointManifest.new(i, epoch=i, **named, **parent))


def test_the_objects_of_a_store_are_listed_once_for_all_of_its_checkpoints() -> None:
    blobs = CountedListings()
    chain(CheckpointStore(blobs, ObjectLayout()), MANY)
    store = CheckpointStore(blobs, ObjectLayout())
    blobs.listings = 0
    checks = check_checkpoints(store, range(1, MANY + 1), read=())
    assert {check.status for check in checks} == {"ok"}
    assert store.recover_latest_validated(read_data=False).chosen_id == MANY
    assert blobs.listings == 2


def test_an_object_that_came_after_the_listing_is_there() -> None:
    store = CheckpointStore(MemoryBlobs(), ObjectLayout())
    early, seen = written(store, FEW), ReadObjects()
    look = store.shared_objects.problem
    first = CheckpointManifest.new(1, epoch=1, shared_objects=[list(each) for each in early])
    assert look(first, read_data=False, seen=seen) is None
    late = written(store, FEW)
    second = CheckpointManifest.new(2, epoch=2, shared_objects=[list(each) for each in late])
    assert look(second, read_data=False, seen=seen) is None
    store.backend.delete([SHARED_PREFIX + late[0].name])
    assert "is not there" in (look(second, read_data=False, seen=ReadObjects()) or "")


@pytest.mark.parametrize("believe", [False, True])
def test_the_objects_to_read_are_not_collected_again_for_each_of_them(
    monkeypatch: pytest.MonkeyPatch, believe: bool
) -> None:
    collected: list[int] = []

    def counted(kind: type) -> Any:
        def collect(values: Iterable[object] = ()) -> Any:
            made = kind(values)
            collected.append(len(made))
            return made

        return collect

    store = CheckpointStore(MemoryBlobs(), ObjectLayout())
    named = [list(each) for each in written(store, MANY)]
    manifest = CheckpointManifest.new(1, epoch=1, shared_objects=named)
    fresh = CheckpointStore(store.backend, ObjectLayout())
    for kind in (set, frozenset):
        monkeypatch.setattr(shared_objects, kind.__name__, counted(kind), raising=False)
    assert fresh.shared_objects.problem(manifest, believe=believe) is None
    assert sum(collected) <= 2 * MANY
