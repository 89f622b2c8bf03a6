"""The files of RocksDB's snapshots, put down where RocksDB can open and compare them.

Tests: ``tests/native/test_inspected_rocksdb.py``.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final

from seamark.checkpoint_dir.formats.lz4_blocks import NotDecodable
from seamark.checkpoint_dir.formats.rocksdb_zip import (
    has_column_families,
    sst_names,
    zip_problems,
)
from seamark.checkpoint_dir.state_files import SST_FOLDER, StateFile, needed_ssts, opened_zip
from seamark.errors import DamageError
from seamark.native.inspect.cached_listing import CachedListing
from seamark.native.inspect.rocksdb_rows import Comparison, Verdict, verdicts

if TYPE_CHECKING:
    from seamark.native.inspect.state import Store

MOST_STORED: Final = 256 << 20
"""Bytes of one store that are read to compare a snapshot with its changes."""

_AT_A_TIME: Final = 64 << 20
"""Bytes that are put down for one process, which takes some time to start."""
_SST: Final = re.compile(r"[0-9]{1,19}\.sst")
_MEMBER: Final = re.compile(r"[A-Z0-9][A-Za-z0-9.-]{0,60}")


@dataclass(frozen=True)
class MadeByChanges:
    """The snapshots of one version, and the files that make the same state."""

    store: Store
    base: StateFile | None
    changes: list[StateFile]
    """The oldest first."""
    snapshots: list[StateFile]


_Compared = tuple["Store", StateFile | None, StateFile, Verdict]


def compared_snapshots(
    listing: CachedListing, groups: Iterable[MadeByChanges]
) -> Iterator[_Compared]:
    """Each snapshot that could be compared, with its store and the base of the changes."""
    waiting, seen = iter(groups), set[str]()
    is_done = False
    while not is_done:
        with tempfile.TemporaryDirectory(prefix="seamark-inspect-") as folder:
            put_down = _PutDown(listing, Path(folder), seen)
            is_done = not any(put_down.add(group) for group in waiting)
            yield from put_down.compared()


@dataclass
class _PutDown:
    """Files in a folder of our own, for one process."""

    listing: CachedListing
    folder: Path
    seen: set[str]
    """Files that were put down before. Snapshots may share them without end."""
    groups: list[MadeByChanges] = field(default_factory=list)
    comparisons: list[Comparison] = field(default_factory=list)
    written: int = 0
    stored: int = 0
    """Bytes of all files, each counted once."""
    _of_one: int = 0
    _folders: int = 0

    def add(self, group: MadeByChanges) -> bool:
        """Put the files of a group down, if they can be compared; whether that is enough."""
        with suppress(DamageError, NotDecodable):  # reported by the reader of each file
            self._put(group)
        return self.written > _AT_A_TIME

    def _put(self, group: MadeByChanges) -> None:
        self._of_one = 0
        self._require_small(map(group.store.path, group.changes))
        base = None if group.base is None else self._database(group.store, group.base)
        changelogs = [self._changelog(group.store, file) for file in group.changes]
        kept: list[StateFile] = []
        databases: list[str] = []
        for snapshot in group.snapshots:
            try:
                databases.append(self._database(group.store, snapshot))
                kept.append(snapshot)
            except (DamageError, NotDecodable):
                continue
        if kept:
            self.groups.append(MadeByChanges(group.store, group.base, group.changes, kept))
            self.comparisons.append(Comparison(base, changelogs, databases, self._of_one))

    def compared(self) -> Iterator[_Compared]:
        """What a process says of all that was put down."""
        if not self.comparisons:
            return
        told = verdicts(self.comparisons, self.stored)
        for group, of_one in zip(self.groups, told, strict=True):
            for snapshot, verdict in zip(group.snapshots, of_one, strict=True):
                yield group.store, group.base, snapshot, verdict

    def _require_small(self, paths: Iterable[str]) -> None:
        if self.listing.size_of(paths) > MOST_STORED:
            raise NotDecodable("it is too large to compare")

    def _read(self, path: str) -> bytes:
        data = self.listing.data(path)
        if data is None:
            raise NotDecodable(f"{path} is not there")
        self._of_one += len(data)
        if path not in self.seen:
            self.seen.add(path)
            self.stored += len(data)
        return data

    def _write(self, path: Path, data: bytes) -> None:
        path.write_bytes(data)
        self.written += len(data)

    def _new(self) -> Path:
        self._folders += 1
        return self.folder / str(self._folders)

    def _changelog(self, store: Store, file: StateFile) -> str:
        path = self._new()
        self._write(path, self._read(store.path(file)))
        return str(path)

    def _database(self, store: Store, snapshot: StateFile) -> str:
        """The folder of a snapshot's files, with the names that its database knows them by."""
        zipped = self._read(store.path(snapshot))
        here = store.folder.path
        self._require_small(f"{here}/{name}" for name in needed_ssts(zipped))
        if zip_problems(zipped):
            raise NotDecodable("it cannot be unpacked")
        try:
            names = sst_names(zipped)
        except DamageError as error:
            raise NotDecodable(f"its metadata cannot be read: {error}") from None
        if has_column_families(zipped):
            raise NotDecodable("its keys carry the numbers of several columns")
        folder = self._new()
        folder.mkdir()
        with opened_zip(zipped) as archive:
            for member in archive.infolist():
                if member.filename == "metadata":
                    continue
                if not _MEMBER.fullmatch(member.filename):
                    raise NotDecodable(f"it has a file of an unknown kind: {member.filename}")
                self._write(folder / member.filename, archive.read(member))
        for there, local in names.items():
            if not _SST.fullmatch(local):
                raise NotDecodable(f"it has a file of an unknown kind: {local}")
            self._write(folder / local, self._read(f"{here}/{SST_FOLDER}/{there}"))
        return str(folder)
