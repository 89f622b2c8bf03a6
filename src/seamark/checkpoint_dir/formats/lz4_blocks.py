"""The compressed stream inside state files: LZ4 blocks as lz4-java frames them.

All fields are little-endian::

    "LZ4Block" | token u8 | stored u32 | plain u32 | checksum u32 | payload

The token is 0x10 for bytes as they are and 0x20 for LZ4; its low bits are log2 of the largest
block, less 10. The checksum is xxHash32 of the plain bytes, seed 0x9747b28c, lowest 28 bits. The
last block is empty. Other codecs raise :class:`NotDecodable`, which says nothing about
damage.

Tests: ``tests/checkpoint_dir/test_hdfs_state.py``.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Final

import lz4.block
import xxhash

from seamark import limits_by_size
from seamark.errors import DamageError, RefusedError

# The reasons of a DamageError; the caller adds where.
EMPTY: Final = "the file is empty"
NOT_STATE: Final = "it does not begin like a state file"
TORN: Final = "it ends too early"
BLOCK: Final = "a block cannot be unpacked"
CHECKSUM: Final = "a block's checksum differs"
TRAILING: Final = "bytes follow its end"

_MAGIC: Final = b"LZ4Block"
_BLOCK: Final = struct.Struct("<8sBIII")
_SEED: Final = 0x9747B28C
_LOW_28: Final = (1 << 28) - 1
_AS_IS, _LZ4 = 0x10, 0x20
_CODECS: Final = {
    b"\x28\xb5\x2f\xfd": "zstd",
    b"\x82SNAPPY\x00": "snappy",
    b"ZV": "lzf",
}


class NotDecodable(RefusedError):
    """The file may be whole, but this package cannot read what is inside."""


def codec_of(data: bytes) -> str | None:
    """``lz4``, ``zstd``, ``snappy`` or ``lzf``, by how the file begins; None for none of them."""
    if data.startswith(_MAGIC):
        return "lz4"
    return next((name for magic, name in _CODECS.items() if data.startswith(magic)), None)


def unpacked(data: bytes) -> bytes:
    """The bytes inside the blocks of a file, each block proven by its checksum.

    :class:`DamageError` with one of this module's reasons, or :class:`NotDecodable`.
    """
    parts: list[bytes] = []
    size, most = 0, limits_by_size.largest_unpacked(len(data))
    for part in blocks(data):
        size += len(part)
        if size > most:
            raise NotDecodable(
                f"its rows are not looked at: {len(data)} bytes unpack to more than {most}"
            )
        parts.append(part)
    return b"".join(parts)


def unpacked_head(data: bytes, size: int) -> bytes:
    """The first bytes of the same. All blocks are proven, and one at a time is held in memory."""
    head = b""
    for part in blocks(data):
        if len(head) < size:
            head += part[: size - len(head)]
    return head


def claimed_size(data: bytes) -> int:
    """How many bytes the blocks of a file say they hold; nothing is unpacked."""
    size = at = 0
    while data.startswith(_MAGIC, at) and len(data) - at >= _BLOCK.size:
        _, _, stored, plain, _ = _BLOCK.unpack_from(data, at)
        size, at = size + plain, at + _BLOCK.size + stored
    return size


def blocks(data: bytes) -> Iterator[bytes]:
    """The same bytes, one block after the other."""
    codec = codec_of(data)
    if not data:
        raise DamageError(EMPTY)
    if codec is None:
        raise DamageError(TORN if _MAGIC.startswith(data) else NOT_STATE)
    if codec != "lz4":
        raise NotDecodable(f"its rows cannot be read: it is compressed by {codec}, not lz4")
    at = 0
    while True:
        part, end = _block(data, at)
        if not part:
            break
        yield part
        at = end
    if end != len(data):
        raise DamageError(TRAILING, where=f"at byte {end}")


def _block(data: bytes, at: int) -> tuple[bytes, int]:
    """The plain bytes of the block at a place, and where it ends."""
    where = f"at byte {at}"
    if len(data) - at < _BLOCK.size:
        raise DamageError(TORN, where=where)
    magic, token, stored, plain_size, checksum = _BLOCK.unpack_from(data, at)
    start = at + _BLOCK.size
    method = token & 0xF0
    too_big = plain_size > 1 << (10 + (token & 0x0F))
    if magic != _MAGIC or method not in (_AS_IS, _LZ4) or too_big:
        raise DamageError(BLOCK, where=where)
    if (stored == 0) != (plain_size == 0) or (method == _AS_IS and stored != plain_size):
        raise DamageError(BLOCK, where=where)
    if plain_size == 0:
        if checksum:
            raise DamageError(CHECKSUM, where=where)
        return b"", start
    payload = data[start : start + stored]
    if len(payload) < stored:
        raise DamageError(TORN, where=where)
    plain = payload if method == _AS_IS else _decompressed(payload, plain_size, where)
    if xxhash.xxh32_intdigest(plain, _SEED) & _LOW_28 != checksum:
        raise DamageError(CHECKSUM, where=where)
    return plain, start + stored


def _decompressed(payload: bytes, size: int, where: str) -> bytes:
    try:
        plain = bytes(lz4.block.decompress(payload, uncompressed_size=size))
    except (lz4.block.LZ4BlockError, ValueError, MemoryError):
        raise DamageError(BLOCK, where=where) from None
    if len(plain) != size:
        raise DamageError(BLOCK, where=where)
    return plain
