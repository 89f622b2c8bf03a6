"""The contract between what is done to a checkpoint directory and the place where it lies.

A place is a handful of verbs over relative paths; a local disk, an object store and whatever
Hadoop knows each have a module of their own, chosen by :func:`open_directory`. Everything else
works on a :class:`Tree`: one listing of all files, taken at one moment, and the way to read them.

Tests: ``tests/checkpoint_dir/test_places.py``.
"""

from __future__ import annotations

import os
import re
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Self

from seamark import limits_by_size
from seamark._common.files import Buffer
from seamark._redaction import has_password
from seamark.blobs.addresses import refuse_broken_url
from seamark.checkpoint_dir.files import CheckpointFiles
from seamark.errors import InvalidInputError, RefusedError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class FileEntry(NamedTuple):
    """One file of a listing."""

    size: int
    modified: float
    """Seconds since the Unix epoch, by the clock of the place."""
    version: str
    """Changes when the file is written again, as far as the place can tell."""


class Directory(ABC):
    """Somewhere that Spark keeps a checkpoint. Safe to read from several threads.

    Errors: FileNotFoundError for a file that is not there; :class:`StoreUnavailableError` when the
    place does not answer, which proves nothing about the files.
    """

    url: str
    """Where it is, for messages: free of secrets."""
    uri: str
    """The same as Spark writes it into its own files."""

    @abstractmethod
    def listing(self) -> dict[str, FileEntry]:
        """Every file by its relative path, hidden ones too. Nothing for a place that is empty.

        :class:`CheckpointNotFoundError` when there is no such directory, where that is known.
        """

    def folders(self) -> Collection[str]:
        """Folders without a file below them, where the place has such; seen by ``listing()``."""
        return ()

    def newest_commit(self) -> int | None:
        """The last batch that is listed as committed: ``listing()`` for those who only wait.

        None when there is none yet; :class:`CheckpointNotFoundError` as for ``listing()``.
        """
        return newest_of(Tree(self, self.listing()).names("commits"))

    @abstractmethod
    def read(self, path: str) -> bytes:
        """The bytes of a file."""

    def stream(self, path: str) -> Iterator[Buffer]:
        """The same in pieces, for a file of any size."""
        yield self.read(path)

    def hold(self, paths: Sequence[str]) -> AbstractContextManager[object]:
        """Files that can be read until the end even if they are removed meanwhile.

        As many of the first ones as the place can hold. FileNotFoundError when one is gone already.
        """
        return nullcontext()

    @abstractmethod
    def write(self, path: str, data: bytes) -> None:
        """Put a file in place of whatever is there, whole or not at all."""

    @abstractmethod
    def remove(self, paths: Iterable[str]) -> None:
        """Remove files, and Hadoop's checksums next to them; missing files are fine."""

    @abstractmethod
    def sibling(self, suffix: str) -> Directory:
        """The directory whose name is this one's with something at its end."""

    def close(self) -> None:  # noqa: B027 - most places hold nothing
        """Give back what is held."""


class Tree(CheckpointFiles):
    """The files of a directory as one listing saw them. Reading goes to the directory itself."""

    def __init__(
        self,
        directory: Directory,
        entries: Mapping[str, FileEntry],
        empty_folders: Collection[str] = (),
    ) -> None:
        self.directory = directory
        self.entries = dict(entries)
        self._below: dict[str, dict[str, None]] = {"": {}}
        self._most = limits_by_size.most_folders(len(entries) + len(empty_folders))
        for path in entries:
            self._note(path)
        for folder in empty_folders:
            self._note(folder)
            self._below.setdefault(folder, {})

    def _note(self, path: str) -> None:
        while path:
            folder, _, name = path.rpartition("/")
            known = folder in self._below
            self._below.setdefault(folder, {})[name] = None
            if known:
                break
            path = folder
        if len(self._below) > self._most:
            raise RefusedError(
                f"the directory has {len(self._below)} folders or more, far more than files",
                where=self.directory.url,
                hint="Spark makes no folder without a file. Is it a checkpoint directory?",
            )

    @classmethod
    def of(cls, directory: Directory) -> Self:
        """What is there now; :class:`RefusedError` for far more folders than files."""
        entries = directory.listing()
        return cls(directory, entries, directory.folders())

    @property
    def uri(self) -> str:
        return self.directory.uri

    def read(self, relative: str) -> bytes:
        return self.directory.read(relative)

    def stream(self, relative: str) -> Iterator[Buffer]:
        """See :class:`CheckpointFiles`."""
        return self.directory.stream(relative)

    def names(self, folder: str) -> Collection[str]:
        return self._below.get(folder, ())

    def has_folder(self, relative: str) -> bool:
        return relative in self._below

    def files_below(self, relative: str) -> Iterator[str]:
        waiting = ["" if relative in ("", ".") else relative]
        while waiting:
            folder = waiting.pop()
            for name in self._below.get(folder, ()):
                path = f"{folder}/{name}" if folder else name
                if path in self._below:
                    waiting.append(path)
                elif not name.startswith("."):
                    yield path

    def size(self, relative: str) -> int | None:
        entry = self.entries.get(relative)
        return None if entry is None else entry.size

    def size_of(self, paths: Iterable[str]) -> int:
        """Bytes of some files, by the listing."""
        return sum(self.entries[path].size for path in paths if path in self.entries)


def newest_of(names: Iterable[str]) -> int | None:
    """The highest batch among the names of a log's entries; None when there is none."""
    return max((int(name) for name in names if name.isascii() and name.isdigit()), default=None)


_SCHEME: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):(?=/)")
_OBJECT_STORES: Final = frozenset({"s3", "s3a", "gs", "az", "abfs", "abfss"})


def local_path_of(text: str) -> str | None:
    """The path of a local directory; None for a URI of another file system."""
    match = _SCHEME.match(text)
    if match is None:
        return text
    # as Hadoop reads it: nothing is escaped
    return "/" + text[5:].lstrip("/") if match[1].lower() == "file" else None


def refuse_secrets(uri: str) -> None:
    """:class:`InvalidInputError` for a URI with credentials, which manifests and messages name."""
    if has_password(uri) or "?" in uri or "#" in uri:
        scheme = uri.partition(":")[0]
        raise InvalidInputError(
            f"a {scheme}:// URL may not carry credentials or a query",
            hint="Give them by --storage-option or by the environment.",
        )


def open_directory(
    path: str | os.PathLike[str],
    storage_options: Mapping[str, Any] | None = None,
    *,
    spark: SparkSession | None = None,
) -> Directory:
    """The checkpoint directory at a path or URI. Creates nothing.

    A path, ``file:``, ``s3a://`` or ``s3://``, ``gs://``, ``abfss://`` work without Spark; any
    other scheme goes through the file systems of ``spark``, or of the installed Spark.
    """
    text = os.fspath(path)
    match = _SCHEME.match(text)
    scheme = match[1].lower() if match else ""
    if scheme in ("", *_OBJECT_STORES):
        refuse_broken_url(text)  # Hadoop knows others with one slash, as in dbfs:/mnt
    local = local_path_of(text)
    if local is not None:
        if storage_options:
            raise InvalidInputError("storage options mean nothing for a local directory")
        from seamark.checkpoint_dir.places.local import LocalDirectory

        return LocalDirectory(local)
    refuse_secrets(text)
    if scheme in _OBJECT_STORES:
        from seamark.checkpoint_dir.places.object_store import ObjectDirectory

        return ObjectDirectory(text, storage_options or {})
    from seamark.checkpoint_dir.places.hadoop import HadoopDirectory

    return HadoopDirectory(text, spark)
