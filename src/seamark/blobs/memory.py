"""A store in this process's memory: for tests and for trying things out.

Tests: ``tests/store/test_conformance.py``.
"""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Hashable, Iterable, Sequence
from contextlib import AbstractContextManager

from seamark.blobs.contract import (
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
)
from seamark.errors import DamageError

_named: dict[str, MemoryBlobs] = {}
_named_lock = threading.Lock()


class MemoryBlobs(Blobs):
    """Values in a dictionary. ``memory://name`` is shared by all handles of this process."""

    def __init__(self, url: str = "memory://") -> None:
        self.url = url
        self._values: dict[str, tuple[bytes, int, float]] = {}
        self._versions = itertools.count(1)
        self._time = 0.0
        self._lock = threading.RLock()

    @classmethod
    def named(cls, name: str) -> MemoryBlobs:
        """The store of that name; without a name, one of its own."""
        if not name:
            return cls()
        with _named_lock:
            return _named.setdefault(name, cls(f"memory://{name}"))

    def read(self, key: str, limit: int) -> Blob | None:
        value = self._get(key)
        if value is None:
            return None
        if len(value[0]) > limit:
            raise DamageError(f"{key} has {len(value[0])} bytes, more than {limit}", where=self.url)
        return Blob(value[0], value[1])

    def stat(self, key: str) -> Entry | None:
        value = self._get(key)
        return Entry(key, len(value[0]), value[2], value[1]) if value else None

    def stream(self, key: str, piece: int) -> Stream | None:
        value = self._get(key)
        if value is None:
            return None
        view = memoryview(value[0])
        pieces = (view[start : start + piece] for start in range(0, len(view), piece))
        return Stream(pieces, value[1])

    def read_range(self, key: str, offset: int, length: int) -> bytes | None:
        check_range(key, offset, length)
        value = self._get(key)
        return value[0][offset : offset + length] if value else None

    def create(self, key: str, data: bytes) -> Tag:
        with self._lock:
            if self._get(key) is not None:
                raise KeyExists(key)
            return self._set(key, bytes(data))

    def create_stream(self, key: str, pieces: Iterable[Buffer]) -> Tag | None:
        return self.create(key, b"".join(bytes(piece) for piece in pieces))

    def replace(self, key: str, data: bytes, tag: Tag, *, durable: bool = True) -> Tag:
        with self._lock:
            current = self._get(key)
            if current is None or current[1] != tag:
                raise TagMismatch(key)
            return self._set(key, data)

    def delete(self, keys: Sequence[str]) -> None:
        with self._lock:
            for key in [check_key(key) for key in keys]:
                self._values.pop(key, None)

    def entries(self, prefix: str) -> list[Entry]:
        check_folder(prefix)
        with self._lock:
            return [
                Entry(key, len(data), modified, version)
                for key, (data, version, modified) in sorted(self._values.items())
                if key.startswith(prefix)
            ]

    def folders_holding(self, prefix: str, name: str) -> list[str]:
        check_folder(prefix)
        with self._lock:
            keys = [key.removeprefix(prefix) for key in self._values if key.startswith(prefix)]
        parts = (key.split("/") for key in keys)
        return [part[0] for part in parts if len(part) == 2 and part[1] == name]

    def version_of(self, tag: Tag) -> Hashable:
        return tag

    def clock(self) -> float:
        with self._lock:  # never back, also when somebody sets the machine's clock
            self._time = max(self._time, time.time())
            return self._time

    def exclusive(self) -> AbstractContextManager[object]:
        return self._lock

    def _get(self, key: str) -> tuple[bytes, int, float] | None:
        return self._values.get(check_key(key))

    def _set(self, key: str, data: bytes) -> int:
        version = next(self._versions)
        self._values[key] = (data, version, self.clock())
        return version
