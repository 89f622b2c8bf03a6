"""A checkpoint directory on a disk of this machine.

Tests: ``tests/checkpoint_dir/test_places.py``.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Collection, Iterable
from contextlib import suppress

from seamark._common.files import sync_folders
from seamark._common.os_errors import translate_os_errors
from seamark.checkpoint_dir.places.directory import Directory, FileEntry, newest_of
from seamark.checkpoint_dir.working_copy import WorkingCopy
from seamark.errors import CheckpointNotFoundError, RefusedError


class LocalDirectory(Directory):
    """Files below a path."""

    def __init__(self, root: str | os.PathLike[str]) -> None:
        self.copy = WorkingCopy(root, durable=True)
        self.url = self.copy.root
        self.uri = self.copy.uri
        self._empty: list[str] = []

    def listing(self) -> dict[str, FileEntry]:
        """See :class:`Directory`.

        :class:`RefusedError` for a link, a pipe or a device in it: nothing is reached through them.
        """
        if not os.path.isdir(self.url):
            raise CheckpointNotFoundError(f"there is no directory {self.url}")
        files: dict[str, FileEntry] = {}
        empty: list[str] = []
        waiting = [""]
        with translate_os_errors("listing", self.url):
            while waiting:
                folder = waiting.pop()
                # Spark removes files and folders at any time
                with suppress(FileNotFoundError), os.scandir(f"{self.url}/{folder}") as entries:
                    before = len(files), len(waiting)
                    for entry in entries:
                        path = f"{folder}/{entry.name}" if folder else entry.name
                        with suppress(FileNotFoundError):
                            if entry.is_dir(follow_symlinks=False):
                                waiting.append(path)
                                continue
                            known = entry.stat(follow_symlinks=False)
                            if not stat.S_ISREG(known.st_mode):
                                raise _not_followed(f"{self.url}/{path}", known)
                            files[path] = _entry(known)
                    if folder and before == (len(files), len(waiting)):
                        empty.append(folder)
        self._empty = empty
        return files

    def folders(self) -> Collection[str]:
        return self._empty

    def newest_commit(self) -> int | None:
        with translate_os_errors("listing", f"{self.url}/commits"):
            try:
                names = os.listdir(f"{self.url}/commits")
            except (FileNotFoundError, NotADirectoryError):
                names = []
        if not names and not os.path.isdir(self.url):
            raise CheckpointNotFoundError(f"there is no directory {self.url}")
        return newest_of(names)

    def read(self, path: str) -> bytes:
        try:
            return self.copy.read(path)
        except NotADirectoryError:
            raise FileNotFoundError(path) from None
        except FileNotFoundError:
            raise
        except OSError:
            with translate_os_errors("reading", self.copy.path(path)):
                raise

    def write(self, path: str, data: bytes) -> None:
        """See :class:`Directory`. A power cut does not take it back."""
        self.copy.write(path, data)

    def remove(self, paths: Iterable[str]) -> None:
        """See :class:`Directory`. A power cut does not bring them back."""
        folders: dict[str, None] = {}
        with translate_os_errors("removing files of", self.url):
            for path in paths:
                self.copy.remove(path)
                folders[os.path.dirname(self.copy.path(path))] = None
            sync_folders(folders)

    def sibling(self, suffix: str) -> LocalDirectory:
        return LocalDirectory(f"{self.url}{suffix}")


def _entry(status: os.stat_result) -> FileEntry:
    # a file that is replaced gets another inode, also within one tick of the clock
    version = f"{status.st_ino}-{status.st_mtime_ns}-{status.st_size}"
    return FileEntry(status.st_size, status.st_mtime, version)


def _not_followed(path: str, known: os.stat_result) -> RefusedError:
    if not stat.S_ISLNK(known.st_mode):
        return RefusedError(
            f"{path} is not a regular file", hint="Spark never creates such a thing: remove it."
        )
    return RefusedError(
        f"{path} is a link, and links inside a checkpoint directory are not followed",
        hint="Put the file or folder itself in its place, or mount the other disk there "
        "(mount --bind). The directory's own path may be a link.",
    )
