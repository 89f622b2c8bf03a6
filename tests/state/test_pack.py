"""LCB1 version 3: its format, and one entry read alone."""

from __future__ import annotations

import random
import struct
from hashlib import sha256

import pytest
from hypothesis import given

from seamark import limits
from seamark.blobs.memory import MemoryBlobs
from seamark.errors import DamageError, InvalidInputError
from seamark.state import decode_batch, encode_batch
from seamark.state.pack import (
    LZ4,
    STORED,
    PackBuilder,
    decode_pack,
    read_index,
    read_trailer,
    unpack_entry,
)
from tests.state.support.packs import SMALL, TRAILER, Place, entries_of_any_kind, forged, packed
from tests.state.support.reference import crc32c, flips, inflate, literals, read_v2

# The format.


def test_the_format_is_the_documented_one() -> None:
    data = packed(SMALL)
    assert data[:8] == b"LCB1\x03\x00\x00\x00"
    offset, length, count, blocks, crc, end = struct.unpack("<QQIII4s", data[-TRAILER:])
    assert (count, end) == (len(SMALL), b"LCB3")
    assert blocks == crc32c(data[8:offset])
    assert offset + length + TRAILER == len(data)
    index = data[offset : offset + length]
    assert crc == crc32c(data[:8] + index + data[-TRAILER:-8])
    at, expected = 0, 8
    for key, value in SMALL:
        (size,) = struct.unpack_from("<I", index, at)
        assert index[at + 4 : at + 4 + size].decode() == key
        at += 4 + size
        start, stored, unpacked, codec, digest = struct.unpack_from("<QQQB32s", index, at)
        at += 57
        block = data[start : start + stored]
        assert start == expected
        assert (inflate(block) if codec == 1 else block) == value
        assert (unpacked, digest) == (len(value), sha256(value).digest())
        expected += stored
    assert (at, expected) == (length, offset)


def test_a_pack_made_by_its_description_is_read() -> None:
    blocks = literals(b"ab") + b"cd"
    rows: list[Place] = [
        (b"a", 8, 3, 2, LZ4, sha256(b"ab").digest()),
        (b"b", 11, 2, 2, STORED, sha256(b"cd").digest()),
    ]
    assert decode_batch(forged(blocks, rows)) == [("a", b"ab"), ("b", b"cd")]


@pytest.mark.parametrize(
    "entries",
    [[], [("", b"")], [("a", b""), ("b", b"")], SMALL, [(str(n), b"%d" % n) for n in range(300)]],
    ids=["none", "empty", "two empty", "small", "many"],
)
def test_there_and_back(entries: list[tuple[str, bytes]]) -> None:
    data = packed(entries)
    assert decode_batch(data) == decode_pack(data) == entries
    assert data == encode_batch(entries, 3)


def test_a_reader_of_versions_1_and_2_says_that_it_cannot_read_it() -> None:
    for entries in ([("a", b"1")], SMALL):
        with pytest.raises(ValueError, match=r"^unsupported batch version 3$"):
            read_v2(packed(entries))


def test_a_pack_is_not_confused_with_a_batch() -> None:
    with pytest.raises(DamageError, match="not a pack of version 3"):
        decode_pack(encode_batch(SMALL, 2))


def test_the_builder_tells_where_each_entry_will_be() -> None:
    builder = PackBuilder()
    told = [builder.add(key, data) for key, data in SMALL]
    data = b"".join(builder.finish())
    assert read_index(data, len(data)) == told
    assert len(builder) == len(SMALL)
    assert builder.size == read_trailer(data, len(data))[0]


def test_what_does_not_compress_is_stored_as_it_is() -> None:
    noise = random.Random(1).randbytes(1 << 16)
    builder = PackBuilder()
    entries = [
        builder.add("noise", noise),
        builder.add("zeros", bytes(1 << 16)),
        builder.add("empty", b""),
        builder.add("tiny", b"z"),
    ]
    assert [entry.codec for entry in entries] == [STORED, LZ4, STORED, STORED]
    assert [entry.length <= entry.size for entry in entries] == [True] * 4
    data = b"".join(builder.finish())
    assert data[entries[0].offset :][: entries[0].length] == noise
    assert len(data) < len(noise) + 2000
    assert dict(decode_pack(data))["noise"] == noise


def test_a_key_that_comes_twice_is_refused_and_the_pack_stays_whole() -> None:
    builder = PackBuilder()
    builder.add("a", b"1")
    with pytest.raises(InvalidInputError, match="'a' is in the pack twice"):
        builder.add("a", b"2")
    assert decode_pack(b"".join(builder.finish())) == [("a", b"1")]


def test_a_key_that_is_not_unicode_is_refused_and_the_pack_stays_whole() -> None:
    builder = PackBuilder()
    builder.add("a", b"1")
    with pytest.raises(InvalidInputError):
        builder.add("\ud800", b"2")
    assert decode_pack(b"".join(builder.finish())) == [("a", b"1")]


def test_nothing_is_written_that_is_too_large_to_be_read() -> None:
    zeros = bytes(128 << 20)
    try:
        data = encode_batch([(str(number), zeros) for number in range(9)], 3)
    except InvalidInputError:
        return
    assert len(decode_batch(data)) == 9


# One entry alone.


class Counting(MemoryBlobs):
    """Counts the bytes that leave it."""

    given = 0

    def read_range(self, key: str, offset: int, length: int) -> bytes | None:
        found = super().read_range(key, offset, length)
        self.given += len(found or b"")
        return found


def read_one(blobs: MemoryBlobs, key: str, name: str) -> bytes:
    """One entry out of a stored pack: its trailer, its index, and its block."""

    def part(offset: int, length: int) -> bytes:
        found = blobs.read_range(key, offset, length)
        assert found is not None
        return found

    stat = blobs.stat(key)
    assert stat is not None
    trailer = part(stat.size - TRAILER, TRAILER)
    offset, length, _ = read_trailer(trailer, stat.size)
    index = read_index(part(offset, length) + trailer, stat.size)
    entry = next(entry for entry in index if entry.key == name)
    return unpack_entry(part(entry.offset, entry.length), entry)


def test_one_entry_is_read_with_no_more_than_the_index_and_its_range() -> None:
    noise = random.Random(2)
    entries = [(f"{number}/agg", noise.randbytes(4096)) for number in range(1000)]
    blobs = Counting()
    pack = packed(entries)
    blobs.create("pack", pack)
    index_length = struct.unpack_from("<Q", pack, len(pack) - TRAILER + 8)[0]
    assert read_one(blobs, "pack", "777/agg") == entries[777][1]
    assert blobs.given == TRAILER + index_length + 4096
    assert blobs.given < len(pack) // 40


def test_the_index_is_found_in_any_tail_that_is_long_enough() -> None:
    data = packed(SMALL)
    whole = read_index(data, len(data))
    offset, _, _ = read_trailer(data[-TRAILER:], len(data))
    for start in range(offset + 1):
        assert read_index(data[start:], len(data)) == whole
    for start in range(offset + 1, len(data)):
        with pytest.raises(DamageError):
            read_index(data[start:], len(data))


def test_the_index_has_a_checksum_of_its_own() -> None:
    data = packed(SMALL)
    offset, length, _ = read_trailer(data, len(data))
    for damaged in flips(data[offset : offset + length]):
        with pytest.raises(DamageError, match="pack index CRC32C mismatch"):
            read_index(damaged + data[-TRAILER:], len(data))


@given(entries_of_any_kind)
def test_whatever_is_packed_comes_back_whole_and_one_by_one(
    entries: list[tuple[str, bytes]],
) -> None:
    data = packed(entries)
    assert decode_pack(data) == entries
    blobs = MemoryBlobs()
    blobs.create("pack", data)
    for key, value in entries:
        assert read_one(blobs, "pack", key) == value


@pytest.mark.parametrize("large", [30_000, 1 << 16, 1 << 18, (1 << 20) - 1])
@pytest.mark.parametrize("small", [0, 1, 1_000])
def test_what_is_packed_can_be_read_however_it_has_grown(
    large: int, small: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "PACK_FLOOR", 1 << 20)
    builder = PackBuilder()
    sizes = [large] * ((1 << 20) // large) + [small] * 40
    for number, size in enumerate(sizes):
        builder.add(f"{number}", bytes(size))
        entries = decode_pack(b"".join(builder.finish()))
        assert [len(data) for _, data in entries] == sizes[: number + 1]
