"""The few things that the file system backend asks of the operating system."""

from __future__ import annotations

import errno
import fcntl
import os
import stat
import time
from typing import Final

from seamark.errors import DamageError, StoreUnavailableError
from seamark.store.blobs import Buffer, Entry
from seamark.store.os_errors import telling

ABSENT: Final = (errno.ENOENT, errno.ENOTDIR)
LOCK_PATIENCE: Final = 60.0


class FileLock:
    """An exclusive lock on a file from entering to leaving; the system frees it for a dead one."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._fd = -1

    def __enter__(self) -> None:
        with telling("locking", self._path):
            self._fd = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            self._wait()
        except BaseException:
            os.close(self._fd)
            raise

    def _wait(self) -> None:
        deadline = time.monotonic() + LOCK_PATIENCE
        while not self._try():
            if time.monotonic() > deadline:
                raise StoreUnavailableError(
                    f"another process has held {self._path} for {LOCK_PATIENCE:.0f} s",
                    hint="A writer that is stopped or hangs? Find it with 'fuser' or 'lsof'.",
                )
            time.sleep(0.002)

    def _try(self) -> bool:
        with telling("locking", self._path):
            try:
                fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return False
            return True

    def __exit__(self, *_: object) -> None:
        os.close(self._fd)


def is_locked(path: str) -> bool:
    """Whether somebody holds the lock on a file."""
    try:
        fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except OSError as error:
        if error.errno in ABSENT:
            return False
        raise
    try:
        # shared, so that two who look do not take each other for the holder
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(fd)
    return False


def version_of_file(found: os.stat_result) -> tuple[int, int, int]:
    """Changes whenever the file is written."""
    return (found.st_ino, found.st_mtime_ns, found.st_size)


def entry_of(key: str, found: os.stat_result) -> Entry:
    """A row of a listing."""
    return Entry(key, found.st_size, found.st_mtime_ns / 1e9, version_of_file(found))


def open_to_read(path: str) -> int | None:
    """A descriptor of a regular file, or None when there is no such file."""
    try:
        # a pipe in a file's place would block for ever otherwise
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError as error:
        if error.errno in ABSENT:
            return None
        raise
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        raise DamageError(f"{path} is not a regular file")
    return fd


def read_all(fd: int, most: int) -> bytes:
    """Up to ``most`` bytes, in as many reads as it takes."""
    data = os.read(fd, most)
    parts = [data]
    while data and (most := most - len(data)) > 0:
        data = os.read(fd, most)
        parts.append(data)
    return parts[0] if len(parts) == 1 else b"".join(parts)


def write_all(fd: int, piece: Buffer) -> None:
    """All of a piece, in as many writes as it takes."""
    written = os.write(fd, piece)
    view = memoryview(piece)
    while written < len(view):
        more = os.write(fd, view[written:])
        if more == 0:
            raise OSError(errno.EIO, "the disk takes no more bytes and does not say why")
        written += more


def sync_folder(folder: str) -> None:
    """Make the names in a folder durable."""
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
