"""A directory as an inspection sees it: whatever lies in it, nothing here trips over it.

Tests: ``tests/native/test_inspection_damage.py``.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from typing import Final, TypeVar

from seamark.checkpoint_dir.operators import StatefulOperator
from seamark.checkpoint_dir.places.directory import Directory, FileEntry, Tree
from seamark.errors import DamageError, RefusedError

R = TypeVar("R")

_AT_A_TIME: Final = 8
_LARGEST_LONG: Final = 1 << 63

TROUBLE: Final = (ValueError, TypeError, KeyError, IndexError, OverflowError, RecursionError)
"""What reading numbers and JSON out of garbage may raise."""


class CachedListing(Tree):
    """One listing. What is read is kept, so that everything is judged by the same bytes."""

    def __init__(
        self,
        directory: Directory,
        entries: Mapping[str, FileEntry],
        empty_folders: Collection[str] = (),
    ) -> None:
        super().__init__(directory, entries, empty_folders)
        self.is_local = directory.uri.startswith("file:")
        self._kept: dict[str, bytes | None] = {}

    # reading

    def fetch(self, paths: Iterable[str]) -> None:
        """Read some files at once, a few at a time, and keep them."""
        unread = [path for path in dict.fromkeys(paths) if path not in self._kept]
        with ThreadPoolExecutor(_AT_A_TIME, "seamark-inspect") as pool:
            self._kept |= dict(zip(unread, pool.map(self._tried, unread), strict=True))

    def _tried(self, path: str) -> bytes | None:
        if path not in self.entries:
            return None
        try:
            return self.directory.read(path)
        except (FileNotFoundError, DamageError, RefusedError):  # removed, a folder, far too large
            return None

    def data(self, path: str) -> bytes | None:
        """The bytes of a file, None when there is no such file (any more)."""
        if path in self._kept:
            return self._kept[path]
        result = self._tried(path)
        if not path.startswith("state/") or "/_metadata/" in path:
            self._kept[path] = result
        return result

    def read(self, relative: str) -> bytes:
        data = self.data(relative)
        if data is None:
            raise FileNotFoundError(relative)
        return data

    def is_there(self, path: str) -> bool:
        """Whether the listing has a file that is not empty."""
        return path in self.entries and self.entries[path].size > 0

    def in_parallel(self, work: Callable[[str], R], paths: Iterable[str]) -> Iterator[R]:
        """Do something for each path, a few at a time, without running far ahead."""
        with ThreadPoolExecutor(_AT_A_TIME, "seamark-inspect") as pool:
            waiting = iter(paths)
            while some := list(islice(waiting, 8 * _AT_A_TIME)):
                yield from pool.map(work, some)

    # what Spark would take for a number

    def numbers(self, folder: str) -> list[int]:
        return numbers_in(self.names(folder))

    def batches(self, log: str) -> list[int]:
        """See :class:`CheckpointFiles`; folders and what Spark reads no number in are left out."""
        return [number for number in self.numbers(log) if f"{log}/{number}" in self.entries]

    def _is_operator(self, number: int) -> bool:
        return f"state/{number}" not in self.entries

    def operator(self, number: int) -> StatefulOperator:
        """See :class:`CheckpointFiles`; the folders tell where a description cannot be read."""
        try:
            return super().operator(number)
        except DamageError:
            return self.operator_by_folders(number)

    def is_understood(self, number: int) -> bool:
        """Whether the operator is known well enough to store its state."""
        try:
            super().operator(number)
        except DamageError:
            return False
        return True


def numbers_in(names: Iterable[str]) -> list[int]:
    """The names that are numbers to Spark, ascending."""
    numbers = (int(name) for name in names if name.isascii() and name.isdigit() and len(name) < 20)
    listed = set(names)
    return sorted(number for number in numbers if number < _LARGEST_LONG and str(number) in listed)
