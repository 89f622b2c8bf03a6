"""The snapshots that lead to one in the metadata of an Iceberg table, and its earlier metadata.

Each snapshot names its parent. pyiceberg follows these names through the whole list for each step,
and for ever when they go in a circle.

Tests: ``tests/sinks/test_iceberg_marks.py``.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from seamark import limits
from seamark.errors import DamageError

if TYPE_CHECKING:
    from pyiceberg.table import Table
    from pyiceberg.table.metadata import TableMetadata
    from pyiceberg.table.snapshots import Snapshot


def lineage(metadata: TableMetadata) -> Iterator[Snapshot]:
    """The current snapshot and those before it, as far back as they have not expired.

    :class:`DamageError` when a snapshot comes before itself.
    """
    return lineage_of(metadata, metadata.current_snapshot())


def lineage_of(metadata: TableMetadata, newest: Snapshot | None) -> Iterator[Snapshot]:
    """The same from another snapshot on."""
    known = {snapshot.snapshot_id: snapshot for snapshot in metadata.snapshots}
    visited: set[int] = set()
    at = newest
    while at is not None:
        if at.snapshot_id in visited:
            raise DamageError(
                f"the snapshots of the Iceberg table go in a circle: {at.snapshot_id} comes before "
                "itself",
                where=metadata.location,
                hint="Its metadata file was not written by Iceberg. Put an earlier one in its "
                "place.",
            )
        visited.add(at.snapshot_id)
        yield at
        parent = at.parent_snapshot_id
        at = known.get(parent) if parent is not None else None


def earlier_metadata(table: Table) -> Iterator[tuple[str, TableMetadata]]:
    """The metadata files before the current one, newest first, as far back as the table keeps them.

    Only files beside the current one are read, each once: a log may name anything.
    """
    from pyiceberg.exceptions import ValidationError
    from pyiceberg.serializers import FromInputFile

    folder = table.metadata_location.rpartition("/")[0]
    visited = {table.metadata_location}
    for entry in [*reversed(table.metadata.metadata_log)][: limits.MOST_TABLE_METADATA]:
        name = entry.metadata_file
        if name in visited or name.rpartition("/")[0] != folder:
            return
        visited.add(name)
        try:
            metadata = FromInputFile.table_metadata(table.io.new_input(name))
        except (FileNotFoundError, ValidationError, ValueError):
            return  # what is gone, or no metadata, tells nothing
        yield name, metadata
