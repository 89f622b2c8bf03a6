"""A snapshot costs what has changed, and one that fails leaves nothing behind."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from seamark.checkpoint_dir.places.local import LocalDirectory
from seamark.errors import FencedError, OutcomeUnknownError
from seamark.manifest import CheckpointManifest
from seamark.native.snapshot import take_snapshot
from seamark.native.watcher import Watcher, WatchPace
from seamark.store import CheckpointStore, open_store
from seamark.store.shared_objects import SHARED_PREFIX
from tests.native.support.growing import PARTITIONS, GrowingDirectory
from tests.store.support.counted_reads import CountedBytes

LARGE = 2 << 20
STATE = PARTITIONS * LARGE


@pytest.fixture
def growing(tmp_path: Path) -> GrowingDirectory:
    """A query with much state, all of it in its first batch."""
    directory = GrowingDirectory(tmp_path / "directory").run_batches(1)
    for partition in range(PARTITIONS):
        directory.put(f"state/0/{partition}/1.delta", os.urandom(LARGE))
    return directory


def watcher_of(growing: GrowingDirectory, tmp_path: Path, keep: int = 3) -> Watcher:
    return Watcher(growing.root, tmp_path / "store", WatchPace(keep=keep))


def test_a_watcher_does_not_read_again_what_it_has_stored(
    growing: GrowingDirectory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = CountedBytes(monkeypatch)
    watcher = watcher_of(growing, tmp_path)
    for _ in range(4):
        watcher._take(growing.next_batch - 1)
        growing.run_batch()
    assert watcher.status().checkpoints == 4
    assert read.since_last() == 0


def test_a_watcher_reads_what_an_earlier_process_has_stored_once(
    growing: GrowingDirectory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    watcher_of(growing, tmp_path)._take(0)
    growing.run_batch()
    read = CountedBytes(monkeypatch)
    watcher = watcher_of(growing, tmp_path)
    costs = []
    for _ in range(3):
        watcher._take(growing.next_batch - 1)
        costs.append(read.since_last())
        growing.run_batch()
    assert costs == [STATE, 0, 0]


def test_I6_rot_that_no_process_has_seen_yet_does_not_push_out_a_good_checkpoint(
    growing: GrowingDirectory, tmp_path: Path
) -> None:
    def all_objects() -> set[str]:
        return set(objects_in(tmp_path / "store"))

    with open_store(tmp_path / "store") as store:
        good = take_snapshot(LocalDirectory(growing.root), store).checkpoint_id
        before = all_objects()
        growing.run_batch()
        take_snapshot(LocalDirectory(growing.root), store, full=True)
    for name in all_objects() - before:
        path = tmp_path / "store" / SHARED_PREFIX / name
        data = bytearray(path.read_bytes())
        data[0] ^= 1
        path.chmod(0o600)
        path.write_bytes(data)
    growing.run_batch()
    watcher_of(growing, tmp_path, keep=2)._take(growing.next_batch - 1)
    with open_store(tmp_path / "store") as store:
        assert good in store.list_ids()


def objects_in(store: Path) -> list[str]:
    return sorted(path.name for path in (store / SHARED_PREFIX).glob("*"))


def test_a_try_that_fails_before_the_save_leaves_no_objects(
    growing: GrowingDirectory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*_: object) -> int:
        assert objects_in(tmp_path / "store"), "nothing was stored by now"
        raise FencedError("taken over")

    monkeypatch.setattr(CheckpointStore, "next_id", refused)
    with open_store(tmp_path / "store") as store, pytest.raises(FencedError):
        take_snapshot(LocalDirectory(growing.root), store)
    assert objects_in(tmp_path / "store") == []


@pytest.mark.parametrize("error", [FencedError("taken over"), OutcomeUnknownError("time-out")])
def test_a_save_that_fails_leaves_objects_only_when_it_may_have_happened(
    growing: GrowingDirectory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    def failing(*_: object) -> CheckpointManifest:
        raise error

    monkeypatch.setattr(CheckpointStore, "save_with_state", failing)
    with open_store(tmp_path / "store") as store, pytest.raises(type(error)):
        take_snapshot(LocalDirectory(growing.root), store)
    left = objects_in(tmp_path / "store")
    assert bool(left) is isinstance(error, OutcomeUnknownError)
