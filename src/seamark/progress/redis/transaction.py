"""A session in Redis: what it reads, and its one MULTI/EXEC.

Tests: ``tests/progress/redis/test_ledger.py``.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any, Final, TypeVar

from seamark.errors import StoreUnavailableError
from seamark.progress.ledger import Changes, SessionOvertaken, Transaction, Writes

if TYPE_CHECKING:
    from seamark.progress.redis.ledger import RedisLedger

T = TypeVar("T")

SESSION: Final = b"session"
_TRIES: Final = 3
_FIELDS_READ: Final = 10_000
_FIELDS_WRITTEN: Final = 1000
"""Fields of one HSET or HDEL: a million arguments in one command would be refused."""
_CHANGED: Final = "Watched variable changed."


class RedisTransaction(Transaction):
    """What ``meta`` said at one moment, and a commit that fails if it has changed since."""

    def __init__(self, ledger: RedisLedger) -> None:
        self._ledger = ledger
        self._pipe: Any = None
        self._meta: Mapping[bytes, bytes] = {}

    def _begun(self) -> Any:
        if self._pipe is None:
            ledger = self._ledger
            pipe = ledger.client.pipeline()
            try:
                with ledger.errors.translated("beginning a session", ledger.meta):
                    pipe.watch(ledger.meta)
                    self._meta = pipe.hgetall(ledger.meta)
                ledger.require_claim(self._meta)
            except BaseException:
                _let_go(pipe)
                raise
            self._pipe = pipe
        return self._pipe

    def sequences(self) -> Mapping[str, int]:
        self._begun()
        return self._ledger.sequences(self._meta)

    def result_sequence(self, query_id: str) -> int | None:
        self._begun()
        return self._ledger.result_sequence_in(self._meta, query_id)

    def get(self, space: str, key: bytes) -> bytes | None:
        pipe, where = self._begun(), self._ledger.space(space)
        with self._ledger.errors.translated("reading a value", where):
            value: bytes | None = pipe.hget(where, key)
            return value

    def get_many(self, space: str, keys: Sequence[bytes]) -> list[bytes | None]:
        pipe, where = self._begun(), self._ledger.space(space)
        values: list[bytes | None] = []
        with self._ledger.errors.translated("reading values", where):
            for start in range(0, len(keys), _FIELDS_READ):
                values += pipe.hmget(where, keys[start : start + _FIELDS_READ])
        return values

    def is_current(self) -> bool:
        pipe, ledger = self._begun(), self._ledger
        with ledger.errors.translated("looking for other writers", ledger.meta):
            session: bytes | None = pipe.hget(ledger.meta, SESSION)
        return session == self._meta.get(SESSION)

    def commit(self, changes: Changes) -> None:
        if changes.is_empty():
            return
        ledger, token = self._ledger, uuid.uuid4().hex.encode()
        ledger.require_hashes(changes)
        for _ in range(_TRIES):
            sent = self._sent(changes, token)
            if sent is None:
                sent = ledger.settle(token, self._meta.get(SESSION))
            if sent:
                return
            self.abandon()
            if ledger.generation is None:
                raise SessionOvertaken(f"another session of {ledger.url} came in between")
            # nobody else may write, so what was staged still holds: it was this program itself,
            # by a commit outside the session, or the connection
        raise StoreUnavailableError(
            "a session could not be committed, and nothing of it was",
            where=ledger.url,
            hint="The connection broke each time. Try again.",
        )

    def _sent(self, changes: Changes, token: bytes) -> bool | None:
        """Whether the commit went through; None when no answer came."""
        from redis.exceptions import ConnectionError as Broken
        from redis.exceptions import ResponseError, WatchError
        from redis.exceptions import TimeoutError as Late

        ledger, pipe = self._ledger, self._begun()
        ledger.sending(token)
        try:
            pipe.multi()
            _queue(pipe, ledger, changes, self._meta)
            pipe.hset(ledger.meta, SESSION, token)
            answers = pipe.execute(raise_on_error=False)
        except (WatchError, Broken, Late, OSError) as error:
            # the client says WatchError also when the connection broke, in other words
            return False if str(error) == _CHANGED else None
        except ResponseError as error:
            raise ledger.errors.meant(error, "committing a session") from None
        for answer in answers:
            if isinstance(answer, Exception):
                raise ledger.partly_applied(answer)
        ledger.is_last(token)
        return True

    def abandon(self) -> None:
        if self._pipe is not None:
            _let_go(self._pipe)
            self._pipe = None


def _let_go(pipe: Any) -> None:
    from redis.exceptions import RedisError

    try:
        pipe.reset()
    except (RedisError, OSError):
        pipe.connection = None  # it cannot be used any more


def _queue(pipe: Any, ledger: RedisLedger, changes: Changes, meta: Mapping[bytes, bytes]) -> None:
    """Queue all that changes; ``meta`` is what was read under the watch."""
    gone = [b"config_hash"] if changes.forget_hash else []
    if changes.forget_checkpoints:
        gone += [field for field in meta if field.startswith((b"sequence:", b"result_sequence:"))]
        pipe.unlink(ledger.positions)
    if changes.cleared:
        pipe.unlink(*sorted(ledger.space(space) for space in changes.cleared))
    if gone:
        pipe.hdel(ledger.meta, *gone)
    fields: Writes = {
        b"sequence:" + source.encode(): str(sequence).encode()
        for source, sequence in changes.sequences.items()
    }
    for query, sequence in changes.results.items():
        fields[b"result_sequence:" + query.encode()] = str(sequence).encode()
    if changes.config_hash is not None:
        fields[b"config_hash"] = str(changes.config_hash).encode()
    _write(pipe, ledger.meta, fields)
    positions = {source.encode(): position for source, position in changes.positions.items()}
    _write(pipe, ledger.positions, positions)
    for space, writes in changes.data.items():
        _write(pipe, ledger.space(space), writes)


def _write(pipe: Any, key: str, writes: Writes) -> None:
    gone = [field for field, value in writes.items() if value is None]
    for some in _chunks(gone):
        pipe.hdel(key, *some)
    kept = writes.items() if not gone else [pair for pair in writes.items() if pair[1] is not None]
    for pairs in _chunks(kept):
        # flat: the client would check every pair of a mapping once more
        pipe.execute_command("HSET", key, *(part for pair in pairs for part in pair))


def _chunks(values: Iterable[T]) -> Iterator[list[T]]:
    left = iter(values)
    while some := list(islice(left, _FIELDS_WRITTEN)):
        yield some
