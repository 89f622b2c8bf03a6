"""How a table gets back to an epoch: a new snapshot with the contents of an earlier one.

That is possible where only this output wrote since. A new snapshot, not a step back to the old
one: a commit that was made for the old one and is still on its way must not find it current again.

Tests: ``tests/sinks/test_iceberg_taking_back.py``.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from seamark.errors import RefusedError
from seamark.sinks.iceberg.marks import Mark, Output, summary_of
from seamark.table_formats.iceberg_lineage import lineage

if TYPE_CHECKING:
    from pyiceberg.table.metadata import TableMetadata
    from pyiceberg.table.snapshots import Snapshot


@dataclass(frozen=True)
class WayBack:
    """Where a table has to go so that it shows no epoch after a certain one."""

    snapshot: int | None
    """The snapshot with the contents; None for an empty table."""
    mark: Mark | None
    taken: tuple[int, ...]
    """Epochs that readers will not see any more."""


def way_back(metadata: TableMetadata, output: Output, epoch: int, where: str) -> WayBack | None:
    """The way back to an epoch; None when the table shows nothing later.

    :class:`RefusedError` says what stands in the way. Pure.
    """
    mark = output.mark(metadata)
    if mark is None or mark.epoch <= epoch:
        return None
    taken: set[int] = set()
    base: Snapshot | None = None
    oldest: Snapshot | None = None
    for snapshot in lineage(metadata):
        oldest = snapshot
        shown = output.shown_by(snapshot)
        if shown is not None and shown.epoch <= epoch:
            return WayBack((base or snapshot).snapshot_id, shown.mark, tuple(sorted(taken)))
        if shown is None:
            base = base or snapshot
            continue
        if base is not None:
            raise _in_the_way(base, shown.epoch, where)
        taken.add(shown.epoch)
    starts_at_first = base is not None and epoch == 0 and min(taken) == 1
    if not starts_at_first and not _is_first(oldest, metadata):
        raise RefusedError(
            f"the snapshot of epoch {epoch} has expired, so the table cannot go back to it",
            where=where,
            hint="Keep snapshots longer, or continue next to what is there.",
        )
    return WayBack(base.snapshot_id if base else None, None, tuple(sorted(taken)))


def _is_first(oldest: Snapshot | None, metadata: TableMetadata) -> bool:
    """Whether nothing was in the table before this snapshot.

    A parent that is missing proves nothing: pyiceberg removes its id when it expires.
    """
    if oldest is None or oldest.parent_snapshot_id is not None:
        return False
    if metadata.format_version > 1:
        return oldest.sequence_number == 1
    summary = summary_of(oldest)
    return all(
        summary.get(f"total-{what}") == summary.get(f"added-{what}", "0")
        for what in ("data-files", "records")
    )


def _in_the_way(foreign: Snapshot, epoch: int, where: str) -> RefusedError:
    summary = summary_of(foreign)
    by = summary.get("engine-name") or summary.get("app-id") or summary.get("seamark.output")
    at = datetime.fromtimestamp(foreign.timestamp_ms / 1000, UTC).isoformat(timespec="seconds")
    operation = foreign.summary.operation.value if foreign.summary is not None else "change"
    return RefusedError(
        f"somebody else has written to the table since epoch {epoch}: snapshot "
        f"{foreign.snapshot_id} ({operation}{f' by {by}' if by else ''}, {at})",
        where=where,
        hint="Taking the epoch back would take that away too. Undo it first, or continue next to "
        "what is there.",
    )
