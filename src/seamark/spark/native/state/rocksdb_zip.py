"""Snapshots of RocksDB: ``V.zip`` with small files and the list of the SST files that it needs.

Python goes by the directory at a zip's end, Java by the header before each member, so both are
looked at.
"""

from __future__ import annotations

import io
import struct
import zipfile
import zlib
from typing import Final

import msgspec

from seamark.errors import DamageError
from seamark.spark.native.state.lz4_blocks import EMPTY

NOT_ZIP: Final = "it is not a RocksDB snapshot"

_LOCAL: Final = struct.Struct("<4s5H3I2H")
_DESCRIPTOR: Final = struct.Struct("<4s3I")
_SIZES_FOLLOW: Final = 0x08
_KNOWN_METHODS: Final = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
_UNREADABLE: Final = (
    zipfile.BadZipFile,
    zlib.error,
    struct.error,
    EOFError,
    KeyError,
    OSError,
    RuntimeError,
    ValueError,
)


class _Sst(msgspec.Struct):
    dfs_name: str = msgspec.field(name="dfsSstFileName")
    size: int = msgspec.field(name="sizeBytes")


class _Metadata(msgspec.Struct):
    sst_files: list[_Sst] = msgspec.field(name="sstFiles", default_factory=list)


def zip_problems(data: bytes) -> list[str]:
    """What is wrong with a ``V.zip``, by the CRC-32 of its members; empty when it is whole."""
    if not data:
        return [EMPTY]
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            members = archive.infolist()
            problems = [why for member in members if (why := _problem(archive, member, data))]
    except _UNREADABLE as error:
        return [f"{NOT_ZIP}: {error}"]
    if not problems:
        try:
            sst_sizes(data)
        except DamageError as error:
            problems.append(error.what)
    return problems


def sst_sizes(data: bytes) -> dict[str, int]:
    """The SST files that a ``V.zip`` refers to, by their names below ``SSTs/``, with their sizes.

    :class:`DamageError` when its metadata cannot be read.
    """
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            head, _, text = archive.read("metadata").partition(b"\n")
        if head != b"v1":
            raise ValueError(f"its metadata begins with {head[:20]!r}")
        fields = msgspec.json.decode(text, type=_Metadata)
    except _UNREADABLE as error:
        raise DamageError(f"{NOT_ZIP}: {error}") from None
    return {sst.dfs_name: sst.size for sst in fields.sst_files}


def _problem(archive: zipfile.ZipFile, member: zipfile.ZipInfo, data: bytes) -> str | None:
    if member.compress_type not in _KNOWN_METHODS:
        return f"{member.filename}: it is packed by an unknown method"
    try:
        content = archive.read(member)
    except _UNREADABLE as error:
        return f"{member.filename}: {error}"
    if len(content) != member.file_size:
        return f"{member.filename}: its size differs"
    return None if _headers_agree(member, data) else f"{member.filename}: its headers differ"


def _headers_agree(member: zipfile.ZipInfo, data: bytes) -> bool:
    """Whether what stands before and after a member is what the directory at the end says."""
    _, _, flags, method, _, _, *sums, name, extra = _LOCAL.unpack_from(data, member.header_offset)
    if flags != member.flag_bits or method != member.compress_type:
        return False
    if flags & _SIZES_FOLLOW:
        end = member.header_offset + _LOCAL.size + name + extra + member.compress_size
        signature, *sums = _DESCRIPTOR.unpack_from(data, end)
        if signature != b"PK\x07\x08":
            return False
    return sums == [member.CRC, member.compress_size, member.file_size]
