"""Batchers side by side, and on every kind of store."""

from __future__ import annotations

import fcntl
import multiprocessing
import os
import random
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import obstore
import pytest
from obstore.store import LocalStore, MemoryStore, from_url

from seamark.blobs.filesystem import FilesystemBlobs
from seamark.blobs.memory import MemoryBlobs
from seamark.errors import SeamarkError
from seamark.state import CheckpointBatcher, decode_batch
from tests.support.disk import SimulatedDisk
from tests.support.mounting import mount
from tests.support.recording import Recording
from tests.support.servers import ObjectServer

# Several at once.


def test_many_threads_add_and_flush() -> None:
    batcher = CheckpointBatcher(MemoryStore(), flush_threshold=2000)

    def work(thread: int) -> None:
        for number in range(200):
            batcher.add(f"{thread}/{number}", b"%d" % number)
            if batcher.should_flush():
                batcher.flush(7)

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(work, range(8)))
    batcher.flush(7)
    found = batcher.load(7)
    assert len(found) == 1600
    assert dict(found) == {f"{t}/{n}": b"%d" % n for t in range(8) for n in range(200)}
    metrics = batcher.metrics()
    assert metrics.entries_flushed == 1600
    assert metrics.bytes_before_compression == sum(len(k) + len(d) + 8 for k, d in found)
    assert (len(batcher), batcher.buffer_size()) == (0, 0)


def flush_some(where: str, name: str) -> None:
    batcher = CheckpointBatcher(where, "nodes/")
    for number in range(20):
        batcher.add(f"{name}/{number}", name.encode())
        batcher.flush(7)


def test_two_batchers_of_one_epoch_do_not_overwrite_each_other() -> None:
    store = MemoryStore()
    first, second = CheckpointBatcher(store), CheckpointBatcher(store)
    for number in range(5):
        first.add(f"first/{number}", b"1")
        second.add(f"second/{number}", b"2")
        first.flush(7)
        second.flush(7)
    everything = {
        f"{who}/{n}": d for who, d in (("first", b"1"), ("second", b"2")) for n in range(5)
    }
    assert dict(first.load(7)) == dict(second.load(7)) == everything
    assert len(first.load(7)) == 10


def test_two_processes_of_one_epoch_do_not_overwrite_each_other(tmp_path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    where = str(tmp_path / "store")
    processes = [context.Process(target=flush_some, args=(where, name)) for name in ("a", "b")]
    for process in processes:
        process.start()
    for process in processes:
        process.join(280)
    assert [process.exitcode for process in processes] == [0, 0]
    found = CheckpointBatcher(where, "nodes/").load(7)
    assert sorted(found) == sorted((f"{x}/{n}", x.encode()) for x in "ab" for n in range(20))


# Every kind of store.


def check(open_one: Callable[[], CheckpointBatcher]) -> None:
    """What must hold wherever a batcher writes to."""
    noise = random.Random(1).randbytes(100_000)
    batcher = open_one()
    assert batcher.load(7) == []
    batcher.add("noise", noise)
    batcher.add("é/agg", b"")
    batcher.flush(7)
    batcher.add("second", b"2")
    batcher.flush(7)
    again = open_one()
    again.add("third", b"3")
    again.flush(7)
    everything = [("noise", noise), ("é/agg", b""), ("second", b"2"), ("third", b"3")]
    assert again.load(7) == batcher.load(7) == everything
    assert again.load(8) == []


@pytest.mark.parametrize("prefix", ["", "nodes/abc123/", "no-slash"])
def test_every_store_holds_batches(prefix: str, tmp_path: Path) -> None:
    memory, blobs, obstores, plain = MemoryStore(), MemoryBlobs(), tmp_path / "o", tmp_path / "p"
    obstores.mkdir()
    check(lambda: CheckpointBatcher(memory, prefix))
    check(lambda: CheckpointBatcher(blobs, prefix))
    check(lambda: CheckpointBatcher(LocalStore(obstores), prefix))
    check(lambda: CheckpointBatcher(str(plain), prefix))
    check(lambda: CheckpointBatcher(plain / "b", prefix))
    check(lambda: CheckpointBatcher(f"file://{plain}/c", prefix))
    check(lambda: CheckpointBatcher(f"memory://batcher-{prefix}x", prefix))


@pytest.mark.parametrize("prefix", ["", "nodes/abc123/"])
def test_s3_holds_batches(prefix: str, s3: ObjectServer) -> None:
    url = s3.new_url("team")
    store = from_url(url, **s3.storage_options)
    check(lambda: CheckpointBatcher(store, prefix))
    metas = [meta["path"] for page in obstore.list(store) for meta in page]
    assert f"{prefix}checkpoints/batch-000007.lz4" in metas


def test_a_bucket_that_does_not_exist_is_not_an_empty_epoch(s3: ObjectServer) -> None:
    batcher = CheckpointBatcher(from_url("s3://no-such-bucket/x", **s3.storage_options))
    batcher.add("k", b"v")
    with pytest.raises(SeamarkError):
        batcher.load(7)
    with pytest.raises(SeamarkError):
        batcher.flush(7)
    assert len(batcher) == 1


class SubLocalStore(LocalStore):
    """As somebody may make who adds a method of his own."""


@pytest.mark.parametrize(
    "open_store",
    [
        LocalStore,
        SubLocalStore,
        lambda folder: LocalStore(str(folder)),
        lambda folder: from_url(f"file://{folder}"),
    ],
    ids=["path", "subclass", "text", "url"],
)
def test_batches_in_a_local_store_are_durable_files_of_its_directory(
    open_store: Callable[[Path], Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever obstore does itself is not fsynced, so our own backend must have done it."""
    batcher = CheckpointBatcher(open_store(tmp_path), "nodes/")
    recording = Recording()
    mount(monkeypatch, recording.wrap(os), recording.wrap(fcntl))
    batcher.add("k", b"v")
    batcher.flush(7)
    path = tmp_path / "nodes/checkpoints/batch-000007.lz4"
    assert decode_batch(path.read_bytes()) == [("k", b"v")]
    calls = [str(call) for call in recording.calls]
    linked = next(n for n, call in enumerate(calls) if call.startswith("link "))
    assert any(call.startswith("fsync") and "/tmp/" in call for call in calls[:linked])
    assert any(call.startswith("fsync") and "nodes/checkpoints" in call for call in calls[linked:])


def test_a_flush_survives_every_power_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    disk = SimulatedDisk()
    mount(monkeypatch, disk, disk.fcntl)
    batcher = CheckpointBatcher(FilesystemBlobs("/store"))
    for number in range(3):
        batcher.add(str(number), b"x")
        batcher.flush(7)
    for seed in range(50):
        files = disk.after_power_cut(random.Random(seed)).files()
        parts = sorted(path for path in files if "/checkpoints/batch-000007" in path)
        assert len(parts) == 3
        found = [entry for path in parts for entry in decode_batch(files[path])]
        assert sorted(found) == [("0", b"x"), ("1", b"x"), ("2", b"x")]
