"""Looking over a whole store tells the same as looking at each checkpoint."""

from __future__ import annotations

from pathlib import Path

import pytest

from seamark import CheckpointManifest, OperatorCheckpoint
from seamark.blobs.contract import Blob
from seamark.blobs.filesystem import FilesystemBlobs
from seamark.blobs.memory import MemoryBlobs
from seamark.store import Blobs, CheckpointStore
from seamark.store.inspection import examine, scan
from seamark.store.layout import FilesystemLayout, Layout, ObjectLayout
from seamark.store.validation import CheckpointKind

Place = tuple[Blobs, Layout]


@pytest.fixture(params=["disk", "objects"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    if request.param == "disk":
        return FilesystemBlobs(str(tmp_path / "store")), FilesystemLayout()
    return MemoryBlobs(), ObjectLayout()


def filled(place: Place) -> CheckpointStore:
    store = CheckpointStore(*place)
    store.claim()
    for number in range(1, 6):
        state = {"agg": OperatorCheckpoint.in_sidecar(0, 5)}
        manifest = CheckpointManifest.new(number, number, operator_states=state)
        store.save_with_state(manifest, [b"state"])
    return store


def damage(place: Place, key: str) -> None:
    blobs, _ = place
    blob = blobs.read(key, 1 << 20)
    assert blob is not None
    blobs.replace(key, blob.data[:20] + b"?" + blob.data[21:], blob.tag)


def test_each_checkpoint_is_told_once_newest_first(place: Place) -> None:
    store = filled(place)
    store.supersede(4, 5)
    damage(place, place[1].manifest(2))
    seen = list(scan(CheckpointStore(*place)))
    assert [one.checkpoint_id for one in seen] == [5, 4, 3, 2, 1]
    assert [one.superseded for one in seen] == [True, True, False, False, False]
    assert [one.damage is None for one in seen] == [True, True, True, False, True]
    assert seen[3].manifest is None
    assert seen[0].manifest == store.load_by_id(5)


def test_neither_tombstones_nor_what_was_pruned_are_checkpoints(place: Place) -> None:
    store = filled(place)
    store.prune(2)
    other = CheckpointStore(*place)
    other.claim()  # leaves a tombstone at the next id
    assert [one.checkpoint_id for one in scan(other)] == [5, 4]


def test_a_manifest_that_only_the_pointer_names_is_damage(place: Place) -> None:
    filled(place)
    place[0].delete([place[1].manifest(5)])
    first = next(iter(scan(CheckpointStore(*place))))
    assert first.checkpoint_id == 5
    assert "although the pointer names it" in str(first.damage)


def test_a_checkpoint_that_is_pruned_under_way_is_left_out(place: Place) -> None:
    store = filled(place)
    reader = CheckpointStore(*place)
    ids = reader.list_ids
    assert ids() == [1, 2, 3, 4, 5]
    listed = place[1].manifest_ids
    pruned: list[int] = []

    def listing(blobs: Blobs) -> list[int]:
        found = listed(blobs)
        if not pruned:
            pruned.append(1)
            store.prune(2)
        return found

    place[1].manifest_ids = listing  # type: ignore[method-assign]
    assert [one.checkpoint_id for one in scan(reader)] == [5, 4]


@pytest.mark.parametrize("read_data", [True, False])
def test_state_is_looked_at_as_deeply_as_asked(place: Place, read_data: bool) -> None:
    filled(place)
    key = place[1].state(3)
    damage_state(place, key)
    store = CheckpointStore(*place)
    assert examine(store, 2, read_data=read_data).kind is CheckpointKind.CHECKPOINT
    found = examine(store, 3, read_data=read_data)
    assert found.kind is (CheckpointKind.DAMAGED if read_data else CheckpointKind.CHECKPOINT)
    place[0].delete([key])
    assert examine(store, 3, read_data=read_data).kind is CheckpointKind.DAMAGED
    assert examine(store, 9, read_data=read_data).kind is CheckpointKind.NOTHING


def damage_state(place: Place, key: str) -> None:
    """Other bytes of the same length."""
    blobs, _ = place
    blobs.delete([key])
    blobs.create(key, b"STATE")


def test_a_plan_of_a_clean_up_is_what_it_removes(place: Place) -> None:
    store = filled(place)
    store.close()
    writer = CheckpointStore(*place)
    writer.save_state_data(9, [b"orphan"])
    assert writer.plan_cleanup(0) == []  # its own, about to be used
    other = CheckpointStore(*place)
    planned = other.plan_cleanup(0)
    assert [entry.key for entry in planned] == [place[1].state(9)]
    assert planned[0].size == 6
    assert other.cleanup_orphans(0) == 1
    assert other.plan_cleanup(0) == []


def test_a_plan_of_a_prune_reads_a_shared_parent_once(monkeypatch: pytest.MonkeyPatch) -> None:
    place = MemoryBlobs(), ObjectLayout()
    store = CheckpointStore(*place)
    for number in range(1, 21):
        parent = number - 1 or None
        store.save(
            CheckpointManifest.new(number, number, is_incremental=bool(parent), parent_id=parent)
        )
    reads: list[str] = []
    read = MemoryBlobs.read

    def counted(self: MemoryBlobs, key: str, limit: int) -> Blob | None:
        reads.append(key)
        return read(self, key, limit)

    monkeypatch.setattr(MemoryBlobs, "read", counted)
    verdicts = CheckpointStore(*place).plan_prune(1)
    assert all(verdict.keep for verdict in verdicts)
    assert len(reads) <= 25
