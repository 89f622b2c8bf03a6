"""Progress in RocksDB: one synced write batch a session, one writing process a folder.

::

    source_sequence:{source id}     the sequence, 8 bytes, big-endian
    source_position:{source id}     the position, as it is
    result_sequence:{query id}      the sequence of the last result, 8 bytes, big-endian
    config_hash                     8 bytes, big-endian
    data:{space}\\0{key}             a value
"""

from __future__ import annotations

import struct
import threading
import weakref
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import ClassVar, Final

from seamark import limits, limits_by_size
from seamark._common.logs import logger_named
from seamark.errors import DamageError, SeamarkError
from seamark.progress.checkpoints import (
    ProgressOverview,
    SourceCheckpoint,
    require_kept_number,
    require_kept_position,
    require_kept_source,
)
from seamark.progress.ledger import Changes, SingleWriterLedger, Writes
from seamark.progress.rocksdb.database import DatabaseSnapshot, Primary, ReadableDatabase, Secondary

log = logger_named(__name__)

_SEQUENCE: Final = b"source_sequence:"
_POSITION: Final = b"source_position:"
_RESULT: Final = b"result_sequence:"
_HASH: Final = b"config_hash"
_NUMBER: Final = struct.Struct(">Q")
_LARGE: Final = 64 << 20
"""From so many bytes on, a commit is handed to RocksDB as a file of its own."""


def space_prefix(space: str) -> bytes:
    """What all keys of a space begin with."""
    return b"data:" + space.encode() + b"\x00"


def _quietly(give_back: Callable[[], None]) -> None:
    """For a handle that nobody closed, often at the end of the process: nobody can be told."""
    try:
        give_back()
    except SeamarkError as error:
        log.debug("a progress store was not closed well: %s", error)


class RocksDBLedger(SingleWriterLedger):
    """A folder that one process writes while any number of others read it."""

    _open: ClassVar[dict[str, tuple[Primary, int]]] = {}
    _opening: ClassVar[threading.Lock] = threading.Lock()
    _returned: ClassVar[deque[str]] = deque()

    def __init__(self, path: str, *, read_only: bool = False) -> None:
        super().__init__()
        self.url = f"rocksdb://{path}"
        self._database: ReadableDatabase = Secondary(path) if read_only else self._borrow(path)
        self.turn = self._database.turn
        self._give_back_database: Callable[[], None] = (
            self._database.close if read_only else partial(RocksDBLedger._give_back, path)
        )
        # a handle that is dropped without close() releases RocksDB's lock too
        self._dropped = weakref.finalize(self, _quietly, self._give_back_database)

    @classmethod
    def _borrow(cls, path: str) -> Primary:
        """RocksDB opens a folder once; the handles of a process share it."""
        try:
            with cls._opening:
                cls._let_go()
                opened = cls._open.get(path)
                database, users = opened if opened is not None else (Primary(path), 0)
                cls._open[path] = (database, users + 1)
                return database
        finally:
            cls._tidy()

    @classmethod
    def _give_back(cls, path: str) -> None:
        """Called by the garbage collector too, at any moment: also while a folder is opened."""
        cls._returned.append(path)
        cls._tidy()

    @classmethod
    def _tidy(cls) -> None:
        """Close returned databases, unless another thread is about to."""
        while cls._returned and cls._opening.acquire(blocking=False):
            try:
                cls._let_go()
            finally:
                cls._opening.release()

    @classmethod
    def _let_go(cls) -> None:
        while cls._returned:
            path = cls._returned.popleft()
            database, users = cls._open.pop(path)
            if users > 1:
                cls._open[path] = (database, users - 1)
            else:
                database.close()

    # reading

    def checkpoint(self, source_id: str) -> SourceCheckpoint | None:
        name, snapshot = source_id.encode(), self._database.snapshot()
        sequence = snapshot.get(_SEQUENCE + name)
        if sequence is None:
            return None
        position = require_kept_position(snapshot.get(_POSITION + name), source_id, self.url)
        return SourceCheckpoint(self._number(_SEQUENCE + name, sequence), position)

    def checkpoints(self) -> dict[str, SourceCheckpoint]:
        return self._checkpoints(self._database.snapshot())

    def overview(self) -> ProgressOverview:
        snapshot = self._database.snapshot()
        return ProgressOverview(self._checkpoints(snapshot), self._config_hash(snapshot))

    def _checkpoints(self, snapshot: DatabaseSnapshot) -> dict[str, SourceCheckpoint]:
        entries = dict(self._below(snapshot, _SEQUENCE, _POSITION))
        return {
            self._source(key): SourceCheckpoint(
                self._number(key, value), entries.get(_POSITION + key[len(_SEQUENCE) :])
            )
            for key, value in entries.items()
            if key.startswith(_SEQUENCE)
        }

    def sequences(self) -> dict[str, int]:
        """The sequence of every source."""
        entries = self._below(self._database.snapshot(), _SEQUENCE)
        return {self._source(key): self._number(key, value) for key, value in entries}

    def _below(self, snapshot: DatabaseSnapshot, *prefixes: bytes) -> Iterator[tuple[bytes, bytes]]:
        """What is recorded of all sources; :class:`DamageError` when that is beyond the limits."""
        total, most = 0, limits.POSITIONS_FLOOR
        for prefix in prefixes:
            for number, (key, value) in enumerate(snapshot.below(prefix), 1):
                name = key[len(prefix) :]
                if prefix != _RESULT:
                    require_kept_source(name, self.url)
                    require_kept_number(number, self.url)
                if prefix == _POSITION:
                    require_kept_position(value, name.decode(errors="replace"), self.url)
                total += len(key) + len(value)
                if total > most:
                    most = self._most_unpacked(total)
                yield key, value

    def result_sequence(self, query_id: str) -> int | None:
        key = _RESULT + query_id.encode()
        value = self._database.snapshot().get(key)
        return None if value is None else self._number(key, value)

    def config_hash(self) -> int | None:
        return self._config_hash(self._database.snapshot())

    def _config_hash(self, snapshot: DatabaseSnapshot) -> int | None:
        value = snapshot.get(_HASH)
        return None if value is None else self._number(_HASH, value)

    def get(self, space: str, key: bytes) -> bytes | None:
        return self._database.snapshot().get(space_prefix(space) + key)

    def items(self, space: str) -> Iterator[tuple[bytes, bytes]]:
        prefix, snapshot = space_prefix(space), self._database.snapshot()
        return ((key[len(prefix) :], value) for key, value in snapshot.below(prefix))

    def _most_unpacked(self, total: int) -> int:
        """What the folder may unpack to; :class:`DamageError` when ``total`` is more than that."""
        stored = self._database.stored_bytes()
        most = limits_by_size.largest_positions(stored)
        if total > most:
            raise DamageError(
                f"the checkpoints of its sources take {total} bytes or more, which {stored} stored "
                "ones hold only if somebody has made them up",
                where=self.url,
                hint="Restore the folder from a copy, or remove it and start over.",
            )
        return most

    def _number(self, key: bytes, value: bytes) -> int:
        if len(value) != _NUMBER.size:
            raise DamageError(
                f"the value of the key {key.decode(errors='replace')!r} has {len(value)} bytes "
                f"instead of {_NUMBER.size}",
                where=self.url,
                hint="Something else has written here. Restore the folder from a copy, or "
                "remove it and start over.",
            )
        number: int = _NUMBER.unpack(value)[0]
        return number

    def _source(self, key: bytes) -> str:
        try:
            return key[len(_SEQUENCE) :].decode()
        except UnicodeDecodeError:
            raise DamageError(f"the key {key!r} is not valid Unicode", where=self.url) from None

    def get_many(self, space: str, keys: Sequence[bytes]) -> list[bytes | None]:
        """Committed values, in the order of the keys."""
        prefix, database = space_prefix(space), self._database
        if isinstance(database, Primary):
            return database.get_many([prefix + key for key in keys])
        snapshot = database.snapshot()
        return [snapshot.get(prefix + key) for key in keys]

    # writing

    def apply(self, changes: Changes) -> None:
        """Write all of it in one batch, synced, or in one file when it is large."""
        primary = self._database
        if changes.is_empty() or not isinstance(primary, Primary):
            return
        batch, writes = primary.new_batch(), _all_writes(changes, self._cleared(changes))
        for key, value in writes.items():
            if value is None:
                batch.delete(key)
            else:
                batch.put(key, value)
        if batch.size_in_bytes() < _LARGE:
            primary.write(batch)
        else:
            primary.take_over(writes)

    def _cleared(self, changes: Changes) -> list[bytes]:
        """The keys that go, one by one.

        RocksDB can delete a range at once, but another reader that has such a deletion in its
        memory does not see the newer rows of a file that is taken over later.
        """
        prefixes = [space_prefix(space) for space in changes.cleared]
        snapshot = self._database.snapshot() if prefixes else None
        keys = [key for prefix in prefixes if snapshot for key, _ in snapshot.below(prefix)]
        if changes.forget_checkpoints:
            recorded = self._below(self._database.snapshot(), _SEQUENCE, _POSITION, _RESULT)
            keys += [key for key, _ in recorded]
        return keys

    def close(self) -> None:
        if self._dropped.detach() is not None:
            self._give_back_database()


def _all_writes(changes: Changes, gone: list[bytes]) -> Writes:
    """What becomes of each key; of a key that goes and is written again, the write counts."""
    writes: Writes = dict.fromkeys(gone)
    for source, sequence in changes.sequences.items():
        writes[_SEQUENCE + source.encode()] = _NUMBER.pack(sequence)
    for source, position in changes.positions.items():
        writes[_POSITION + source.encode()] = position
    for query, sequence in changes.results.items():
        writes[_RESULT + query.encode()] = _NUMBER.pack(sequence)
    if changes.forget_hash:
        writes[_HASH] = None
    if changes.config_hash is not None:
        writes[_HASH] = _NUMBER.pack(changes.config_hash)
    for space, values in changes.data.items():
        prefix = space_prefix(space)
        writes.update((prefix + key, value) for key, value in values.items())
    return writes
