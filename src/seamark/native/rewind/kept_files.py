"""A directory of which small files are read once, however many batches are tried on it.

Tests: ``tests/native/test_rewind_costs.py``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from seamark._common.files import Buffer
from seamark.checkpoint_dir.places.directory import Directory, FileEntry

_MOST_KEPT: Final = 32 << 20
"""Bytes of all files that are kept."""


class KeptFiles(Directory):
    """Another directory, as it was when each of its files was first read."""

    def __init__(self, directory: Directory) -> None:
        self.url, self.uri = directory.url, directory.uri
        self._directory = directory
        self._kept: dict[str, bytes] = {}
        self._missing: set[str] = set()
        self._size = 0

    def listing(self) -> dict[str, FileEntry]:
        return self._directory.listing()

    def read(self, path: str) -> bytes:
        if path in self._missing:
            raise FileNotFoundError(path)
        data = self._kept.get(path)
        if data is not None:
            return data
        try:
            data = self._directory.read(path)
        except FileNotFoundError:
            self._missing.add(path)
            raise
        if self._size + len(data) <= _MOST_KEPT:
            self._kept[path] = data
            self._size += len(data)
        return data

    def stream(self, path: str) -> Iterator[Buffer]:
        return self._directory.stream(path)

    def write(self, path: str, data: bytes) -> None:
        raise NotImplementedError("it is only read")

    def remove(self, paths: Iterable[str]) -> None:
        raise NotImplementedError("it is only read")

    def sibling(self, suffix: str) -> Directory:
        return self._directory.sibling(suffix)
