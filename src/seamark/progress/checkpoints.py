"""The checkpoint of one source: what it is, what it may hold, and which events it covers."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from seamark import limits
from seamark._common.checks import U64_MAX, check_number, check_text
from seamark.errors import DamageError, InvalidInputError, RefusedError

MAX_POSITION_BYTES: Final = 64 * 1024
"""The largest position that is kept. One that is larger is refused, and the last good one stays."""


@dataclass(frozen=True)
class SourceCheckpoint:
    """How far one source has been read.

    ``sequence`` grows and is compared; ``source_position`` is opaque, made by the source and only
    given back to it, to continue from there.
    """

    sequence: int
    source_position: bytes | None = None


@dataclass(frozen=True)
class ProgressOverview:
    """How far all sources have been read and of which configuration that is, at one moment."""

    checkpoints: Mapping[str, SourceCheckpoint]
    config_hash: int | None = None


def check_sequence(sequence: int) -> int:
    """A sequence when it can be one."""
    return check_number("a sequence", sequence, 0, U64_MAX)


def check_source_id(source_id: str) -> str:
    """A source's id when it can be one."""
    size = len(check_text(source_id, "a source id").encode())
    if size > limits.LONGEST_SOURCE:
        raise InvalidInputError(
            f"the source id {source_id[: limits.LONGEST_PREFIX]!r}… has {size} bytes, and at most "
            f"{limits.LONGEST_SOURCE} are kept",
            hint="Use a shorter one, such as a name.",
        )
    return source_id


def check_one_more_source(known: int) -> None:
    """:class:`RefusedError` when a store has as many sources as it may have."""
    if known >= limits.MOST_SOURCES:
        raise RefusedError(
            f"a progress store has at most {limits.MOST_SOURCES} sources",
            hint="Nothing was changed. Put what many small sources share into the position of one.",
        )


def require_kept_source(name: bytes, where: str) -> None:
    """:class:`DamageError` when the id of a stored source is longer than any that is kept."""
    if len(name) > limits.LONGEST_SOURCE:
        shown = name[: limits.LONGEST_PREFIX].decode(errors="replace")
        raise _made_by_others(
            f"the id of source {shown!r}… has {len(name)} bytes, and at most "
            f"{limits.LONGEST_SOURCE} are ever kept",
            where,
        )


def require_kept_number(sources: int, where: str) -> None:
    """:class:`DamageError` when a store has more sources than any may have."""
    if sources > limits.MOST_SOURCES:
        raise _made_by_others(f"it has more than {limits.MOST_SOURCES} sources", where)


def _made_by_others(what: str, where: str) -> DamageError:
    return DamageError(
        what,
        where=where,
        hint="Something else has written here. Restore the store from a copy, or remove it and "
        "start over.",
    )


def check_position(source_id: str, position: bytes) -> bytes:
    """A position when it can be kept."""
    if not isinstance(position, bytes | bytearray | memoryview):
        raise InvalidInputError(
            f"the position of source {source_id!r} must be bytes, not {type(position).__name__}"
        )
    data = bytes(position)
    if len(data) > MAX_POSITION_BYTES:
        raise InvalidInputError(
            f"the position of source {source_id!r} has {len(data)} bytes, and at most "
            f"{MAX_POSITION_BYTES} are kept",
            hint="Nothing was changed: the last good position stays. Keep only what is needed to "
            "find the place again.",
        )
    return data


def require_kept_position(position: bytes | None, source_id: str, where: str) -> bytes | None:
    """A position as it was stored; :class:`DamageError` when it is larger than any that is kept."""
    if position is not None and len(position) > MAX_POSITION_BYTES:
        raise _made_by_others(
            f"the position of source {source_id[: limits.LONGEST_PREFIX]!r} has {len(position)} "
            f"bytes, and at most {MAX_POSITION_BYTES} are ever kept",
            where,
        )
    return position


def check_forward(source_id: str, before: int | None, sequence: int) -> None:
    """:class:`RefusedError` when a sequence would go back."""
    if before is not None and sequence < before:
        raise RefusedError(
            f"the sequence of source {source_id!r} would go back from {before} to {sequence}",
            hint="What was read in between would count as new. If that is intended, pass "
            "allow_rewind=True.",
        )


def check_result_forward(query_id: str, before: int | None, sequence: int) -> None:
    """:class:`RefusedError` when the sequence of a query's results would go back."""
    if before is not None and sequence < before:
        raise RefusedError(
            f"the result sequence of query {query_id!r} would go back from {before} to {sequence}",
            hint="The next results would get numbers that were used before, and their readers "
            "would skip them. If that is intended, pass allow_rewind=True.",
        )


class SequenceDedup:
    """Which events of a source are new, and how its sequence continues after a restart.

    ::

        seen = SequenceDedup(store.read_all_checkpoints())
        if seen.is_new("orders", event.sequence):
            with store.session() as s:
                ...
                s.stage_checkpoint("orders", event.sequence, event.position)
            seen.advance("orders", event.sequence)      # after the commit, never before
    """

    def __init__(self, checkpoints: Mapping[str, SourceCheckpoint] | None = None) -> None:
        self._last = {
            source: checkpoint.sequence for source, checkpoint in (checkpoints or {}).items()
        }
        self._lock = threading.Lock()

    def is_new(self, source: str, sequence: int | None) -> bool:
        """Whether an event comes after what was committed.

        So does every event without a sequence, and every event of a source that is not known:
        nothing shows that it was seen.
        """
        last = self._last.get(source)
        return sequence is None or last is None or check_sequence(sequence) > last

    def advance(self, source: str, sequence: int | None) -> None:
        """Count everything up to here as seen; a lower number, or none, changes nothing.

        To be called after the commit: an event of a session that failed has to pass again.
        """
        if sequence is None:
            return
        check_sequence(sequence)
        with self._lock:
            self._last[source] = max(sequence, self._last.get(source, sequence))

    def next_sequence(self, source: str) -> int:
        """The number of the next event of a source that does not number its own, from 1 on.

        It grows by :meth:`advance` alone, so an event that is read again after a rollback or a
        restart gets the number that it had. Of several events in one session the second has one
        more, and so on. :class:`RefusedError` after the last number that there is.
        """
        last = self._last.get(source, 0)
        if last >= U64_MAX:
            raise RefusedError(f"source {source!r} has used up all numbers, {U64_MAX} was the last")
        return last + 1

    def all_checkpoints(self) -> dict[str, int]:
        """The last number that was committed, of every source that is known."""
        with self._lock:
            return dict(self._last)

    def last_sequence(self, source: str) -> int | None:
        """The last number that was committed, or None."""
        return self._last.get(source)
