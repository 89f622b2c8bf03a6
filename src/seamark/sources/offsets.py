"""How far a stream has been read: how many rows, which position is next, and what the rows were.

The digest is a chain: each row's is made of the one before it and the row itself. So it is the
same however the rows were cut into epochs, and two offsets show whether the rows between them are
still those that were read.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from seamark.errors import FormatTooNewError, InvalidInputError

Position = int | float | str | list[Any] | dict[str, Any]
"""What a source calls a place in its stream: any JSON value but null, true and false."""

LARGEST_POSITION: Final = 64 * 1024

_LARGE: Final = 1 << 64
_START: Final = "0" * 64
_DIGEST: Final = re.compile(r"[0-9a-f]{64}")
_KEYS: Final = frozenset({"sequence", "position", "digest"})
_as_msgpack: Final = msgspec.msgpack.Encoder(order="deterministic")


@dataclass(frozen=True)
class Offset:
    """One place in a stream: the number of rows before it, the next position, the rows' digest."""

    sequence: int
    position: Position | None
    """None before the first row, and only there."""
    digest: str

    def as_json(self) -> dict[str, Any]:
        """What Spark keeps in its offset log."""
        return {"sequence": self.sequence, "position": self.position, "digest": self.digest}


BEGINNING: Final = Offset(0, None, _START)


def offset_from(value: object) -> Offset:
    """What :meth:`Offset.as_json` made; :class:`InvalidInputError` for anything else.

    A token that cannot be parsed never means the beginning.
    """
    if not isinstance(value, Mapping):
        raise _not_an_offset(value, "it is not a JSON object")
    if more := sorted(value.keys() - _KEYS):
        raise FormatTooNewError(
            f"an offset has a field {more[0]!r} that this Seamark does not know",
            where=f"{dict(value)!r:.200}",
            hint="Use the version of Seamark that wrote the checkpoint, or a newer one.",
        )
    if missing := sorted(_KEYS - value.keys()):
        raise _not_an_offset(value, f"it has no {missing[0]!r}")
    sequence, position, digest = value["sequence"], value["position"], value["digest"]
    if not isinstance(sequence, int) or isinstance(sequence, bool) or sequence < 0:
        raise _not_an_offset(value, "its sequence is not a number of rows")
    if not isinstance(digest, str) or not _DIGEST.fullmatch(digest):
        raise _not_an_offset(value, "its digest is not a SHA-256")
    if (position is None) != (sequence == 0) or (sequence == 0 and digest != _START):
        raise _not_an_offset(value, "only the beginning has no position, no rows and no digest")
    return Offset(sequence, None if position is None else checked_position(position), digest)


def checked_position(value: object) -> Position:
    """A position as it comes back from JSON, so that it looks the same after a restart."""
    if type(value) is int and abs(value) < _LARGE:
        return value  # what most positions are, without the detour
    if value is None or isinstance(value, bool):
        raise InvalidInputError(f"{value!r} is not a position", hint=_POSITIONS)
    try:
        text = json.dumps(value, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise InvalidInputError(f"{value!r} is not a position: {error}", hint=_POSITIONS) from None
    except RecursionError:
        raise InvalidInputError("a position is nested too deeply", hint=_POSITIONS) from None
    if len(text) > LARGEST_POSITION:
        raise InvalidInputError(
            f"a position takes {len(text):,} bytes, and {LARGEST_POSITION:,} is the most",
            hint="Keep what a position stands for elsewhere, and a name for it here.",
        )
    position: Position = json.loads(text)
    return position


def digest_after(digest: bytes, row: tuple[Any, ...]) -> bytes:
    """The digest of everything up to and including a row."""
    return hashlib.sha256(digest + _encoded(row)).digest()


def _encoded(row: tuple[Any, ...]) -> bytes:
    """The same bytes for equal values: moments in UTC, decimals with all their digits."""
    try:
        try:
            return _as_msgpack.encode(row)
        except OverflowError:  # MessagePack ends at 64 bits
            return _as_msgpack.encode([str(v) if isinstance(v, int) else v for v in row])
    except (TypeError, OverflowError) as error:
        raise InvalidInputError(
            f"a row holds a value that has no fixed bytes: {error}",
            hint="Rows are made of None, bool, int, float, str, bytes, Decimal, date, datetime, "
            "and lists and dicts of them.",
        ) from None


def _not_an_offset(value: object, why: str) -> InvalidInputError:
    return InvalidInputError(
        f"a stream cannot continue from {value!r:.200}: {why}",
        hint="The checkpoint was written by another source, or for another query.",
    )


_POSITIONS: Final = "A position is a number, a text, a list or a dict that JSON can hold."
