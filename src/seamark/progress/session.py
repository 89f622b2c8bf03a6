"""A session: changes that become true together, or not at all.

Tests: ``tests/progress/test_conformance.py``.
"""

from __future__ import annotations

import threading
import weakref
from typing import TYPE_CHECKING, Final

from seamark._common.checks import check_text
from seamark.errors import InvalidInputError, RefusedError
from seamark.progress.checkpoints import (
    MAX_POSITION_BYTES,
    SourceCheckpoint,
    check_forward,
    check_one_more_source,
    check_position,
    check_result_forward,
    check_sequence,
    check_source_id,
)
from seamark.progress.ledger import Changes, Transaction, Writes

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from seamark.progress.store import SourceCheckpointStore

_LONGEST_SPACE: Final = 200


class Session:
    """What is staged between ``begin`` and ``commit``. Only its own methods see it before that.

    Values live in named spaces, as bytes under bytes. What is put twice is written once.
    """

    def __init__(self, store: SourceCheckpointStore, transaction: Transaction) -> None:
        self._store = weakref.ref(store)  # a cycle would keep RocksDB's lock
        self.thread = threading.current_thread()
        self.depth = 1
        self.is_doomed = False
        self._spaces: dict[str, Writes] = {}
        self.changes = Changes(data=self._spaces)
        self.transaction = transaction
        self._sequences: Mapping[str, int] | None = None
        self._new = 0
        """Staged sources that are not stored yet."""

    @property
    def store(self) -> SourceCheckpointStore:
        """The handle that started it; :class:`RefusedError` when that is gone."""
        store = self._store()
        if store is None:
            raise RefusedError("the progress store was dropped in the middle of a session")
        return store

    def is_mine(self, store: SourceCheckpointStore) -> bool:
        """Whether this thread started it through that handle."""
        return self._store() is store and self.thread is threading.current_thread()

    def end(self) -> None:
        """Accept nothing more, and release the backend."""
        self.depth = 0
        self._spaces = {}  # so that the next write comes by the check
        self.transaction.abandon()

    def doom(self) -> None:
        """Take nothing more: a part was rolled back, so nothing of it will be committed."""
        self.is_doomed = True
        self._spaces = {}

    # checkpoints

    def stage_checkpoint(
        self,
        source_id: str,
        sequence: int,
        source_position: bytes | None = None,
        *,
        allow_rewind: bool = False,
    ) -> None:
        """Stage how far a source has been read. Without a position the stored one stays.

        :class:`RefusedError` when the sequence would go back, unless ``allow_rewind``;
        :class:`InvalidInputError` for a position of more than 64 KiB. Nothing is staged then.
        """
        self.require_open()
        check_source_id(source_id)
        check_sequence(sequence)
        position = None if source_position is None else check_position(source_id, source_position)
        if not allow_rewind:
            check_forward(source_id, self._sequence(source_id), sequence)
        if source_id not in self.changes.sequences and source_id not in self._stored():
            check_one_more_source(len(self._stored()) + self._new)
            self._new += 1
        self.changes.sequences[source_id] = sequence
        if position is not None:
            self.changes.positions[source_id] = position

    def clear_position(self, source_id: str) -> None:
        """Stage that a source has no position any more; its sequence stays."""
        self.require_open()
        if self._sequence(check_text(source_id, "a source id")) is not None:
            self.changes.positions[source_id] = None

    def stage_config_hash(self, value: int) -> None:
        """Stage the hash of the configuration, to be written with everything else."""
        self.require_open()
        self.changes.config_hash = check_sequence(value)

    def forget_checkpoints(self) -> None:
        """Stage that all checkpoints, all result sequences and the hash go, with the rest."""
        self.require_open()
        self.changes.sequences.clear()
        self.changes.positions.clear()
        self.changes.results.clear()
        self.changes.config_hash = None
        self.changes.forget_checkpoints = self.changes.forget_hash = True
        self._sequences, self._new = {}, 0

    def read_checkpoint(self, source_id: str) -> SourceCheckpoint | None:
        """The checkpoint of a source as it would be after the commit."""
        self.require_open()
        sequence = self._sequence(source_id)
        if sequence is None:
            return None
        if source_id in self.changes.positions:
            return SourceCheckpoint(sequence, self.changes.positions[source_id])
        if self.changes.forget_checkpoints:
            return SourceCheckpoint(sequence)
        stored = self.store.read_checkpoint(source_id)
        return SourceCheckpoint(sequence, stored.source_position if stored else None)

    def _sequence(self, source_id: str) -> int | None:
        staged = self.changes.sequences.get(source_id)
        if staged is not None:
            return staged
        return self._stored().get(source_id)

    def _stored(self) -> Mapping[str, int]:
        if self._sequences is None:
            self._sequences = self.transaction.sequences()
        return self._sequences

    # results

    def write_result_sequence(
        self, query_id: str, sequence: int, *, allow_rewind: bool = False
    ) -> None:
        """Stage the sequence of the last result that a query has emitted.

        It is committed with the results and the checkpoints, so numbers continue after a restart
        where they stopped. :class:`RefusedError` when it would go back, unless ``allow_rewind``.
        """
        self.require_open()
        check_text(query_id, "a query id")
        check_sequence(sequence)
        if not allow_rewind:
            check_result_forward(query_id, self.read_result_sequence(query_id), sequence)
        self.changes.results[query_id] = sequence

    def read_result_sequence(self, query_id: str) -> int | None:
        """The result sequence of a query as it would be after the commit, or None."""
        self.require_open()
        staged = self.changes.results.get(check_text(query_id, "a query id"))
        if staged is not None or self.changes.forget_checkpoints:
            return staged
        return self.transaction.result_sequence(query_id)

    # data

    def put(self, space: str, key: bytes, value: bytes) -> None:
        """Stage a value. It is committed with the checkpoints."""
        # a thousand of these are a fifth of what their commit takes: no calls on this way
        if key.__class__ is not bytes or value.__class__ is not bytes:
            key, value = as_bytes("a key", key), as_bytes("a value", value)
        try:
            self._spaces[space][key] = value
        except KeyError:
            self._writes(space)[key] = value

    def put_many(self, space: str, pairs: Iterable[tuple[bytes, bytes]]) -> None:
        """Stage many values; the last one of a key counts."""
        self.require_open()
        new = dict(pairs)
        _all_bytes("keys", new)
        _all_bytes("values", new.values())
        self._writes(space).update(new)

    def delete(self, space: str, key: bytes) -> None:
        """Stage that a key goes; harmless when it is not there."""
        self.require_open()
        self._writes(space)[as_bytes("a key", key)] = None

    def delete_many(self, space: str, keys: Iterable[bytes]) -> None:
        """Stage that these keys go."""
        self.require_open()
        removed = dict.fromkeys(keys)
        _all_bytes("keys", removed)
        self._writes(space).update(removed)

    def clear(self, space: str) -> None:
        """Stage that nothing of a space stays; what is put afterwards does."""
        self.require_open()
        self._writes(space).clear()
        self.changes.cleared.add(space)

    def get(self, space: str, key: bytes) -> bytes | None:
        """The value of a key as it would be after the commit."""
        self.require_open()
        key = as_bytes("a key", key)
        writes = self.changes.data.get(check_space(space), {})
        if key in writes:
            return writes[key]
        if space in self.changes.cleared:
            return None
        return self.transaction.get(space, key)

    def get_many(self, space: str, keys: Sequence[bytes]) -> list[bytes | None]:
        """The values of many keys as they would be after the commit, in the order of the keys."""
        self.require_open()
        _all_bytes("keys", keys)
        if space in self.changes.cleared or self.changes.data.get(space):
            return [self.get(space, key) for key in keys]
        return self.transaction.get_many(check_space(space), keys)

    def _writes(self, space: str) -> Writes:
        writes = self._spaces.get(space)
        if writes is None:
            self.require_open()
            writes = self._spaces[check_space(space)] = {}
        return writes

    def require_open(self) -> None:
        """:class:`RefusedError` when the session takes nothing more."""
        if self.depth == 0:
            raise RefusedError("the session has ended", hint="Begin another one.")
        if self.is_doomed:
            raise RefusedError(
                "a part of this session was rolled back, so all of it is",
                hint="Nothing was written. Let the error that caused the rollback through, or do "
                "what may fail in a session of its own.",
            )


def check_space(space: str) -> str:
    """A space's name when it can be one."""
    check_text(space, "a space")
    if "\x00" in space or len(space) > _LONGEST_SPACE:
        raise InvalidInputError(
            f"a space's name has no NUL and at most {_LONGEST_SPACE} characters, not {space!r}"
        )
    return space


def as_bytes(what: str, value: object) -> bytes:
    """A key or a value when it is one."""
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value)
    raise InvalidInputError(f"{what} must be bytes, not {type(value).__name__}")


def _all_bytes(what: str, values: Iterable[object]) -> None:
    # one set of types instead of a look at each value
    if strange := set(map(type, values)) - {bytes}:
        raise InvalidInputError(f"{what} must be bytes, not {strange.pop().__name__}")


def stage_sources(session: Session, epoch: int, positions: Mapping[str, bytes]) -> None:
    """Stage (epoch, position) of every source.

    The pipeline's checkpoints decide what is right, so an epoch may go back. A position that is
    too large to be kept is dropped rather than left at that of an earlier epoch.
    """
    for source, position in positions.items():
        session.stage_checkpoint(source, epoch, kept_position(position), allow_rewind=True)
        if kept_position(position) is None:
            session.clear_position(source)


def kept_position(position: bytes) -> bytes | None:
    """A position as it is kept: None when it is too large."""
    return position if len(position) <= MAX_POSITION_BYTES else None
