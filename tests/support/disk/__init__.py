"""A POSIX file system in memory that stands in for the modules `os` and `fcntl`.

    disk = SimulatedDisk()
    mount(monkeypatch, disk, disk.fcntl)
    ...
    after = disk.after_power_cut()
    mount(monkeypatch, after, after.fcntl)

Calls answer and fail as on Linux. File data is volatile until that file is fsynced; an entry of a
directory (created, linked, renamed, removed) until that directory is fsynced; and a new directory
is an entry of its parent. There are no symbolic links, owners or permission checks.
"""

from __future__ import annotations

import copy
import errno
import os
import posixpath
import random
from typing import Any

from tests.support.disk.descriptors import Descriptors, Flock
from tests.support.disk.inodes import Directory, File, after_power_cut, walk
from tests.support.disk.names import atomic
from tests.support.disk.outside import PURE, Path, error, from_real_module

__all__ = ["PURE", "SimulatedDisk"]


class SimulatedDisk(Descriptors):
    """An empty disk with the face of `os`; its attribute `fcntl` has the face of `fcntl`.

    An I/O function of `os` that is not simulated raises `AssertionError`, so that nothing reaches
    the real disk unnoticed. `capacity` (bytes of file data, None: endless) and `now_ns` (the
    clock of modification times, which stands still) may be set at any time.
    """

    def __init__(
        self, *, capacity: int | None = None, now_ns: int | None = None, patience: float = 5.0
    ) -> None:
        super().__init__(capacity=capacity, now_ns=now_ns)
        self.fcntl = Flock(self, patience)
        self.path = Paths(self)

    @atomic
    def after_kill(self) -> SimulatedDisk:
        """The disk as `kill -9` leaves it: all that was done is there, nothing is open or locked.

        What was volatile still is: a power cut after the kill takes it.
        """
        return self._with_root(copy.deepcopy(self._root))

    @atomic
    def after_power_cut(self, survivors: random.Random | None = None) -> SimulatedDisk:
        """The disk as a power cut leaves it: what was made durable, and nothing else.

        With `survivors` each volatile directory operation and each volatile file content
        independently survives or not; such a content may also be cut, zero-filled or mixed.
        """
        return self._with_root(after_power_cut(self._root, survivors))

    def _with_root(self, root: Directory) -> SimulatedDisk:
        disk = SimulatedDisk(
            capacity=self.capacity, now_ns=self.now_ns, patience=self.fcntl.patience
        )
        disk._root = root
        return disk

    @atomic
    def files(self) -> dict[str, bytes]:
        """The path and bytes of every visible file."""
        nodes = ((path, node) for path, _, _, node in walk(self._root))
        return {path: bytes(node.data) for path, node in nodes if isinstance(node, File)}

    @atomic
    def tree(self) -> str:
        """The visible tree as text; `~name` and `~data` mark what a power cut may take."""
        lines = []
        for path, directory, name, node in walk(self._root):
            line = "  " * (path.count("/") - 1) + name
            line += f"  {len(node.data)} bytes" if isinstance(node, File) else "/"
            line += "  ~name" if directory.durable.get(name) is not node else ""
            line += "  ~data" if isinstance(node, File) and node.data != node.durable else ""
            lines.append(line)
        return "\n".join(lines)

    @atomic
    def open_files(self) -> list[str]:
        """The path under which each open descriptor was opened: empty when nothing leaks."""
        return [handle.path for handle in self.opened.values()]

    @atomic
    def flip_bit(self, path: Path, byte: int, bit: int) -> None:
        """Damage one bit as a worn medium does, in what readers see and in what is durable."""
        node = self._find(path)
        if isinstance(node, Directory):
            raise error(errno.EISDIR, path)
        durable = bytearray(node.durable)
        node.data[byte] ^= 1 << bit
        if byte < len(durable):
            durable[byte] ^= 1 << bit
        node.durable = bytes(durable)

    def __getattr__(self, name: str) -> Any:
        return from_real_module(os, name)


class Paths:
    """The face of `os.path`: questions go to the disk, everything that only cuts text passes."""

    def __init__(self, disk: SimulatedDisk) -> None:
        self._disk = disk

    def exists(self, path: Path | int) -> bool:
        return self.isfile(path) or self.isdir(path)

    lexists = exists

    def isfile(self, path: Path | int) -> bool:
        return self._disk._is(path, File)

    def isdir(self, path: Path | int) -> bool:
        return self._disk._is(path, Directory)

    def islink(self, path: Path) -> bool:
        return False

    def getsize(self, path: Path | int) -> int:
        return self._disk.stat(path).st_size

    def getmtime(self, path: Path | int) -> float:
        return self._disk.stat(path).st_mtime

    def samefile(self, one: Path | int, other: Path | int) -> bool:
        return self._disk.stat(one).st_ino == self._disk.stat(other).st_ino

    def abspath(self, path: Path) -> str:
        return posixpath.normpath(posixpath.join(self._disk.getcwd(), os.fsdecode(path)))

    def realpath(self, path: Path, *, strict: bool = False) -> str:
        if strict:
            self._disk.stat(path)
        return self.abspath(path)

    def __getattr__(self, name: str) -> Any:
        return from_real_module(os.path, name)
