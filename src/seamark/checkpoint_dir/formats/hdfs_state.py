"""The rows inside state files, without a JVM.

HDFS-backed ``V.delta`` and ``V.snapshot``, and RocksDB's ``V.changelog``, are a stream of records
in LZ4 blocks. All fields are big-endian (Java's ``DataOutput``)::

    delta, snapshot, changelog 1    { record } | -1
    changelog 3    "v3" | lineage | { record } | -1
    record         key length i32 | key | value length i32 (-1: deleted) | value
    changelog 2    "v2" |           { kind u8 | record } | 0
    changelog 4    "v4" | lineage | { kind u8 | record } | 0

Keys and values are kept as bytes. Codecs other than LZ4 raise :class:`NotDecodable`, which
says nothing about damage.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import Final, NamedTuple

import msgspec

from seamark import limits_by_size
from seamark._common.json_documents import UNREADABLE, require_unambiguous
from seamark.checkpoint_dir.formats.lz4_blocks import (
    TORN,
    TRAILING,
    NotDecodable,
    unpacked,
    unpacked_head,
)
from seamark.errors import DamageError
from seamark.spark.batch_log import is_state_id

RECORD: Final = "a record cannot be read"
SNAPSHOT_DELETES: Final = "a snapshot holds a deletion"

_LENGTH: Final = struct.Struct(">i")
_UTF: Final = struct.Struct(">H")
_LONGEST_HEAD: Final = 4 + _UTF.size + 0xFFFF
_PUT, _DELETE, _MERGE = _KINDS = (0x01, 0x10, 0x11)


class StateChange(NamedTuple):
    """What one record does to one key."""

    key: bytes
    value: bytes | None
    """None removes the key."""
    merge: bool = False
    """Whether the value is added to those that the key has."""


def read_changes(data: bytes, most: int | None = None) -> list[StateChange]:
    """The records of a delta, a snapshot or a changelog, in their order; at most so many.

    :class:`DamageError` for a file that is torn or whose bytes are proven wrong, with one of this
    module's reasons or those of the blocks; :class:`NotDecodable` for another codec or a newer
    changelog, or for more records than that.
    """
    plain = unpacked(data)
    version, at = _version(plain)
    if version in (3, 4):
        at = _after_utf(plain, at)
    most = limits_by_size.most_records(len(data)) if most is None else most
    return _records(plain, at, most, typed=version in (2, 4))


def lineage_of(data: bytes) -> dict[int, str]:
    """Version → id of the files below a changelog of checkpoint format 2, as far as it tells.

    It reaches back to the newest snapshot at the time. Nothing for other changelogs.
    """
    head = unpacked_head(data, _LONGEST_HEAD)
    version, at = _version(head)
    if version not in (3, 4):
        return {}
    end = _after_utf(head, at)
    return parse_lineage(head[at + _UTF.size : end])


def parse_lineage(text: bytes) -> dict[int, str]:
    """The same from the text in a changelog's head; :class:`DamageError` for what is no id.

    Spark makes each id a part of a path.
    """
    try:
        require_unambiguous(text.decode())
        ancestors = msgspec.json.decode(text, type=list[_Ancestor])
        if not all(is_state_id(ancestor.uid) for ancestor in ancestors):
            raise ValueError("what it names are no ids")
    except UNREADABLE as error:
        raise DamageError(f"{RECORD}: its lineage cannot be read ({error})") from None
    return {ancestor.version: ancestor.uid for ancestor in ancestors}


class _Ancestor(msgspec.Struct):
    version: int
    uid: str = msgspec.field(name="checkpointUniqueId")


def read_snapshot(data: bytes, *, row_checksums: bool = False) -> dict[bytes, bytes]:
    """The whole state that an HDFS-backed ``V.snapshot`` holds, key → value."""
    state: dict[bytes, bytes] = {}
    for key, value, _ in read_changes(data):
        if value is None:
            raise DamageError(SNAPSHOT_DELETES)
        state[key] = value if row_checksums else _whole_words(value)
    return state


def apply_changes(
    state: dict[bytes, bytes], changes: Iterable[StateChange], *, row_checksums: bool = False
) -> None:
    """Apply the changes of one delta to a state.

    ``row_checksums`` is the query's ``spark.sql.streaming.stateStore.rowChecksum.enabled``:
    with it a deletion names its key behind a checksum. :class:`NotDecodable` for a change that
    adds to a value, which only RocksDB can do.
    """
    for key, value, merge in changes:
        if merge:
            raise NotDecodable("a value is added to others by a rule of RocksDB")
        if value is None:
            state.pop(key[4:] if row_checksums else key, None)
        else:
            state[key] = value if row_checksums else _whole_words(value)


def same_state(
    snapshot: bytes,
    deltas: Iterable[bytes],
    base: bytes | None = None,
    *,
    row_checksums: bool = False,
) -> bool:
    """Whether ``V.snapshot`` is what an earlier snapshot and the deltas up to V make.

    ``base`` is the earlier ``U.snapshot``, None for the empty state of version 0; ``deltas`` are
    the files U+1 … V in that order. False exposes a snapshot that an abandoned history left
    behind, or a delta in the place of another: Spark notices neither. :class:`NotDecodable` when
    the rows take too much memory for the size of the files.
    """
    return MadeState(deltas, base, row_checksums=row_checksums).equals(snapshot)


class MadeState:
    """What an earlier snapshot and the deltas after it make; made once, for all that is held
    against it. See :func:`same_state`.
    """

    def __init__(
        self, deltas: Iterable[bytes], base: bytes | None = None, *, row_checksums: bool = False
    ) -> None:
        self._deltas, self._base, self._row_checksums = deltas, base, row_checksums
        self._rows: dict[bytes, bytes] | None = None
        self._failure = ""
        self._stored = self._plain = 0

    def equals(self, snapshot: bytes) -> bool:
        """Whether a snapshot holds the same rows; raises what :func:`same_state` does."""
        if self._failure:
            raise NotDecodable(self._failure)
        rows = read_snapshot(snapshot, row_checksums=self._row_checksums)
        stored, plain = len(snapshot), _size_of(rows)
        if self._rows is None:
            try:
                self._rows = self._made(stored, plain)
            except (DamageError, NotDecodable) as error:
                self._failure = error.what
                raise
        _require_comparable(self._stored + stored, self._plain + plain)
        return self._rows == rows

    def _made(self, stored: int, plain: int) -> dict[bytes, bytes]:
        """The rows, beside others that take so many bytes."""
        checksums = self._row_checksums
        rows = {} if self._base is None else read_snapshot(self._base, row_checksums=checksums)
        self._stored, self._plain = len(self._base or b""), _size_of(rows)
        for delta in self._deltas:
            changes = read_changes(delta)
            self._stored += len(delta)
            self._plain += sum(len(change.key) + len(change.value or b"") for change in changes)
            _require_comparable(self._stored + stored, self._plain + plain)
            apply_changes(rows, changes, row_checksums=checksums)
        return rows


def _size_of(rows: dict[bytes, bytes]) -> int:
    return sum(len(key) + len(value) for key, value in rows.items())


def _require_comparable(stored: int, plain: int) -> None:
    if plain > limits_by_size.most_compared(stored):
        raise NotDecodable(f"its rows are not compared: {stored} bytes hold {plain} of them")


def _whole_words(value: bytes) -> bytes:
    """Spark before 2.3 wrote four bytes too many; every later one cuts them off on reading."""
    return value[: len(value) // 8 * 8]


# records


def _version(plain: bytes) -> tuple[int, int]:
    """A changelog's version and where its text ends; (1, 0) for the files that name none."""
    if plain[:3] != b"\x00\x02v" or not plain[3:4].isdigit():
        return 1, 0
    version = int(plain[3:4])
    if version not in (2, 3, 4):
        raise NotDecodable(f"its rows cannot be read: changelog version {version} is not known")
    return version, 4


def _after_utf(plain: bytes, at: int) -> int:
    if len(plain) < at + _UTF.size:
        raise DamageError(TORN)
    end: int = at + _UTF.size + _UTF.unpack_from(plain, at)[0]
    return end


def _sized(plain: bytes, at: int) -> tuple[bytes | None, int]:
    """Bytes behind their length, None for the length -1; and where they end."""
    try:
        (size,) = _LENGTH.unpack_from(plain, at)
    except struct.error:
        raise DamageError(TORN) from None
    start: int = at + _LENGTH.size
    if size == -1:
        return None, start
    if size < 0:
        raise DamageError(RECORD, where=f"at plain byte {at}")
    if len(plain) < start + size:
        raise DamageError(TORN)
    return plain[start : start + size], start + size


def _records(plain: bytes, at: int, most: int, *, typed: bool) -> list[StateChange]:
    changes: list[StateChange] = []
    while len(changes) <= most:
        kind, start = _PUT, at
        if typed:
            if at >= len(plain):
                raise DamageError(TORN)
            kind, at = plain[at], at + 1
            if kind == 0:
                break
        key, at = _sized(plain, at)
        if key is None and not typed:
            break
        value, at = _sized(plain, at)
        fits = kind in _KINDS and (value is None) == (kind == _DELETE)
        if key is None or (typed and not fits):
            raise DamageError(RECORD, where=f"at plain byte {start}")
        changes.append(StateChange(key, value, kind == _MERGE))
    else:
        raise NotDecodable(f"its rows are not looked at: it has more than {most}")
    if at != len(plain):
        raise DamageError(TRAILING, where=f"at plain byte {at}")
    return changes
