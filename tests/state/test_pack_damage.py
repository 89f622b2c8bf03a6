"""LCB1 version 3: no damage goes unseen by whoever reads it, and no lie is believed."""

from __future__ import annotations

import struct
import tracemalloc
from collections.abc import Iterator
from hashlib import sha256

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seamark.errors import DamageError
from seamark.state import decode_batch
from seamark.state.pack import (
    LZ4,
    STORED,
    PackBuilder,
    PackedEntry,
    decode_pack,
    read_index,
    unpack_entry,
)
from tests.state.support.packs import SMALL, Place, entries_of_any_kind, forged, packed, row
from tests.state.support.reference import flips, inflate


def refused(data: bytes) -> str:
    with pytest.raises(DamageError) as caught:
        decode_batch(data)
    with pytest.raises(DamageError):
        decode_pack(data)
    return caught.value.what


# Damage anywhere.


def is_harmless(entry: PackedEntry, block: bytes) -> bool:
    """Whether an LZ4 block says the same in other words: a run of x copies from 1 or 3 before."""
    try:
        return entry.codec == LZ4 and inflate(block) == dict(SMALL)[entry.key]
    except (IndexError, ValueError, struct.error):
        return False


def test_every_flipped_bit_is_seen_when_everything_is_read() -> None:
    for entries in ([], [("k", b"v")], SMALL):
        for damaged in flips(packed(entries)):
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
