"""A directory that is watched ends up in the store, whatever happens to it, the store or us."""

from __future__ import annotations

import logging
import math
import os
import random
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from seamark.checkpoint_dir.places.directory import Directory, FileEntry
from seamark.checkpoint_dir.places.local import LocalDirectory
from seamark.checkpoint_dir.places.object_store import ObjectDirectory
from seamark.errors import InvalidInputError, StoreUnavailableError
from seamark.manifest import CheckpointManifest
from seamark.native.restore import restore_directory
from seamark.native.snapshot import pipeline_name
from seamark.native.watch_status import WatchStatus
from seamark.native.watcher import Watcher, WatchHooks, WatchPace
from seamark.store import CheckpointStore, open_store
from tests.checkpoint_dir.support.directories import QUERY, offsets_text
from tests.native.support.growing import GrowingDirectory, batches_restored_from
from tests.support.servers import ObjectServer

PATIENCE = 280.0
HOOKS = {field.name for field in fields(WatchHooks)}


@contextmanager
def watching(
    directory: Directory | Path | str, store: Path | str, *, last: bool = True, **wishes: Any
) -> Iterator[Watcher]:
    hooks = WatchHooks(**{name: wishes.pop(name) for name in HOOKS & wishes.keys()})
    options = wishes.pop("storage_options", None)
    pace = WatchPace(**{"poll": 0.005, "backoff": 0.01, **wishes})
    watcher = Watcher(directory, store, pace, hooks, storage_options=options)
    watcher.start()
    try:
        yield watcher
    finally:
        status = watcher.stop(last=last)
        assert not status.running


def until(watcher: Watcher, holds: Callable[[WatchStatus], bool]) -> WatchStatus:
    deadline = time.monotonic() + PATIENCE
    while not holds(status := watcher.status()):
        assert time.monotonic() < deadline, str(status)
        time.sleep(0.005)
    return status


def holds_batch(number: int) -> Callable[[WatchStatus], bool]:
    return lambda status: status.last is not None and status.last.batch >= number


@pytest.fixture
def growing(tmp_path: Path) -> GrowingDirectory:
    return GrowingDirectory(tmp_path / "directory").run_batches(1)


class Overtaken(LocalDirectory):
    """Is so slow at times that what it has listed is gone before it is read."""

    def __init__(self, growing: GrowingDirectory) -> None:
        super().__init__(growing.root)
        self.growing = growing
        self.chance = random.Random(int(os.environ["SEAMARK_SEED"]))

    def listing(self) -> dict[str, FileEntry]:
        found = super().listing()
        behind = self.growing.next_batch + self.chance.choice((0, 0, 5))
        deadline = time.monotonic() + 1
        while self.growing.next_batch < behind and time.monotonic() < deadline:
            time.sleep(0.005)
        return found


def test_no_hole_is_stored_while_maintenance_removes_all_that_is_old(
    growing: GrowingDirectory, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "seamark.spark")
    with watching(Overtaken(growing), tmp_path / "store", keep=None) as watcher:
        # on a machine that has no time for the watcher the batches wait for it
        def is_followed() -> bool:
            last = watcher.status().last
            return growing.next_batch - (last.batch if last else 0) < 50

        with growing.running(may_go_on=is_followed):
            until(watcher, lambda s: s.checkpoints >= 15 and "was not whole" in caplog.text)
    status = watcher.status()
    assert status.newest_batch == growing.next_batch - 1
    assert (status.lag_batches, status.lag_seconds) == (0, 0.0)
    batches = batches_restored_from(tmp_path / "store", tmp_path)
    assert len(batches) == status.checkpoints
    assert batches == sorted(set(batches))
    assert batches[-1] == growing.next_batch - 1


def test_two_watchers_of_one_directory_hold_each_other_up_but_not_for_good(
    growing: GrowingDirectory, tmp_path: Path
) -> None:
    store = tmp_path / "store"
    with watching(growing.root, store, keep=None) as one, watching(growing.root, store) as two:
        with growing.running(0.03):
            until(one, lambda status: status.checkpoints >= 3)
            until(two, lambda status: status.checkpoints >= 3)
        for watcher in (one, two):
            until(watcher, holds_batch(growing.next_batch - 1))
    batches = batches_restored_from(store, tmp_path)
    assert batches == sorted(batches)  # one is there twice when its plan became known in between
    assert batches[-1] == growing.next_batch - 1


def test_only_as_many_checkpoints_as_wanted_are_kept(
    growing: GrowingDirectory, tmp_path: Path
) -> None:
    with watching(growing.root, tmp_path / "store", keep=2, longest_chain=0) as watcher:
        for _ in range(5):
            until(watcher, holds_batch(growing.next_batch - 1))
            growing.run_batch()
    assert batches_restored_from(tmp_path / "store", tmp_path) == [4, 5]


def test_a_store_that_is_away_is_told_once_and_caught_up_with(
    growing: GrowingDirectory, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    place = tmp_path / "disk"
    place.write_text("not mounted")
    with watching(growing.root, place / "store") as watcher:
        status = until(watcher, lambda status: status.failures_in_a_row >= 3)
        assert status.running
        assert status.last is None
        assert status.lag_batches == 1
        assert status.lag_seconds is not None
        assert status.lag_seconds > 0
        assert status.last_failure is not None
        assert str(place) in status.last_failure.what
        assert abs(status.last_failure.at - time.time()) < 10
        place.unlink()
        place.mkdir()
        status = until(watcher, holds_batch(0))
        until(watcher, lambda status: status.failures_in_a_row == 0)
    assert status.failures >= 3
    warnings = [each for each in caplog.records if each.levelno >= logging.WARNING]
    assert [each.name for each in warnings] == ["seamark.spark"]
    assert str(growing.root) in warnings[0].getMessage()
    assert batches_restored_from(place / "store", tmp_path) == [0]


class Interrupted(LocalDirectory):
    """Does something once, in the middle of a checkpoint."""

    def __init__(self, root: Path, what: Callable[[], object]) -> None:
        super().__init__(root)
        self.what: Callable[[], object] | None = what

    def read(self, path: str) -> bytes:
        if path.endswith(".delta") and self.what is not None:
            what, self.what = self.what, None
            what()
        return super().read(path)


def rival_claims(
    monkeypatch: pytest.MonkeyPatch, store: Path, times: float
) -> list[CheckpointStore]:
    """Have another writer take the store just before a checkpoint is saved, some times."""
    save = CheckpointStore.save_with_state
    rivals: list[CheckpointStore] = []

    def overtaken(self: CheckpointStore, *args: Any) -> CheckpointManifest:
        if len(rivals) < times:
            with open_store(store) as rival:
                rival.claim(pipeline=pipeline_name(QUERY))
                rivals.append(rival)
        return save(self, *args)

    monkeypatch.setattr(CheckpointStore, "save_with_state", overtaken)
    return rivals


def test_a_checkpoint_that_loses_the_store_is_soon_taken_again_and_is_no_failure(
    growing: GrowingDirectory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rivals = rival_claims(monkeypatch, tmp_path / "store", 4)
    with watching(growing.root, tmp_path / "store") as watcher:
        status = until(watcher, holds_batch(0))
    assert (len(rivals), status.failures) == (4, 0)
    assert batches_restored_from(tmp_path / "store", tmp_path) == [0]


def test_a_store_that_is_always_lost_is_told_as_a_failure(
    growing: GrowingDirectory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rivals = rival_claims(monkeypatch, tmp_path / "store", math.inf)
    with watching(growing.root, tmp_path / "store", last=False) as watcher:
        status = until(watcher, lambda status: status.failures >= 2)
        assert status.last_failure is not None
        assert "another writer" in status.last_failure.what
    assert len(rivals) >= 4
    assert watcher.status().last is None


def test_the_store_is_free_for_others_between_two_checkpoints(
    growing: GrowingDirectory, tmp_path: Path
) -> None:
    with watching(growing.root, tmp_path / "store") as watcher:
        until(watcher, holds_batch(0))
        with open_store(tmp_path / "store") as other:  # would be refused beside a living claim
            other.pin("first", other.list_ids()[0])
            growing.run_batch()
            until(watcher, holds_batch(1))
            other.prune(1)
    assert watcher.status().failures == 0


def test_a_store_of_another_query_is_left_alone(growing: GrowingDirectory, tmp_path: Path) -> None:
    with open_store(tmp_path / "store") as other:
        other.claim(pipeline="spark-another")
        with watching(growing.root, tmp_path / "store") as watcher:
            status = until(watcher, lambda status: status.failures >= 2)
        assert status.last_failure is not None
        assert "spark-another" in status.last_failure.what
        assert other.list_ids() == []


def test_stopping_takes_the_newest_batch_first_unless_told_not_to(
    growing: GrowingDirectory, tmp_path: Path
) -> None:
    for last, expected in ((False, 0), (True, 1)):
        with watching(growing.root, tmp_path / "store", every=1000, last=last) as watcher:
            until(watcher, holds_batch(0))
            if not last:
                growing.run_batch()
                status = until(watcher, lambda status: status.lag_batches == 1)
                assert status.newest_batch == 1
        last_one = watcher.status().last
        assert last_one is not None
        assert last_one.batch == expected
        assert watcher.stop().checkpoints == watcher.status().checkpoints  # once more is fine


class Halted(Interrupted):
    """Stands still in the middle of a checkpoint until told to go on."""

    def __init__(self, root: Path) -> None:
        self.reading, self.go_on = threading.Event(), threading.Event()
        super().__init__(root, self.halt)

    def halt(self) -> None:
        self.reading.set()
        assert self.go_on.wait(PATIENCE)


def test_stopping_in_the_middle_of_a_checkpoint_waits_for_it(
    growing: GrowingDirectory, tmp_path: Path
) -> None:
    halted = Halted(growing.root)
    with watching(halted, tmp_path / "store") as watcher:
        assert halted.reading.wait(PATIENCE)
        growing.run_batch()
        watcher.finish()
        assert not watcher.join(0.02)
        halted.go_on.set()
        assert watcher.join(PATIENCE)
    assert batches_restored_from(tmp_path / "store", tmp_path) == [0, 1]


def test_a_checkpoint_that_nobody_waits_for_is_given_up_and_leaves_nothing(
    growing: GrowingDirectory, tmp_path: Path
) -> None:
    halted = Halted(growing.root)
    with watching(halted, tmp_path / "store", last=False) as watcher:
        assert halted.reading.wait(PATIENCE)
        assert watcher.stop(0.01).running  # the time is over, the thread is not
        halted.go_on.set()
    assert watcher.status().failures == 0
    assert batches_restored_from(tmp_path / "store", tmp_path) == []


def test_a_directory_that_was_rolled_back_is_taken_anew(
    growing: GrowingDirectory, tmp_path: Path
) -> None:
    growing.run_batches(3)
    with watching(growing.root, tmp_path / "store", every=1000) as watcher:
        until(watcher, holds_batch(3))
        for number in (2, 3):
            (growing.root / f"commits/{number}").unlink()
        until(watcher, lambda status: status.last is not None and status.last.batch == 1)
    assert batches_restored_from(tmp_path / "store", tmp_path)[-1] == 1


@pytest.mark.parametrize("further", [0, 1])
def test_a_batch_that_was_run_again_under_its_number_is_taken_anew(
    further: int, growing: GrowingDirectory, tmp_path: Path
) -> None:
    growing.run_batch()
    again = offsets_text('{"logOffset":1}', watermark=7).encode()
    with watching(growing.root, tmp_path / "store", every=1000) as watcher:
        until(watcher, holds_batch(1))
        growing.put("offsets/1", again)
        growing.run_batches(further)
        until(watcher, lambda status: status.checkpoints >= 2)
    assert watcher.status().lag_batches == 0
    with open_store(tmp_path / "store") as store:
        restored = restore_directory(store, store.list_ids()[-1], LocalDirectory(tmp_path / "r"))
    assert restored.batch == 1 + further
    assert (tmp_path / "r/offsets/1").read_bytes() == again


def test_stopping_takes_a_batch_that_was_run_again_under_its_number(
    growing: GrowingDirectory, tmp_path: Path
) -> None:
    with watching(growing.root, tmp_path / "store", poll=3600.0) as watcher:
        until(watcher, holds_batch(0))
        growing.put("commits/0", b'v1\n{"nextBatchWatermarkMs":7}')
    assert watcher.status().checkpoints == 2
    assert batches_restored_from(tmp_path / "store", tmp_path) == [0, 0]
    assert "7" in (tmp_path / "restored-2/commits/0").read_text()


def test_a_directory_may_appear_later(tmp_path: Path) -> None:
    with watching(tmp_path / "directory", tmp_path / "store") as watcher:
        time.sleep(0.05)
        status = watcher.status()
        assert (status.newest_batch, status.lag_batches, status.failures) == (None, None, 0)
        GrowingDirectory(tmp_path / "directory").run_batch()
        until(watcher, holds_batch(0))
    assert watcher.status().failures == 0


def test_a_batch_that_is_stored_already_is_not_stored_again(
    growing: GrowingDirectory, tmp_path: Path
) -> None:
    for taken in (1, 0):
        with watching(growing.root, tmp_path / "store") as watcher:
            status = until(watcher, holds_batch(0))
        assert status.checkpoints == taken
    assert batches_restored_from(tmp_path / "store", tmp_path) == [0]


def test_the_watcher_ends_with_what_it_watches_after_the_last_batch(
    growing: GrowingDirectory, tmp_path: Path
) -> None:
    alive = threading.Event()
    alive.set()
    ended: list[bool] = []
    with watching(
        growing.root,
        tmp_path / "store",
        every=1000.0,
        is_alive=alive.is_set,
        on_end=lambda: ended.append(True),
    ) as watcher:
        until(watcher, holds_batch(0))
        growing.run_batch()
        alive.clear()
        assert watcher.join(PATIENCE)
        assert holds_batch(1)(watcher.status())
    assert ended == [True]


class Unreachable(LocalDirectory):
    def newest_commit(self) -> int | None:
        raise StoreUnavailableError("no: secret_access_key=verysecret of hunter22")


def test_no_secret_reaches_the_status_or_the_log(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, "seamark.spark")
    options = {"password": "hunter22"}
    with watching(Unreachable(tmp_path / "d"), tmp_path / "s", storage_options=options) as watcher:
        status = until(watcher, lambda status: status.failures >= 2)
    for text in (str(status), repr(status), caplog.text):
        assert "***" in text
        assert "hunter22" not in text
        assert "verysecret" not in text


def test_a_store_inside_the_directory_is_refused(growing: GrowingDirectory) -> None:
    for store in (growing.root, growing.root / "store", growing.root.parent):
        with pytest.raises(InvalidInputError, match="must not contain each other"):
            Watcher(growing.root, store)
    with pytest.raises(InvalidInputError, match="must not contain each other"):
        Watcher(growing.root, growing.root.as_uri())


def test_a_cheap_look_sees_what_a_whole_listing_sees(
    growing: GrowingDirectory, s3: ObjectServer, tmp_path: Path
) -> None:
    growing.run_batches(11)
    growing.put("commits/.12.crc", b"")
    growing.put("commits/13.tmp", b"")
    here = LocalDirectory(growing.root)
    assert here.newest_commit() == Directory.newest_commit(here) == 11
    (tmp_path / "empty").mkdir()
    assert LocalDirectory(tmp_path / "empty").newest_commit() is None
    there = ObjectDirectory(s3.new_url("query"), s3.storage_options)
    try:
        assert there.newest_commit() is None
        for name in ("commits/9", "commits/10", "commits/.11.crc", "offsets/12"):
            there.write(name, b"v1")
        assert there.newest_commit() == Directory.newest_commit(there) == 10
    finally:
        there.close()


def test_a_directory_and_its_store_may_be_in_a_bucket(
    growing: GrowingDirectory, s3: ObjectServer
) -> None:
    place, store = s3.new_url("query"), s3.new_url("store")
    options = s3.storage_options
    there = ObjectDirectory(place, options)
    here = LocalDirectory(growing.root)
    try:
        for batch in (0, 1):
            for path in here.listing():
                there.write(path, here.read(path))
            with watching(place, store, storage_options=options) as watcher:
                status = until(watcher, holds_batch(batch))
                assert (status.checkpoints, status.failures) == (1, 0)
            growing.run_batch()
    finally:
        there.close()
    with open_store(store, storage_options=options) as opened:
        assert len(opened.list_ids()) == 2
