"""Snapshots of RocksDB: ``V.zip`` with small files and the list of the SST files that it needs.

Python goes by the directory at a zip's end, Java by the header before each member, so both are
looked at.
"""

from __future__ import annotations

import re
import struct
import zipfile
from typing import Final

import msgspec

from seamark import limits_by_size
from seamark.checkpoint_dir.formats.lz4_blocks import EMPTY
from seamark.checkpoint_dir.state_files import ZIP_TROUBLE, needed_ssts, opened_zip, zip_metadata
from seamark.errors import DamageError

NOT_ZIP: Final = "it is not a RocksDB snapshot"

_VERSION: Final = re.compile(rb"v[0-9]{1,3}")  # v2 in Spark 4.0, v1 before and after it
_LOCAL: Final = struct.Struct("<4s5H3I2H")
_DESCRIPTOR: Final = struct.Struct("<4s3I")
_AT_ONCE: Final = 1 << 20
_SIZES_FOLLOW: Final = 0x08
_KNOWN_METHODS: Final = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)


class _Sst(msgspec.Struct):
    dfs_name: str = msgspec.field(name="dfsSstFileName")
    size: int = msgspec.field(name="sizeBytes")
    local_name: str = msgspec.field(name="localFileName", default="")


class _SnapshotMetadata(msgspec.Struct):
    sst_files: list[_Sst] = msgspec.field(name="sstFiles", default_factory=list)
    column_families: msgspec.Raw = msgspec.field(
        name="columnFamilyMapping", default=msgspec.Raw(b"null")
    )


def zip_problems(data: bytes) -> list[str]:
    """What is wrong with a ``V.zip``, by the CRC-32 of its members; empty when it is whole."""
    if not data:
        return [EMPTY]
    try:
        with opened_zip(data) as archive:
            members = archive.infolist()
            most = limits_by_size.largest_zip_plain(len(data))
            if sum(member.file_size for member in members) > most:
                return [f"{NOT_ZIP}: it claims to hold more than any snapshot does"]
            problems = [why for member in members if (why := _problem(archive, member, data))]
    except ZIP_TROUBLE as error:
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
    return {sst.dfs_name: sst.size for sst in _metadata(data).sst_files}


def sst_names(data: bytes) -> dict[str, str]:
    """The same files with the names that the database itself knows them by."""
    needed_ssts(data)  # sees that none of their names leads elsewhere
    return {sst.dfs_name: sst.local_name for sst in _metadata(data).sst_files}


def has_column_families(data: bytes) -> bool:
    """Whether the keys of a snapshot begin with the numbers of column families."""
    named = bytes(_metadata(data).column_families)
    return b"".join(named.split()) not in (b"null", b"{}", b"[]")


def _metadata(data: bytes) -> _SnapshotMetadata:
    head, _, text = zip_metadata(data).partition(b"\n")
    if not _VERSION.fullmatch(head):
        raise DamageError(f"{NOT_ZIP}: its metadata begins with {head[:20]!r}")
    try:
        return msgspec.json.decode(text, type=_SnapshotMetadata)
    except (*ZIP_TROUBLE, RecursionError) as error:
        raise DamageError(f"{NOT_ZIP}: {error}") from None


def _problem(archive: zipfile.ZipFile, member: zipfile.ZipInfo, data: bytes) -> str | None:
    if member.compress_type not in _KNOWN_METHODS:
        return f"{member.filename}: it is packed by an unknown method"
    size = 0
    try:
        with archive.open(member) as content:
            # a member may unpack to far more than it claims
            while part := content.read(_AT_ONCE):
                size += len(part)
    except ZIP_TROUBLE as error:
        return f"{member.filename}: {error}"
    if size != member.file_size:
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
