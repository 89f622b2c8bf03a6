"""Flushes that fail: nothing leaves the buffer, nothing is counted, nothing is written twice."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import obstore
import pytest
from obstore.exceptions import GenericError, PermissionDeniedError
from obstore.store import MemoryStore

from seamark.blobs import conditional_writes as settle
from seamark.blobs import object_store
from seamark.blobs.contract import Tag
from seamark.blobs.filesystem import FilesystemBlobs
from seamark.blobs.memory import MemoryBlobs
from seamark.errors import OutcomeUnknownError, RefusedError, StoreUnavailableError
from seamark.state import BatchMetrics, CheckpointBatcher
from tests.state.support.objects import stored
from tests.support.disk import SimulatedDisk
from tests.support.faults import Fault
from tests.support.mounting import mount
from tests.support.recording import Recording

PUT = r"^put checkpoints/batch-"
TIMED_OUT = GenericError("operation timed out")


@pytest.fixture
def failing(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """Makes requests to an object store fail."""
    monkeypatch.setattr(settle, "_DELAYS", (0.0, 0.0, 0.0))

    @contextmanager
    def fail(*faults: Fault) -> Iterator[Recording]:
        recording = Recording(faults=faults)
        wrapped = recording.wrap(obstore, kind="obstore")
        monkeypatch.setattr(object_store, "obstore", wrapped)
        yield recording
        monkeypatch.setattr(object_store, "obstore", obstore)

    return fail


@pytest.mark.parametrize(
    "fault",
    [
        Fault("fail_before", PUT, count=None),
        Fault("fail_before", PUT, count=None, error=TIMED_OUT),
        Fault("fail_before", PUT, error=PermissionDeniedError("no")),
    ],
    ids=["broken", "timed out", "denied"],
)
def test_a_flush_that_fails_keeps_everything_and_can_be_repeated(
    fault: Fault, failing: Callable[..., Any]
) -> None:
    store = MemoryStore()
    batcher = CheckpointBatcher(store)
    batcher.add("first", b"1")
    batcher.flush(7)
    batcher.add("a", b"xyz")
    batcher.add("b", b"")
    before = (len(batcher), batcher.buffer_size(), batcher.metrics(), stored(store))
    with failing(fault) as recording:
        for _ in range(2 if fault.count is None else 1):
            with pytest.raises(StoreUnavailableError):
                batcher.flush(7)
            now = (len(batcher), batcher.buffer_size(), batcher.metrics(), stored(store))
            assert now == before
    assert recording.fired(fault) >= 1
    batcher.flush(7)
    assert batcher.load(7) == [("first", b"1"), ("a", b"xyz"), ("b", b"")]
    assert (batcher.metrics().put_count, batcher.metrics().entries_flushed) == (2, 3)
    assert len(batcher) == 0


def test_a_flush_that_worked_but_timed_out_is_a_flush(failing: Callable[..., Any]) -> None:
    store = MemoryStore()
    batcher = CheckpointBatcher(store)
    batcher.add("k", b"v")
    fault = Fault("fail_after", PUT, error=TIMED_OUT)
    with failing(fault) as recording:
        batcher.flush(7)
    assert recording.fired(fault) == 1
    assert list(stored(store)) == ["checkpoints/batch-000007.lz4"]
    assert (len(batcher), batcher.metrics().put_count) == (0, 1)
    assert batcher.load(7) == [("k", b"v")]


def test_a_flush_whose_outcome_stays_unknown_can_be_repeated_without_writing_twice(
    failing: Callable[..., Any],
) -> None:
    store = MemoryStore()
    batcher = CheckpointBatcher(store)
    batcher.add("k", b"v")
    down = [
        Fault("fail_after", PUT, error=TIMED_OUT),
        Fault("fail_before", r"^get checkpoints/batch-", count=None),
        Fault("fail_before", PUT, count=None, skip=1),
    ]
    with failing(*down), pytest.raises(OutcomeUnknownError):
        batcher.flush(7)
    assert (len(batcher), batcher.metrics()) == (1, BatchMetrics())
    batcher.flush(7)
    assert len(stored(store)) == 1
    assert batcher.load(7) == [("k", b"v")]


def test_a_short_trouble_is_sat_out(failing: Callable[..., Any]) -> None:
    batcher = CheckpointBatcher(MemoryStore())
    batcher.add("k", b"v")
    with failing(Fault("fail_before", PUT, count=3, error=TIMED_OUT)):
        batcher.flush(7)
    assert batcher.load(7) == [("k", b"v")]


def test_a_load_that_fails_is_not_an_empty_epoch(failing: Callable[..., Any]) -> None:
    batcher = CheckpointBatcher(MemoryStore())
    batcher.add("k", b"v")
    batcher.flush(7)
    for request in ("list", "get"):
        with failing(Fault("fail_before", f"^{request}")), pytest.raises(StoreUnavailableError):
            batcher.load(7)


class Unconditional(MemoryBlobs):
    """Takes conditions and ignores them, as some object stores do."""

    needs_probe = True

    def create(self, key: str, data: bytes) -> Tag:
        return self._set(key, data)

    def replace(self, key: str, data: bytes, tag: Tag, *, durable: bool = True) -> Tag:
        return self._set(key, data)


def test_a_store_that_ignores_conditions_loses_no_batch_in_silence() -> None:
    blobs = Unconditional()
    for number in range(2):  # as after a restart
        batcher = CheckpointBatcher(blobs)
        batcher.add(str(number), b"")
        try:
            batcher.flush(7)
        except RefusedError:
            return
    assert CheckpointBatcher(blobs).load(7) == [("0", b""), ("1", b"")]


def test_a_flush_to_a_disk_that_fails_keeps_everything_and_can_be_repeated(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Wherever it fails: what could be read back may not be durable, and is made so."""
    for index in range(1, 60):
        disk = SimulatedDisk()
        recording = Recording(faults=[Fault("fail_before", lambda c, i=index: c.index == i)])  # type: ignore[misc]
        mount(monkeypatch, recording.wrap(disk), recording.wrap(disk.fcntl))
        batcher = CheckpointBatcher(FilesystemBlobs("/store"))
        batcher.add("k", b"v")
        try:
            batcher.flush(7)
        except OSError:
            assert (len(batcher), batcher.metrics()) == (1, BatchMetrics())
            batcher.flush(7)
        calls = len(recording.calls)
        mount(monkeypatch, disk, disk.fcntl)
        assert batcher.metrics().put_count == 1
        assert batcher.load(7) == [("k", b"v")]
        for seed in range(5):
            files = disk.after_power_cut(random.Random(seed)).files()
            assert len([p for p in files if "/checkpoints/batch-" in p]) == 1
        if calls < index:
            return
    pytest.fail("there were more calls than were tried")


def test_a_file_that_cannot_be_closed_is_told_as_every_other_trouble(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    disk = SimulatedDisk()
    recording = Recording(faults=[Fault("fail_after", r"^close /store/tmp/")])
    mount(monkeypatch, recording.wrap(disk), recording.wrap(disk.fcntl))
    batcher = CheckpointBatcher(FilesystemBlobs("/store"))
    batcher.add("k", b"v")
    with pytest.raises(StoreUnavailableError):
        batcher.flush(7)
    batcher.flush(7)
    assert batcher.load(7) == [("k", b"v")]
