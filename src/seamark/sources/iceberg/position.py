"""A place in the history of an Iceberg table, as it is written into checkpoints.

Tests: ``tests/sources/test_iceberg_positions.py``.
"""

from __future__ import annotations

from dataclasses import dataclass

from seamark.errors import RefusedError
from seamark.sources.offsets import Position


@dataclass(frozen=True, kw_only=True)
class IcebergPosition:
    """How far a snapshot was read: all of it, or some of its rows."""

    table_id: str
    snapshot: int
    rows: int = 0
    """How many of its rows are done; nothing when all of them are."""
    is_complete: bool = False
    sequence: int | None = None
    """The sequence number of a snapshot that was read to its end, where the table has those."""

    def as_json(self) -> Position:
        """What a checkpoint holds. Not all programs keep the digits of an id as a number."""
        if self.is_complete:
            return [self.table_id, str(self.snapshot), "complete", self.sequence]
        return [self.table_id, str(self.snapshot), self.rows]


def parsed(position: Position) -> IcebergPosition:
    """What :meth:`IcebergPosition.as_json` has made."""
    match position:
        case [str(table_id), str(snapshot), int(rows)] if snapshot.isdecimal():
            return IcebergPosition(table_id=table_id, snapshot=int(snapshot), rows=rows)
        case [str(table_id), str(snapshot), "complete", int() | None as sequence] if (
            snapshot.isdecimal()
        ):
            return IcebergPosition(
                table_id=table_id, snapshot=int(snapshot), is_complete=True, sequence=sequence
            )
    raise RefusedError(f"not a position in an Iceberg table: {str(position)[:100]}")
