"""A process that takes one checkpoint and ends reads what is new, and the rest once a day."""

from __future__ import annotations

import os
import time
from collections import Counter
from pathlib import Path

import pytest

from seamark.checkpoint_dir.places.local import LocalDirectory
from seamark.manifest.facts import SharedObject
from seamark.native import snapshot
from seamark.native.daily_reads import DAY, due_between
from seamark.native.snapshot import Snapshot, take_snapshot
from seamark.store import open_store
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


def once(growing: GrowingDirectory, tmp_path: Path, keep: int = 2) -> Snapshot:
    with open_store(tmp_path / "store") as store:
        return take_snapshot(
            LocalDirectory(growing.root), store, keep=keep, longest_chain=1, read_daily=True
        )


def let_pass(monkeypatch: pytest.MonkeyPatch, seconds: float) -> None:
    real = time.time()

    class Clock:
        perf_counter, sleep = time.perf_counter, time.sleep

        @staticmethod
        def time() -> float:
            return real + seconds

    monkeypatch.setattr(snapshot, "time", Clock)


def objects(count: int) -> list[SharedObject]:
    return [SharedObject(f"1-{os.urandom(16).hex()}", 1, "0" * 64) for _ in range(count)]


@pytest.mark.parametrize("pause", [300.0, 3_599.0, DAY / 3, DAY - 1])
def test_every_object_has_its_turn_once_a_day_however_often_it_is_asked(pause: float) -> None:
    named = objects(50)
    turns: Counter[SharedObject] = Counter()
    begin = now = 1_790_000_000.0
    while now < begin + 3 * DAY:
        until = min(now + pause, begin + 3 * DAY)
        turns.update(due_between(named, now, until))
        now = until
    assert set(turns.values()) == {3}
    assert len(turns) == len(named)


def test_after_a_day_all_have_their_turn_and_after_no_time_none() -> None:
    named = objects(200)
    assert due_between(named, 1e9, 1e9 + DAY) == named
    assert due_between(named, 1e9, 1e9) == []
    assert due_between(named, 1e9, 1e9 - DAY) == [], "the clock was put back"


def test_one_process_after_another_reads_no_stored_state(
    growing: GrowingDirectory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    once(growing, tmp_path)
    monkeypatch.setattr("seamark.native.daily_reads._moment", lambda _: (time.time() + 9e3) % DAY)
    read = CountedBytes(monkeypatch)
    for _ in range(4):
        growing.run_batch()
        assert once(growing, tmp_path).is_new
    assert read.since_last() == 0
    with open_store(tmp_path / "store") as store:
        assert len(store.list_ids()) <= 4, "nothing was pruned"


def test_a_day_later_each_object_is_read_once_and_nothing_when_there_is_no_new_batch(
    growing: GrowingDirectory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    once(growing, tmp_path)
    let_pass(monkeypatch, DAY)
    read = CountedBytes(monkeypatch)
    assert not once(growing, tmp_path).is_new
    assert read.since_last() == 0
    growing.run_batch()
    once(growing, tmp_path)
    assert read.since_last() == STATE


def test_damage_that_is_found_is_not_built_on_and_pushes_out_nothing_good(
    growing: GrowingDirectory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    once(growing, tmp_path)
    for path in (tmp_path / "store" / SHARED_PREFIX).glob("*"):
        path.chmod(0o600)
        path.write_bytes(bytes(path.stat().st_size))
    let_pass(monkeypatch, DAY)
    growing.run_batch()
    taken = once(growing, tmp_path, keep=1)
    assert taken.is_full
    with open_store(tmp_path / "store") as store:
        assert store.validate_checkpoint(taken.checkpoint_id).valid
