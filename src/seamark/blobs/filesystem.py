"""A store in a local directory, with its own I/O because durability is decided by fsync.

A value is written to a temporary file, fsynced, linked to its name (which fails when the name is
taken) and the directory is fsynced. A new directory is made durable in its parent first, so a name
that survives a power cut never hangs in the air.

Tests: ``tests/store/test_crash_everywhere.py``.
"""

from __future__ import annotations

import errno
import os
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from typing import Any, Final

from seamark import limits
from seamark._common.file_lock import FileLock, is_locked
from seamark._common.files import (
    ABSENT,
    Inside,
    clock_at,
    read_all,
    sync_folder,
    version_of_file,
    write_all,
)
from seamark._common.holes import is_mostly_hole
from seamark._common.new_names import NO_LINKS, link_file
from seamark._common.os_errors import translate_os_errors
from seamark.blobs.contract import (
    TEMPORARY,
    Blob,
    Blobs,
    Buffer,
    Entry,
    KeyExists,
    Stream,
    Tag,
    TagMismatch,
    check_folder,
    check_key,
    check_range,
    is_key,
)
from seamark.blobs.durable_folders import DurableFolders
from seamark.blobs.folder_listing import folders_holding
from seamark.errors import DamageError, StoreUnavailableError

_LOCK: Final = "locks/writers.lock"


class FilesystemBlobs(Blobs):
    """Files below a directory. Readers need no lock; writers take a short one for conditions."""

    read_back_proves = False  # what can be read may still be in the page cache only

    def __init__(self, root: str) -> None:
        self.url = os.path.abspath(root)
        self._turn = threading.RLock()
        self._folders = DurableFolders(self.url)
        self._inside = Inside(self.url)
        self._depth = 0

    def __reduce__(self) -> tuple[Any, ...]:
        return FilesystemBlobs, (self.url,)  # another process opens it anew

    @property
    def address(self) -> tuple[str, ...]:
        return ("file", *os.path.realpath(self.url).strip("/").split("/"))

    # reading

    def read(self, key: str, limit: int) -> Blob | None:
        path = self._path(key)
        with translate_os_errors("reading", path):
            fd = self._inside.open(path)
            if fd is None:
                return None
            try:
                size = os.fstat(fd).st_size
                if size > limit:
                    raise DamageError(f"{key} has {size} bytes, more than {limit}", where=self.url)
                self._refuse_hole(fd, key, 0, size)
                data = read_all(fd, size + 1)
            finally:
                os.close(fd)
        return Blob(data, data)  # a value is its own tag

    def stat(self, key: str) -> Entry | None:
        path = self._path(key)
        with translate_os_errors("looking at", path):
            info = self._inside.stat(path)
        return None if info is None else _entry(key, info)

    def stream(self, key: str, piece: int) -> Stream | None:
        path = self._path(key)
        with translate_os_errors("reading", path):
            fd = self._inside.open(path)
            if fd is None:
                return None
            info = os.fstat(fd)
        pieces = self._pieces(fd, path, min(piece, max(info.st_size, 1)))
        return Stream(pieces, version_of_file(info))

    def read_range(self, key: str, offset: int, length: int) -> bytes | None:
        check_range(key, offset, length)
        path = self._path(key)
        with translate_os_errors("reading", path):
            fd = self._inside.open(path)
            if fd is None:
                return None
            try:
                there = max(os.fstat(fd).st_size - offset, 0)  # never make room for a mere claim
                length = min(length, there)
                self._refuse_hole(fd, key, offset, length)
                os.lseek(fd, offset, os.SEEK_SET)
                return read_all(fd, length)
            finally:
                os.close(fd)

    def _refuse_hole(self, fd: int, key: str, start: int, size: int) -> None:
        if is_mostly_hole(fd, start, start + size):
            raise DamageError(f"of {size} bytes of {key} most are a hole", where=self.url)

    def _pieces(self, fd: int, path: str, piece: int) -> Iterator[Buffer]:
        try:
            with translate_os_errors("reading", path):
                self._refuse_hole(fd, path, 0, os.fstat(fd).st_size)
            buffers = [memoryview(bytearray(piece)) for _ in range(2)]
            turn = 0
            while True:
                with translate_os_errors("reading", path):
                    count = os.readv(fd, [buffers[turn]])
                if count == 0:
                    return
                yield buffers[turn][:count]
                turn = 1 - turn
        finally:
            with suppress(OSError):  # nothing was written, so nothing can be lost
                os.close(fd)

    def entries(self, prefix: str) -> list[Entry]:
        entries: list[Entry] = []
        folder = self._path(check_folder(prefix).rstrip("/")) if prefix else self.url
        with translate_os_errors("listing", folder):
            self._inside.require(f"{folder}/")
            waiting = [(folder, prefix)]
            while waiting:
                folder, prefix = waiting.pop()
                # a folder or value may be removed while we look
                with suppress(FileNotFoundError, NotADirectoryError):
                    for entry in os.scandir(folder):
                        key = prefix + entry.name
                        if not is_key(entry.name):
                            continue  # a backslash: no value of ours
                        if not entry.is_dir(follow_symlinks=False):
                            with suppress(FileNotFoundError):
                                entries.append(_entry(key, entry.stat(follow_symlinks=False)))
                        elif key.count("/") < limits.MOST_LEVELS:
                            waiting.append((entry.path, f"{key}/"))
        return sorted(entries)

    def folders_holding(self, prefix: str, name: str) -> list[str]:
        if os.path.exists(self.url) and not os.path.isdir(self.url):
            # a file where the store should be must not look like an empty store
            raise StoreUnavailableError(f"{self.url} is not a directory", hint="Check the path.")
        folder = self._path(check_folder(prefix).rstrip("/"))
        with translate_os_errors("listing", folder):
            self._inside.require(f"{folder}/")
            return folders_holding(folder, name)

    # writing

    def create(self, key: str, data: bytes) -> Tag:
        self.create_stream(key, [data])
        return data

    def create_stream(self, key: str, pieces: Iterable[Buffer]) -> Tag | None:
        path = self._path(key)
        temporary = self._write_temporary(path, pieces)
        linked = False
        try:
            with translate_os_errors("creating", path, unknown_outcome=lambda: linked):
                try:
                    self._link(temporary, path)
                except FileExistsError:
                    raise KeyExists(key) from None
                except OSError as error:
                    if error.errno not in NO_LINKS:
                        raise
                    self._rename_unless_there(temporary, path, key)
                linked = True
                sync_folder(os.path.dirname(path))
        finally:
            with suppress(OSError):
                os.unlink(temporary)
        return None

    def take_from(self, other: Blobs, key: str, size: int) -> bool:
        if not isinstance(other, FilesystemBlobs):
            return False
        path, there = self._path(key), other._path(key)
        with translate_os_errors("linking", path):
            other._inside.require(there)
            self._folders.make(os.path.dirname(path))
            if is_linked := link_file(there, path):
                self.make_durable(key)
        return is_linked

    def replace(self, key: str, data: bytes, tag: Tag, *, durable: bool = True) -> Tag:
        path = self._path(key)
        with self.exclusive():
            current = self.read(key, max(len(data), 1) * 64 + (1 << 26))
            if current is None or current.tag != tag:
                raise TagMismatch(key)
            temporary = self._write_temporary(path, [data])
            renamed = False
            try:
                with translate_os_errors("replacing", path, unknown_outcome=lambda: renamed):
                    os.replace(temporary, path)
                    renamed = True
                    if durable:
                        sync_folder(os.path.dirname(path))
            except BaseException:
                with suppress(OSError):
                    os.unlink(temporary)
                raise
        return data

    def make_durable(self, key: str) -> None:
        path = self._path(key)
        with translate_os_errors("syncing", path):
            self._folders.forget(os.path.dirname(path))
            self._folders.make(os.path.dirname(path))
            fd = self._inside.open(path)
            if fd is None:
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
            try:
                os.fsync(fd)
            finally:
                os.close(fd)
            sync_folder(os.path.dirname(path))

    def delete_durably(self, keys: Sequence[str]) -> None:
        self._unlink(keys)
        for folder in dict.fromkeys(os.path.dirname(self._path(key)) for key in keys):
            with translate_os_errors("syncing", folder), suppress(FileNotFoundError):
                sync_folder(folder)

    def delete(self, keys: Sequence[str]) -> None:
        self._unlink(keys)
        for folder in dict.fromkeys(os.path.dirname(self._path(key)) for key in keys):
            self._remove_if_empty(folder)

    def _unlink(self, keys: Sequence[str]) -> None:
        for path in [self._path(key) for key in keys]:
            with translate_os_errors("removing", path):
                self._inside.require(path)
                try:
                    os.unlink(path)
                except OSError as error:
                    # a directory in a value's place is damage, and stays to be looked at
                    if error.errno not in (*ABSENT, errno.EISDIR):
                        raise

    def _remove_if_empty(self, folder: str) -> None:
        # the folders of the first level stay: somebody may be about to use them
        while os.path.dirname(os.path.dirname(folder)).startswith(self.url):
            self._folders.forget(folder)
            self._inside.forget(folder)
            try:
                os.rmdir(folder)
            except OSError:
                return  # not empty, or gone already
            folder = os.path.dirname(folder)

    def _write_temporary(self, path: str, pieces: Iterable[Buffer]) -> str:
        temporary = self._path(f"{TEMPORARY}{os.getpid()}-{os.urandom(8).hex()}")
        with translate_os_errors("writing", temporary):
            self._folders.make(os.path.dirname(temporary))
            self._folders.make(os.path.dirname(path))
            fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
        try:
            for piece in pieces:  # an error of the producer is its own, not the store's
                with translate_os_errors("writing", temporary):
                    write_all(fd, piece)
            with translate_os_errors("writing", temporary):
                # by the file system's clock, and a little less, which distinguishes versions
                now = os.fstat(fd).st_mtime_ns - time.time_ns() % 1_000_000
                os.utime(temporary, ns=(now, now))
                os.fsync(fd)
        except BaseException:
            with suppress(OSError):
                os.unlink(temporary)
            with suppress(OSError):
                os.close(fd)
            raise
        with translate_os_errors("closing", temporary):
            os.close(fd)
        return temporary

    def _link(self, temporary: str, path: str) -> None:
        try:
            os.link(temporary, path)
        except FileNotFoundError:
            # a clean-up has removed the folder since this handle made it
            folder = os.path.dirname(path)
            self._folders.forget(folder)
            self._folders.make(folder)
            os.link(temporary, path)

    def _rename_unless_there(self, temporary: str, path: str, key: str) -> None:
        # file systems without hard links: the lock stands in for the atomic link
        with self.exclusive():
            if os.access(path, os.F_OK):
                raise KeyExists(key)
            os.rename(temporary, path)

    def clock(self) -> float:
        return clock_at(self._path(f"{TEMPORARY}{os.getpid()}-{os.urandom(8).hex()}"))

    # locks

    @contextmanager
    def exclusive(self) -> Iterator[None]:
        with self._turn:
            if self._depth:
                yield
                return
            with self._lock(_LOCK):
                self._depth += 1
                try:
                    yield
                finally:
                    self._depth -= 1

    def hold(self, name: str) -> AbstractContextManager[object]:
        return self._lock(f"locks/{name}.lock")

    def forget_holds(self, but: str) -> None:
        kind = but.rpartition("-")[0]
        for entry in self.entries("locks/"):
            is_such = entry.key.startswith(f"locks/{kind}-") and entry.key.endswith(".lock")
            if is_such and entry.key != f"locks/{but}.lock":
                self.delete([entry.key])

    def is_held(self, name: str) -> bool | None:
        path = self._path(f"locks/{name}.lock")
        with translate_os_errors("looking at", path):
            return is_locked(path)

    def _lock(self, key: str) -> FileLock:
        path = self._path(key)
        with translate_os_errors("locking", path):
            self._folders.make(os.path.dirname(path))
        return FileLock(path)

    def _path(self, key: str) -> str:
        return f"{self.url}/{check_key(key)}"


def _entry(key: str, info: os.stat_result) -> Entry:
    return Entry(key, info.st_size, info.st_mtime_ns / 1e9, version_of_file(info))
