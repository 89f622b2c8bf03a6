"""LCB1 version 3: one entry is read alone, and no damage goes unseen by whoever reads it."""

from __future__ import annotations

import random
import struct
import tracemalloc
from collections.abc import Iterator
from hashlib import sha256

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seamark.errors import DamageError, InvalidInputError
from seamark.state import decode_batch, encode_batch
from seamark.state.pack import (
    LZ4,
    STORED,
    PackBuilder,
    PackedEntry,
    decode_pack,
    read_index,
    read_trailer,
    unpack_entry,
)
from seamark.store.memory import MemoryBlobs
from tests.state.reference import crc32c, flips, inflate, literals, read_v2

TRAILER = 28
NOISE = random.Random(3).randbytes(60)
SMALL = [("a/0", b"x" * 60), ("", b""), ("é", NOISE), ("one", b"1")]


def packed(entries: list[tuple[str, bytes]]) -> bytes:
    builder = PackBuilder()
    for key, data in entries:
        builder.add(key, data)
    return b"".join(builder.finish())


def refused(data: bytes) -> str:
    with pytest.raises(DamageError) as caught:
        decode_batch(data)
    with pytest.raises(DamageError):
        decode_pack(data)
    return caught.value.what


Place = tuple[bytes, int, int, int, int, bytes]
"""Key, offset, length, size, codec, SHA-256: a row of an index, which may be a lie."""


def forged(
    blocks: bytes,
    rows: list[Place],
    *,
    count: int | None = None,
    offset: int | None = None,
    length: int | None = None,
    after_index: bytes = b"",
) -> bytes:
    """A pack whose index has a right checksum and says whatever it is told to."""
    header = b"LCB1" + struct.pack("<I", 3)
    index = b"".join(
        struct.pack("<I", len(row[0])) + row[0] + struct.pack("<QQQB32s", *row[1:]) for row in rows
    )
    index += after_index
    trailer = struct.pack(
        "<QQI",
        len(header) + len(blocks) if offset is None else offset,
        len(index) if length is None else length,
        len(rows) if count is None else count,
    )
    crc = struct.pack("<I", crc32c(header + index + trailer))
    return header + blocks + index + trailer + crc + b"LCB3"


def row(key: bytes, offset: int, data: bytes, **lies: int) -> Place:
    """A row for data that is stored as it is."""
    length = lies.get("length", len(data))
    size = lies.get("size", len(data))
    return (key, offset, length, size, lies.get("codec", STORED), sha256(data).digest())


# The format.


def test_the_format_is_the_documented_one() -> None:
    data = packed(SMALL)
    assert data[:8] == b"LCB1\x03\x00\x00\x00"
    offset, length, count, crc, end = struct.unpack("<QQII4s", data[-TRAILER:])
    assert (count, end) == (len(SMALL), b"LCB3")
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
        with pytest.raises(ValueError, match="^unsupported batch version 3$"):
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


# Damage anywhere.


def is_harmless(entry: PackedEntry, block: bytes) -> bool:
    """Whether an LZ4 block says the same in other words: a run of x copies from 1 or 3 before."""
    try:
        return entry.codec == LZ4 and inflate(block) == dict(SMALL)[entry.key]
    except (IndexError, ValueError, struct.error):
        return False


def test_every_flipped_bit_is_seen_when_everything_is_read() -> None:
    for entries in ([], [("k", b"v")], SMALL):
        data = packed(entries)
        compressed = [e for e in read_index(data, len(data)) if e.codec == LZ4]
        for damaged in flips(data):
            blocks = [(e, damaged[e.offset : e.offset + e.length]) for e in compressed]
            changed = [(e, b) for e, b in blocks if b != data[e.offset : e.offset + e.length]]
            if any(is_harmless(entry, block) for entry, block in changed):
                assert decode_batch(damaged) == entries
            else:
                refused(damaged)


def test_a_flipped_bit_is_seen_by_whoever_reads_that_entry_and_by_nobody_else() -> None:
    data = packed(SMALL)
    index = read_index(data, len(data))
    harmless = 0
    for damaged in flips(data):
        for entry in index:
            block = damaged[entry.offset : entry.offset + entry.length]
            hit = block != data[entry.offset : entry.offset + entry.length]
            if hit and not is_harmless(entry, block):
                with pytest.raises(DamageError):
                    unpack_entry(block, entry)
            else:
                harmless += hit
                assert unpack_entry(block, entry) == dict(SMALL)[entry.key]
    assert harmless < 10


def test_every_truncation_is_seen() -> None:
    data = packed(SMALL)
    for size in range(len(data)):
        refused(data[:size])
        refused(data[:8] + data[len(data) - size + 8 :])


def test_every_byte_more_is_seen() -> None:
    data = packed(SMALL)
    for byte in (0, 1, 0x33, 255):
        refused(data + bytes([byte]))
        refused(bytes([byte]) + data)
        refused(data[:8] + bytes([byte]) + data[8:])


def test_a_block_that_is_cut_off_or_too_long_is_seen() -> None:
    builder = PackBuilder()
    entries = [builder.add(key, data) for key, data in SMALL]
    data = b"".join(builder.finish())
    for entry in entries:
        block = data[entry.offset : entry.offset + entry.length]
        for size in range(entry.length):
            with pytest.raises(DamageError, match="cut off"):
                unpack_entry(block[:size], entry)
        with pytest.raises(DamageError, match="cut off"):
            unpack_entry(block + b"\x00", entry)


# Indices that lie, with a checksum that is right.


def hostile() -> Iterator[tuple[str, bytes]]:
    a, b = row(b"a", 8, b"12"), row(b"b", 10, b"34")
    yield "overlap", forged(b"1234", [a, row(b"b", 9, b"23"), row(b"c", 11, b"4")])
    yield "same block twice", forged(b"12", [a, row(b"b", 8, b"12")])
    yield "gap", forged(b"12?34", [a, row(b"b", 11, b"34")])
    yield "gap at the beginning", forged(b"?12", [row(b"a", 9, b"12")])
    yield "gap at the end", forged(b"1234?", [a, b])
    yield "another order", forged(b"1234", [b, a])
    yield "in the header", forged(b"12", [row(b"a", 0, b"LCB1")])
    yield "in the index", forged(b"12", [row(b"a", 8, b"12", length=3, size=3)])
    yield "out of bounds", forged(b"12", [row(b"a", 8, b"12", length=10_000, size=10_000)])
    yield "far offset", forged(b"12", [row(b"a", 2**64 - 1, b"12")])
    yield "far length", forged(b"12", [row(b"a", 8, b"12", length=2**64 - 1, size=2**64 - 1)])
    yield "stored size", forged(b"12", [row(b"a", 8, b"12", size=3)])
    yield "stored size 0", forged(b"12", [row(b"a", 8, b"12", size=0)])
    yield "huge size", forged(b"12", [row(b"a", 8, b"12", size=2**64 - 1, codec=LZ4)])
    yield "too large", forged(b"12", [row(b"a", 8, b"12", size=255 * 2 + 1, codec=LZ4)])
    yield "nothing to something", forged(b"", [row(b"a", 8, b"", size=1, codec=LZ4)])
    yield "codec 2", forged(b"12", [row(b"a", 8, b"12", codec=2)])
    yield "codec 255", forged(b"12", [row(b"a", 8, b"12", codec=255)])
    yield "not LZ4", forged(b"12", [row(b"a", 8, b"12", codec=LZ4)])
    yield "LZ4 as stored", forged(b"\x20ab", [(b"a", 8, 3, 3, STORED, sha256(b"ab").digest())])
    yield "LZ4 of less", forged(b"\x20ab", [(b"a", 8, 3, 3, LZ4, sha256(b"ab").digest())])
    yield "LZ4 of more", forged(b"\x20ab", [(b"a", 8, 3, 1, LZ4, sha256(b"a").digest())])
    yield "wrong hash", forged(b"12", [(b"a", 8, 2, 2, STORED, bytes(32))])
    yield "key twice", forged(b"1212", [a, row(b"a", 10, b"12")])
    yield "key not UTF-8", forged(b"12", [row(b"\xff", 8, b"12")])
    yield "count too low", forged(b"1234", [a, b], count=1)
    yield "count 0", forged(b"12", [a], count=0)
    yield "count too high", forged(b"12", [a], count=2)
    yield "count huge", forged(b"12", [a], count=2**32 - 1)
    yield "index not complete", forged(b"12", [a], length=10)
    yield "index too long", forged(b"12", [a], length=2**64 - 1)
    yield "index at 0", forged(b"12", [a], offset=0)
    yield "index far away", forged(b"12", [a], offset=2**64 - 1)
    yield "bytes after the index", forged(b"12", [a], after_index=b"?" * 70)
    yield "long key", forged(b"12", [a], after_index=struct.pack("<I", 2**32 - 1) + bytes(70))
    long_key = struct.pack("<I", 2**32 - 1) + bytes(70)
    yield "long key counted", forged(b"12", [a], after_index=long_key, count=2)


@pytest.mark.parametrize("data", [pytest.param(data, id=name) for name, data in hostile()])
def test_an_index_that_lies_is_refused_without_taking_memory(data: bytes) -> None:
    tracemalloc.start()
    try:
        refused(data)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 300_000


@pytest.mark.parametrize("codec", [STORED, LZ4, 2, -1, 255])
@pytest.mark.parametrize("size", [0, 1, 3, 10_000, 2**31, 2**63, 2**64 - 1, -1])
def test_an_entry_that_lies_about_its_size_is_refused(codec: int, size: int) -> None:
    """As a manifest can: there an entry stands without its index."""
    entry = PackedEntry("k", 8, 2, size, codec, sha256(b"12").digest())
    with pytest.raises(DamageError):
        unpack_entry(b"12", entry)


entries_of_any_kind = st.dictionaries(
    st.text(st.characters(exclude_categories=["Cs"]), max_size=10),
    st.one_of(
        st.binary(max_size=100),
        st.builds(lambda piece, times: piece * times, st.binary(max_size=5), st.integers(0, 300)),
    ),
    max_size=12,
).map(lambda found: list(found.items()))


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


@given(entries_of_any_kind, st.data())
def test_damage_of_any_kind_is_never_read_as_other_data(
    entries: list[tuple[str, bytes]], choice: st.DataObject
) -> None:
    data = packed(entries)
    start = choice.draw(st.integers(0, len(data)))
    end = choice.draw(st.integers(start, min(len(data), start + 20)))
    damaged = data[:start] + choice.draw(st.binary(max_size=20)) + data[end:]
    try:
        found = decode_pack(damaged)
    except DamageError:
        return
    assert found == entries


rows = st.lists(
    st.tuples(
        st.binary(max_size=4),
        st.integers(0, 40) | st.integers(0, 2**64 - 1),
        st.integers(0, 40) | st.integers(0, 2**64 - 1),
        st.integers(0, 40) | st.integers(0, 2**64 - 1),
        st.integers(0, 3),
        st.binary(min_size=32, max_size=32),
    ),
    max_size=4,
)


@given(st.binary(max_size=40), rows, st.none() | st.integers(0, 5), st.binary(max_size=4))
def test_whatever_an_index_with_a_right_checksum_says_it_is_damage_and_nothing_worse(
    blocks: bytes, lies: list[Place], count: int | None, after: bytes
) -> None:
    try:
        decode_pack(forged(blocks, lies, count=count, after_index=after))
    except DamageError:
        return
