"""A checkpoint directory on a local disk: Spark's working copy, and the place of a user's own.

A pipeline's working copy is disposable, because the store is the truth. It is not fsynced: what a
power cut leaves is compared with the store before it is used. A user's own directory is written
durably.

Tests: ``tests/checkpoint_dir/test_places.py``.
"""

from __future__ import annotations

import hashlib
import os
import resource
import stat
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from typing import Final

from seamark._common.files import (
    Buffer,
    Inside,
    folders_below,
    open_to_read,
    refuse_hole,
    remove_tree,
    replace_file,
    require_inside,
    stream_file,
    sync_folders,
)
from seamark._common.holes import is_mostly_hole
from seamark._common.os_errors import translate_os_errors
from seamark.blobs.streams import PIECE
from seamark.checkpoint_dir.files import largest_read
from seamark.checkpoint_dir.formats.checksums import hidden_checksum
from seamark.checkpoint_dir.places.directory import Directory, FileEntry, newest_of
from seamark.checkpoint_dir.working_copy import WorkingCopy
from seamark.errors import CheckpointNotFoundError, RefusedError


class LocalDirectory(Directory):
    """Files below a path."""

    def __init__(self, root: str | os.PathLike[str]) -> None:
        self.copy = LocalCopy(root, durable=True)
        self.url = self.copy.root
        self.uri = self.copy.uri
        self._empty: list[str] = []
        self._held: dict[str, int] = {}

    def listing(self) -> dict[str, FileEntry]:
        """See :class:`Directory`. Folders come in the order of their names, as in an object store.

        So state is listed after the logs that tell which of it is needed: in a directory whose
        query runs, no batch is listed without its state.
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
                    waiting[before[1] :] = sorted(waiting[before[1] :], reverse=True)
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
        except (FileNotFoundError, NotADirectoryError):
            if path in self._held:
                return b"".join(self._held_pieces(path))
            raise FileNotFoundError(path) from None
        except OSError:
            with translate_os_errors("reading", self.copy.path(path)):
                raise

    def stream(self, path: str) -> Iterator[Buffer]:
        if path in self._held:
            return self._held_pieces(path)
        return self.copy.stream(path)

    @contextmanager
    def hold(self, paths: Sequence[str]) -> Iterator[None]:
        """See :class:`Directory`. A file that is open stays, and a dead process leaves nothing."""
        most = resource.getrlimit(resource.RLIMIT_NOFILE)[0] // 2
        held: dict[str, int] = {}
        try:
            for path in paths[: max(most, 0)]:
                fd = open_to_read(self.copy.path(path))
                if fd is None:
                    raise FileNotFoundError(path)
                held[path] = fd
                refuse_hole(fd, self.copy.path(path), os.fstat(fd).st_size)
            self._held = held
            yield
        finally:
            self._held = {}
            for fd in held.values():
                os.close(fd)

    def _held_pieces(self, path: str) -> Iterator[bytes]:
        at = 0
        while piece := os.pread(self._held[path], PIECE, at):
            at += len(piece)
            yield piece

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


_THREADS: Final = 8


class LocalCopy(WorkingCopy):
    """A working copy in a local folder, or in one that all machines share."""

    def __init__(
        self,
        root: str | os.PathLike[str],
        uri: str | None = None,
        *,
        durable: bool = False,
        inside: str | None = None,
    ) -> None:
        self.root = os.path.abspath(root)
        self._uri = uri
        self._durable = durable
        self._named = inside or self.root
        """The folder that the user has named, which may be a link. None is followed below it."""
        self._inside = Inside(self._named)

    @property
    def uri(self) -> str:
        return self._uri or f"file:{self.root}"  # Hadoop does not escape

    def below(self, name: str) -> LocalCopy:
        return LocalCopy(self.path(name), durable=self._durable, inside=self._named)

    def exists(self) -> bool:
        return self.has_folder("")

    def make(self) -> None:
        with translate_os_errors("making", self.root):
            self._require_inside("")
            os.makedirs(self.root, exist_ok=True)

    def destroy(self) -> None:
        """See :class:`WorkingCopy`. Of a link only the link is removed."""
        if self.root != self._named and os.path.islink(self.root):
            with translate_os_errors("removing", self.root):
                os.unlink(self.root)
            return
        remove_tree(self.root)

    def _require_inside(self, relative: str) -> None:
        """:class:`StoreUnavailableError` when a link leads to the folder of a file."""
        require_inside(self._named, self.path(relative))

    def _below_named(self, relative: str) -> str:
        return f"{self.root}/{relative}".removeprefix(f"{self._named}/")

    # files

    def read(self, relative: str) -> bytes:
        return self._inside.read(self._below_named(relative), largest_read(relative))

    def stream(self, relative: str) -> Iterator[Buffer]:
        return stream_file(self._named, self._below_named(relative), PIECE)

    def size(self, relative: str) -> int | None:
        try:
            return os.stat(self.path(relative), follow_symlinks=False).st_size
        except (FileNotFoundError, NotADirectoryError):
            return None

    def write(self, relative: str, data: bytes) -> None:
        self.write_stream(relative, (data,))

    def write_stream(self, relative: str, pieces: Iterable[Buffer]) -> None:
        """See :class:`WorkingCopy`. The file appears whole or not at all."""
        path = self.path(relative)
        with translate_os_errors("writing", path):
            self._require_inside(relative)
            # Hadoop's checksum of the old bytes would make the new ones unreadable
            replace_file(path, pieces, durable=self._durable, stale=hidden_checksum(path))

    def remove(self, relative: str) -> None:
        path = self.path(relative)
        self._require_inside(relative)
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
        require_inside(self._named, f"{top}/")
        yield from folders_below(top)

    def foreign(self) -> str | None:
        if self.root != self._named and os.path.islink(self.root):
            return "."
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
        path = self.path(relative).rstrip("/")
        return os.path.isdir(path) and (path == self._named or not os.path.islink(path))

    def names(self, folder: str) -> Collection[str]:
        self._require_inside(f"{folder}/")
        try:
            return os.listdir(self.path(folder))
        except (FileNotFoundError, NotADirectoryError):
            return ()

    def rename(self, old: str, new: str) -> None:
        with translate_os_errors("renaming", self.path(old)):
            self._require_inside(old)
            self._require_inside(new)
            os.rename(self.path(old), self.path(new))

    def digests(self, paths: Collection[str]) -> Iterator[tuple[str, bytes | None]]:
        def digest(path: str) -> tuple[str, bytes | None]:
            fd = self._inside.open(self.path(path))
            if fd is None:
                return path, None
            with open(fd, "rb") as file:
                if is_mostly_hole(fd, 0, os.fstat(fd).st_size):
                    return path, None  # no file of Spark's, and it could take hours
                return path, hashlib.file_digest(file, "sha256").digest()

        with ThreadPoolExecutor(_THREADS, "seamark-compare") as pool:
            yield from pool.map(digest, paths)

    def remove_where(self, relative: str, is_meant: Callable[[str], bool]) -> None:
        for folder, names in self._folders(relative):
            for name in filter(is_meant, names):
                with suppress(FileNotFoundError):
                    os.unlink(f"{folder}/{name}")

    def remove_hadoop_checksums(self) -> None:
        self.remove_where(".", lambda name: name.startswith(".") and name.endswith(".crc"))
