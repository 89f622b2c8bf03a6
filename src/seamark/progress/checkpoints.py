"""The checkpoint of one source: what it is, and what it may hold.

Tests: ``tests/progress/test_conformance.py``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from seamark._common.checks import U64_MAX, check_number
from seamark.errors import InvalidInputError, RefusedError

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


def check_sequence(sequence: int) -> int:
    """A sequence when it can be one."""
    return check_number("a sequence", sequence, 0, U64_MAX)


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
