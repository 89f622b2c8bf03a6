"""Small files of a sink beside a table, on whatever file system the table is on.

pyiceberg's own interface can neither list nor make a file durable, so its file systems are used.

Tests: ``tests/sinks/test_iceberg_staging.py``.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from seamark._common.files import (
    make_folders,
    open_to_read,
    read_file,
    replace_file,
    require_inside,
    sync_folder,
)
from seamark.errors import RefusedError
from seamark.limits import LARGEST_DOCUMENT
from seamark.sinks.folders import names_in, remove_tree

if TYPE_CHECKING:
    from pyarrow.fs import FileSystem
    from pyiceberg.io import FileIO

_TRIES: Final = 3


class Folder:
    """A folder of a table below which names are written whole or not at all.

    On a local disk no link below the table is followed, and no pipe is waited for:
    :class:`StoreUnavailableError` and :class:`DamageError`. The table itself may be a link.
    """

    def __init__(self, io: FileIO, table: str, below: str) -> None:
        self.location = f"{table.rstrip('/')}/{below}"
        self._system, self._path = file_system(io, self.location)
        self._local = self._path.removesuffix(f"/{below}") if is_local(self._system) else None

    def write(self, name: str, data: bytes) -> None:
        """Put a file in place of whatever has its name, durably."""
        path = f"{self._path}/{name}"
        if self._local is not None:
            self._write_locally(path, data, self._local)
            return
        if not _has_keys_only(self._system):
            self._system.create_dir(os.path.dirname(path), recursive=True)
        with self._system.open_output_stream(path) as stream:
            stream.write(data)

    def _write_locally(self, path: str, data: bytes, table: str) -> None:
        for left in reversed(range(_TRIES)):
            require_inside(table, path)
            try:
                replace_file(path, data)
                return
            except FileNotFoundError:  # others have removed the folder since it was made
                if not left:
                    raise

    def read(self, name: str, largest: int = LARGEST_DOCUMENT) -> bytes | None:
        """The bytes of a file; None when it is not there, :class:`RefusedError` when it is too
        large."""
        path = f"{self._path}/{name}"
        try:
            if self._local is not None:
                return read_file(self._local, path.removeprefix(f"{self._local}/"), largest)
            with self._system.open_input_stream(path) as stream:
                data: bytes = stream.read(largest + 1)
        except FileNotFoundError:
            return None
        if len(data) > largest:
            raise RefusedError(f"{self.location}/{name} has more than {largest} bytes")
        return data

    def names(self, below: str = "") -> list[str]:
        """Names in a folder below this one, sorted; none when it is not there."""
        folder = f"{self._path}/{below}".rstrip("/")
        if self._local is not None:
            require_inside(self._local, f"{folder}/")
            return names_in(folder)
        from pyarrow.fs import FileSelector

        found = self._system.get_file_info(FileSelector(folder, allow_not_found=True))
        return sorted(info.base_name for info in found if info.base_name)

    def remove(self, name: str) -> None:
        """Remove a file; harmless when it is not there."""
        path = f"{self._path}/{name}"
        with suppress(FileNotFoundError):
            if self._local is not None:
                require_inside(self._local, path)
                os.unlink(path)
            else:
                self._system.delete_file(path)

    def remove_folder(self, name: str) -> None:
        """Remove a folder and all below it; harmless when it is not there."""
        path = f"{self._path}/{name}"
        if self._local is not None:
            require_inside(self._local, path)
            remove_tree(path)
            return
        with suppress(FileNotFoundError):
            self._system.delete_dir(path)


def is_local(system: FileSystem) -> bool:
    """Whether files are on a disk of this machine, whichever library reaches them."""
    by_fsspec = getattr(getattr(system, "handler", None), "fs", None)
    return system.type_name == "local" or "file" in getattr(by_fsspec, "protocol", ())


def file_system(io: FileIO, location: str) -> tuple[FileSystem, str]:
    """The file system of a location, and the path in it."""
    from pyiceberg.io.pyarrow import PyArrowFileIO

    scheme, host, path = PyArrowFileIO.parse_location(location, io.properties)
    if isinstance(io, PyArrowFileIO):
        return io.fs_by_scheme(scheme, host), path
    from pyiceberg.io.fsspec import FsspecFileIO

    if isinstance(io, FsspecFileIO):
        from pyarrow.fs import FSSpecHandler, PyFileSystem

        return PyFileSystem(FSSpecHandler(io.get_fs(scheme, host))), path
    raise RefusedError(
        f"files of the table are reached through {type(io).__name__}, which cannot list a folder",
        where=location,
        hint="Set py-io-impl to pyiceberg.io.pyarrow.PyArrowFileIO.",
    )


def remove_files(io: FileIO, paths: Iterable[str]) -> None:
    """Remove files by their full paths; harmless when they are not there."""
    for path in paths:
        with suppress(FileNotFoundError):
            io.delete(path)


def size_problem(io: FileIO, sizes: Mapping[str, int]) -> str | None:
    """What is wrong with the first file that is gone or has another size; None when all are there.

    ``sizes`` are by full path.
    """
    for location, size in sizes.items():
        system, path = file_system(io, location)
        info = system.get_file_info(path)
        if not info.is_file:
            return f"{location} is gone"
        if info.size != size:
            return f"{location} has {info.size} bytes, not {size}"
    return None


def sync_files(io: FileIO, paths: Iterable[str]) -> None:
    """Make files durable where the file system does not do it by itself."""
    folders = set()
    for location in paths:
        system, path = file_system(io, location)
        if not is_local(system):
            continue
        descriptor = open_to_read(path)
        if descriptor is None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        folders.add(os.path.dirname(path))
    for folder in folders:
        make_folders(folder)
        sync_folder(folder)
        sync_folder(os.path.dirname(folder))


def _has_keys_only(system: FileSystem) -> bool:
    """Whether a folder is only the beginning of a key, and need not be made."""
    return system.type_name in ("s3", "gcs", "abfs")
