"""The LCB1 batch: many small blobs in one object.

Versions 1 and 2 are LaminarDB's: all entries in one LZ4 block. All integers are little-endian::

    v1  "LCB1" | version u32 | entry_count u32 | uncompressed_size u32           | body
    v2  "LCB1" | version u32 | entry_count u32 | uncompressed_size u32 | crc32c  | body
    body = uncompressed length u32 | LZ4 block of { key_len u32 | key | data_len u32 | data }

The CRC32C is over the body as stored. Version 3, in :mod:`seamark.state.pack`, is ours.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import Final

import google_crc32c
import lz4.block

from seamark import limits, limits_by_size
from seamark.errors import DamageError, InvalidInputError

MAGIC: Final = b"LCB1"
BATCH_LIMIT: Final = 1 << 30
"""No batch may claim to unpack to more."""

_HEADER: Final = struct.Struct("<4sIII")
_CRC: Final = struct.Struct("<I")
_LENGTH: Final = struct.Struct("<I")
_SMALLEST_ENTRY: Final = 2 * _LENGTH.size
_LZ4_LIMIT: Final = 2**31 - 1
_U32_MAX: Final = 2**32 - 1


def encode_batch(
    entries: Iterable[tuple[str, bytes]], version: int = 2, *, compress: bool = True
) -> bytes:
    """One object from (key, data) pairs; keys are unique and keep their order."""
    if version == 3:
        from seamark.state.pack import PackBuilder

        builder = PackBuilder()
        for key, data in entries:
            builder.add_all([key], [data], compress=compress)
        return b"".join(builder.finish())
    if version not in (1, 2):
        raise InvalidInputError(f"batches are written in version 1, 2 or 3, not {version}")
    parts: list[bytes] = []
    keys: set[str] = set()
    for key, data in entries:
        if key in keys:
            raise InvalidInputError(f"the key {key!r} is in the batch twice")
        keys.add(key)
        name = encoded_key(key)
        parts += (_LENGTH.pack(len(name)), name, _LENGTH.pack(len(data)), data)
    plain = b"".join(parts)
    if len(plain) > min(BATCH_LIMIT, _U32_MAX):
        raise InvalidInputError(f"a batch holds at most {BATCH_LIMIT} bytes, not {len(plain)}")
    block = lz4.block.compress(plain, store_size=False)
    if limits_by_size.batch_shrinks_too_much(len(plain), len(block)) or (
        not compress and 15 <= len(plain) > len(block)
    ):
        block = _literals(plain)
    body = _LENGTH.pack(len(plain)) + block
    header = _HEADER.pack(MAGIC, version, len(keys), len(plain))
    crc = _CRC.pack(google_crc32c.value(body)) if version == 2 else b""
    return b"".join((header, crc, body))


def _literals(plain: bytes) -> bytes:
    """An LZ4 block that is not compressed, of 15 bytes or more."""
    more, rest = divmod(len(plain) - 15, 255)
    return b"".join((b"\xf0", b"\xff" * more, bytes([rest]), plain))


def encoded_key(key: str) -> bytes:
    """A key as it is stored; :class:`InvalidInputError` when it is not valid Unicode."""
    try:
        return key.encode()
    except (UnicodeEncodeError, AttributeError):
        raise InvalidInputError(f"the key {key!r} is not valid Unicode") from None


def decode_batch(
    data: bytes, *, limit: int = BATCH_LIMIT, most_repeated: int | None = None
) -> list[tuple[str, bytes]]:
    """The (key, data) pairs of a batch of any version; :class:`DamageError` when it is not one.

    Of a key that is in a batch of version 1 or 2 twice, the last one counts, as for LaminarDB,
    which writes such batches.

    Nothing is allocated for what a batch merely claims: sizes and counts are held against its
    real length first. :class:`DamageError` also for a large batch that is compressed more than any
    writer's, and when keys are repeated more often than any writer does: a few bytes could stand
    for millions of equal entries.
    """
    version = batch_version(data)
    if version == 3:
        from seamark.state.pack import decode_pack

        return decode_pack(data, limit=limit)
    _, _, count, claimed = _HEADER.unpack_from(data)
    body = memoryview(data)[_HEADER.size :]
    if version == 2:
        (expected,) = _CRC.unpack_from(body)
        body = body[_CRC.size :]
        actual = google_crc32c.value(bytes(body))
        if actual != expected:
            raise DamageError(
                f"batch CRC32C mismatch: expected {expected:#010x}, actual {actual:#010x}"
            )
    if most_repeated is None:
        most_repeated = limits_by_size.most_records(len(data))
    return _entries(_inflated(body, claimed, limit), count, most_repeated)


def claims_of(data: bytes) -> tuple[int, int]:
    """How many bytes and entries a batch says that it holds."""
    if batch_version(data) == 3:
        from seamark.state.pack import read_index

        entries = read_index(data, len(data))
        return sum(entry.size for entry in entries), len(entries)
    _, _, count, claimed = _HEADER.unpack_from(data)
    return claimed, count


def batch_version(data: bytes) -> int:
    """The version of a batch, once it is seen to be one that can be read."""
    if len(data) < _HEADER.size + _CRC.size:
        raise DamageError("batch too short for header")
    magic, version = struct.unpack_from("<4sI", data)
    if magic != MAGIC:
        raise DamageError("invalid batch magic")
    if version not in (1, 2, 3):
        raise DamageError(f"unsupported batch version {version}")
    return int(version)


def check_claim(claimed: int, stored: int, limit: int, what: str) -> None:
    """Refuse a size that a block of ``stored`` bytes cannot unpack to, or that is too large."""
    # one byte of an LZ4 block stands for at most 255
    if claimed > min(limit, _LZ4_LIMIT) or claimed > 255 * stored:
        raise DamageError(f"{what} claims {claimed} bytes, which {stored} stored ones cannot hold")


def _inflated(body: memoryview, claimed: int, limit: int) -> bytes:
    if len(body) < _LENGTH.size:
        raise DamageError("batch too short for its body")
    (size,) = _LENGTH.unpack_from(body)
    if size != claimed:
        raise DamageError(f"batch header says {claimed} bytes, its body says {size}")
    stored = len(body) - _LENGTH.size
    check_claim(size, stored, limit, "the batch")
    if limits_by_size.batch_shrinks_too_much(size, stored):
        raise DamageError(
            f"the batch claims {size} bytes in {stored} stored ones, and so large a batch may "
            f"unpack to {limits.PACK_RATIO} times its size at most"
        )
    try:
        plain = bytes(lz4.block.decompress(body[_LENGTH.size :], uncompressed_size=size))
    except (lz4.block.LZ4BlockError, ValueError, MemoryError) as error:
        raise DamageError(f"LZ4 decompression failed: {error}") from None
    if len(plain) != size:
        raise DamageError(f"the batch unpacks to {len(plain)} bytes, not to {size}")
    return plain


def _entries(plain: bytes, count: int, most_repeated: int) -> list[tuple[str, bytes]]:
    if count * _SMALLEST_ENTRY > len(plain):
        raise DamageError(f"batch claims {count} entries in {len(plain)} bytes")
    entries: dict[str, bytes] = {}
    at = 0
    for number in range(count):
        if number - len(entries) > most_repeated:
            raise DamageError(f"batch repeats its keys more than {most_repeated} times")
        name, at = _field(plain, at, "key")
        data, at = _field(plain, at, "data")
        try:
            key = name.decode()
        except UnicodeDecodeError:
            raise DamageError(f"batch key {name!r} is not UTF-8") from None
        entries.pop(key, None)  # LaminarDB may write a key twice; the last one counts
        entries[key] = data
    if at != len(plain):
        raise DamageError(f"batch has {len(plain) - at} bytes after its last entry")
    return list(entries.items())


def _field(plain: bytes, at: int, what: str) -> tuple[bytes, int]:
    if at + _LENGTH.size > len(plain):
        raise DamageError(f"truncated batch entry ({what} length)")
    (length,) = _LENGTH.unpack_from(plain, at)
    at += _LENGTH.size
    if at + length > len(plain):
        raise DamageError(f"truncated batch entry ({what}{'' if what == 'data' else ' data'})")
    return plain[at : at + length], at + length
