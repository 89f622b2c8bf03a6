"""The simulated disk forgets what POSIX allows a disk to forget, and its knobs do what they say."""

from __future__ import annotations

import errno
import os
import random
import threading
from pathlib import Path

import pytest

from tests.support.disk import PURE, SimulatedDisk


@pytest.fixture
def disk() -> SimulatedDisk:
    disk = SimulatedDisk()
    disk.mkdir("/d")
    disk.sync()
    return disk


def write(disk: SimulatedDisk, path: str, data: bytes, *, fsync: bool = False) -> None:
    fd = disk.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o666)
    disk.write(fd, data)
    if fsync:
        disk.fsync(fd)
    disk.close(fd)


def fsync_directory(disk: SimulatedDisk, path: str) -> None:
    fd = disk.open(path, os.O_RDONLY | os.O_DIRECTORY)
    disk.fsync(fd)
    disk.close(fd)


def states_after_power_cuts(disk: SimulatedDisk, tries: int = 300) -> list[dict[str, bytes]]:
    return [disk.after_power_cut(random.Random(seed)).files() for seed in range(tries)]


# Durability, rule by rule.


def test_unsynced_content_is_lost_though_the_name_is_durable(disk: SimulatedDisk) -> None:
    write(disk, "/d/f", b"hello")
    fsync_directory(disk, "/d")
    assert disk.after_power_cut().files() == {"/d/f": b""}


def test_fsync_of_a_file_does_not_make_its_name_durable(disk: SimulatedDisk) -> None:
    write(disk, "/d/f", b"hello", fsync=True)
    assert disk.after_power_cut().files() == {}


def test_file_and_directory_fsynced_survive(disk: SimulatedDisk) -> None:
    write(disk, "/d/f", b"hello", fsync=True)
    fsync_directory(disk, "/d")
    assert disk.after_power_cut().files() == {"/d/f": b"hello"}
    assert all(state == {"/d/f": b"hello"} for state in states_after_power_cuts(disk, 20))


def test_what_was_written_after_the_fsync_is_lost(disk: SimulatedDisk) -> None:
    write(disk, "/d/f", b"old", fsync=True)
    fsync_directory(disk, "/d")
    write(disk, "/d/f", b"newer")
    assert disk.after_power_cut().files() == {"/d/f": b"old"}


def test_a_link_without_fsync_of_its_directory_is_lost(disk: SimulatedDisk) -> None:
    write(disk, "/d/f.tmp", b"hello", fsync=True)
    fsync_directory(disk, "/d")
    disk.link("/d/f.tmp", "/d/f")
    disk.unlink("/d/f.tmp")
    assert disk.files() == {"/d/f": b"hello"}
    assert disk.after_power_cut().files() == {"/d/f.tmp": b"hello"}


def test_a_rename_over_a_file_without_fsync_gives_the_old_one_back(disk: SimulatedDisk) -> None:
    write(disk, "/d/f", b"old", fsync=True)
    fsync_directory(disk, "/d")
    write(disk, "/d/f.tmp", b"new", fsync=True)
    disk.rename("/d/f.tmp", "/d/f")
    assert disk.files() == {"/d/f": b"new"}
    assert disk.after_power_cut().files() == {"/d/f": b"old"}
    fsync_directory(disk, "/d")
    assert disk.after_power_cut().files() == {"/d/f": b"new"}


def test_a_rename_within_a_directory_survives_whole_or_not_at_all(disk: SimulatedDisk) -> None:
    write(disk, "/d/x", b"x", fsync=True)
    fsync_directory(disk, "/d")
    disk.rename("/d/x", "/d/y")
    states = states_after_power_cuts(disk)
    assert {frozenset(state) for state in states} == {frozenset({"/d/x"}), frozenset({"/d/y"})}


def test_fsync_of_the_target_directory_alone_leaves_both_names(disk: SimulatedDisk) -> None:
    disk.mkdir("/e")
    write(disk, "/d/f", b"hello", fsync=True)
    disk.sync()
    disk.rename("/d/f", "/e/f")
    fsync_directory(disk, "/e")
    after = disk.after_power_cut()
    assert after.files() == {"/d/f": b"hello", "/e/f": b"hello"}
    assert after.stat("/d/f").st_nlink == 2


def test_an_unlink_without_fsync_of_its_directory_comes_back(disk: SimulatedDisk) -> None:
    write(disk, "/d/f", b"hello")
    disk.sync()
    disk.unlink("/d/f")
    assert disk.after_power_cut().files() == {"/d/f": b"hello"}
    fsync_directory(disk, "/d")
    assert disk.after_power_cut().files() == {}


def test_mkdir_without_fsync_of_the_parent_loses_the_whole_subtree(disk: SimulatedDisk) -> None:
    disk.mkdir("/d/new")
    write(disk, "/d/new/f", b"hello", fsync=True)
    fsync_directory(disk, "/d/new")
    assert disk.after_power_cut().tree() == "d/"
    fsync_directory(disk, "/d")
    assert disk.after_power_cut().files() == {"/d/new/f": b"hello"}


def test_a_directory_under_two_names_is_found_under_one(disk: SimulatedDisk) -> None:
    disk.makedirs("/d/from/x")
    disk.mkdir("/d/to")
    disk.sync()
    disk.rename("/d/from/x", "/d/to/x")
    fsync_directory(disk, "/d/to")
    assert disk.after_power_cut().tree().split() == ["d/", "from/", "x/", "to/"]


def test_the_adversarial_cut_reaches_every_kind_of_damage(disk: SimulatedDisk) -> None:
    old, new = b"o" * 1200, b"n" * 1200
    write(disk, "/d/f", old)
    disk.sync()
    write(disk, "/d/f", new)
    write(disk, "/d/g", b"other")
    states = states_after_power_cuts(disk)
    contents = [state["/d/f"] for state in states]
    assert old in contents
    assert new in contents
    assert any(len(found) < len(new) for found in contents)
    assert any(len(found) == len(new) and found.endswith(b"\0") for found in contents)
    assert any({*found} == {*b"on"} for found in contents)
    assert {"/d/g" in state for state in states} == {True, False}


def test_one_seed_gives_one_cut(disk: SimulatedDisk) -> None:
    for number in range(10):
        write(disk, f"/d/{number}", b"data")
    one, two = (disk.after_power_cut(random.Random(7)).files() for _ in range(2))
    assert one == two


def test_a_kill_keeps_everything_but_descriptors_and_locks(disk: SimulatedDisk) -> None:
    fd = disk.open("/d/f", os.O_RDWR | os.O_CREAT)
    disk.write(fd, b"hello")
    disk.fcntl.flock(fd, disk.fcntl.LOCK_EX)
    after = disk.after_kill()
    assert after.files() == {"/d/f": b"hello"}
    assert (disk.open_files(), after.open_files()) == (["/d/f"], [])
    with pytest.raises(OSError, match="Bad file descriptor"):
        after.fsync(fd)
    again = after.open("/d/f", os.O_RDWR)
    after.fcntl.flock(again, after.fcntl.LOCK_EX | after.fcntl.LOCK_NB)
    assert after.after_power_cut().files() == {}, "a kill makes nothing durable"
    after.write(again, b"J")
    assert disk.files() == {"/d/f": b"hello"}, "the disk before the kill is another one"


def test_a_cut_keeps_hard_links_together(disk: SimulatedDisk) -> None:
    write(disk, "/d/one", b"hello")
    disk.link("/d/one", "/d/two")
    disk.sync()
    after = disk.after_power_cut()
    write(after, "/d/one", b"changed")
    assert after.files() == {"/d/one": b"changed", "/d/two": b"changed"}


# Knobs.


def test_a_full_disk_takes_what_fits_and_then_refuses(disk: SimulatedDisk) -> None:
    disk.capacity = 8
    fd = disk.open("/d/f", os.O_WRONLY | os.O_CREAT)
    assert disk.write(fd, b"12345") == 5
    assert disk.write(fd, b"67890") == 3
    for call in (
        lambda: disk.write(fd, b"0"),
        lambda: disk.ftruncate(fd, 9),
        lambda: disk.mkdir("/d/more"),
        lambda: disk.link("/d/f", "/d/g"),
        lambda: disk.open("/d/g", os.O_CREAT),
    ):
        with pytest.raises(OSError, match="No space left") as refused:
            call()
        assert refused.value.errno == errno.ENOSPC
    assert disk.pwrite(fd, b"0", 0) == 1, "what is there may be overwritten"
    disk.ftruncate(fd, 0)
    assert disk.pwrite(fd, b"1", 0) == 1


def test_a_flipped_bit_is_on_the_medium(disk: SimulatedDisk) -> None:
    write(disk, "/d/f", b"\x00\x00")
    disk.sync()
    disk.flip_bit("/d/f", 1, 3)
    assert disk.files() == {"/d/f": b"\x00\x08"}
    assert disk.after_power_cut().files() == {"/d/f": b"\x00\x08"}


def test_the_tree_marks_what_is_volatile(disk: SimulatedDisk) -> None:
    write(disk, "/d/old", b"")
    disk.sync()
    write(disk, "/d/old", b"abc")
    disk.mkdir("/d/sub")
    assert disk.tree().splitlines() == ["d/", "  old  3 bytes  ~data", "  sub/  ~name"]


def test_times_come_from_the_clock_that_the_test_sets(disk: SimulatedDisk) -> None:
    disk.now_ns = 1_000_000_001
    write(disk, "/d/f", b"a")
    disk.now_ns = 2_000_000_002
    assert disk.stat("/d/f").st_mtime_ns == 1_000_000_001
    write(disk, "/d/f", b"b")
    assert disk.stat("/d/f").st_mtime_ns == 2_000_000_002
    assert disk.path.getmtime("/d/f") == pytest.approx(2.000000002)


# Locks.


def test_a_blocking_flock_waits_for_the_holder(disk: SimulatedDisk) -> None:
    one, two = (disk.open("/d/lock", os.O_RDWR | os.O_CREAT) for _ in range(2))
    disk.fcntl.flock(one, disk.fcntl.LOCK_EX)
    waiter = threading.Thread(target=disk.fcntl.flock, args=(two, disk.fcntl.LOCK_EX))
    waiter.start()
    disk.close(one)
    waiter.join(timeout=280)
    assert not waiter.is_alive()
    with pytest.raises(BlockingIOError):
        disk.fcntl.flock(disk.open("/d/lock", os.O_RDWR), disk.fcntl.LOCK_SH | disk.fcntl.LOCK_NB)


def test_a_flock_that_nobody_will_free_is_a_failed_test(disk: SimulatedDisk) -> None:
    disk.fcntl.patience = 0.01
    one, two = (disk.open("/d/lock", os.O_RDWR | os.O_CREAT) for _ in range(2))
    disk.fcntl.flock(one, disk.fcntl.LOCK_EX)
    with pytest.raises(AssertionError, match="/d/lock"):
        disk.fcntl.flock(two, disk.fcntl.LOCK_EX)


# Nothing escapes.


def test_pure_parts_of_os_pass_and_the_rest_is_refused(disk: SimulatedDisk) -> None:
    assert disk.fspath(Path("/a")) == "/a"
    assert disk.getpid() == os.getpid()
    assert disk.path.join("a", "b") == "a/b"
    assert disk.O_CREAT == os.O_CREAT
    assert disk.path.abspath("x") == "/x"
    for module, name in ((disk, "symlink"), (disk, "system"), (disk.path, "ismount")):
        with pytest.raises(AssertionError, match=f"{name} is not simulated"):
            getattr(module, name)
    with pytest.raises(AssertionError, match="lockf is not simulated"):
        disk.fcntl.lockf(0, 0)
    assert not hasattr(disk, "no_such_function")


def test_no_function_of_os_passes_but_the_pure_ones(disk: SimulatedDisk) -> None:
    simulated = {name for cls in type(disk).__mro__ for name in vars(cls)}
    functions = {
        name
        for name, value in vars(os).items()
        if callable(value) and not isinstance(value, type) and not name.startswith("__")
    }
    for name in functions - simulated - PURE:
        with pytest.raises(AssertionError, match="is not simulated"):
            getattr(disk, name)
    assert not PURE & {"stat", "open", "listdir", "exists", "isfile", "realpath", "samefile"}
