"""Packs for tests: made by the builder, and forged by hand from the format's description."""

from __future__ import annotations

import random
import struct
from hashlib import sha256

from hypothesis import strategies as st

from seamark.state.pack import STORED, PackBuilder
from tests.state.support.reference import crc32c

TRAILER = 32
NOISE = random.Random(3).randbytes(60)
SMALL = [("a/0", b"x" * 60), ("", b""), ("é", NOISE), ("one", b"1")]


def packed(entries: list[tuple[str, bytes]]) -> bytes:
    builder = PackBuilder()
    for key, data in entries:
        builder.add(key, data)
    return b"".join(builder.finish())


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
        "<QQII",
        len(header) + len(blocks) if offset is None else offset,
        len(index) if length is None else length,
        len(rows) if count is None else count,
        crc32c(blocks),
    )
    crc = struct.pack("<I", crc32c(header + index + trailer))
    return header + blocks + index + trailer + crc + b"LCB3"


def row(key: bytes, offset: int, data: bytes, **lies: int) -> Place:
    """A row for data that is stored as it is."""
    length = lies.get("length", len(data))
    size = lies.get("size", len(data))
    return (key, offset, length, size, lies.get("codec", STORED), sha256(data).digest())


entries_of_any_kind = st.dictionaries(
    st.text(st.characters(exclude_categories=["Cs"]), max_size=10),
    st.one_of(
        st.binary(max_size=100),
        st.builds(lambda piece, times: piece * times, st.binary(max_size=5), st.integers(0, 300)),
    ),
    max_size=12,
).map(lambda found: list(found.items()))
