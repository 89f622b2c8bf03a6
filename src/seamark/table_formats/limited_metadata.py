"""Metadata files of Iceberg tables of unknown origin, which are not read beyond the limits.

Tests: ``tests/sinks/test_iceberg_settings.py``.
"""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Final

from seamark import limits, limits_by_size
from seamark._redaction import without_user
from seamark.errors import RefusedError

if TYPE_CHECKING:
    from pyiceberg.io import FileIO
    from pyiceberg.table.metadata import TableMetadata

_LONGEST_HINT: Final = 300


def unzipped(data: bytes) -> bytes:
    """The text of a zipped metadata file; ValueError when it is damaged, or too long."""
    import gzip
    import zlib

    most = limits_by_size.largest_table_text(len(data))
    try:
        with gzip.open(io.BytesIO(data)) as file:
            text = file.read(most + 1)
    except (OSError, EOFError, zlib.error) as error:
        raise ValueError(f"it cannot be unpacked: {error}") from error
    if len(text) > most:
        raise ValueError(f"it unpacks to more than {most} bytes")
    return text


def limited_metadata(files: FileIO, location: str) -> TableMetadata:
    """What a metadata file says; :class:`RefusedError` when it is larger than it may be."""
    from pyiceberg.serializers import FromByteStream

    data = _read(files, location, limits.LARGEST_TABLE_FILE)
    if location.endswith(".gz.metadata.json"):  # as pyiceberg tells them
        try:
            data = unzipped(data)
        except ValueError as error:
            raise _refused(location, str(error)) from None
    return FromByteStream.table_metadata(io.BytesIO(data))


def check_hint(files: FileIO, table: str) -> None:
    """:class:`RefusedError` when the file that names the newest version of a table is too large."""
    _read(files, f"{table}/metadata/version-hint.text", _LONGEST_HINT)


def _read(files: FileIO, location: str, most: int) -> bytes:
    file = files.new_input(location)
    if (size := len(file)) > most:
        raise _refused(location, f"it has {size} bytes, more than {most}")
    with file.open() as stream:
        return stream.read(size)


def _refused(location: str, why: str) -> RefusedError:
    return RefusedError(
        f"the metadata of the Iceberg table is not read: {why}",
        where=without_user(location),
        hint="Is it the right one? If you trust it, it is read without limits: --target SINK=FILE "
        "of the audit, is_trusted=True of iceberg_table().",
    )
