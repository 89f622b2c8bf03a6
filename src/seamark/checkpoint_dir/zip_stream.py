"""A zip as Java's stream reader finds it: file after file, by the header before each of them.

Spark unpacks snapshots of RocksDB that way and never looks at the directory at the end, which
Python goes by. So what a snapshot says about itself is read as Spark reads it, and nothing is
accepted that the two could take for different files.

Tests: ``tests/checkpoint_dir/test_zip_stream.py``.
"""

from __future__ import annotations

import re
import struct
import zipfile
import zlib
from collections.abc import Iterator
from typing import Final, NamedTuple

from seamark import limits, limits_by_size

_FILE: Final = b"PK\x03\x04"
_DIRECTORY: Final = b"PK\x01\x02"
_HEADER: Final = struct.Struct("<4s5H3I2H")
_DESCRIPTOR: Final = struct.Struct("<4s3I")
_EXTRA: Final = struct.Struct("<2H")
_LINE: Final = struct.Struct("<4s24x3H12x")
"""A file in the directory: how long its name, its extra field and its comment are."""
_END: Final = struct.Struct("<4s8x2I2x")
"""The end of a zip without a comment: size and place of the directory."""
_LOCATOR: Final = b"PK\x06\x07"
_LOCATOR_SIZE: Final = 20
_IS_DESCRIBED: Final = b"PK\x07\x08"
_SIZES_FOLLOW: Final = 0x08
_ENCRYPTED: Final = 0x01
_STORED, _DEFLATED = 0, 8
_LARGE: Final = 1
"""The extra field with which a file has sizes of 64 bits."""
_NAME: Final = re.compile(rb"[A-Za-z0-9_-][A-Za-z0-9_.-]{0,254}")
_AT_ONCE: Final = 1 << 18


class _Header(NamedTuple):
    name: bytes
    flags: int
    method: int
    sums: tuple[int, int, int]
    """CRC-32, stored size and plain size; zeros where they follow."""
    start: int
    """Where the content begins."""


def file_in_zip(data: bytes, wanted: str, most: int) -> bytes:
    """The first bytes of a file in a zip, one more than ``most`` when it has more.

    ValueError, ``zlib.error`` or ``struct.error`` for a zip that Spark does not write, or without
    such a file.
    """
    found: bytes | None = None
    names: set[bytes] = set()
    at, left = 0, limits_by_size.largest_zip_plain(len(data))
    while data.startswith(_FILE, at):
        header = _header(data, at)
        if header.name in names or len(names) == limits.MOST_ZIP_MEMBERS:
            raise ValueError("it has too many files inside, or two of one name")
        names.add(header.name)
        kept = b""
        size = crc = 0
        is_wanted = header.name == wanted.encode()
        content = _Content(data, header)
        for part in content:
            size, crc = size + len(part), zlib.crc32(part, crc)
            if size > left:
                raise ValueError("it holds more than any snapshot does")
            if is_wanted and len(kept) <= most:
                kept += part[: most + 1 - len(kept)]
        left -= size
        at = _after(data, header, (crc, content.end - header.start, size), content.end)
        if is_wanted:
            found = kept
    if not data.startswith(_DIRECTORY, at):
        raise ValueError("something lies between the files inside and the list of them")
    if found is None:
        raise ValueError(f"it has no {wanted}")
    return found


def require_plain_directory(data: bytes) -> None:
    """:class:`zipfile.BadZipFile` unless the directory at the end is such as Spark writes.

    Python takes the square of its length to read an extra field, of which Spark writes none.
    """
    end = len(data) - _END.size
    if end < 0:
        raise zipfile.BadZipFile("it is cut off")
    signature, size, at = _END.unpack_from(data, end)
    # or another directory could be found than this one
    is_large = data.startswith(_LOCATOR, max(end - _LOCATOR_SIZE, 0))
    if signature != b"PK\x05\x06" or at + size != end or is_large:
        raise zipfile.BadZipFile("it does not end as a snapshot does")
    files = 0
    while at < end:
        if not data.startswith(_DIRECTORY, at) or at + _LINE.size > end:
            raise zipfile.BadZipFile("the list of the files inside is torn")
        _, name_size, extra_size, comment_size = _LINE.unpack_from(data, at)
        if extra_size > limits.LONGEST_ZIP_EXTRA:
            raise zipfile.BadZipFile(f"a file inside has {extra_size} bytes of extra fields")
        at += _LINE.size + name_size + extra_size + comment_size
        files += 1
        if files > limits.MOST_ZIP_MEMBERS:
            raise zipfile.BadZipFile(f"it has more than {limits.MOST_ZIP_MEMBERS} files inside")


def _header(data: bytes, at: int) -> _Header:
    _, _, flags, method, _, _, crc, stored, plain, name_size, extra_size = _HEADER.unpack_from(
        data, at
    )
    name_end = at + _HEADER.size + name_size
    name = data[at + _HEADER.size : name_end]
    if not _NAME.fullmatch(name):
        raise ValueError(f"it has a file {name[:100]!r} inside")
    if extra_size > limits.LONGEST_ZIP_EXTRA:
        raise ValueError(f"{name.decode()} has {extra_size} bytes of extra fields")
    is_known = method == _DEFLATED or (method == _STORED and not flags & _SIZES_FOLLOW)
    if flags & _ENCRYPTED or not is_known or _LARGE in _extras(data, name_end, extra_size):
        raise ValueError(f"{name.decode()} is packed in another way than by Spark")
    return _Header(name, flags, method, (crc, stored, plain), name_end + extra_size)


def _extras(data: bytes, at: int, size: int) -> Iterator[int]:
    end = at + size
    while at + _EXTRA.size <= end:
        kind, length = _EXTRA.unpack_from(data, at)
        yield kind
        at += _EXTRA.size + length


class _Content:
    """The plain bytes of one file, and where its stored ones end: known after the last part."""

    def __init__(self, data: bytes, header: _Header) -> None:
        self._data, self._header = data, header
        self.end = header.start

    def __iter__(self) -> Iterator[bytes]:
        if self._header.method == _STORED:
            self.end = self._header.start + self._header.sums[1]
            if self.end > len(self._data):
                raise ValueError("it is torn")
            yield self._data[self._header.start : self.end]
            return
        inflating = zlib.decompressobj(-zlib.MAX_WBITS)
        while not inflating.eof:
            given = inflating.unconsumed_tail
            if not given:
                given = self._data[self.end : self.end + _AT_ONCE]
                self.end += len(given)
            part = inflating.decompress(given, _AT_ONCE)
            if not given and not part and not inflating.eof:
                raise ValueError("it is torn")
            yield part
        self.end -= len(inflating.unused_data)


def _after(data: bytes, header: _Header, sums: tuple[int, int, int], end: int) -> int:
    """Where the next header is, after a file whose sums turned out to be these."""
    said, following = header.sums, end
    if header.flags & _SIZES_FOLLOW:
        signature, *described = _DESCRIPTOR.unpack_from(data, end)
        said = tuple(described) if signature == _IS_DESCRIBED else (-1, -1, -1)
        following = end + _DESCRIPTOR.size
    if said != sums:
        raise ValueError(f"{header.name.decode()}: its headers differ")
    return following
