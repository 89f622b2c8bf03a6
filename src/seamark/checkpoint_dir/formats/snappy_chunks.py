"""Whether the chunks of a stream of Snappy are as long as they claim.

Spark's codec (snappy-java) takes memory for what stands there before it reads anything::

    82 "SNAPPY" 00 | version i32 | compatible i32 | { stored size i32 | plain size varint | … }

All fields but the varint are big-endian. A stream may follow another one.

Tests: ``tests/checkpoint_dir/test_snappy_chunks.py``.
"""

from __future__ import annotations

import struct
from typing import Final

from seamark.errors import DamageError

_MAGIC: Final = b"\x82SNAPPY\x00"
_HEADER_SIZE: Final = 16
_LENGTH: Final = struct.Struct(">I")
LARGEST_RATIO: Final = 64
"""No byte of Snappy stands for more; in fact it is a third of that."""


def require_true_sizes(data: bytes) -> None:
    """:class:`DamageError` when a chunk cannot have the size that it claims.

    A last one that is torn has less than it claims, too.
    """
    at = 0
    while at < len(data):
        if data.startswith(_MAGIC, at):
            at += _HEADER_SIZE
            continue
        if at + _LENGTH.size > len(data):
            raise DamageError("it ends too early")
        (stored,) = _LENGTH.unpack_from(data, at)
        at += _LENGTH.size
        plain = plain_size(data[at : at + 5])
        if stored > len(data) - at or plain > LARGEST_RATIO * stored:
            raise DamageError(
                f"a chunk claims {stored} bytes that unpack to {plain}, of {len(data) - at} there"
            )
        at += stored


def plain_size(head: bytes) -> int:
    """What stands at the beginning of a chunk, seven bits at a time: the bytes it unpacks to."""
    size = 0
    for place, byte in enumerate(head[:5]):
        size |= (byte & 0x7F) << 7 * place
        if byte < 0x80:
            break
    return size
