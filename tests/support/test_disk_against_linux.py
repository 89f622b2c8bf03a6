"""The simulated disk answers as the real one does: the same results, errors and visible files."""

from __future__ import annotations

import fcntl
import os
import shutil
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from tests.support.disk import SimulatedDisk

NAMES = st.sampled_from(["/a", "/b", "/f", "/a/a", "/a/b", "/a/a/a", "/a/../b"])
ODD_NAMES = st.sampled_from(["/" + "n" * 256, "/b/..", "/a/", "//b/./a"])
ACCESS = st.sampled_from([os.O_RDONLY, os.O_WRONLY, os.O_RDWR])
EXTRAS = st.sets(st.sampled_from([os.O_CREAT, os.O_EXCL, os.O_TRUNC, os.O_APPEND]))
DATA = st.binary(max_size=20)
OFFSET = st.integers(0, 30) | st.just(-2)  # to preadv2, -1 is the current position
SLOT = st.integers(0, 2)  # which of the open descriptors
LOCKS = st.sampled_from([fcntl.LOCK_SH, fcntl.LOCK_EX, fcntl.LOCK_UN])
Outcome = tuple[str, Any]


class SameAsTheRealDisk(RuleBasedStateMachine):
    """Every call goes to the real `os` below a temporary directory and to the simulated one."""

    def __init__(self) -> None:
        super().__init__()
        self.base = tempfile.mkdtemp()
        self.disk = SimulatedDisk()
        self.disk.makedirs(self.base)
        self.real_fds: list[int] = []
        self.simulated_fds: list[int] = []

    def teardown(self) -> None:
        for fd in self.real_fds:
            os.close(fd)
        shutil.rmtree(self.base)

    def compare(self, call: Callable[[Any, Any, list[int]], Any]) -> None:
        expected = outcome(lambda: call(os, fcntl, self.real_fds))
        assert outcome(lambda: call(self.disk, self.disk.fcntl, self.simulated_fds)) == expected

    @initialize()
    def a_file_open_twice_and_a_directory(self) -> None:
        self.compare(lambda o, *_: o.mkdir(self.base + "/a"))
        for _ in range(2):
            self.open("/f", os.O_RDWR, {os.O_CREAT})

    @rule(name=NAMES, access=ACCESS, extras=EXTRAS)
    def open(self, name: str, access: int, extras: set[int]) -> None:
        flags = access
        for extra in extras:
            flags |= extra
        self.compare(lambda o, _, fds: fds.append(o.open(self.base + name, flags, 0o666)))

    @rule(slot=SLOT)
    def close(self, slot: int) -> None:
        self.compare(lambda o, _, fds: o.close(fds.pop(slot)))

    @rule(slot=SLOT, pieces=st.lists(DATA, min_size=1, max_size=3))
    def write(self, slot: int, pieces: list[bytes]) -> None:
        self.compare(lambda o, _, fds: o.write(fds[slot], pieces[0]))
        self.compare(lambda o, _, fds: o.writev(fds[slot], pieces))

    @rule(slot=SLOT, data=DATA, offset=OFFSET)
    def write_at(self, slot: int, data: bytes, offset: int) -> None:
        self.compare(lambda o, _, fds: o.pwrite(fds[slot], data, offset))
        self.compare(lambda o, _, fds: o.pwritev(fds[slot], [data, data], offset))

    @rule(slot=SLOT, length=st.integers(0, 30), offset=OFFSET)
    def read(self, slot: int, length: int, offset: int) -> None:
        def into_buffers(o: Any, fds: list[int], *where: int) -> tuple[int, bytes, bytes]:
            one, two = bytearray(3), bytearray(length)
            reader = o.preadv if where else o.readv
            return reader(fds[slot], [one, two], *where), bytes(one), bytes(two)

        self.compare(lambda o, _, fds: o.read(fds[slot], length))
        self.compare(lambda o, _, fds: o.pread(fds[slot], length, offset))
        self.compare(lambda o, _, fds: into_buffers(o, fds))
        self.compare(lambda o, _, fds: into_buffers(o, fds, offset))

    @rule(slot=SLOT, offset=st.integers(-5, 30), whence=st.integers(0, 2))
    def seek(self, slot: int, offset: int, whence: int) -> None:
        def seek_in_a_file(o: Any, fds: list[int]) -> int | None:
            if os.path.isdir(fds[slot]) or o.path.isdir(fds[slot]):  # offsets of folders are opaque
                return None
            position: int = o.lseek(fds[slot], offset, whence)
            return position

        self.compare(lambda o, _, fds: seek_in_a_file(o, fds))

    @rule(slot=SLOT, length=st.integers(-1, 30))
    def truncate(self, slot: int, length: int) -> None:
        self.compare(lambda o, _, fds: o.ftruncate(fds[slot], length))

    @rule(slot=SLOT)
    def sync_and_stat(self, slot: int) -> None:
        self.compare(lambda o, _, fds: (o.fsync(fds[slot]), o.fdatasync(fds[slot])))
        self.compare(lambda o, _, fds: facts(o.fstat(fds[slot])))

    @rule(slot=SLOT, lock=LOCKS)
    def lock(self, slot: int, lock: int) -> None:
        self.compare(lambda _, f, fds: f.flock(fds[slot], lock | f.LOCK_NB))

    @rule(verb=st.sampled_from(["link", "rename", "replace"]), src=NAMES, dst=NAMES)
    def two_names(self, verb: str, src: str, dst: str) -> None:
        self.compare(lambda o, *_: getattr(o, verb)(self.base + src, self.base + dst))

    @rule(verb=st.sampled_from(["unlink", "mkdir", "rmdir", "makedirs"]), name=NAMES)
    def one_name(self, verb: str, name: str) -> None:
        self.compare(lambda o, *_: getattr(o, verb)(self.base + name))

    @rule(name=NAMES | ODD_NAMES)
    def look(self, name: str) -> None:
        path = self.base + name
        self.compare(lambda o, *_: facts(o.stat(path)))
        self.compare(lambda o, *_: o.access(path, os.F_OK))
        self.compare(lambda o, *_: sorted(o.listdir(path)))
        self.compare(lambda o, *_: sorted((e.name, e.path, e.is_dir()) for e in o.scandir(path)))
        self.compare(lambda o, *_: (o.path.exists(path), o.path.isdir(path), o.path.isfile(path)))
        self.compare(lambda o, *_: o.path.getsize(path) if o.path.isfile(path) else None)

    @invariant()
    def the_visible_files_are_the_same(self) -> None:
        real = {str(p): p.read_bytes() for p in Path(self.base).rglob("*") if p.is_file()}
        assert self.disk.files() == real


def outcome(call: Callable[[], Any]) -> Outcome:
    try:
        return "returned", call()
    except IndexError:
        return "no such slot", None
    except OSError as error:
        return type(error).__name__, (error.errno, error.filename, error.filename2)


def facts(status: os.stat_result) -> tuple[int, ...]:
    kind = status.st_mode & 0o170000
    return (kind, status.st_size, status.st_nlink) if kind == 0o100000 else (kind,)


TestSameAsTheRealDisk = pytest.mark.skipif(
    sys.platform != "linux", reason="the simulated disk answers as Linux does"
)(SameAsTheRealDisk.TestCase)
TestSameAsTheRealDisk.settings = settings(max_examples=100, stateful_step_count=40, deadline=None)


def test_a_rename_between_two_names_of_one_file_does_nothing(tmp_path: Path) -> None:
    def both_names(o: Any) -> list[str]:
        one, two = str(tmp_path / "one"), str(tmp_path / "two")
        o.makedirs(tmp_path, exist_ok=True)
        o.close(o.open(one, os.O_CREAT | os.O_WRONLY))
        o.link(one, two)
        o.rename(one, two)
        o.rename(one, one)
        return sorted(o.listdir(tmp_path))

    assert both_names(SimulatedDisk()) == both_names(os) == ["one", "two"]


def test_a_lock_that_cannot_be_converted_is_lost(tmp_path: Path) -> None:
    def third_comer_gets_it(o: Any, f: Any) -> bool:
        o.makedirs(tmp_path, exist_ok=True)
        fds = [o.open(str(tmp_path / "lock"), os.O_RDWR | os.O_CREAT) for _ in range(3)]
        for fd in fds[:2]:
            f.flock(fd, f.LOCK_SH)
        with pytest.raises(BlockingIOError):
            f.flock(fds[0], f.LOCK_EX | f.LOCK_NB)
        f.flock(fds[1], f.LOCK_UN)
        f.flock(fds[2], f.LOCK_EX | f.LOCK_NB)
        for fd in fds:
            o.close(fd)
        return True

    disk = SimulatedDisk()
    assert third_comer_gets_it(disk, disk.fcntl)
    assert third_comer_gets_it(os, fcntl)
