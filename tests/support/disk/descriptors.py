"""The half of the simulated `os` that deals in descriptors: open, read, write, fsync; and flock."""

from __future__ import annotations

import errno
import fcntl
import os
import stat
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import count
from typing import Any, TypeAlias

from tests.support.disk.inodes import Directory, File, Node
from tests.support.disk.names import UMASK, Names, atomic
from tests.support.disk.outside import Path, error, from_real_module

Bytes: TypeAlias = bytes | bytearray | memoryview
_descriptors = count(1_000_000)  # never a descriptor of the real os, nor of another disk


@dataclass(eq=False)
class OpenFile:
    """What a descriptor stands for: an inode, how it was opened, and where we are in it."""

    node: Node
    path: str
    flags: int
    offset: int = 0

    def may(self, access: int) -> bool:
        return self.flags & (os.O_RDONLY | os.O_WRONLY | os.O_RDWR) in (access, os.O_RDWR)


class Descriptors(Names):
    """Open files of a simulated disk."""

    def __init__(self, *, capacity: int | None = None, now_ns: int | None = None) -> None:
        super().__init__(capacity=capacity, now_ns=now_ns)
        self.opened: dict[int, OpenFile] = {}
        self.locks: dict[Node, dict[OpenFile, int]] = {}

    @atomic
    def open(self, path: Path, flags: int, mode: int = 0o777) -> int:
        temporary = getattr(os, "O_TMPFILE", 0)
        assert not temporary or flags & temporary != temporary, "O_TMPFILE is not simulated"
        try:
            node = self._find(path)
        except FileNotFoundError:
            if not flags & os.O_CREAT:
                raise
            directory, name = self._place(path)
            node = File(stat.S_IFREG | mode & ~UMASK, self.now_ns)
            self._add(directory, name, node, path)
        else:
            self._check_opening(path, flags, node)
            if flags & os.O_TRUNC and isinstance(node, File):
                self._resize(node, 0)
        fd = next(_descriptors)
        self.opened[fd] = OpenFile(node, os.fsdecode(path), flags)
        return fd

    def _check_opening(self, path: Path, flags: int, node: Node) -> None:
        if flags & os.O_CREAT and flags & os.O_EXCL:
            raise error(errno.EEXIST, path)
        changing = os.O_CREAT | os.O_WRONLY | os.O_RDWR | os.O_TRUNC
        if isinstance(node, Directory) and flags & changing:
            raise error(errno.EISDIR, path)
        if isinstance(node, File) and flags & os.O_DIRECTORY:
            raise error(errno.ENOTDIR, path)

    @atomic
    def close(self, fd: int) -> None:
        handle = self.handle(fd)
        del self.opened[fd]
        self.unlock(handle)

    def read(self, fd: int, length: int) -> bytes:
        buffer = bytearray(length)
        return bytes(buffer[: self.readv(fd, [buffer])])

    def pread(self, fd: int, length: int, offset: int) -> bytes:
        buffer = bytearray(length)
        return bytes(buffer[: self.preadv(fd, [buffer], offset)])

    @atomic
    def readv(self, fd: int, buffers: Sequence[bytearray | memoryview]) -> int:
        handle = self.handle(fd)
        done = self.preadv(fd, buffers, handle.offset)
        handle.offset += done
        return done

    @atomic
    def preadv(
        self, fd: int, buffers: Sequence[bytearray | memoryview], offset: int, flags: int = 0
    ) -> int:
        handle = self.handle(fd)
        if offset < 0:
            raise error(errno.EINVAL)
        if not handle.may(os.O_RDONLY):
            raise error(errno.EBADF)
        if isinstance(handle.node, Directory):
            raise error(errno.EISDIR)
        start = offset
        for buffer in buffers:
            view = memoryview(buffer).cast("B")
            piece = handle.node.data[offset : offset + len(view)]
            view[: len(piece)] = piece
            offset += len(piece)
        return offset - start

    @atomic
    def write(self, fd: int, data: Bytes) -> int:
        handle = self.handle(fd)
        done = self.pwrite(fd, data, handle.offset)
        if done and isinstance(handle.node, File) and handle.flags & os.O_APPEND:
            handle.offset = len(handle.node.data)
        else:
            handle.offset += done
        return done

    def writev(self, fd: int, buffers: Sequence[Bytes]) -> int:
        return self.write(fd, b"".join(buffers))

    def pwritev(self, fd: int, buffers: Sequence[Bytes], offset: int, flags: int = 0) -> int:
        return self.pwrite(fd, b"".join(buffers), offset)

    @atomic
    def pwrite(self, fd: int, data: Bytes, offset: int) -> int:
        handle = self.handle(fd)
        node = handle.node
        if offset < 0:
            raise error(errno.EINVAL)
        if isinstance(node, Directory) or not handle.may(os.O_WRONLY):
            raise error(errno.EBADF)
        if not (piece := bytes(data)):
            return 0
        if handle.flags & os.O_APPEND:  # Linux appends then, whatever the offset
            offset = len(node.data)
        if self.capacity is not None:  # a full disk takes what fits, and refuses the next write
            end = len(node.data) + max(0, self.capacity - self._used())
            piece = piece[: max(0, end - offset)]
            if not piece:
                raise error(errno.ENOSPC)
        node.data.extend(bytes(max(0, offset - len(node.data))))
        node.data[offset : offset + len(piece)] = piece
        node.mtime_ns = self.now_ns
        return len(piece)

    @atomic
    def ftruncate(self, fd: int, length: int) -> None:
        handle = self.handle(fd)
        if isinstance(handle.node, Directory) or not handle.may(os.O_WRONLY) or length < 0:
            raise error(errno.EINVAL)
        self._resize(handle.node, length)

    def _resize(self, node: File, length: int) -> None:
        growth = max(0, length - len(node.data))
        if growth and self.capacity is not None and self._used() + growth > self.capacity:
            raise error(errno.ENOSPC)
        del node.data[length:]
        node.data.extend(bytes(growth))
        node.mtime_ns = self.now_ns

    @atomic
    def lseek(self, fd: int, offset: int, whence: int) -> int:
        handle = self.handle(fd)
        size = len(handle.node.data) if isinstance(handle.node, File) else 0
        target = offset + {os.SEEK_SET: 0, os.SEEK_CUR: handle.offset, os.SEEK_END: size}[whence]
        if target < 0:
            raise error(errno.EINVAL)
        handle.offset = target
        return target

    @atomic
    def fsync(self, fd: int) -> None:
        self.handle(fd).node.sync()

    fdatasync = fsync

    def fstat(self, fd: int) -> os.stat_result:
        return self.stat(fd)

    def handle(self, fd: int) -> OpenFile:
        """What `fd` stands for; EBADF when it is not open."""
        if fd not in self.opened:
            raise error(errno.EBADF)
        return self.opened[fd]

    def _node_of(self, fd: int) -> Node:
        return self.handle(fd).node

    @atomic
    def unlock(self, handle: OpenFile) -> None:
        """Give up the flock of `handle`, if it has one, and wake those who wait for it."""
        self.locks.get(handle.node, {}).pop(handle, None)
        self.lock.notify_all()


class Flock:
    """The face of `fcntl`: `flock` between the open files of one simulated disk.

    A blocking `flock` that would wait longer than `patience` seconds raises `AssertionError`: in
    a test that is a deadlock, and no code under test should mistake it for an I/O error.
    """

    LOCK_SH, LOCK_EX = fcntl.LOCK_SH, fcntl.LOCK_EX
    LOCK_NB, LOCK_UN = fcntl.LOCK_NB, fcntl.LOCK_UN

    def __init__(self, files: Descriptors, patience: float) -> None:
        self.patience = patience
        self._files = files

    def flock(self, fd: int, operation: int) -> None:
        with self._files.lock:
            handle = self._files.handle(fd)
            held = self._files.locks.setdefault(handle.node, {})
            wanted = operation & ~self.LOCK_NB
            if wanted not in (self.LOCK_SH, self.LOCK_EX, self.LOCK_UN):
                raise error(errno.EINVAL)
            if held.get(handle) == wanted:
                return
            self._files.unlock(handle)  # a conversion first gives up the old lock, as Linux does
            if wanted == self.LOCK_UN:
                return

            def is_free() -> bool:
                return not held or (wanted == self.LOCK_SH and self.LOCK_EX not in held.values())

            if not is_free() and operation & self.LOCK_NB:
                raise error(errno.EWOULDBLOCK)
            if not self._files.lock.wait_for(is_free, self.patience):
                raise AssertionError(
                    f"flock on {handle.path} waited {self.patience} s for another open file "
                    "of this disk: a deadlock, unless the test meant to hold the lock that long"
                )
            held[handle] = wanted

    def __getattr__(self, name: str) -> Any:
        return from_real_module(fcntl, name)
