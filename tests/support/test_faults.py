"""A fault strikes the calls it is meant for, as often as it says, and breaks nothing else."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from typing import Any

import obstore
import pytest
from obstore.exceptions import GenericError
from obstore.store import MemoryStore

from tests.support.disk import SimulatedDisk
from tests.support.faults import Fault
from tests.support.recording import Recording


@pytest.fixture
def disk() -> SimulatedDisk:
    return SimulatedDisk()


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore()


def faulty(disk: SimulatedDisk, *faults: Fault) -> Any:
    return Recording(faults=faults).wrap(disk)


def test_fail_before_does_nothing_and_only_so_often(disk: SimulatedDisk) -> None:
    fault = Fault("fail_before", r"^mkdir /b", count=2, skip=1)
    recording = Recording(faults=[fault])
    o = recording.wrap(disk)
    o.mkdir("/a")
    o.mkdir("/b0")
    for _ in range(2):
        with pytest.raises(OSError, match="Input/output error") as failed:
            o.mkdir("/b1")
        assert failed.value.errno == errno.EIO
    assert recording.fired(fault) == 2
    o.mkdir("/b1")
    assert disk.tree().split() == ["a/", "~name", "b0/", "~name", "b1/", "~name"]


def test_fail_after_took_effect(disk: SimulatedDisk, store: MemoryStore) -> None:
    with pytest.raises(TimeoutError):
        faulty(disk, Fault("fail_after", "mkdir", error=TimeoutError)).mkdir("/a")
    assert disk.path.isdir("/a")
    recording = Recording(faults=[Fault("fail_after", lambda call: call.name == "put")])
    with pytest.raises(GenericError):
        recording.wrap(obstore, kind="obstore").put(store, "a", b"1")
    assert bytes(obstore.get(store, "a").bytes()) == b"1"


def test_a_call_that_failed_by_itself_does_not_use_up_fail_after(disk: SimulatedDisk) -> None:
    o = faulty(disk, Fault("fail_after", "mkdir", error=TimeoutError))
    with pytest.raises(FileNotFoundError):
        o.mkdir("/none/a")
    with pytest.raises(TimeoutError):
        o.mkdir("/a")


def test_torn_and_short_writes(disk: SimulatedDisk) -> None:
    o = faulty(disk, Fault("torn", keep=0.25), Fault("short_write", keep=0.75))
    fd = o.open("/f", os.O_WRONLY | os.O_CREAT)
    with pytest.raises(OSError, match="Input/output error"):
        o.write(fd, b"12345678")
    assert disk.files() == {"/f": b"12"}
    assert o.write(fd, b"abcd") == 3
    assert disk.files() == {"/f": b"12abc"}
    assert o.write(fd, b"d") == 1


def test_a_torn_write_never_is_a_whole_one(disk: SimulatedDisk) -> None:
    o = faulty(disk, Fault("torn", keep=1.0, count=None))
    fd = o.open("/f", os.O_WRONLY | os.O_CREAT)
    for data in (b"123", b"1", b""):
        with pytest.raises(OSError, match="Input/output error"):
            o.write(fd, data)
    assert disk.files() == {"/f": b"12"}


def test_a_bit_flips_in_what_was_read_and_not_on_the_disk(
    disk: SimulatedDisk, store: MemoryStore
) -> None:
    fd = disk.open("/f", os.O_RDWR | os.O_CREAT)
    o = faulty(disk, Fault("bit_flip", bit=1, count=None))
    assert o.read(fd, 9) == b""
    disk.write(fd, b"\0\0\0\0")
    assert o.pread(fd, 4, 0) == b"\2\0\0\0"
    buffers = [bytearray(0), bytearray(3), bytearray(3)]
    assert o.preadv(fd, buffers, 0) == 4
    assert buffers == [b"", b"\2\0\0", b"\0\0\0"]
    assert disk.files() == {"/f": b"\0\0\0\0"}

    obstore.put(store, "a", b"\0\0")
    objects = Recording(faults=[Fault("bit_flip", count=None)]).wrap(obstore, kind="obstore")
    assert bytes(objects.get(store, "a").bytes()) == b"\0\1"
    assert [*objects.get(store, "a").stream()] == [b"\0\1"]
    assert objects.get_range(store, "a", start=0, length=1) == b"\x10"
    (part,) = objects.get_ranges(store, "a", starts=[0], lengths=[2])
    assert part == b"\0\1"


def test_a_full_disk_refuses_what_needs_space_and_nothing_else(disk: SimulatedDisk) -> None:
    disk.close(disk.open("/f", os.O_CREAT))
    o = faulty(disk, Fault("disk_full", count=None))
    fd = o.open("/f", os.O_WRONLY)
    refusals: list[Callable[[], Any]] = [
        lambda: o.write(fd, b"1"),
        lambda: o.open("/g", os.O_CREAT),
        lambda: o.mkdir("/d"),
        lambda: o.fsync(fd),
    ]
    for call in refusals:
        with pytest.raises(OSError, match="No space left") as refused:
            call()
        assert refused.value.errno == errno.ENOSPC
    o.unlink("/f")
    assert o.listdir("/") == []


def test_a_stale_listing_is_the_previous_one(disk: SimulatedDisk, store: MemoryStore) -> None:
    o = faulty(disk, Fault("stale_listing", count=None))
    assert o.listdir("/") == []
    o.mkdir("/a")
    assert o.listdir("/") == [], "shows what the previous listing showed"
    assert o.listdir("/") == ["a"]
    objects = Recording(faults=[Fault("stale_listing")]).wrap(obstore, kind="obstore")
    objects.put(store, "x/1", b"")
    assert [meta["path"] for meta in objects.list(store, "x").collect()] == ["x/1"]
    objects.put(store, "x/2", b"")
    objects.delete(store, "x/1")
    assert [meta["path"] for chunk in objects.list(store, "x") for meta in chunk] == ["x/1"]
    assert [meta["path"] for meta in objects.list(store, "x").collect()] == ["x/2"]


def test_a_listing_hides_what_the_last_calls_made(disk: SimulatedDisk, store: MemoryStore) -> None:
    o = faulty(disk, Fault("stale_listing", behind=2, count=None))
    for name in ("/a", "/b", "/c"):
        o.mkdir(name)
    with o.scandir("/") as entries:
        assert [entry.name for entry in entries] == ["a"]
    assert sorted(o.listdir("/")) == ["a", "b"]
    assert sorted(o.listdir("/")) == ["a", "b", "c"]

    obstore.put(store, "x/0", b"")
    fault = Fault("stale_listing", behind=1, count=None)
    objects = Recording(faults=[fault]).wrap(obstore, kind="obstore")
    objects.put(store, "x/1", b"")
    objects.put(store, "x/2", b"")
    found = objects.list_with_delimiter(store, "x")["objects"]
    assert [meta["path"] for meta in found] == ["x/0", "x/1"]


def test_slow_takes_longer(disk: SimulatedDisk, monkeypatch: pytest.MonkeyPatch) -> None:
    slept: list[float] = []
    monkeypatch.setattr("tests.support.recording.time.sleep", slept.append)
    faulty(disk, Fault("slow", seconds=3)).mkdir("/a")
    assert (slept, disk.path.isdir("/a")) == ([3], True)
