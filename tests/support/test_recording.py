"""A recording sees every I/O call, and what it breaks is broken as it says."""

from __future__ import annotations

import fcntl
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import obstore
import pytest
from obstore.store import MemoryStore

from tests.support.disk import SimulatedDisk
from tests.support.recording import Call, Crash, Recording


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
    thread.join(timeout=280)
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
