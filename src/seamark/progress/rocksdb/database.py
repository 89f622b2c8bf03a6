"""RocksDB itself: opens a folder to write, or to read alongside its writer; maps its errors."""

from __future__ import annotations

import os
import tempfile
import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, Final, Protocol
from weakref import WeakSet

from seamark._common.files import a_link, make_folders, read_file
from seamark.errors import (
    DamageError,
    FencedError,
    InvalidInputError,
    OutcomeUnknownError,
    RefusedError,
    SeamarkError,
    StoreUnavailableError,
)
from seamark.limits import LONGEST_NAME
from seamark.progress.ledger import Turn, Writes

if TYPE_CHECKING:
    from rocksdict import Options, Rdict, WriteBatch

_INGESTED: Final = "ingest-"
_TRIES: Final = 3
_PATIENCE: Final = 10.0

Manifest = tuple[str, int, int]
"""The name, inode and size of the list of a database's files."""


class DatabaseSnapshot:
    """What was committed at one moment; it does not change while it is read."""

    def __init__(self, database: Rdict, where: str) -> None:
        self._cursor: Any = database.iter()
        self._where = where

    def get(self, key: bytes) -> bytes | None:
        """The value of a key."""
        cursor = self._open()
        cursor.seek(key)
        if not cursor.valid():
            del cursor  # what is raised would keep it, and with it RocksDB's lock
            self._check()
            return None
        return bytes(cursor.value()) if cursor.key() == key else None

    def below(self, prefix: bytes) -> Iterator[tuple[bytes, bytes]]:
        """All keys with this prefix, in order, with their values."""
        cursor = self._open()
        cursor.seek(prefix)
        while cursor.valid():
            key: bytes = cursor.key()
            if not key.startswith(prefix):
                return
            value: bytes = cursor.value()
            del cursor  # it would keep RocksDB's lock while the reader takes its time
            yield key, value
            cursor = self._open()
            cursor.next()
        del cursor
        self._check()

    def end(self) -> None:
        """Release the database, even in the middle of a range."""
        self._cursor = None

    def _open(self) -> Any:
        cursor = self._cursor
        if cursor is None:
            raise _closed(self._where)
        return cursor

    def _check(self) -> None:
        with translate_rocksdb_errors(self._where):
            self._open().status()  # a range that ends by an error looks like one that ends


class ReadableDatabase(Protocol):
    """A folder that can be read."""

    turn: Turn

    def snapshot(self) -> DatabaseSnapshot:
        """What is committed now."""

    def stored_bytes(self) -> int:
        """The sizes of all files of the folder."""

    def close(self) -> None:
        """Release it."""


class Primary:
    """The one process that writes. Opening makes the folder and takes RocksDB's lock."""

    def __init__(self, path: str) -> None:
        self.turn = Turn()
        self._path = path
        with translate_rocksdb_errors(path):
            make_folders(path)
            refuse_foreign_files(path)
            self._rdict = _rocksdict().Rdict(path, _options(create=True))
            # now that the lock is ours, those are of a process that died before RocksDB took them
            for name in os.listdir(path):
                if name.startswith(_INGESTED):
                    os.unlink(f"{path}/{name}")
        self._snapshots: WeakSet[DatabaseSnapshot] = WeakSet()
        self._synced = _rocksdict().WriteOptions()
        self._synced.sync = True

    def snapshot(self) -> DatabaseSnapshot:
        with translate_rocksdb_errors(self._path):
            snapshot = DatabaseSnapshot(self._rdict, self._path)
        self._snapshots.add(snapshot)
        return snapshot

    def stored_bytes(self) -> int:
        return stored_bytes(self._path)

    def get_many(self, keys: list[bytes]) -> list[bytes | None]:
        """The values of many keys, as they are now."""
        with translate_rocksdb_errors(self._path):
            values: list[bytes | None] = self._rdict.get(keys) if keys else []
        return values

    def new_batch(self) -> WriteBatch:
        """An empty batch."""
        batch: WriteBatch = _rocksdict().WriteBatch(raw_mode=True)
        return batch

    def write(self, batch: WriteBatch) -> None:
        """Write a batch: all of it, durably, or nothing."""
        with translate_rocksdb_errors(self._path, writing=True):
            self._rdict.write(batch, self._synced)

    def take_over(self, writes: Writes) -> None:
        """Have RocksDB take over one sorted file with all of it, instead of logging it first."""
        rocksdict, path = _rocksdict(), f"{self._path}/{_INGESTED}{uuid.uuid4().hex}"
        with translate_rocksdb_errors(self._path):
            file = rocksdict.SstFileWriter(rocksdict.Options(raw_mode=True))
            file.open(path)
            for key in sorted(writes):
                value = writes[key]
                if value is None:
                    del file[key]
                else:
                    file[key] = value
            file.finish()
        options = rocksdict.IngestExternalFileOptions()
        options.set_move_files(True)
        with translate_rocksdb_errors(self._path, writing=True):
            try:
                self._rdict.ingest_external_file([path], options)
            finally:
                with suppress(FileNotFoundError):
                    os.unlink(path)

    def close(self) -> None:
        for snapshot in list(self._snapshots):
            snapshot.end()
        with translate_rocksdb_errors(self._path):
            self._rdict.close()


class Secondary:
    """A reader alongside the writer; it catches up with the writer at each read."""

    def __init__(self, path: str) -> None:
        self.turn = Turn()
        self._path = path
        self._which = self._identity()
        # RocksDB wants a folder of its own for its log
        self._scratch = tempfile.TemporaryDirectory(prefix="seamark-reader-")
        self._snapshots: WeakSet[DatabaseSnapshot] = WeakSet()
        self._looking = threading.Lock()
        self._rdict: Rdict | None = None
        self._opened_with: Manifest | None = None
        self._is_closed = False
        try:
            self._caught_up().end()  # which tries again beside a writer that just starts
        except BaseException:
            self._scratch.cleanup()
            raise

    def _opened(self) -> Rdict:
        access = _rocksdict().AccessType.secondary(self._scratch.name)
        options = _options(create=False)
        options.set_max_open_files(-1)  # files that the writer removes stay readable
        with translate_rocksdb_errors(self._path):
            refuse_foreign_files(self._path)
            opened: Rdict = _rocksdict().Rdict(self._path, options, access_type=access)
        return opened

    def _identity(self) -> tuple[int, int]:
        """Distinguishes the database from one created later in the same folder."""
        try:
            stat = os.stat(f"{self._path}/IDENTITY")
            os.stat(f"{self._path}/CURRENT")
        except FileNotFoundError:
            raise StoreUnavailableError(
                "there is no progress store in this folder",
                where=self._path,
                hint="It is made by the first program that opens it to write.",
            ) from None
        return stat.st_ino, stat.st_mtime_ns

    def snapshot(self) -> DatabaseSnapshot:
        with self._looking:
            if self._is_closed:
                raise _closed(self._path)
            if (which := self._identity()) != self._which:
                self._forget()
                self._which = which
            snapshot = self._caught_up()
            self._snapshots.add(snapshot)
        return snapshot

    def stored_bytes(self) -> int:
        return stored_bytes(self._path)

    def _caught_up(self) -> DatabaseSnapshot:
        """What the writer has committed.

        RocksDB catches up rightly with the writer's log only. When the list of files has changed,
        it may leave out a file that the writer has removed meanwhile, or prefer what it has read
        from the log to newer rows in a file, and says nothing. So a changed list, the manifest, is
        read by opening the database again. The writer writes to it before it removes anything: what
        was read while it stayed the same is whole.
        """
        deadline, failures = time.monotonic() + _PATIENCE, 0
        while True:
            try:
                manifest = self._manifest()
                if manifest != self._opened_with:
                    self._forget()
                if self._rdict is None:
                    self._rdict = self._opened()
                with translate_rocksdb_errors(self._path):
                    self._rdict.try_catch_up_with_primary()
                    snapshot = DatabaseSnapshot(self._rdict, self._path)
                if self._manifest() == manifest:
                    self._opened_with = manifest
                    return snapshot
                snapshot.end()
                self._forget()
            except SeamarkError:
                self._forget()
                failures += 1
                if failures > _TRIES:
                    raise
            if time.monotonic() > deadline:
                raise StoreUnavailableError(
                    f"the files of the progress store changed at every look for {_PATIENCE:g} s",
                    where=self._path,
                    hint="Does its writer stop and start over and over? Try again later.",
                )

    def _manifest(self) -> Manifest:
        """Distinguishes the list of the database's files from any list before or after."""
        with translate_rocksdb_errors(self._path):
            name = read_file(self._path, "CURRENT", LONGEST_NAME).decode("ascii").strip()
            stat = os.stat(f"{self._path}/{name}")
        return name, stat.st_ino, stat.st_size

    def _forget(self) -> None:
        if self._rdict is not None:
            self._rdict.close()
            self._rdict = None
        self._opened_with = None

    def close(self) -> None:
        with self._looking:  # a look of another thread would open it again
            self._is_closed = True
            for snapshot in list(self._snapshots):
                snapshot.end()
            with translate_rocksdb_errors(self._path):
                self._forget()
            self._scratch.cleanup()


def _closed(path: str) -> RefusedError:
    return RefusedError("the progress store was closed in the meantime", where=path)


def refuse_foreign_files(path: str) -> None:
    """:class:`StoreUnavailableError` for a link in the folder of a database, :class:`DamageError`
    for a pipe, a socket or a device.

    RocksDB would write through the one and wait for the other.
    """
    with os.scandir(path) as entries:
        for entry in entries:
            if entry.is_symlink():
                raise a_link(entry.path)
            if not entry.is_file(follow_symlinks=False) and not entry.is_dir(follow_symlinks=False):
                raise DamageError(f"{entry.path} is not a regular file")


def stored_bytes(path: str) -> int:
    """The sizes of all files of a folder."""
    total = 0
    with os.scandir(path) as entries:
        for entry in entries:
            with suppress(FileNotFoundError):  # the writer removes files at any time
                total += entry.stat(follow_symlinks=False).st_size
    return total


def _options(*, create: bool) -> Options:
    rocksdict = _rocksdict()
    options: Options = rocksdict.Options(raw_mode=True)
    options.create_if_missing(create)
    # a torn end is what a kill leaves; anything else that is wrong must be reported, not skipped
    options.set_wal_recovery_mode(rocksdict.DBRecoveryMode.tolerate_corrupted_tail_records())
    options.set_keep_log_file_num(2)
    return options


def _rocksdict() -> Any:
    try:
        import rocksdict
    except ModuleNotFoundError as error:
        raise InvalidInputError(
            "a rocksdb:// store needs the package rocksdict",
            hint="pip install 'seamark[rocksdb]'",
        ) from error
    return rocksdict


@contextmanager
def translate_rocksdb_errors(path: str, *, writing: bool = False) -> Iterator[None]:
    """Turn RocksDB's errors into ours. A write that fails may still have happened."""
    try:
        yield
    except SeamarkError:
        raise
    except Exception as error:  # RocksDB's have no class of their own
        meant = _meant(str(error), path)
        if writing and isinstance(meant, StoreUnavailableError):
            raise OutcomeUnknownError(meant.what, where=meant.where, hint=meant.hint) from error
        raise meant from error


def _meant(text: str, path: str) -> SeamarkError:
    if "LOCK" in text and ("lock hold" in text or "Resource temporarily unavailable" in text):
        return FencedError(
            "another process has this progress store open to write",
            where=path,
            hint="Stop it first, or open the store with read_only=True.",
        )
    if text.startswith("Corruption") or "checksum mismatch" in text:
        return DamageError(
            f"the progress store is damaged: {text}",
            where=path,
            hint="Restore the folder from a copy, or remove it and start over.",
        )
    return StoreUnavailableError(
        f"the progress store did not answer: {text}",
        where=path,
        hint="Whether the last write happened is seen after opening it again.",
    )
