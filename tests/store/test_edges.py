"""Corners where a store could lose something without anybody noticing."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from obstore.store import MemoryStore

from seamark._common import file_lock
from seamark.blobs.filesystem import FilesystemBlobs
from seamark.blobs.memory import MemoryBlobs
from seamark.blobs.object_store import ObjectBlobs
from seamark.errors import (
    DamageError,
    FencedError,
    InvalidInputError,
    OutcomeUnknownError,
    SeamarkError,
    StoreUnavailableError,
)
from seamark.manifest import (
    CheckpointManifest,
    ConnectorCheckpoint,
    OperatorCheckpoint,
    SinkCommitStatus,
)
from seamark.store import CheckpointStore, open_store
from seamark.store.layout import FilesystemLayout, ObjectLayout
from seamark.store.owner import Owner
from seamark.store.ownership import Ownership
from tests.support.disk import SimulatedDisk
from tests.support.faults import Fault
from tests.support.mounting import mount
from tests.support.recording import Recording

PENDING, COMMITTED = SinkCommitStatus.pending(), SinkCommitStatus.committed()


def manifest(checkpoint_id: int, **fields: Any) -> CheckpointManifest:
    return CheckpointManifest.new(checkpoint_id, epoch=checkpoint_id, **fields)


def on(blobs: MemoryBlobs) -> CheckpointStore:
    return CheckpointStore(blobs, ObjectLayout())


# Ownership


def test_I6_a_prune_that_was_overtaken_by_a_rollback_removes_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    blobs = MemoryBlobs()
    first, second = on(blobs), on(blobs)
    first.claim()
    for number in range(1, 11):
        first.save(manifest(number))
    amend = Ownership.amend

    def overtaken(self: Ownership, change: Callable[[Owner], Owner]) -> Owner:
        monkeypatch.setattr(Ownership, "amend", amend)
        second.claim()
        second.supersede(6, 10)
        return amend(self, change)

    monkeypatch.setattr(Ownership, "amend", overtaken)
    with pytest.raises(FencedError, match="took the store over"):
        first.prune(1)
    assert second.recover_latest_validated().chosen_id == 5


def test_a_lost_owner_is_damage_and_not_a_store_that_nobody_claimed(tmp_path: Path) -> None:
    with open_store(tmp_path) as store:
        store.claim()
        for number in range(1, 6):
            store.save(manifest(number))
        store.supersede(4, 5)
        store.save(manifest(6))
    (tmp_path / "owner.json").unlink()
    fresh = open_store(tmp_path)
    for call in (fresh.recover_latest_validated, fresh.load_latest, fresh.claim):
        with pytest.raises(DamageError, match="rebuild_owner"):
            call()
    assert fresh.rebuild_owner().superseded == ((4, 5),)
    assert fresh.recover_latest_validated().chosen_id == 6


def test_I4_an_owner_that_was_put_back_from_a_copy_does_not_make_two_owners(
    tmp_path: Path,
) -> None:
    first, second = open_store(tmp_path), open_store(tmp_path)
    second.claim()
    copy = (tmp_path / "owner.json").read_bytes()
    first.claim()
    (tmp_path / "owner.json").write_bytes(copy)
    second_again = open_store(tmp_path)
    with pytest.raises((DamageError, FencedError)):
        second_again.claim()
    with pytest.raises(FencedError):
        first.save(manifest(1))


@pytest.mark.parametrize("what", [{"pipeline": 123}, {"writer": "\udcff"}, {"pipeline": ""}])
def test_a_claim_with_a_name_that_is_none_harms_nothing(what: dict[str, Any]) -> None:
    blobs = MemoryBlobs()
    with pytest.raises(InvalidInputError):
        on(blobs).claim(**what)
    on(blobs).claim(pipeline="trades")
    assert on(blobs).owner().pipeline == "trades"


def test_another_pipeline_is_refused_by_name() -> None:
    blobs = MemoryBlobs()
    on(blobs).claim(pipeline="trades")
    with pytest.raises(SeamarkError, match="trades") as caught:
        on(blobs).claim(pipeline="orders")
    assert caught.value.exit_code == 6


def test_a_range_of_the_future_cannot_be_superseded() -> None:
    store = on(MemoryBlobs())
    store.claim()
    store.save(manifest(1))
    with pytest.raises(InvalidInputError, match="does not exist yet"):
        store.supersede(1, 1000)


def test_an_owner_takes_the_place_of_a_write_that_came_too_late() -> None:
    blobs = MemoryBlobs()
    first, second = on(blobs), on(blobs)
    first.claim()
    first.save(manifest(1))
    in_flight = dict(blobs._values)
    first.save(manifest(9, extra={"who": "first"}))
    late = blobs._values["manifests/manifest-000009.json"]
    blobs._values = in_flight  # what was sent has not arrived yet
    second.claim()
    blobs._values["manifests/manifest-000009.json"] = late
    assert second.list() == [(1, 1)]
    assert second.load_by_id(9) is None
    assert second.recover_latest_validated().chosen_id == 1
    second.save(manifest(9, extra={"who": "second"}))
    saved = on(blobs).load_by_id(9)
    assert saved is not None
    assert saved.extra["who"] == "second"


def test_a_forked_child_neither_writes_nor_releases(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    store.claim()
    store.save(manifest(1))
    child = os.fork()
    if child == 0:  # pragma: no cover - another process
        try:
            store.save(manifest(2))
            os._exit(1)
        except FencedError:
            store.close()
            os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    store.save(manifest(2))
    assert store.list_ids() == [1, 2]


def test_a_lock_that_is_never_given_back_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(file_lock, "LOCK_PATIENCE", 0.05)
    waiting = pytest.raises(StoreUnavailableError, match=r"writers\.lock")
    with FilesystemBlobs(str(tmp_path)).exclusive(), waiting as caught:
        open_store(tmp_path).claim()
    assert "fuser" in str(caught.value)


# State


def test_state_that_was_written_first_belongs_to_the_manifest(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    store.save_state_data(1, [b"precious"])
    saved = store.save(manifest(1))
    assert saved.state_checksum is not None
    assert store.cleanup_orphans(min_age=0) == 0
    assert open_store(tmp_path).load_state_data(1) == b"precious"
    (tmp_path / "checkpoints/checkpoint_000001/state.bin").write_bytes(b"Precious")
    assert not open_store(tmp_path).validate_checkpoint(1).valid


def test_I1_a_sidecar_that_a_clean_up_took_is_missed_before_the_decision() -> None:
    blobs = MemoryBlobs()
    store = on(blobs)
    store.save_state_data(1, [b"state"])
    blobs.delete(["checkpoints/state-000001.bin"])
    with pytest.raises(SeamarkError):
        store.save(
            manifest(1, operator_states={"a": OperatorCheckpoint.in_sidecar(0, 5)}),
        )
    assert store.list_ids() == []


def test_I7_rot_that_leaves_the_time_alone_is_found_by_the_writer_too(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    store.save_with_state(manifest(1), [b"state"])
    path = tmp_path / "checkpoints/checkpoint_000001/state.bin"
    before = path.stat()
    path.write_bytes(b"stale")
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert not store.validate_checkpoint(1).valid
    assert store.recover_latest_validated().chosen_id is None


def test_large_state_can_be_copied_from_one_object_store_to_another() -> None:
    source = CheckpointStore(ObjectBlobs(MemoryStore(), "a"), ObjectLayout())
    target = CheckpointStore(ObjectBlobs(MemoryStore(), "b"), ObjectLayout())
    source.save_with_state(manifest(1), (b"y" * (8 << 20) for _ in range(5)))
    target.save_with_state(manifest(1), source.stream_state_data(1))
    assert target.validate_checkpoint(1).valid
    assert target.load_by_id(1).state_bytes == 40 << 20  # type: ignore[union-attr]


def test_an_error_of_the_producer_stays_its_own(tmp_path: Path) -> None:
    def broken() -> Iterator[bytes]:
        yield b"x" * 100
        raise ConnectionResetError("kafka")

    for store in (open_store(tmp_path), open_store("memory://")):
        with pytest.raises(ConnectionResetError, match="kafka"):
            store.save_with_state(manifest(1), broken())
        assert store.list_ids() == []
    assert list((tmp_path / "tmp").iterdir()) == []


def test_I3_a_retry_after_a_failed_sync_makes_durable_what_is_there(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    disk = SimulatedDisk()
    mount(monkeypatch, disk, disk.fcntl)
    wanted = manifest(1)

    def save() -> None:
        store = CheckpointStore(FilesystemBlobs("/store"), FilesystemLayout())
        store.save(wanted)

    # the last sync of the folder fails, after the manifest has been linked
    broken = Recording(faults=[Fault("fail_before", r"^fsync .*checkpoint_000001$")])
    mount(monkeypatch, broken.wrap(disk), disk.fcntl)
    with pytest.raises(OutcomeUnknownError):
        save()
    mount(monkeypatch, disk, disk.fcntl)
    save()
    after = disk.after_power_cut()
    mount(monkeypatch, after, after.fcntl)
    store = CheckpointStore(FilesystemBlobs("/store"), FilesystemLayout())
    assert store.recover_latest_validated().chosen_id == 1


# Updates


def test_an_update_from_an_old_reading_is_told_whatever_was_read_since() -> None:
    blobs = MemoryBlobs()
    one, two = on(blobs), on(blobs)
    one.save(manifest(1, sink_commit_statuses={"a": PENDING, "b": PENDING}))
    old = one.load_by_id(1)
    assert old is not None
    two.update_manifest(old.replace(sink_commit_statuses={"a": PENDING, "b": COMMITTED}))
    one.list()
    for handle in (one, on(blobs)):
        with pytest.raises(FencedError, match="since it was read"):
            handle.update_manifest(old.replace(sink_commit_statuses={"a": COMMITTED, "b": PENDING}))
    now = one.load_by_id(1)
    assert now is not None
    assert now.sink_commit_statuses == {"a": PENDING, "b": COMMITTED}


# Things that are not what they should be


@pytest.mark.parametrize("kind", ["directory", "pipe"])
@pytest.mark.parametrize("name", ["manifest.json", "state.bin"])
def test_something_else_in_a_files_place_is_damage(tmp_path: Path, name: str, kind: str) -> None:
    store = open_store(tmp_path)
    for number in (1, 2):
        store.save_with_state(manifest(number), [b"state"])
    path = tmp_path / "checkpoints/checkpoint_000002" / name
    path.unlink()
    path.mkdir() if kind == "directory" else os.mkfifo(path)
    fresh = open_store(tmp_path)
    report = fresh.recover_latest_validated()
    assert report.chosen_id == 1
    assert [skipped for skipped, _ in report.skipped] == [2]
    assert fresh.prune(1) == 0


def test_a_pointer_that_is_a_directory_is_only_a_lost_hint(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    store.save(manifest(1))
    pointer = tmp_path / "checkpoints/latest.txt"
    pointer.unlink()
    pointer.mkdir()
    fresh = open_store(tmp_path)
    assert fresh.recover_latest_validated().chosen_id == 1
    assert fresh.next_id() == 2
    fresh.claim()


def test_a_pointer_into_the_far_future_does_not_use_up_the_ids(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    store.save(manifest(1))
    pointer = tmp_path / "checkpoints/latest.txt"
    pointer.write_text("checkpoint_18446744073709551615")
    fresh = open_store(tmp_path)
    assert fresh.next_id() == 2
    fresh.claim()
    fresh.save(manifest(2))


def test_I8_a_file_where_the_store_should_be_is_not_an_empty_store(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("something")
    with pytest.raises(StoreUnavailableError, match="not a directory"):
        open_store(path).recover_latest_validated()
    with pytest.raises(StoreUnavailableError):
        open_store(path).save(manifest(1))


def test_a_damaged_tombstone_does_not_trap_its_owner(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    store.claim()
    (tmp_path / "checkpoints/checkpoint_000001/manifest.json").write_bytes(b"{")
    with pytest.raises(FencedError):
        store.save(manifest(1))
    assert store.next_id() == 2
    store.save(manifest(2))


BAD_MANIFESTS: dict[str, Callable[[], CheckpointManifest]] = {
    "an offset that is no text": lambda: manifest(
        1,
        source_offsets={"t": ConnectorCheckpoint({"0": 1187})},  # type: ignore[dict-item]
    ),
    "names that are one text": lambda: manifest(1, source_names="abc"),
    "a name that is no text": lambda: manifest(1, source_names=[5]),
    "an object in extra": lambda: manifest(1, extra={"x": object()}),
    "a key that is no text": lambda: manifest(1, extra={(1, 2): 3}),
    "half a character": lambda: manifest(1, source_names=["\udcff"]),
    "a status that is a text": lambda: manifest(1, sink_commit_statuses={"a": "Pending"}),
    "a flag that is a number": lambda: manifest(1, is_incremental=0),
    "too deep": lambda: manifest(1, extra={"x": _nested(5000)}),
}


def _nested(depth: int) -> object:
    value: object = 1
    for _ in range(depth):
        value = [value]
    return value


@pytest.mark.parametrize("what", BAD_MANIFESTS)
def test_what_could_not_be_read_back_is_refused_before_anything_is_written(what: str) -> None:
    blobs = MemoryBlobs()
    bad = BAD_MANIFESTS[what]()
    if what == "a status that is a text":
        pass  # the JSON is the same as a real one's, so it may also be saved
    else:
        with pytest.raises(InvalidInputError):
            on(blobs).save_with_state(bad, [b"state"])
        assert blobs.entries("") == []
    on(blobs).save(manifest(1, sink_commit_statuses={"a": PENDING}))
    with pytest.raises(SeamarkError):
        on(blobs).update_manifest(bad.replace(epoch=7))


BAD_CALLS: dict[str, Callable[[CheckpointStore], object]] = {
    "prune a text": lambda s: s.prune("3"),  # type: ignore[arg-type]
    "prune one and a half": lambda s: s.prune(1.5),  # type: ignore[arg-type]
    "prune within for ever": lambda s: s.prune(within=float("inf")),
    "prune within a text": lambda s: s.prune(within="1h"),  # type: ignore[arg-type]
    "prune by nothing": lambda s: s.prune(),
    "clean up what is None old": lambda s: s.cleanup_orphans(None),  # type: ignore[arg-type]
    "clean up of the future": lambda s: s.cleanup_orphans(timedelta(seconds=-1)),
    "a pin that is no name": lambda s: s.pin(5, 1),  # type: ignore[arg-type]
    "a pin with a path": lambda s: s.pin("../x", 1),
    "a pin until never": lambda s: s.pin("x", 1, expires_in=float("nan")),
    "a pin until yesterday": lambda s: s.pin("x", 1, expires_in=-1),
    "chunks that are one": lambda s: s.save_with_state(manifest(2), b"state"),  # type: ignore[arg-type]
    "chunks that are a number": lambda s: s.save_with_state(manifest(2), 5),  # type: ignore[arg-type]
    "a chunk that is a text": lambda s: s.save_with_state(manifest(2), ["x"]),  # type: ignore[list-item]
    "a chunk with holes": lambda s: s.save_with_state(manifest(2), [memoryview(b"abcd")[::2]]),
}


@pytest.mark.parametrize("what", BAD_CALLS)
def test_bad_arguments_get_a_clear_error_and_change_nothing(what: str) -> None:
    store = on(MemoryBlobs())
    store.save(manifest(1))
    with pytest.raises(InvalidInputError):
        BAD_CALLS[what](store)
    assert store.list_ids() == [1]
    assert store.pins() == {}
