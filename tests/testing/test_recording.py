"""A recording sees every I/O call, and what it breaks is broken as it says."""

from __future__ import annotations

import errno
import fcntl
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import obstore
import pytest
from obstore.exceptions import GenericError
from obstore.store import MemoryStore

from seamark.testing.disk import SimulatedDisk
from seamark.testing.faults import Fault
from seamark.testing.recording import Call, Crash, Recording


@pytest.fixture
def disk() -> SimulatedDisk:
    return SimulatedDisk()


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore()


def save(o: Any, f: Any, path: str = "/f", data: bytes = b"12345678") -> None:
    """A small operation as a backend would write it, with clean-up in `finally`."""
    fd = o.open(path + ".tmp", o.O_WRONLY | o.O_CREAT | o.O_EXCL)
    try:
        f.flock(fd, f.LOCK_EX)
        o.write(fd, data)
        o.fsync(fd)
        o.link(path + ".tmp", path)
    finally:
        o.close(fd)
        o.unlink(path + ".tmp")


def text(recording: Recording) -> list[str]:
    return [str(call) for call in recording.calls]


# What is recorded.


def test_every_io_call_is_recorded_in_one_sequence(disk: SimulatedDisk) -> None:
    recording = Recording()
    save(recording.wrap(disk), recording.wrap(disk.fcntl))
    assert text(recording) == [
        "open /f.tmp O_WRONLY|O_CREAT|O_EXCL",
        "flock /f.tmp 2",
        "write /f.tmp <8 bytes>",
        "fsync /f.tmp",
        "link /f.tmp /f",
        "close /f.tmp",
        "unlink /f.tmp",
    ]
    assert recording.calls[2] == Call(3, "write", "/f.tmp <8 bytes>")
    assert [call.index for call in recording.calls] == list(range(1, 8))


def test_the_real_os_is_recorded_alike(disk: SimulatedDisk, tmp_path: Path) -> None:
    real, simulated = Recording(), Recording()
    save(real.wrap(os), real.wrap(fcntl), str(tmp_path / "f"))
    save(simulated.wrap(disk), simulated.wrap(disk).fcntl)
    assert [line.replace(str(tmp_path), "") for line in text(real)] == text(simulated)
    assert (tmp_path / "f").read_bytes() == b"12345678"


def test_pure_functions_and_constants_are_not_recorded(disk: SimulatedDisk) -> None:
    for target in (os, disk):
        recording = Recording()
        wrapped = recording.wrap(target)
        wrapped.path.join("a", "b")
        wrapped.fspath("a")
        wrapped.getpid()
        assert isinstance(Path("a"), wrapped.PathLike)
        assert recording.calls == []
        wrapped.path.exists("/")
        wrapped.stat("/")
        assert text(recording) == ["path.exists /", "stat /"]


def test_scanned_entries_record_their_stat(tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(b"123")
    recording = Recording()
    with recording.wrap(os).scandir(tmp_path) as entries:
        (entry,) = entries
    assert (entry.name, entry.is_file(), os.fspath(entry)) == ("f", True, str(tmp_path / "f"))
    assert entry.stat().st_size == 3
    assert text(recording) == [f"scandir {tmp_path}", f"scandir.stat {tmp_path / 'f'}"]


def test_named_arguments_are_recorded_and_torn_alike(
    disk: SimulatedDisk, store: MemoryStore
) -> None:
    recording = Recording(crash_at=4, when="torn")
    o, objects = recording.wrap(disk), recording.wrap(obstore, kind="obstore")
    o.close(o.open(path="/f", flags=os.O_WRONLY | os.O_CREAT))
    objects.delete(store, paths="b")
    with pytest.raises(Crash):
        objects.put(store, path="a", file=b"1234")
    assert text(recording) == [
        "open /f O_WRONLY|O_CREAT",
        "close /f",
        "delete b",
        "put a <4 bytes>",
    ]
    assert bytes(obstore.get(store, "a").bytes()) == b"12"


def test_calls_of_many_threads_have_distinct_numbers(disk: SimulatedDisk) -> None:
    recording = Recording()
    wrapped = recording.wrap(disk)

    def look() -> None:
        for _ in range(200):
            wrapped.stat("/")

    threads = [threading.Thread(target=look) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [call.index for call in recording.calls] == list(range(1, 801))


# Crashes.


def test_a_crash_before_a_call_leaves_its_effect_out(disk: SimulatedDisk) -> None:
    recording = Recording(crash_at=5, when="before")
    with pytest.raises(Crash, match=r"at call 5: link /f\.tmp /f$"):
        save(recording.wrap(disk), recording.wrap(disk.fcntl))
    assert disk.files() == {"/f.tmp": b"12345678"}, "the finally block must not have run"
    assert disk.open_files() == ["/f.tmp"]


def test_a_crash_after_a_call_keeps_its_effect(disk: SimulatedDisk) -> None:
    recording = Recording(crash_at=5, when="after")
    with pytest.raises(Crash):
        save(recording.wrap(disk), recording.wrap(disk.fcntl))
    assert set(disk.files()) == {"/f.tmp", "/f"}


def test_a_torn_write_leaves_a_prefix(disk: SimulatedDisk) -> None:
    recording = Recording(crash_at=3, when="torn")
    with pytest.raises(Crash):
        save(recording.wrap(disk), recording.wrap(disk.fcntl))
    assert disk.files() == {"/f.tmp": b"1234"}


def test_a_torn_writev_leaves_a_prefix(disk: SimulatedDisk) -> None:
    wrapped = Recording(crash_at=2, when="torn").wrap(disk)
    fd = wrapped.open("/f", os.O_WRONLY | os.O_CREAT)
    with pytest.raises(Crash):
        wrapped.writev(fd, [b"123", b"456"])
    assert disk.files() == {"/f": b"123"}


def test_nothing_works_after_the_crash(disk: SimulatedDisk, store: MemoryStore) -> None:
    recording = Recording(crash_at=3)
    o, objects = recording.wrap(disk), recording.wrap(obstore, kind="obstore")
    entries = o.scandir("/")
    listing = objects.list(store)
    with pytest.raises(Crash):
        o.mkdir("/a")
    dead: list[Callable[[], Any]] = [
        lambda: o.mkdir("/b"),
        lambda: o.path.exists("/b"),
        lambda: o.fcntl.flock(1, 2),
        lambda: objects.put(store, "x", b""),
        lambda: next(entries),
        lambda: next(listing),
    ]
    for call in dead:
        with pytest.raises(Crash, match="at call 3: mkdir /a"):
            call()
    assert (disk.tree(), obstore.list(store).collect()) == ("", [])
    assert len(recording.calls) == 3
    assert not issubclass(Crash, Exception), "no `except Exception` may survive it"


def test_a_call_under_way_in_another_thread_does_not_come_back(disk: SimulatedDisk) -> None:
    recording = Recording(crash_at=4)
    o, f = recording.wrap(disk), recording.wrap(disk.fcntl)
    holder, waiter = (o.open("/lock", os.O_RDWR | os.O_CREAT) for _ in range(2))
    disk.fcntl.flock(holder, fcntl.LOCK_EX)
    ends: list[type[BaseException] | None] = []

    def wait_for_the_lock() -> None:
        try:
            f.flock(waiter, fcntl.LOCK_EX)
            ends.append(None)
        except Crash as crash:
            ends.append(type(crash))

    thread = threading.Thread(target=wait_for_the_lock)
    thread.start()
    while len(recording.calls) < 3:
        time.sleep(0.001)
    with pytest.raises(Crash):
        o.mkdir("/a")
    disk.close(holder)
    thread.join(timeout=5)
    assert ends == [Crash]


def test_a_process_dies_even_when_the_call_fails(disk: SimulatedDisk) -> None:
    with pytest.raises(Crash):
        Recording(crash_at=1, when="after").wrap(disk).unlink("/none")


def test_a_sweep_ends_in_every_state_between_nothing_and_done() -> None:
    plain = Recording()
    disk = SimulatedDisk()
    save(plain.wrap(disk), plain.wrap(disk.fcntl))
    states = set()
    for call in plain.calls:
        disk = SimulatedDisk()
        recording = Recording(crash_at=call.index)
        with pytest.raises(Crash):
            save(recording.wrap(disk), recording.wrap(disk.fcntl))
        assert recording.calls == plain.calls[: call.index]
        states.add(tuple(sorted(disk.after_kill().files().items())))
    half, whole = ("/f.tmp", b""), ("/f.tmp", b"12345678")
    assert states == {(), (half,), (whole,), (("/f", b"12345678"), whole)}


# obstore.


def test_calls_of_obstore_are_recorded(store: MemoryStore) -> None:
    recording = Recording()
    o = recording.wrap(obstore, kind="obstore")
    o.put(store, "a/b", b"hello", mode="create")
    found = o.get(store, "a/b")
    assert found.meta["size"] == 5
    assert bytes(found.bytes()) == b"hello"
    assert b"".join(o.get(store, "a/b").stream()) == b"hello"
    assert b"".join(o.get(store, "a/b")) == b"hello"
    assert bytes(o.get_range(store, "a/b", start=1, length=2)) == b"el"
    assert [meta["path"] for chunk in o.list(store, "a") for meta in chunk] == ["a/b"]
    assert [meta["path"] for meta in o.list(store).collect()] == ["a/b"]
    o.delete(store, ["a/b"])
    assert text(recording) == [
        "put a/b <5 bytes> mode=create",
        *("get a/b", "get.bytes"),
        *("get a/b", "get.stream", "get.stream.next", "get.stream.next"),
        *("get a/b", "get.stream", "get.stream.next", "get.stream.next"),
        "get_range a/b start=1 length=2",
        *("list a", "list.next", "list.next"),
        *("list", "list.collect"),
        "delete [a/b]",
    ]
    assert o.exceptions is obstore.exceptions


def test_a_crash_after_put_leaves_the_object(store: MemoryStore) -> None:
    with pytest.raises(Crash):
        Recording(crash_at=1, when="after").wrap(obstore, kind="obstore").put(store, "a", b"1")
    assert bytes(obstore.get(store, "a").bytes()) == b"1"


def test_a_crash_before_put_leaves_nothing(store: MemoryStore) -> None:
    with pytest.raises(Crash):
        Recording(crash_at=1).wrap(obstore, kind="obstore").put(store, "a", b"1")
    assert obstore.list(store).collect() == []


@pytest.mark.parametrize("given", [b"123456", [b"123", b"456"], iter([b"12345", b"6"])])
def test_a_torn_put_leaves_a_short_object(store: MemoryStore, given: Any) -> None:
    with pytest.raises(Crash):
        Recording(crash_at=1, when="torn").wrap(obstore, kind="obstore").put(store, "a", given)
    assert bytes(obstore.get(store, "a").bytes()) == b"123"


def test_a_crash_can_hit_the_reading_of_a_body(store: MemoryStore) -> None:
    obstore.put(store, "a", b"1")
    found = Recording(crash_at=2).wrap(obstore, kind="obstore").get(store, "a")
    with pytest.raises(Crash):
        found.bytes()


def test_asynchronous_calls_are_refused_rather_than_missed(store: MemoryStore) -> None:
    o = Recording().wrap(obstore, kind="obstore")
    obstore.put(store, "a", b"1")
    with pytest.raises(AssertionError, match="synchronous calls only"):
        o.put_async(store, "a", b"1")
    with pytest.raises(AssertionError, match="synchronous calls only"):
        o.get(store, "a").bytes_async()


# Faults.


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
    monkeypatch.setattr("seamark.testing.recording.time.sleep", slept.append)
    faulty(disk, Fault("slow", seconds=3)).mkdir("/a")
    assert (slept, disk.path.isdir("/a")) == ([3], True)
