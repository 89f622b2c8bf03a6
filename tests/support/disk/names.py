"""The half of the simulated `os` that deals in names: directories, links, renames, listings."""

from __future__ import annotations

import errno
import os
import posixpath
import stat
import threading
import time
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import wraps
from itertools import count
from typing import Any, Concatenate, ParamSpec, TypeVar

from tests.support.disk.inodes import Directory, File, Node, walk
from tests.support.disk.outside import Path, error

S = TypeVar("S", bound="Names")
P = ParamSpec("P")
R = TypeVar("R")
UMASK = 0o022
_operations = count(1)


def atomic(method: Callable[Concatenate[S, P], R]) -> Callable[Concatenate[S, P], R]:
    """One call at a time, as a kernel's inode locks would have it."""

    @wraps(method)
    def locked(self: S, /, *args: P.args, **kwargs: P.kwargs) -> R:
        with self.lock:
            return method(self, *args, **kwargs)

    return locked


@dataclass(frozen=True)
class Entry:
    """An entry as `scandir` gives it."""

    name: str
    path: str
    _names: Names
    _is_dir: bool

    def is_dir(self, *, follow_symlinks: bool = True) -> bool:
        return self._is_dir

    def is_file(self, *, follow_symlinks: bool = True) -> bool:
        return not self._is_dir

    def is_symlink(self) -> bool:
        return False

    def stat(self, *, follow_symlinks: bool = True) -> os.stat_result:
        return self._names.stat(self.path)

    def __fspath__(self) -> str:
        return self.path


class Scan(Iterator[Entry]):
    """An open `scandir`: an iterator that is also a context manager."""

    def __init__(self, entries: list[Entry]) -> None:
        self._entries = iter(entries)

    def __next__(self) -> Entry:
        return next(self._entries)

    def close(self) -> None:
        self._entries = iter(())

    def __enter__(self) -> Scan:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


class Names:
    """A tree of inodes and the calls that change or show its names."""

    def __init__(self, *, capacity: int | None = None, now_ns: int | None = None) -> None:
        self.capacity = capacity
        self.now_ns = time.time_ns() if now_ns is None else now_ns
        self.lock = threading.Condition(threading.RLock())
        self._root = Directory(stat.S_IFDIR | 0o755, self.now_ns)

    @atomic
    def link(self, src: Path, dst: Path, *, follow_symlinks: bool = True) -> None:
        node = self._find(src, src, dst)
        directory, name = self._place(dst, src, dst)
        if _child(directory, name, src, dst):
            raise error(errno.EEXIST, src, dst)
        if isinstance(node, Directory):
            raise error(errno.EPERM, src, dst)
        self._add(directory, name, node, src, dst)

    @atomic
    def rename(self, src: Path, dst: Path) -> None:
        old, old_name = self._place(src, src, dst)
        new, new_name = self._place(dst, src, dst)
        node = _child(old, old_name, src, dst)
        if node is None:
            raise error(errno.ENOENT, src, dst)
        target = _child(new, new_name, src, dst)
        if node in self._trail(dst):
            raise error(errno.EINVAL, src, dst)
        if target in self._trail(src):
            raise error(errno.ENOTEMPTY, src, dst)
        if target is node:
            return
        if isinstance(target, Directory) and isinstance(node, File):
            raise error(errno.EISDIR, src, dst)
        if isinstance(target, File) and isinstance(node, Directory):
            raise error(errno.ENOTDIR, src, dst)
        if isinstance(target, Directory) and target.entries:
            raise error(errno.ENOTEMPTY, src, dst)
        operation = next(_operations)
        new.change(operation, new_name, node, self.now_ns)
        old.change(operation, old_name, None, self.now_ns)

    replace = rename

    @atomic
    def exchange(self, one: Path, other: Path) -> None:
        """As ``seamark._common.exchange``: two names are swapped by one operation.

        File systems that can do it make it durable as one: a name never stands for nothing.
        """
        first, first_name = self._place(one, one, other)
        second, second_name = self._place(other, one, other)
        node, target = (
            _child(first, first_name, one, other),
            _child(second, second_name, one, other),
        )
        if node is None or target is None:
            raise error(errno.ENOENT, one, other)
        operation = next(_operations)
        first.change(operation, first_name, target, self.now_ns)
        second.change(operation, second_name, node, self.now_ns)
        first.joined[operation], second.joined[operation] = second, first

    @atomic
    def unlink(self, path: Path) -> None:
        if isinstance(self._find(path), Directory):
            raise error(errno.EISDIR, path)
        directory, name = self._place(path)
        directory.change(next(_operations), name, None, self.now_ns)

    remove = unlink

    @atomic
    def mkdir(self, path: Path, mode: int = 0o777) -> None:
        directory, name = self._place(path)
        if _child(directory, name, path):
            raise error(errno.EEXIST, path)
        made = Directory(stat.S_IFDIR | mode & ~UMASK, self.now_ns)
        self._add(directory, name, made, path)

    @atomic
    def makedirs(self, name: Path, mode: int = 0o777, exist_ok: bool = False) -> None:
        above = posixpath.dirname(os.fsdecode(name).rstrip("/"))
        if above and not self._is(above, Directory) and not self._is(above, File):
            self.makedirs(above, exist_ok=True)
        if not (exist_ok and self._is(name, Directory)):
            self.mkdir(name, mode)

    @atomic
    def rmdir(self, path: Path) -> None:
        node = self._find(path)
        if isinstance(node, File):
            raise error(errno.ENOTDIR, path)
        if node.entries:
            raise error(errno.ENOTEMPTY, path)
        directory, name = self._place(path)
        directory.change(next(_operations), name, None, self.now_ns)

    def listdir(self, path: Path = "/") -> list[str]:
        return [entry.name for entry in self.scandir(path)]

    @atomic
    def scandir(self, path: Path = "/") -> Scan:
        node = self._find(path)
        if isinstance(node, File):
            raise error(errno.ENOTDIR, path)
        # No order is promised: one that is neither sorted nor by age shows who relies on either.
        names = sorted(node.entries, key=lambda name: zlib.crc32(os.fsencode(name)))
        at = {name: posixpath.join(os.fsdecode(path), name) for name in names}
        kinds = {name: isinstance(node.entries[name], Directory) for name in names}
        return Scan([Entry(name, at[name], self, kinds[name]) for name in names])

    @atomic
    def stat(self, path: Path | int, *, follow_symlinks: bool = True) -> os.stat_result:
        node = self._find(path)
        size, links = (len(node.data), node.links) if isinstance(node, File) else (0, 1)
        ns = node.mtime_ns
        plain = (node.mode, node.ino, 1, links, 0, 0, size, *[ns // 10**9] * 3)
        times: dict[str, Any] = {f"st_{which}time": ns / 10**9 for which in "amc"}
        return os.stat_result(plain, {**times, **{f"st_{which}time_ns": ns for which in "amc"}})

    lstat = stat

    def access(self, path: Path | int, mode: int) -> bool:
        return self._is(path, File) or self._is(path, Directory)

    @atomic
    def utime(self, path: Path | int, *, ns: tuple[int, int] | None = None) -> None:
        self._find(path).mtime_ns = self.now_ns if ns is None else ns[1]

    @atomic
    def sync(self) -> None:
        self._root.sync()
        for _, _, _, node in walk(self._root):
            node.sync()

    def getcwd(self) -> str:
        return "/"

    def _node_of(self, fd: int) -> Node:
        raise error(errno.EBADF)

    def _find(self, path: Path | int, *blame: Path | int) -> Node:
        """The inode that a path or descriptor leads to; errors name `blame`, or else `path`."""
        if isinstance(path, int):
            return self._node_of(path)
        node = self._descend(_parts(path), *blame or (path,))[-1]
        if isinstance(node, File) and os.fsdecode(path).endswith("/"):
            raise error(errno.ENOTDIR, *blame or (path,))
        return node

    def _trail(self, path: Path, *blame: Path | int) -> list[Node]:
        """The directories from the root to the one that holds the last name of `path`."""
        return self._descend(_parts(path)[:-1], *blame or (path,))

    def _place(self, path: Path, *blame: Path | int) -> tuple[Directory, str]:
        """The directory that holds the last name of `path`, and that name."""
        directory = self._trail(path, *blame)[-1]
        name = (_parts(path) or [".."])[-1]
        if isinstance(directory, File):
            raise error(errno.ENOTDIR, *blame or (path,))
        if name == "..":
            raise error(errno.EBUSY, *blame or (path,))
        return directory, name

    def _descend(self, parts: list[str], *blame: Path | int) -> list[Node]:
        trail: list[Node] = [self._root]
        for part in parts:
            here = trail[-1]
            if isinstance(here, File):
                raise error(errno.ENOTDIR, *blame)
            if part == "..":
                trail = trail[:-1] or trail
            elif child := _child(here, part, *blame):
                trail.append(child)
            else:
                raise error(errno.ENOENT, *blame)
        return trail

    def _is(self, path: Path | int, kind: type[Node]) -> bool:
        try:
            return isinstance(self._find(path), kind)
        except OSError:
            return False

    def _add(self, directory: Directory, name: str, node: Node, *blame: Path) -> None:
        if self.capacity is not None and self._used() >= self.capacity:
            raise error(errno.ENOSPC, *blame)  # a full disk has no block for an entry either
        directory.change(next(_operations), name, node, self.now_ns)

    def _used(self) -> int:
        """The bytes of all files that still have a name."""
        files = {node for _, _, _, node in walk(self._root) if isinstance(node, File)}
        return sum(len(file.data) for file in files)


def _child(directory: Directory, name: str, *blame: Path | int) -> Node | None:
    if len(os.fsencode(name)) > 255:
        raise error(errno.ENAMETOOLONG, *blame)
    return directory.entries.get(name)


def _parts(path: Path) -> list[str]:
    text = os.fsdecode(path)
    parts = [part for part in text.split("/") if part not in ("", ".")]
    return parts if text else ["\0"]  # the empty path leads nowhere
