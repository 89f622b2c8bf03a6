"""Progress in Redis, Valkey or Garnet: one MULTI/EXEC a session, three round trips.

All keys of a namespace are in one slot of a cluster::

    seamark:{namespace}:meta          HASH  generation, owner, session, config_hash,
                                            sequence:{source id}, result_sequence:{query id}
    seamark:{namespace}:positions     HASH  {source id} → the position, as it is
    seamark:{namespace}:data:{space}  HASH  {key} → {value}

Numbers are decimal text. ``meta`` is watched by every session and changed by every commit, so of
two that overlap only one gets through. Whoever takes the store over raises ``generation`` and
writes a token of its own into ``owner``; a writer that finds another one there is fenced.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

from seamark._common.logs import logger_named
from seamark.errors import DamageError, FencedError, OutcomeUnknownError, StoreUnavailableError
from seamark.progress.checkpoints import (
    ProgressOverview,
    SourceCheckpoint,
    require_kept_number,
    require_kept_position,
    require_kept_source,
)
from seamark.progress.ledger import Changes, Ledger, Transaction
from seamark.progress.redis.client import (
    Errors,
    connect,
    number,
    persistence_warnings,
    shown_url,
    split_url,
)
from seamark.progress.redis.transaction import SESSION, RedisTransaction

if TYPE_CHECKING:
    from redis import Redis

log = logger_named("seamark.progress")

SEQUENCE: Final = b"sequence:"
RESULT: Final = b"result_sequence:"
_HASH: Final = b"config_hash"
_GENERATION: Final = b"generation"
_OWNER: Final = b"owner"
_DELAYS: Final = (0.0, 0.1, 0.5, 2.0, 5.0)


class RedisLedger(Ledger):
    """One namespace of a server. With ``claim`` the previous writer is fenced."""

    def __init__(self, client: Redis, url: str, namespace: str) -> None:
        super().__init__()
        self.url = f"{shown_url(url)}?namespace={namespace}"
        self.client: Any = client
        self.errors = Errors(url)
        self.generation: int | None = None
        self._owner: bytes | None = None
        self._sessions: set[bytes | None] = set()
        """Tokens that the last session may have, while nobody else writes: more than one after a
        commit whose outcome is not known."""
        prefix = f"seamark:{{{namespace}}}"
        self.meta = f"{prefix}:meta"
        self.positions = f"{prefix}:positions"
        self._data = f"{prefix}:data:"
        self._known: set[str] = set()

    @classmethod
    def open(cls, url: str, namespace: str | None, *, read_only: bool, claim: bool) -> RedisLedger:
        """Connect, and take over the store unless it is opened to read."""
        bare, name = split_url(url, namespace)
        ledger = cls(connect(bare), bare, name)
        try:
            ledger._number(ledger.read_meta("connecting"), _GENERATION)
            if claim and not read_only:
                ledger._claim()
        except BaseException:
            ledger.close()
            raise
        return ledger

    def _claim(self) -> None:
        # the number alone is not enough: a server that was emptied counts from one again
        owner = uuid.uuid4().hex.encode()
        with self.errors.translated("taking the store over"), self.client.pipeline() as pipe:
            pipe.hincrby(self.meta, _GENERATION, 1)
            pipe.hset(self.meta, _OWNER, owner)
            pipe.hget(self.meta, SESSION)
            self.generation, _, session = pipe.execute()
        self._owner, self._sessions = owner, {session}

    def space(self, space: str) -> str:
        """The key that holds a space."""
        return self._data + space

    # reading

    def read_meta(self, doing: str = "reading") -> Mapping[bytes, bytes]:
        """All fields of ``meta``."""
        with self.errors.translated(doing, self.meta):
            meta: Mapping[bytes, bytes] = self.client.hgetall(self.meta)
            return meta

    def checkpoint(self, source_id: str) -> SourceCheckpoint | None:
        field = SEQUENCE + source_id.encode()
        with self.errors.translated("reading a checkpoint"), self.client.pipeline() as pipe:
            pipe.hget(self.meta, field)
            pipe.hget(self.positions, source_id.encode())
            text, position = pipe.execute()
        sequence = None if text is None else self._number({field: text}, field)
        if sequence is None:
            return None
        return SourceCheckpoint(sequence, require_kept_position(position, source_id, self.url))

    def checkpoints(self) -> dict[str, SourceCheckpoint]:
        return self._checkpoints(*self._recorded())

    def overview(self) -> ProgressOverview:
        meta, positions = self._recorded()
        return ProgressOverview(self._checkpoints(meta, positions), self._number(meta, _HASH))

    def _recorded(self) -> tuple[Mapping[bytes, bytes], Mapping[bytes, bytes]]:
        """All fields of ``meta`` and all positions, of one moment."""
        with self.errors.translated("reading the checkpoints"), self.client.pipeline() as pipe:
            pipe.hgetall(self.meta)
            pipe.hgetall(self.positions)
            meta, positions = pipe.execute()
        return meta, positions

    def _checkpoints(
        self, meta: Mapping[bytes, bytes], positions: Mapping[bytes, bytes]
    ) -> dict[str, SourceCheckpoint]:
        return {
            source: SourceCheckpoint(
                sequence, require_kept_position(positions.get(source.encode()), source, self.url)
            )
            for source, sequence in self.sequences(meta).items()
        }

    def sequences(self, meta: Mapping[bytes, bytes]) -> dict[str, int]:
        """The sequence of every source in ``meta``."""
        sequences: dict[str, int] = {}
        for field in meta:
            if not field.startswith(SEQUENCE):
                continue
            require_kept_source(field[len(SEQUENCE) :], self.url)
            require_kept_number(len(sequences) + 1, self.url)
            if (value := self._number(meta, field)) is not None:
                sequences[self._source(field)] = value
        return sequences

    def result_sequence(self, query_id: str) -> int | None:
        field = RESULT + query_id.encode()
        with self.errors.translated("reading a result sequence", self.meta):
            text = self.client.hget(self.meta, field)
        return None if text is None else self._number({field: text}, field)

    def result_sequence_in(self, meta: Mapping[bytes, bytes], query_id: str) -> int | None:
        """The result sequence of a query in ``meta``."""
        return self._number(meta, RESULT + query_id.encode())

    def config_hash(self) -> int | None:
        return self._number(self.read_meta(), _HASH)

    def get(self, space: str, key: bytes) -> bytes | None:
        where = self.space(space)
        with self.errors.translated("reading a value", where):
            value: bytes | None = self.client.hget(where, key)
            return value

    def items(self, space: str) -> Iterator[tuple[bytes, bytes]]:
        where = self.space(space)
        with self.errors.translated("reading a space", where):
            return iter(sorted(self.client.hgetall(where).items()))

    def _number(self, meta: Mapping[bytes, bytes], field: bytes) -> int | None:
        return number(meta, field, self.meta, self.errors.where)

    def _source(self, field: bytes) -> str:
        try:
            return field[len(SEQUENCE) :].decode()
        except UnicodeDecodeError:
            raise DamageError(
                f"the field {field!r} of the key {self.meta!r} is not valid Unicode",
                where=self.errors.where,
            ) from None

    # writing

    def transaction(self) -> Transaction:
        return RedisTransaction(self)

    def require_claim(self, meta: Mapping[bytes, bytes]) -> None:
        """:class:`FencedError` when another writer has taken the store over.

        :class:`DamageError` when the server has lost a session that it had acknowledged.
        """
        generation = self._number(meta, _GENERATION) or 0
        if self.generation is None:
            return
        if meta.get(_OWNER) == self._owner:
            if meta.get(SESSION) not in self._sessions:
                raise DamageError(
                    "the server has lost a session that it had acknowledged",
                    where=self.url,
                    hint="Another server has taken its place that lacked it, or an older save was "
                    "brought back. Nothing was written. Open the store again, and go on from the "
                    "checkpoints that it has.",
                )
            return
        if generation < self.generation:
            raise DamageError(
                "the server no longer knows that this program has taken the store over",
                where=self.url,
                hint="It was emptied, or restarted from an older save. Open the store again, and "
                "compare its checkpoints with what you know.",
            )
        raise FencedError(
            "another writer has taken this progress store over",
            where=self.url,
            hint="Nothing of this session was written. Only one program may write at a time.",
        )

    def sending(self, session: bytes) -> None:
        """Note that a session is about to be sent: from now on it may be the last one."""
        self._sessions.add(session)

    def is_last(self, session: bytes | None) -> None:
        """Note that a session is the last one that the server has."""
        self._sessions = {session}

    def require_hashes(self, changes: Changes) -> None:
        """:class:`DamageError` when a key is not a HASH: Redis would apply the rest without it."""
        keys = {self.positions, *map(self.space, changes.data)} - self._known
        if not keys:
            return
        with self.errors.translated("looking at the keys"), self.client.pipeline(False) as pipe:
            for key in sorted(keys):
                pipe.type(key)
            kinds = dict(zip(sorted(keys), pipe.execute(), strict=True))
        for key, kind in kinds.items():
            if kind not in (b"hash", b"none"):
                raise DamageError(
                    f"the key {key!r} holds a {kind.decode()} and not a hash",
                    where=self.errors.where,
                    hint="Something else uses this namespace. Remove the key, or use another one.",
                )
        self._known |= keys

    def settle(self, token: bytes, before: bytes | None) -> bool:
        """Whether the session of this token was committed; it no longer can be afterwards.

        ``before`` is the token of the session that was the last one when this one began.
        """
        for delay in _DELAYS:
            time.sleep(delay)
            try:
                meta = self._touched()
            except StoreUnavailableError:
                continue
            if meta.get(SESSION) == token:
                self.is_last(token)
                return True
            is_alone = self._owner is not None and meta.get(_OWNER) == self._owner
            if meta.get(SESSION) != before and not is_alone:
                raise self._unknown("another writer has written since")
            self.require_claim(meta)
            self.is_last(meta.get(SESSION))
            return False
        raise self._unknown("the server does not answer")

    def _unknown(self, why: str) -> OutcomeUnknownError:
        return OutcomeUnknownError(
            f"a session was sent, the connection broke, and {why}: it may have been committed",
            where=self.url,
            hint="Open the store again when the server answers, and read the checkpoints: either "
            "all of the session is there or nothing.",
        )

    def partly_applied(self, error: Exception) -> DamageError:
        """Redis continues after a failed command, for example when a key now has another type."""
        meant = self.errors.meant(error, "committing a session")
        return DamageError(
            f"{meant.what}; the rest of the session WAS applied",
            where=self.url,
            hint="Something else writes to this namespace. Remove its key, compare the data with "
            "the checkpoints, and give each program a namespace of its own.",
        )

    def _touched(self) -> Mapping[bytes, bytes]:
        """Change ``meta`` and return it: a commit in progress watches it, and fails now."""
        with (
            self.errors.translated("asking what became of a session"),
            self.client.pipeline() as pipe,
        ):
            pipe.hincrby(self.meta, b"touched", 1)
            pipe.hgetall(self.meta)
            _, meta = pipe.execute()
        fields: Mapping[bytes, bytes] = meta
        return fields

    def close(self) -> None:
        self.client.close()


def warn_of_losses(ledger: Ledger) -> None:
    """Log what a restart of the server may lose."""
    if isinstance(ledger, RedisLedger):
        for warning in persistence_warnings(ledger.client):
            log.warning("%s: %s", ledger.url, warning)
