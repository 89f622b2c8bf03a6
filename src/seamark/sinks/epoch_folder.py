"""The folder of one epoch on disk: its files, and the record that says what they must be."""

from __future__ import annotations

import errno
import hashlib
import os
import re
from collections.abc import Callable, Iterable
from typing import Final, TypeVar

import msgspec

from seamark._common.checks import unsafe_path
from seamark._common.files import (
    a_link,
    open_to_read,
    read_file,
    require_no_link,
    sync_folder,
    version_of_file,
    write_file,
)
from seamark._common.holes import is_hollow
from seamark._common.json_documents import seal, unseal
from seamark._common.parallel import map_in_threads
from seamark.errors import DamageError, FormatTooNewError, SeamarkError
from seamark.sinks.contract import Receipt
from seamark.sinks.folders import check_token, remove_tree

RECORD: Final = "_seamark.json"
VERSION: Final = 1
_NAME: Final = re.compile(r"epoch=(\d{6,})")
_PIECE: Final = 1 << 20
_FEW: Final = 8
_SMALL: Final = 16 << 20
_THREADS: Final = 8
T = TypeVar("T")


class StoredFile(msgspec.Struct, frozen=True):
    """A file of an epoch: its path below the epoch's folder, its size and its SHA-256."""

    name: str
    size: int
    sha256: str


class EpochRecord(msgspec.Struct, frozen=True):
    """Stored with an epoch's files, so that one rename publishes rows and record together."""

    receipt: Receipt
    files: tuple[StoredFile, ...]
    version: int = VERSION


class Sealed(msgspec.Struct, frozen=True):
    """A record as it was read, and the SHA-256 of its bytes."""

    record: EpochRecord
    digest: str


Versions = dict[str, tuple[int, int, int]]
"""Inode, time and size of files: what changes whenever one of them is written."""


def folder_name(epoch: int) -> str:
    """The name under which readers find an epoch."""
    return f"epoch={epoch:06}"


def epoch_of(name: str) -> int | None:
    """The epoch that a folder of this name holds, or None for any other name."""
    match = _NAME.fullmatch(name)
    number = int(match[1]) if match else 0
    return number if number > 0 and folder_name(number) == name else None


def drop_litter(folder: str, *, empty_files: bool) -> None:
    """Remove what Hadoop left next to the rows: ``.crc`` files, ``_SUCCESS``, ``_temporary``.

    With ``empty_files`` also files without a byte, which hold no row and which some readers of
    text formats refuse.
    """
    folders = [folder]
    for above in folders:  # grows while it is walked
        with os.scandir(above) as entries:
            inside = list(entries)
        for entry in inside:
            hidden = entry.name.startswith((".", "_"))
            if entry.is_dir(follow_symlinks=False):
                if hidden and "=" not in entry.name:  # with one it holds rows of a partition
                    remove_tree(entry.path)
                else:
                    folders.append(entry.path)
            elif hidden or (empty_files and entry.stat(follow_symlinks=False).st_size == 0):
                os.unlink(entry.path)


def seal_epoch(folder: str, receipt: Receipt) -> tuple[Sealed, Versions]:
    """Make the files of a folder durable, and next to them the record of what they are."""
    files, folders = _walk(folder)
    stored = _each(lambda name: _stored(folder, name, durable=True), files)
    record = EpochRecord(receipt, tuple(stored))
    data = seal(msgspec.json.encode(record))
    write_file(f"{folder}/{RECORD}", data, durable=True)
    for below in reversed(folders):  # a folder before the one that holds its name
        sync_folder(below)
    return Sealed(record, hashlib.sha256(data).hexdigest()), _versions(folder, files)


def read_record(folder: str) -> Sealed | None:
    """The record of an epoch's folder, or None when there is none."""
    path = f"{folder}/{RECORD}"
    require_no_link(folder)
    try:
        data = read_file(folder, RECORD)
    except FileNotFoundError:
        return None
    try:
        document = unseal(data)
        version = msgspec.json.decode(document, type=dict[str, msgspec.Raw]).get("version")
        if version is not None and msgspec.json.decode(version, type=int) > VERSION:
            raise FormatTooNewError(
                f"{path} was written by a newer Seamark", hint="Update this one, then try again."
            )
        record = msgspec.json.decode(document, type=EpochRecord)
        _check_names(record)
    except FormatTooNewError:
        raise
    except (SeamarkError, ValueError, RecursionError) as error:
        raise DamageError(
            f"the record {path} is damaged: {error}",
            hint="The rows next to it may be intact. Restore the folder from a copy, or take the "
            "epoch back and run it again.",
        ) from error
    return Sealed(record, hashlib.sha256(data).hexdigest())


def _check_names(record: EpochRecord) -> None:
    """See that nothing in a record leads out of the folders that its names become a part of."""
    check_token(record.receipt.timeline, "a timeline")
    check_token(record.receipt.attempt, "an attempt")
    for file in record.files:
        if problem := unsafe_path(file.name):
            raise DamageError(f"the file name {file.name!r} {problem}")


def find_damage(folder: str, record: EpochRecord, known: Versions | None = None) -> str | None:
    """How the files differ from the record, or None when they match it.

    Every byte is read again, unless the files are those of ``known`` and were not written since.
    """
    there, _ = _walk(folder)
    recorded = {file.name: file for file in record.files}
    if missing := sorted(recorded.keys() - there.keys()):
        return f"{missing[0]} is missing"
    if extra := sorted(there.keys() - recorded.keys()):
        return f"{extra[0]} does not belong there"
    for name, file in recorded.items():
        if there[name] != file.size:
            return f"{name} has {there[name]} bytes instead of {file.size}"
    if known is not None and _versions(folder, recorded) == known:
        return None
    for stored in _each(lambda name: _stored(folder, name, durable=False), there):
        if stored.sha256 != recorded[stored.name].sha256:
            return f"the bytes of {stored.name} are not those that were written"
    return None


def _walk(folder: str) -> tuple[dict[str, int], list[str]]:
    """Every file below a folder by its relative path, with its size, and all folders, top first."""
    files: dict[str, int] = {}
    folders = [folder]
    for above in folders:  # grows while it is walked
        with os.scandir(above) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    folders.append(entry.path)
                elif entry.path != f"{folder}/{RECORD}":
                    files[entry.path[len(folder) + 1 :]] = entry.stat(follow_symlinks=False).st_size
    return files, folders


def require_only_files(folder: str) -> None:
    """See that an epoch's folder has files and folders alone, and bytes in the files.

    Spark does not look at that: it follows links, waits for pipes, and reads gigabytes of nothing.
    :class:`StoreUnavailableError` names a link, and :class:`DamageError` anything else. A folder
    that is gone is fine.
    """
    require_no_link(folder)
    folders = [folder]
    for above in folders:  # grows while it is walked
        try:
            with os.scandir(above) as entries:
                for entry in sorted(entries, key=lambda entry: entry.name):
                    if entry.is_symlink():
                        raise a_link(entry.path)
                    if entry.is_dir(follow_symlinks=False):
                        folders.append(entry.path)
                    elif not entry.is_file(follow_symlinks=False):
                        raise _no_file(entry.path)
                    elif is_hollow(entry.path):
                        raise DamageError(f"{entry.path} is mostly a hole: little of it is stored")
        except NotADirectoryError:
            raise _no_file(above) from None
        except FileNotFoundError:
            continue  # merged or taken back meanwhile


def _no_file(path: str) -> DamageError:
    return DamageError(
        f"{path} is neither a file nor a folder of an epoch",
        hint="Move it away, or restore the folder from a copy.",
    )


def _stored(folder: str, name: str, *, durable: bool) -> StoredFile:
    fd = open_to_read(f"{folder}/{name}")
    if fd is None:
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), f"{folder}/{name}")
    try:
        digest, size = hashlib.sha256(), 0
        while piece := os.read(fd, _PIECE):
            digest.update(piece)
            size += len(piece)
        if durable:
            os.fsync(fd)
    finally:
        os.close(fd)
    return StoredFile(name, size, digest.hexdigest())


def _versions(folder: str, names: Iterable[str]) -> Versions:
    return {name: version_of_file(os.stat(f"{folder}/{name}")) for name in names}


def _each(function: Callable[[str], T], sizes: dict[str, int]) -> list[T]:
    """The function's answer for each file, in the order of their names."""
    few = len(sizes) <= _FEW and sum(sizes.values()) <= _SMALL  # starting threads takes longer
    # hashing releases the interpreter's lock, and fsyncs that wait together share the disk's work
    return map_in_threads(function, sorted(sizes), 1 if few else _THREADS, "seamark-files")
