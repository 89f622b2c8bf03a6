"""A checkpoint directory on a local disk: Spark's working copy, and the place of a user's own.

A pipeline's working copy is disposable, because the store is the truth. It is not fsynced: what a
power cut leaves is compared with the store before it is used. A user's own directory is written
durably.

Tests: ``tests/checkpoint_dir/test_places.py``.
"""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import suppress

from seamark._common.files import read_file, replace_file, require_inside, sync_folders
from seamark._common.os_errors import translate_os_errors
from seamark.checkpoint_dir.files import CheckpointFiles, rooted_at
from seamark.checkpoint_dir.formats.checksums import hidden_checksum
from seamark.checkpoint_dir.places.directory import Directory, FileEntry, newest_of
from seamark.checkpoint_dir.state_files import version_of
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
                            # a replaced file has another inode, also within a tick of the clock
                            version = f"{known.st_ino}-{known.st_mtime_ns}-{known.st_size}"
                            files[path] = FileEntry(known.st_size, known.st_mtime, version)
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


class WorkingCopy(CheckpointFiles):
    """Spark's checkpoint directory, as files."""

    def __init__(
        self, root: str | os.PathLike[str], uri: str | None = None, *, durable: bool = False
    ) -> None:
        self.root = os.path.abspath(root)
        self._uri = uri
        self._durable = durable

    @property
    def uri(self) -> str:
        return self._uri or f"file:{self.root}"  # Hadoop does not escape

    def path(self, relative: str) -> str:
        """The full path of a file inside."""
        return f"{self.root}/{relative}"

    def exists(self) -> bool:
        """Whether there is anything."""
        return os.path.isdir(self.root)

    # files

    def read(self, relative: str) -> bytes:
        return read_file(self.root, relative)

    def write(self, relative: str, data: bytes) -> None:
        """Put a file in place of whatever is there; :class:`StoreUnavailableError` if it fails."""
        path = self.path(relative)
        with translate_os_errors("writing", path):
            require_inside(self.root, path)
            # Hadoop's checksum of the old bytes would make the new ones unreadable
            replace_file(path, data, durable=self._durable, stale=hidden_checksum(path))

    def remove(self, relative: str) -> None:
        """Remove a file and Hadoop's checksum of it; harmless when there is none."""
        path = self.path(relative)
        require_inside(self.root, path)
        for victim in (path, hidden_checksum(path)):
            with suppress(FileNotFoundError):
                os.unlink(victim)

    def files_below(self, relative: str) -> Iterator[str]:
        for folder, names in self._folders(relative):
            below = os.path.relpath(folder, self.root)
            for name in names:
                if not name.startswith("."):
                    yield f"{below}/{name}" if below != "." else name

    def _folders(self, relative: str) -> Iterator[tuple[str, list[str]]]:
        """Every folder from one on, with the names of its files."""
        top = self.path(relative) if relative not in ("", ".") else self.root
        if top != self.root:
            require_inside(self.root, f"{top}/")
        for folder, _, names in os.walk(top):
            yield folder, names

    def foreign(self) -> str | None:
        """The first link, pipe or the like, which Spark never makes here; None for none."""
        waiting = [self.root]
        while waiting:
            with os.scandir(waiting.pop()) as entries:
                for entry in entries:
                    if entry.is_dir(follow_symlinks=False):
                        waiting.append(entry.path)
                    elif not entry.is_file(follow_symlinks=False):
                        return os.path.relpath(entry.path, self.root)
        return None

    def has_folder(self, relative: str) -> bool:
        return os.path.isdir(self.path(relative))

    def names(self, folder: str) -> Collection[str]:
        try:
            return os.listdir(self.path(folder))
        except (FileNotFoundError, NotADirectoryError):
            return ()

    # bringing it to an epoch

    def forget_after(self, batch: int) -> None:
        """Remove every trace of later batches: commits, plans after the next one, newer state.

        Spark would prefer a newer snapshot of an abandoned history, and its fast file manager
        keeps an existing file instead of replacing it. Both give wrong results without an error.
        """
        for commit in self.batches("commits"):
            if commit > batch:
                self.remove(f"commits/{commit}")
        for offset in self.batches("offsets"):
            if offset > batch + 1:
                self.remove(f"offsets/{offset}")
        self.forget_versions_above(batch + 1)

    def forget_versions_above(self, version: int) -> None:
        """Remove state that is newer than a version, whatever wrote it."""
        self._unlink("state", lambda name: (version_of(name) or 0) > version)

    def remove_hadoop_checksums(self) -> None:
        """Remove the hidden checksum files that Hadoop puts next to every file on a local disk."""
        self._unlink(".", lambda name: name.startswith(".") and name.endswith(".crc"))

    def _unlink(self, relative: str, is_meant: Callable[[str], bool]) -> None:
        for folder, names in self._folders(relative):
            for name in filter(is_meant, names):
                with suppress(FileNotFoundError):
                    os.unlink(f"{folder}/{name}")

    def rewrite_root(self) -> None:
        """Make absolute paths inside Spark's files lead here, after a move or a restore."""
        for relative in self.descriptions():
            text = self.read_text(relative) if "/_metadata/v2/" in relative else None
            if text is not None and (moved := rooted_at(text, self.uri)) != text:
                self.write(relative, moved.encode())

    def destroy(self) -> None:
        """Remove everything."""
        shutil.rmtree(self.root, ignore_errors=True)
