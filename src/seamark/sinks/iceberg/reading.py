"""Opening a table of Iceberg to read it, whoever has written what it says about itself.

Tests: ``tests/sinks/test_iceberg_reading.py``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from seamark._redaction import without_user
from seamark.errors import InvalidInputError, RefusedError
from seamark.sinks.iceberg.catalog import Place, require_pyiceberg
from seamark.sinks.iceberg.kept_nulls import keep_nulls
from seamark.table_formats.iceberg_settings import static_table
from seamark.table_formats.services import is_path_or_bucket

if TYPE_CHECKING:
    from pyiceberg.table import Table


def iceberg_table(
    table: str,
    catalog: str | Mapping[str, str] | None = None,
    *,
    properties: Mapping[str, str] | None = None,
    is_trusted: bool = False,
) -> Table:
    """A table to read: ``namespace.table`` of a catalog, or without one by its metadata file.

    Unlike pyiceberg's own ways to open a table, this one does not let the table's properties
    choose how, where or with whose keys its files are read: such a table of a catalog is refused
    (:class:`RefusedError`), and by its metadata file it is read with ``properties`` alone. A
    metadata file, and all that it names, has to be at a path or in a bucket, and may not be larger
    than :mod:`seamark.limits` allows, unless it ``is_trusted``. ``catalog`` is as for
    :class:`seamark.sinks.IcebergSink`.
    """
    if catalog is not None:
        if properties is not None:
            raise InvalidInputError("properties are for a metadata file; a catalog has its own")
        opened = Place(catalog, table).load()
        keep_nulls()
        return opened
    require_pyiceberg("iceberg_table")
    keep_nulls()
    if not is_trusted and not is_path_or_bucket(table):
        raise RefusedError(
            "the metadata file is neither at a path nor in a bucket",
            where=without_user(table),
            hint="If you trust the table, say so: is_trusted=True.",
        )
    return static_table(table, properties or {}, is_named=is_trusted)
