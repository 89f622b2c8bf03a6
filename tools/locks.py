"""Let one set-up run at a time: the others wait for it."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def only_one(lock: Path) -> Iterator[None]:
    """Hold a lock, which is a file or a folder. Say so when another process has it, and wait."""
    handle = os.open(lock, os.O_RDONLY if lock.is_dir() else os.O_RDWR | os.O_CREAT, 0o644)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            print(f"Waiting for another set-up ({lock.name}) …", flush=True)
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)
