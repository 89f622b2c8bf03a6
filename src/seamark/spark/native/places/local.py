"""A checkpoint directory on a disk of this machine."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable
from contextlib import suppress

from seamark.errors import CheckpointNotFoundError
from seamark.spark.native.places.directory import Directory, FileEntry, newest_of
from seamark.spark.working_copy import WorkingCopy
from seamark.store.os_errors import telling


class LocalDirectory(Directory):
    """Files below a path."""

    def __init__(self, root: str | os.PathLike[str]) -> None:
        self.copy = WorkingCopy(root)
        self.url = self.copy.root
        self.uri = self.copy.uri
        self._empty: list[str] = []

    def listing(self) -> dict[str, FileEntry]:
        """See :class:`Directory`."""
        if not os.path.isdir(self.url):
            raise CheckpointNotFoundError(f"there is no directory {self.url}")
        found: dict[str, FileEntry] = {}
        empty: list[str] = []
        waiting = [""]
        with telling("listing", self.url):
            while waiting:
                folder = waiting.pop()
                before = len(found), len(waiting)
                with suppress(FileNotFoundError), os.scandir(f"{self.url}/{folder}") as entries:
                    for entry in entries:
                        path = f"{folder}/{entry.name}" if folder else entry.name
                        if entry.is_dir():
                            waiting.append(path)
                            continue
                        with suppress(FileNotFoundError):  # Spark removes files at any time
                            found[path] = _entry(entry.stat())
                if folder and before == (len(found), len(waiting)):
                    empty.append(folder)
        self._empty = empty
        return found

    def folders(self) -> Collection[str]:
        """See :class:`Directory`."""
        return self._empty

    def newest_commit(self) -> int | None:
        """See :class:`Directory`."""
        with telling("listing", f"{self.url}/commits"):
            try:
                names = os.listdir(f"{self.url}/commits")
            except (FileNotFoundError, NotADirectoryError):
                names = []
        if not names and not os.path.isdir(self.url):
            raise CheckpointNotFoundError(f"there is no directory {self.url}")
        return newest_of(names)

    def read(self, path: str) -> bytes:
        """See :class:`Directory`."""
        try:
            return self.copy.read(path)
        except NotADirectoryError:
            raise FileNotFoundError(path) from None
        except FileNotFoundError:
            raise
        except OSError:
            with telling("reading", self.copy.path(path)):
                raise

    def write(self, path: str, data: bytes) -> None:
        """See :class:`Directory`."""
        with telling("writing", self.copy.path(path)):
            self.copy.write(path, data)

    def remove(self, paths: Iterable[str]) -> None:
        """See :class:`Directory`."""
        with telling("removing files of", self.url):
            for path in paths:
                self.copy.remove(path)

    def beside(self, suffix: str) -> LocalDirectory:
        """See :class:`Directory`."""
        return LocalDirectory(f"{self.url}{suffix}")


def _entry(found: os.stat_result) -> FileEntry:
    # a file that is replaced gets another inode, also within one tick of the clock
    version = f"{found.st_ino}-{found.st_mtime_ns}-{found.st_size}"
    return FileEntry(found.st_size, found.st_mtime, version)
