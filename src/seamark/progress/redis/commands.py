"""The commands of one commit, between MULTI and EXEC.

Tests: ``tests/progress/test_redis.py``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from typing import TYPE_CHECKING, Any, Final, TypeVar

from seamark.progress.ledger import Changes, Writes

if TYPE_CHECKING:
    from seamark.progress.redis.ledger import RedisLedger

T = TypeVar("T")

_FIELDS: Final = 1000
"""Fields of one HSET or HDEL: a million arguments in one command would be refused."""


def queue(pipe: Any, ledger: RedisLedger, changes: Changes, meta: Mapping[bytes, bytes]) -> None:
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
    while some := list(islice(left, _FIELDS)):
        yield some
