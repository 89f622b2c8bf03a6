"""A place in the history of a Delta table, as it is written into checkpoints.

Tests: ``tests/sources/test_delta_positions.py``.
"""

from __future__ import annotations

from dataclasses import dataclass

from seamark.errors import PositionUnavailable, RefusedError
from seamark.sources.delta.log import DeltaLog
from seamark.sources.offsets import Position


@dataclass(frozen=True, kw_only=True)
class DeltaPosition:
    """How far a version was read: all of it, or some rows of one of its files."""

    table_id: str
    version: int
    entry: str | None
    """The digest of the version's log entry; None in positions of older Seamarks."""
    file: int = 0
    """How many of its files are done."""
    rows: int = 0
    """How many rows of the next file are done."""
    is_complete: bool = False
    counted: int | None = None
    """How many rows of the version are done, in positions of older Seamarks."""

    @property
    def next_version(self) -> int:
        """The first version that has, or may have, rows that were not read."""
        return self.version + 1 if self.is_complete else self.version

    def as_json(self) -> Position:
        """What a checkpoint holds."""
        if self.counted is not None:
            return [self.table_id, self.version, self.counted]
        if self.is_complete:
            return [self.table_id, self.version, self.entry]
        return [self.table_id, self.version, self.entry, self.file, self.rows]


def parsed(position: Position) -> DeltaPosition:
    """What :meth:`DeltaPosition.as_json` has made, now or in an older Seamark."""
    match position:
        case [str(table_id), int(version), int(done)]:
            return DeltaPosition(table_id=table_id, version=version, entry=None, counted=done)
        case [str(table_id), int(version), str(entry)]:
            return DeltaPosition(table_id=table_id, version=version, entry=entry, is_complete=True)
        case [str(table_id), int(version), str(entry), int(file), int(rows)]:
            return DeltaPosition(
                table_id=table_id, version=version, entry=entry, file=file, rows=rows
            )
    raise RefusedError(f"not a position in a Delta table: {str(position)[:100]}")


def require_readable(position: DeltaPosition, log: DeltaLog) -> None:
    """:class:`PositionUnavailable` unless a table has the history that a position belongs to.

    The entry of a version that was read to its end may be gone: nothing of it is needed any more.
    """
    version = position.version
    if position.table_id != log.table_id:
        raise PositionUnavailable(
            "this is another Delta table than the one that was read",
            where=f"{log.place}: its id is {log.table_id}, and was {position.table_id}",
            hint="Give the new table a pipeline with a new store.",
            requested=str(version).encode(),
        )
    if version > log.newest:
        raise log.gone(
            version,
            f"the Delta table is at version {log.newest}, and version {version} was read",
            "Was it restored from an older copy? Bring back the versions that were read, or start "
            "over with a new store.",
        )
    entry = log.entry(version)
    if entry is None and not position.is_complete:
        log.entry_to_read(version)  # raises
    if entry is not None and position.entry not in (None, entry.digest):
        raise log.gone(
            version,
            f"version {version} of the Delta table is another one than the one that was read",
            "The table was restored from an older copy and written to since. Bring back the "
            "versions that were read, or start over with a new store.",
        )
