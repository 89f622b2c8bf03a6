"""LCB1 version 3: one block per entry and an index at the end, so that one entry can be read alone.

All integers are little-endian::

    "LCB1" | version u32 = 3 | blocks, one after the other | index | trailer
    index   = { key_len u32 | key | offset u64 | length u64 | size u64 | codec u8 | sha256 32 }
    trailer = index_offset u64 | index_length u64 | entry_count u32
            | crc32c of all blocks u32 | crc32c of header, index and trailer so far u32 | "LCB3"

``offset`` and ``length`` are where the block is, ``size`` is what it unpacks to. Codec 0 is stored
as it is, 1 is an LZ4 block. SHA-256 is over the unpacked data, which one entry is verified by; the
CRC32C of the blocks also shows a flipped bit that unpacks to the same data. Blocks lie end to end
without gaps. A reader of versions 1 and 2 answers 'unsupported batch version 3'.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Collection, Sequence
from hashlib import sha256
from itertools import accumulate, chain
from operator import eq
from typing import Final, NamedTuple

import google_crc32c
import lz4.block

from seamark import limits, limits_by_size
from seamark.errors import DamageError, InvalidInputError
from seamark.state.lcb1 import BATCH_LIMIT, MAGIC, batch_version, check_claim, encoded_key

STORED: Final = 0
LZ4: Final = 1

_HEADER: Final = struct.Struct("<4sI")
_KEY: Final = struct.Struct("<I")
_PLACE: Final = struct.Struct("<QQQB32s")
_TRAILER: Final = struct.Struct("<QQIII4s")
_END: Final = b"LCB3"
_CHECKED_TRAILER: Final = _TRAILER.size - len(_END) - 4
_SMALLEST_ENTRY: Final = _KEY.size + _PLACE.size

_compress: Callable[..., bytes] = lz4.block.compress


class PackedEntry(NamedTuple):
    """Where an entry is in its pack, and what its bytes must be."""

    key: str
    offset: int
    length: int
    size: int
    codec: int
    sha256: bytes


class PackedBatch(NamedTuple):
    """Where several entries are in their pack, as (offset, length, codec), and their hashes."""

    blocks: list[tuple[int, int, int]]
    digests: list[bytes]


class PackBuilder:
    """Collects entries for one pack. Not for several threads at once."""

    def __init__(self) -> None:
        self._blocks: list[bytes] = [_HEADER.pack(MAGIC, 3)]
        self._index: dict[str, tuple[bytes, bytes]] = {}
        self._unpacked = 0
        self.size = _HEADER.size
        """How many bytes the blocks take so far."""

    def __len__(self) -> int:
        return len(self._index)

    def add(self, key: str, data: bytes) -> PackedEntry:
        """Compress and hash one entry; where it will be."""
        placed = self.add_all([key], [data])
        (offset, length, codec), digest = placed.blocks[0], placed.digests[0]
        return PackedEntry(key, offset, length, len(data), codec, digest)

    def add_all(
        self, keys: Sequence[str], data: Sequence[bytes], *, compress: bool = True
    ) -> PackedBatch:
        """Compress and hash several entries, column by column: that costs least for each.

        ``compress=False`` is for data that is known to be compressed already.
        """
        if not self._index.keys().isdisjoint(keys) or len(set(keys)) < len(keys):
            twice = next(key for key in keys if key in self._index or keys.count(key) > 1)
            raise InvalidInputError(f"the key {twice!r} is in the pack twice")
        names = [encoded_key(key) for key in keys]
        before, self._unpacked = self._unpacked, self._unpacked + sum(map(len, data))
        if self._unpacked > BATCH_LIMIT:
            raise InvalidInputError(f"a pack holds at most {BATCH_LIMIT} bytes")
        digests = [sha256(one).digest() for one in data]
        blocks = _blocks(data, before, self.size) if compress else list(map(bytes, data))
        sizes, lengths = list(map(len, data)), list(map(len, blocks))
        codecs = [STORED if same else LZ4 for same in map(eq, lengths, sizes)]
        *offsets, self.size = accumulate(lengths, initial=self.size)
        places = map(_PLACE.pack, offsets, lengths, sizes, codecs, digests)
        self._index.update(zip(keys, zip(names, places, strict=True), strict=True))
        self._blocks += blocks
        return PackedBatch(list(zip(offsets, lengths, codecs, strict=True)), digests)

    def finish(self) -> list[bytes]:
        """The whole pack, in parts to be written one after the other."""
        index = b"".join(
            chain.from_iterable(
                (_KEY.pack(len(name)), name, place) for name, place in self._index.values()
            )
        )
        header, body = self._blocks[0], b"".join(self._blocks[1:])
        blocks_crc = google_crc32c.value(body)
        start = struct.pack("<QQII", self.size, len(index), len(self._index), blocks_crc)
        crc = google_crc32c.value(header + index + start)
        return [header, body, index, start, struct.pack("<I4s", crc, _END)]


def _blocks(data: Sequence[bytes], plain: int, stored: int) -> list[bytes]:
    """Each compressed, or as it is when that does not help, or helps more than a reader allows.

    ``plain`` and ``stored`` are what the pack holds before them.
    """
    blocks: list[bytes] = []
    for one in data:
        block = _compress(one, store_size=False)
        plain += len(one)
        if (
            len(block) >= len(one)
            or limits_by_size.shrinks_too_much(len(one), len(block))
            or limits_by_size.leaves_no_room(plain, stored + len(block))
        ):
            block = bytes(one)
        stored += len(block)
        blocks.append(block)
    return blocks


def read_trailer(tail: bytes, pack_size: int) -> tuple[int, int, int]:
    """(offset, length, entries) of the index, by the last bytes of a pack."""
    if pack_size < _HEADER.size + _TRAILER.size or len(tail) < _TRAILER.size:
        raise DamageError("pack too short for its trailer")
    offset, length, count, _, _, end = _TRAILER.unpack_from(tail, len(tail) - _TRAILER.size)
    if end != _END:
        raise DamageError("pack has no trailer: it is cut off or not a pack")
    if offset < _HEADER.size or offset + length + _TRAILER.size != pack_size:
        raise DamageError("pack index is outside of the pack")
    if count * _SMALLEST_ENTRY > length:
        raise DamageError(f"pack claims {count} entries in an index of {length} bytes")
    return offset, length, count


def read_index(tail: bytes, pack_size: int, *, limit: int = BATCH_LIMIT) -> list[PackedEntry]:
    """All entries of a pack, by its last bytes: index and trailer, or more."""
    offset, length, count = read_trailer(tail, pack_size)
    start = len(tail) - _TRAILER.size - length
    if start < 0:
        raise DamageError("pack index is not complete")
    index = tail[start : start + length]
    trailer = tail[start + length :]
    checked = _HEADER.pack(MAGIC, 3) + index + trailer[:_CHECKED_TRAILER]
    (expected,) = struct.unpack_from("<I", trailer, _CHECKED_TRAILER)
    if (actual := google_crc32c.value(checked)) != expected:
        raise DamageError(f"pack index CRC32C mismatch: {expected:#010x}, {actual:#010x}")
    return _parse_index(index, count, offset, limit)


def _parse_index(index: bytes, count: int, end: int, limit: int) -> list[PackedEntry]:
    entries: dict[str, PackedEntry] = {}
    at, expected_offset = 0, _HEADER.size
    for _ in range(count):
        if at + _SMALLEST_ENTRY > len(index):
            raise DamageError("truncated pack index")
        (key_length,) = _KEY.unpack_from(index, at)
        at += _KEY.size
        if at + key_length + _PLACE.size > len(index):
            raise DamageError("truncated pack index")
        name = index[at : at + key_length]
        at += key_length
        offset, length, size, codec, digest = _PLACE.unpack_from(index, at)
        at += _PLACE.size
        try:
            key = name.decode()
        except UnicodeDecodeError:
            raise DamageError(f"pack key {name!r} is not UTF-8") from None
        if key in entries:
            raise DamageError(f"pack has the key {key!r} twice")
        if offset != expected_offset or offset + length > end:
            raise DamageError(f"pack entry {key!r} is out of place")
        expected_offset = offset + length
        entry = PackedEntry(key, offset, length, size, codec, digest)
        _check_entry(entry, limit)
        entries[key] = entry
    if at != len(index) or expected_offset != end:
        raise DamageError("pack has bytes that its index does not know")
    return list(entries.values())


def _check_entry(entry: PackedEntry, limit: int) -> None:
    if entry.codec == LZ4:
        check_claim(entry.size, entry.length, limit, f"pack entry {entry.key!r}")
        if limits_by_size.shrinks_too_much(entry.size, entry.length):
            raise DamageError(
                f"pack entry {entry.key!r} claims {entry.size} bytes in {entry.length} stored ones"
            )
    elif entry.codec != STORED or entry.size != entry.length:
        raise DamageError(f"pack entry {entry.key!r} has an unknown codec or a wrong size")


class PackInPlace(NamedTuple):
    """A pack of which only the index was read."""

    read: Callable[[int, int], bytes]
    """Gives a number of bytes from an offset on."""
    size: int
    entries: list[PackedEntry]

    @classmethod
    def find(cls, read: Callable[[int, int], bytes], size: int) -> PackInPlace | None:
        """The pack that has these bytes; None when they do not end as one does."""
        tail = read(max(size - _TRAILER.size, 0), _TRAILER.size)
        if len(tail) < _TRAILER.size or not tail.endswith(_END):
            return None
        offset, length, _ = read_trailer(tail, size)
        if length > limits.LARGEST_PACK_INDEX:
            raise DamageError(f"pack has an index of {length} bytes")
        return cls(read, size, read_index(read(offset, length + _TRAILER.size), size))

    def data(self, entry: PackedEntry) -> bytes:
        """What an entry holds, verified by its SHA-256."""
        return unpack_entry(self.read(entry.offset, entry.length), entry)


def unpack_entry(block: bytes, entry: PackedEntry, *, limit: int = BATCH_LIMIT) -> bytes:
    """The data of one block, verified by its SHA-256."""
    _check_entry(entry, limit)
    if len(block) != entry.length:
        raise DamageError(f"pack entry {entry.key!r} is cut off")
    data = block
    if entry.codec == LZ4:
        try:
            data = bytes(lz4.block.decompress(block, uncompressed_size=entry.size))
        except (lz4.block.LZ4BlockError, ValueError, MemoryError) as error:
            raise DamageError(f"LZ4 decompression of {entry.key!r} failed: {error}") from None
    if len(data) != entry.size or sha256(data).digest() != entry.sha256:
        raise DamageError(f"pack entry {entry.key!r}: SHA-256 differs")
    return data


def decode_pack(data: bytes, *, limit: int = BATCH_LIMIT) -> list[tuple[str, bytes]]:
    """Every entry of a whole pack, verified."""
    return [(entry.key, unpacked) for entry, unpacked in unpack_all(data, limit=limit)]


def unpack_all(
    data: bytes, *, limit: int = BATCH_LIMIT, only: Collection[str] | None = None
) -> list[tuple[PackedEntry, bytes]]:
    """Every entry of a whole pack with what its index says about it, verified.

    ``only`` are the keys of some; the others are not unpacked.
    """
    if batch_version(data) != 3:
        raise DamageError("not a pack of version 3")
    entries = read_index(data, len(data), limit=limit)
    (expected,) = struct.unpack_from("<I", data, len(data) - len(_END) - 8)
    end = entries[-1].offset + entries[-1].length if entries else _HEADER.size
    if (actual := google_crc32c.value(data[_HEADER.size : end])) != expected:
        raise DamageError(f"pack CRC32C mismatch: {expected:#010x}, {actual:#010x}")
    claimed = sum(entry.size for entry in entries)
    if claimed > limit or limits_by_size.shrinks_too_much(claimed, len(data)):
        raise DamageError(f"the pack claims {claimed} bytes, too much for {len(data)} stored ones")
    return [
        (entry, unpack_entry(data[entry.offset : entry.offset + entry.length], entry, limit=limit))
        for entry in entries
        if only is None or entry.key in only
    ]
