"""The order of state checkpoints comes from epochs and parents, not from the clocks of writers."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from seamark.blobs.contract import Blobs
from seamark.blobs.filesystem import FilesystemBlobs
from seamark.blobs.memory import MemoryBlobs
from seamark.errors import CheckpointNotFoundError, DamageError
from seamark.state import CheckpointId, CheckpointManifestV2, StateStore
from seamark.state.chains import newest_first
from tests.store.support.interleaving import ObjectSeat

DAY = 86_400.0


@pytest.fixture(autouse=True)
def _own_ids(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ids of one process only grow, so those from the future would be with all later tests."""
    monkeypatch.setattr("seamark.state.layout._last_value", 0)


def id_at(seconds_from_now: float) -> CheckpointId:
    """An id as a process makes it whose clock is off by that much."""
    bits = uuid.uuid4().int & ((1 << 76) - 1)
    stamp = int((time.time() + seconds_from_now) * 1000)
    return CheckpointId.from_uuid(uuid.UUID(int=(stamp << 80) | (7 << 76) | bits))


def written(
    store: StateStore, epoch: int, off: float | None = 0.0, parent: CheckpointId | None = None
) -> CheckpointId:
    """A checkpoint of a process whose clock is off; None for the store's own choice of an id."""
    new = None if off is None else id_at(off)
    with store.begin(epoch, parent=parent, checkpoint_id=new) as writer:
        writer.put("op", 0, b"state of epoch %d" % epoch, is_delta=parent is not None)
        return writer.commit().checkpoint_id


def epoch_of(manifest: CheckpointManifestV2 | None) -> int | None:
    return None if manifest is None else manifest.epoch


def test_a_process_whose_clock_is_behind_writes_the_latest_checkpoint_all_the_same() -> None:
    store = StateStore("memory://")
    written(store, 1)
    written(store, 2)
    third = written(store, 3, -DAY)
    assert epoch_of(store.latest()) == 3
    assert store.prune(1) == 2
    assert store.list() == [third]
    assert store.restore(third, "op", 0).snapshot == b"state of epoch 3"


def test_a_clock_that_was_ahead_once_does_not_hold_back_what_follows() -> None:
    store = StateStore("memory://")
    written(store, 1, 30 * DAY)
    second = written(store, 2, None)
    assert store.list()[-1] == second, "the next id is after all that are known"
    assert epoch_of(store.latest()) == 2
    child = written(store, 3, None, parent=second)
    assert epoch_of(store.latest()) == 3
    assert store.prune(1) == 1
    assert store.list() == [second, child]


def test_going_back_to_an_older_checkpoint_begins_a_newer_branch() -> None:
    store = StateStore("memory://", longest_chain=5)
    first = written(store, 1, None)
    second = written(store, 2, None, parent=first)
    given_up = written(store, 3, None, parent=second)
    again = written(store, 3, None, parent=first)
    latest = store.latest()
    assert latest is not None
    assert latest.checkpoint_id == again
    assert store.prune(1) == 2
    assert set(store.list()) == {first, again}
    assert given_up not in store.list()


def test_a_parent_is_never_newer_than_its_child_whatever_the_epochs_say() -> None:
    ids = [id_at(n) for n in range(4)]
    manifests = {
        ids[0]: CheckpointManifestV2.new(ids[0], 9),
        ids[1]: CheckpointManifestV2.new(ids[1], 3, parent_id=ids[0]),
        ids[2]: CheckpointManifestV2.new(ids[2], 4, parent_id=ids[1]),
        ids[3]: CheckpointManifestV2.new(ids[3], 2),
    }
    assert newest_first(manifests) == [ids[2], ids[1], ids[0], ids[3]]


def test_a_parent_that_is_gone_or_not_older_does_not_confuse_the_order() -> None:
    ids = [id_at(n) for n in range(3)]
    manifests = {
        ids[0]: CheckpointManifestV2.new(ids[0], 1, parent_id=ids[2]),
        ids[1]: CheckpointManifestV2.new(ids[1], 2, parent_id=id_at(-DAY)),
        ids[2]: CheckpointManifestV2.new(ids[2], 3, parent_id=ids[2]),
    }
    assert newest_first(manifests) == [ids[2], ids[1], ids[0]]


def test_a_damaged_checkpoint_that_may_be_the_newest_is_not_passed_over() -> None:
    blobs = MemoryBlobs()
    store = StateStore(blobs)
    first = written(store, 1)
    behind = written(store, 2, -DAY)  # the pointer names it, although its id is smaller
    key = f"checkpoints/{behind}/manifest.json"
    blobs.delete([key])
    blobs.create(key, b"torn")
    with pytest.raises(DamageError):
        store.latest()
    assert store.prune(1) == 0
    assert set(store.list()) == {first, behind}


# ages


class FixedClock(MemoryBlobs):
    """A store whose clock is a day behind ours; it is the one that its listings tell times by."""

    def clock(self) -> float:
        return super().clock() - DAY


def test_an_upload_in_flight_is_not_removed_by_a_process_whose_clock_is_ahead() -> None:
    store = StateStore(FixedClock(), pack_below=0)
    writer = store.begin(1)
    writer.put("op", 0, b"on its way")
    writer._task._pool.submit(lambda: None).result()
    for upload in writer._task._uploads:
        upload.result()
    assert store.cleanup_orphans(min_age=3600) == 0
    checkpoint_id = writer.commit().checkpoint_id
    assert store.restore(checkpoint_id, "op", 0).snapshot == b"on its way"


def test_on_a_disk_the_age_of_a_file_is_told_by_the_file_system(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A writer whose clock is a day behind does not make files that look a day old."""
    blobs = FilesystemBlobs(str(tmp_path))
    now = time.time()
    with monkeypatch.context() as patched:
        patched.setattr("seamark.blobs.filesystem.time.time_ns", lambda: int((now - DAY) * 1e9))
        blobs.create("checkpoints/a", b"x")
    entry = blobs.stat("checkpoints/a")
    assert entry is not None
    assert abs(entry.modified - now) < 3600
    assert abs(blobs.clock() - now) < 3600
    assert blobs.entries("tmp/") == []


def test_on_a_disk_no_value_is_younger_than_the_clocks(tmp_path: Path) -> None:
    """Otherwise a clean-up of all that is there leaves out what was written just now."""
    blobs = FilesystemBlobs(str(tmp_path))
    for n in range(200):
        blobs.create(f"checkpoints/{n}", b"x")
        entry = blobs.stat(f"checkpoints/{n}")
        assert entry is not None
        assert entry.modified <= min(blobs.clock(), time.time())


# readers that are overtaken


def read_latest(store: StateStore, _: CheckpointId) -> object:
    return epoch_of(store.latest())


def read_all(store: StateStore, checkpoint_id: CheckpointId) -> object:
    return [state.snapshot for _, _, state in store.restore_all(checkpoint_id)]


def read_one(store: StateStore, checkpoint_id: CheckpointId) -> object:
    return store.restore(checkpoint_id, "op", 0).snapshot


def read_stream(store: StateStore, checkpoint_id: CheckpointId) -> object:
    objects = store.stream(checkpoint_id, "op", 0)
    return [b"".join(map(bytes, pieces)) for _, pieces in objects]


def read_copy(store: StateStore, checkpoint_id: CheckpointId) -> object:
    target = StateStore("memory://")
    store.copy(checkpoint_id, target)
    return target.verify(checkpoint_id).issues


def read_verified(store: StateStore, checkpoint_id: CheckpointId) -> object:
    issues = store.verify(checkpoint_id).issues
    return "gone" if issues == [f"state checkpoint {checkpoint_id} is missing"] else issues


def answer(
    read: Callable[[StateStore, CheckpointId], object], store: StateStore, wanted: CheckpointId
) -> object:
    try:
        return read(store, wanted)
    except CheckpointNotFoundError:
        return "gone"


@pytest.mark.parametrize(
    "read", [read_latest, read_all, read_one, read_stream, read_copy, read_verified]
)
@pytest.mark.parametrize("packed", [False, True], ids=["objects", "packs"])
def test_a_reader_of_state_that_a_prune_overtakes_sees_no_damage(
    read: Callable[[StateStore, CheckpointId], object], packed: bool
) -> None:
    def overtakings() -> Iterator[tuple[object, list[object]]]:
        for at in range(1, 60):
            blobs: Blobs = MemoryBlobs()
            seat = ObjectSeat(blobs)
            below = 1 << 20 if packed else 0
            writer, reader = StateStore(blobs, pack_below=below), StateStore(seat)
            first = written(writer, 1, None)
            second = written(writer, 2, None, parent=first)

            def prune(writer: StateStore = writer) -> None:
                written(writer, 3, None)
                writer.prune(1)

            allowed = [answer(read, StateStore(blobs), second)]
            seat.arm(at, prune)
            found = answer(read, reader, second)
            if seat.disarm():
                return
            yield found, [*allowed, answer(read, StateStore(blobs), second)]
        raise AssertionError("it never came to an end")

    count = 0
    for found, allowed in overtakings():
        count += 1
        assert found in allowed
    assert count > 1
