"""Where a Delta table is read on when the versions that come next are gone.

Tests: ``tests/sources/test_table_anchors.py``.
"""

from __future__ import annotations

from seamark.errors import InvalidInputError, PositionUnavailable, RefusedError
from seamark.sources.delta.log import DeltaLog, LogEntry
from seamark.sources.delta.position import DeltaPosition, require_readable
from seamark.sources.delta.version_reading import require_files
from seamark.sources.offsets import Position
from seamark.sources.sequence_reader import Anchored
from seamark.spark.source_gaps import TableAnchor


def anchored(log: DeltaLog, position: DeltaPosition | None, anchor: TableAnchor) -> Anchored:
    """The position for an anchor. A version begins with its first row.

    In the history that the position belongs to, a version that was read, in part or as a whole, is
    never read again. In another one, as of a table that was made anew or restored from a copy,
    nothing tells what was read: there all that is left may be.
    """
    wanted = f"version {'?' if position is None else position.next_version}"
    if anchor == "latest":
        newest = log.entry(log.newest)
        end = _position(log, log.newest, newest, is_complete=True)
        return Anchored(position=end, wanted=wanted, goes_on=f"version {log.newest + 1}")
    first = _first_unread(log, position)
    if anchor == "earliest":
        version = _first_readable(log, first)
        if version is None:
            return anchored(log, position, "latest")
    elif isinstance(anchor, int):
        version = _required(log, anchor, first)
    else:
        raise InvalidInputError(
            "a Delta table goes on at 'earliest', at 'latest' or at the number of a version",
            hint="For example reanchor={'orders': 17}.",
        )
    begin = _position(log, version, log.entry_to_read(version), is_complete=False)
    return Anchored(position=begin, wanted=wanted, goes_on=f"version {version}")


def _position(
    log: DeltaLog, version: int, entry: LogEntry | None, *, is_complete: bool
) -> Position:
    digest = "" if entry is None else entry.digest
    at = DeltaPosition(
        table_id=log.table_id, version=version, entry=digest, is_complete=is_complete
    )
    return at.as_json()


def _first_unread(log: DeltaLog, position: DeltaPosition | None) -> int:
    """The first version of which nothing was read, 0 in a history that is another one."""
    if position is None:
        return 0
    try:
        require_readable(position, log)
    except PositionUnavailable:
        # an entry that has expired says nothing about the history
        expired = position.table_id == log.table_id and (
            position.version <= log.newest and log.entry(position.version) is None
        )
        if not expired:
            return 0
    return position.version + 1


def _first_readable(log: DeltaLog, first: int) -> int | None:
    oldest = log.oldest
    start = first if oldest is None else max(first, oldest)
    return next((n for n in range(start, log.newest + 1) if _is_there(log, n)), None)


def _is_there(log: DeltaLog, version: int) -> bool:
    try:
        require_files(log, log.entry_to_read(version), None)
    except PositionUnavailable:
        return False
    return True


def _required(log: DeltaLog, version: int, first: int) -> int:
    if version < first:
        raise RefusedError(
            f"the Delta table cannot go on at version {version}: it was read before",
            where=f"{log.place}: the first version that was not read is {first}",
            hint="Its rows would come twice. Give a later version.",
        )
    if version > log.newest or not _is_there(log, version):
        raise RefusedError(
            f"the Delta table cannot go on at version {version}: it is not there",
            where=f"{log.place}: the oldest version is {log.oldest}, the newest is {log.newest}",
            hint="Give one that is there with its files, or 'earliest' or 'latest'.",
        )
    return version
