"""Locks on files, which the operating system releases when their holder dies.

Tests: ``tests/store/test_edges.py``.
"""

from __future__ import annotations

import fcntl
import os
import time
from typing import Final

from seamark._common.files import ABSENT, open_no_follow
from seamark._common.os_errors import translate_os_errors
from seamark.errors import StoreUnavailableError

LOCK_PATIENCE: Final = 60.0
"""Seconds that a lock is waited for."""


class FileLock:
    """An exclusive lock on a file, held inside a ``with`` block."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._fd = -1

    def __enter__(self) -> None:
        with translate_os_errors("locking", self._path):
            self._fd = open_no_follow(self._path, os.O_RDWR | os.O_CREAT, 0o644)
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
        with translate_os_errors("locking", self._path):
            try:
                fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return False
            return True

    def __exit__(self, *_: object) -> None:
        os.close(self._fd)


def is_locked(path: str) -> bool:
    """Whether a process holds the lock on a file."""
    try:
        fd = open_no_follow(path, os.O_RDWR)
    except OSError as error:
        if error.errno in ABSENT:
            return False
        raise
    try:
        # shared, so that two processes that look do not take each other for the holder
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(fd)
    return False
