"""A reader and a writer of LCB1 versions 1 and 2, written from the format's description alone.

Nothing here calls the code under test, nor the libraries that it calls: LZ4 blocks and CRC32C are
done by hand, so that a mistake in how those are used cannot cancel itself out.
"""

from __future__ import annotations

import struct

Entries = list[tuple[str, bytes]]


def crc32c(data: bytes) -> int:
    """CRC32C (Castagnoli), bit by bit."""
    value = 0xFFFFFFFF
    for byte in data:
        value ^= byte
        for _ in range(8):
            value = value >> 1 ^ (0x82F63B78 if value & 1 else 0)
    return value ^ 0xFFFFFFFF


def inflate(block: bytes) -> bytes:
    """Unpack one LZ4 block: tokens of literals and of copies from what is already there."""
    out = bytearray()
    at = 0
    while at < len(block):
        token = block[at]
        length, at = _length(block, at + 1, token >> 4)
        out += block[at : at + length]
        at += length
        if at == len(block):  # the last sequence has no copy
            break
        (back,) = struct.unpack_from("<H", block, at)
        if not 0 < back <= len(out):
            raise ValueError("a copy from outside")
        length, at = _length(block, at + 2, token & 15)
        for _ in range(length + 4):
            out.append(out[-back])
    return bytes(out)


def _length(block: bytes, at: int, length: int) -> tuple[int, int]:
    if length == 15:
        while True:
            length += block[at]
            at += 1
            if block[at - 1] != 255:
                break
    return length, at


def literals(data: bytes) -> bytes:
    """An LZ4 block that compresses nothing."""
    if len(data) < 15:
        return bytes([len(data) << 4]) + data
    more, rest = divmod(len(data) - 15, 255)
    return b"\xf0" + b"\xff" * more + bytes([rest]) + data


def framed(entries: list[tuple[bytes, bytes]]) -> bytes:
    """The entries as they are before compression."""
    return b"".join(
        struct.pack("<I", len(key)) + key + struct.pack("<I", len(data)) + data
        for key, data in entries
    )


def batch(
    plain: bytes,
    count: int,
    *,
    version: int = 2,
    header_size: int | None = None,
    body_size: int | None = None,
    block: bytes | None = None,
) -> bytes:
    """A batch whose checksum is right, whatever else it claims."""
    size = len(plain)
    body = struct.pack("<I", size if body_size is None else body_size)
    body += literals(plain) if block is None else block
    claimed = size if header_size is None else header_size
    header = b"LCB1" + struct.pack("<III", version, count, claimed)
    return header + (struct.pack("<I", crc32c(body)) if version == 2 else b"") + body


def read_v2(data: bytes) -> Entries:
    """What a reader that knows versions 1 and 2 only makes of it."""
    if len(data) < 20:
        raise ValueError("batch too short for header")
    if data[:4] != b"LCB1":
        raise ValueError("invalid batch magic")
    version, count, size = struct.unpack_from("<III", data, 4)
    if version not in (1, 2):
        raise ValueError(f"unsupported batch version {version}")
    body = data[20 if version == 2 else 16 :]
    if version == 2 and struct.unpack_from("<I", data, 16)[0] != crc32c(body):
        raise ValueError("batch CRC32C mismatch")
    plain = inflate(body[4:])
    if not struct.unpack_from("<I", body)[0] == size == len(plain):
        raise ValueError("the sizes disagree")
    entries: Entries = []
    at = 0
    for _ in range(count):
        fields = []
        for _ in range(2):
            (length,) = struct.unpack_from("<I", plain, at)
            fields.append(plain[at + 4 : at + 4 + length])
            at += 4 + length
        entries.append((fields[0].decode(), fields[1]))
    if at != len(plain):
        raise ValueError("trailing bytes")
    return entries


def flips(data: bytes) -> list[bytes]:
    """The bytes with one bit changed, for every bit."""
    flipped = []
    for position in range(len(data) * 8):
        changed = bytearray(data)
        changed[position // 8] ^= 1 << position % 8
        flipped.append(bytes(changed))
    return flipped
