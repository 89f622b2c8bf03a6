"""Where an Iceberg table is read on when the snapshots that come next are gone.

Tests: ``tests/sources/test_table_anchors.py``.
"""

from __future__ import annotations

from typing import Any

from seamark.errors import InvalidInputError, RefusedError
from seamark.sources.iceberg.position import IcebergPosition
from seamark.sources.iceberg.snapshots import IcebergHistory
from seamark.sources.sequence_reader import Anchored
from seamark.spark.source_gaps import TableAnchor


def anchored(
    history: IcebergHistory, position: IcebergPosition | None, anchor: TableAnchor
) -> Anchored:
    """The position for an anchor. A snapshot begins with the first row that it has added.

    A snapshot that was read before is never read again where sequence numbers tell that: in the
    same table, after a snapshot that was read to its end, in format version 2 or later.
    """
    snapshots = history.snapshots()
    if not snapshots:
        raise RefusedError(
            "the Iceberg table has no snapshot to go on from",
            where=history.name,
            hint="Start again when rows were added to it.",
        )
    wanted = _place(position)
    unread = [each for each in snapshots if not _was_read(history, each, position)]
    if anchor == "latest" or (anchor == "earliest" and not unread):
        newest = snapshots[-1]
        end = IcebergPosition(
            table_id=history.table_id,
            snapshot=newest.snapshot_id,
            is_complete=True,
            sequence=newest.sequence_number,
        )
        return Anchored(position=end.as_json(), wanted=wanted, goes_on=_place(end))
    if anchor == "earliest":
        chosen = unread[0]
    elif isinstance(anchor, int):
        chosen = _required(history, snapshots, unread, anchor)
    else:
        raise InvalidInputError(
            "an Iceberg table goes on at 'earliest', at 'latest' or at the id of a snapshot",
            hint="For example reanchor={'orders': 3055729675574597004}.",
        )
    begin = IcebergPosition(table_id=history.table_id, snapshot=chosen.snapshot_id)
    return Anchored(position=begin.as_json(), wanted=wanted, goes_on=_place(begin))


def _place(position: IcebergPosition | None) -> str:
    if position is None:
        return "the first snapshot"
    return f"{'the end of ' if position.is_complete else ''}snapshot {position.snapshot}"


def _was_read(history: IcebergHistory, snapshot: Any, position: IcebergPosition | None) -> bool:
    if position is None or position.table_id != history.table_id or not position.sequence:
        return False
    return bool(snapshot.sequence_number <= position.sequence)


def _required(history: IcebergHistory, snapshots: list[Any], unread: list[Any], wanted: int) -> Any:
    found = [each for each in snapshots if each.snapshot_id == wanted]
    if not found:
        raise RefusedError(
            f"the Iceberg table cannot go on at snapshot {wanted}: it is not there",
            where=f"{history.name}: the oldest snapshot is {snapshots[0].snapshot_id}, the newest "
            f"is {snapshots[-1].snapshot_id}",
            hint="Give one that leads to the newest, or 'earliest' or 'latest'.",
        )
    if found[0] not in unread:
        raise RefusedError(
            f"the Iceberg table cannot go on at snapshot {wanted}: it was read before",
            where=history.name,
            hint="Its rows would come twice. Give a later one.",
        )
    return found[0]
