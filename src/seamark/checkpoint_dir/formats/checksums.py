"""The two kinds of checksum files next to Spark's files.

Hadoop's hidden ``.name.crc``, on a local disk only: ``"crc\\0"``, the chunk length as a big-endian
u32, then the CRC-32 of every chunk. Hadoop refuses to read a file that differs from it.

Spark's visible ``name.crc`` in checkpoint format 2: JSON with the CRC-32C of the whole file as a
signed 32-bit number, and the file's size.
"""

from __future__ import annotations

import struct
import zlib
from typing import Final

import google_crc32c
import msgspec

from seamark._common.json_documents import UNREADABLE

_HADOOP_HEADER: Final = struct.Struct(">4sI")
_MAGIC: Final = b"crc\0"


def hidden_checksum(path: str) -> str:
    """Where Hadoop keeps the checksum of a file on a local disk."""
    folder, slash, name = path.rpartition("/")
    return f"{folder}{slash}.{name}.crc"


def hadoop_crc_matches(data: bytes, crc: bytes) -> bool:
    """Whether Hadoop would read ``data`` when ``crc`` is the hidden file next to it."""
    if len(crc) < _HADOOP_HEADER.size:
        return False
    magic, chunk = _HADOOP_HEADER.unpack_from(crc)
    if magic != _MAGIC or chunk == 0:
        return False
    view = memoryview(data)
    count = -(-len(data) // chunk)
    if len(crc) != _HADOOP_HEADER.size + 4 * count:
        return False
    sums = (zlib.crc32(view[at : at + chunk]) for at in range(0, len(data), chunk))
    return crc[_HADOOP_HEADER.size :] == struct.pack(f">{count}I", *sums)


class _SparkChecksum(msgspec.Struct):
    algorithm: str
    value: int
    size: int = msgspec.field(name="mainFileSize")


def spark_crc_matches(data: bytes, crc_text: str | bytes) -> bool:
    """Whether Spark would accept ``data`` when ``crc_text`` is the checksum file next to it.

    False also for a checksum file that cannot be read or names an algorithm that Spark 4.3
    does not have.
    """
    try:
        recorded = msgspec.json.decode(crc_text, type=_SparkChecksum)
    except UNREADABLE:
        return False
    # Java's Int is signed
    computed = google_crc32c.value(data)
    signed = computed - (1 << 32) if computed >= 1 << 31 else computed
    return (
        recorded.algorithm == "CRC32C" and recorded.size == len(data) and recorded.value == signed
    )
