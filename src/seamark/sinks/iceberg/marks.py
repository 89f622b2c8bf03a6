"""The mark of an epoch: a property of the table that changes in the same commit as its rows.

The property tells which epoch the table shows last. Snapshots carry the same mark in their
summaries, so that the snapshot of an epoch can be found for as long as it has not expired; the
property outlives them.

Tests: ``tests/sinks/test_iceberg_marks.py``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Final
from urllib.parse import quote

import msgspec

from seamark.errors import DamageError
from seamark.sinks.contract import Identity, Receipt
from seamark.table_formats.iceberg_lineage import lineage, lineage_of

if TYPE_CHECKING:
    from pyiceberg.table.metadata import TableMetadata
    from pyiceberg.table.snapshots import Snapshot

    from seamark.spark.batch_log import Plan

_OUTPUT: Final = "seamark.output"
_MARK: Final = "seamark.mark"
_PARTS: Final = 5


class Mark(msgspec.Struct, frozen=True):
    """The newest epoch of an output that a table shows, and the snapshot that brought it."""

    timeline: str
    epoch: int
    fingerprint: str
    attempt: str
    snapshot: int

    @property
    def text(self) -> str:
        """As it is written into the property."""
        parts = (self.timeline, self.epoch, self.fingerprint, self.attempt, self.snapshot)
        return ":".join(str(part) for part in parts)

    def receipt(self, pipeline: str, sink: str, plan: Plan | None = None) -> Receipt:
        """The sink's record of the epoch."""
        return Receipt(
            pipeline, sink, self.timeline, self.epoch, self.fingerprint, self.attempt, plan
        )

    def is_of(self, identity: Identity) -> bool:
        """Whether it marks this very epoch."""
        theirs = (identity.timeline, identity.epoch, identity.fingerprint, identity.attempt)
        return theirs == (self.timeline, self.epoch, self.fingerprint, self.attempt)


def parsed(text: str) -> Mark:
    """The mark in a property. :class:`DamageError` when it is none."""
    parts = text.split(":")
    try:
        timeline, epoch, fingerprint, attempt, snapshot = parts
        return Mark(timeline, int(epoch), fingerprint, attempt, int(snapshot))
    except ValueError:
        raise DamageError(
            f"the table's mark of this output cannot be read: {text[:200]!r}",
            hint="Who has changed the property? Put its former value back.",
        ) from None


@dataclass(frozen=True)
class Output:
    """One output of one pipeline, as a table knows it."""

    pipeline: str
    sink: str

    @property
    def name(self) -> str:
        """Both names in one, so that no two outputs have the same."""
        return ".".join(
            quote(part, safe="").replace(".", "%2E") for part in (self.pipeline, self.sink)
        )

    @property
    def property_name(self) -> str:
        """The property with the mark."""
        return f"seamark.{self.name}"

    def mark(self, metadata: TableMetadata) -> Mark | None:
        """The mark that the table has now; None before the first epoch."""
        text = metadata.properties.get(self.property_name)
        return parsed(text) if text else None

    def shown_mark(self, metadata: TableMetadata) -> Mark | None:
        """The mark of the newest epoch that readers see; None when they see none.

        It is the table's, unless somebody has rolled the table back behind that epoch.
        """
        mark = self.mark(metadata)
        if mark is None or not was_taken_away(metadata, mark.snapshot):
            return mark
        seen = (self.shown_by(snapshot) for snapshot in lineage(metadata))
        return next((shown.mark for shown in seen if shown is not None), None)

    def has_shown(self, metadata: TableMetadata, attempt: str) -> bool:
        """Whether the files of an attempt are, or were, part of the table."""
        mark = self.mark(metadata)
        if mark is not None and mark.attempt == attempt:
            return True
        seen = (self.shown_by(snapshot) for snapshot in metadata.snapshots)
        return any(s is not None and s.mark is not None and s.mark.attempt == attempt for s in seen)

    def summary(self, mark: Mark | None) -> dict[str, str]:
        """What a snapshot says about itself; without a mark it shows no epoch of the output."""
        return {_OUTPUT: self.name, _MARK: mark.text if mark is not None else ""}

    def shown_by(self, snapshot: Snapshot) -> Shown | None:
        """What a snapshot of this output shows; None for a snapshot of somebody else."""
        summary = summary_of(snapshot)
        if summary.get(_OUTPUT) != self.name:
            return None
        text = summary.get(_MARK, "")
        return Shown(snapshot.snapshot_id, parsed(text) if text else None)


@dataclass(frozen=True)
class Shown:
    """A snapshot of an output."""

    snapshot: int
    mark: Mark | None

    @property
    def epoch(self) -> int:
        """The newest epoch in it; 0 for none."""
        return self.mark.epoch if self.mark is not None else 0


def summary_of(snapshot: Snapshot) -> Mapping[str, str]:
    """What a snapshot says about itself."""
    return snapshot.summary.additional_properties if snapshot.summary is not None else {}


def was_taken_away(metadata: TableMetadata, snapshot: int) -> bool:
    """Whether it is proven that the table no longer builds on a snapshot. Pure.

    The way back from the current snapshot then reaches one that came before it, and not it. A way
    that ends where snapshots have expired proves nothing.
    """
    now = {one.snapshot_id for one in lineage(metadata)}
    if snapshot in now:
        return False
    before = lineage_of(metadata, metadata.snapshot_by_id(snapshot))
    return any(one.snapshot_id in now for one in before)


class Next(Enum):
    """What is to be done with an epoch that was decided."""

    COMMIT = "commit"
    ALREADY_SHOWN = "already shown"
    ANOTHER_SHOWN = "another is shown"


def judged(mark: Mark | None, wanted: Identity, shown: Mark | None) -> Next:
    """Whether an epoch is to be committed. Pure.

    ``mark`` is the newest epoch of the table, ``shown`` what is known of the epoch with the wanted
    number; None when its record is gone.
    """
    if mark is None or wanted.epoch > mark.epoch:
        return Next.COMMIT
    if wanted.epoch == mark.epoch:
        shown = mark
    if shown is not None:
        return Next.ALREADY_SHOWN if shown.is_of(wanted) else Next.ANOTHER_SHOWN
    # epochs of one timeline are shown in order
    same = wanted.timeline == mark.timeline
    return Next.ALREADY_SHOWN if same else Next.ANOTHER_SHOWN
