"""What each sink has to show, from the checkpoints of a store. Pure.

Tests: ``tests/audit/test_expectations.py``.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Final, NamedTuple

from seamark._common.checks import I64_MAX
from seamark.manifest import CheckpointManifest
from seamark.manifest.described import description_of, sinks_of
from seamark.sinks.read_point import ReadPoint, read_point_in
from seamark.spark.row_digests import RowDigest, comparable_digest
from seamark.store.manifest_scan import ScannedCheckpoint

_NUMBER: Final = re.compile(r"[0-9]{1,19}")
_FORMATS: Final = ("parquet", "orc", "json", "csv")


@dataclass(frozen=True, kw_only=True)
class EpochRows:
    """The rows of one epoch of one sink, as its checkpoint knows them."""

    epoch: int
    checkpoint_id: int
    own: RowDigest
    since: int
    """The first epoch that is part of ``total``."""
    total: RowDigest
    """Of all epochs from ``since`` to this one."""
    point: ReadPoint | None = None
    """What to read to see the epochs up to this one."""
    prepared: str | None = None
    """What a file sink has prepared, as the checkpoint names it."""
    computed_again: tuple[int, ...] = ()
    """Epochs of ``total`` of which the sink may show other rows, those of the first time."""


@dataclass(frozen=True, kw_only=True)
class SinkHistory:
    """What one sink has to show."""

    sink: str
    kind: str
    target: str
    options: Mapping[str, Any] = field(default_factory=dict)
    columns: tuple[tuple[str, str], ...] = ()
    """Names and types of the output's columns."""
    epochs: tuple[EpochRows, ...] = ()
    """Those that are known one by one, in their order; checkpoints between them may be pruned."""
    pending: EpochRows | None = None
    """The newest epoch while no checkpoint says that the sink has committed it: it may have."""
    given_up: tuple[EpochRows, ...] = ()
    """Later epochs that a rollback has given up, as long as no epoch has followed: only the next
    start takes them back, and until then the sink may show them."""
    note: str = ""
    """Why nothing, or not everything, can be compared."""

    @property
    def file_format(self) -> str:
        """The format in which files of epochs are read."""
        given = self.options.get("format")
        return given if given in _FORMATS else "parquet"

    @property
    def since(self) -> int:
        """The first epoch that is known, by itself or as a part of the totals."""
        return self.epochs[0].since

    @property
    def newest(self) -> EpochRows:
        """The newest epoch."""
        return self.epochs[-1]

    @property
    def total_ahead(self) -> RowDigest | None:
        """All rows if the pending epoch is among them; None when there is none."""
        return self.pending.total if self.pending is not None else None

    def expected(self, first: int, last: int) -> RowDigest | None:
        """The digest of some epochs together; None when the checkpoints do not tell."""
        before, upto = self._up_to(first - 1), self._up_to(last)
        return upto - before if before is not None and upto is not None else None

    def _up_to(self, epoch: int) -> RowDigest | None:
        if epoch == self.since - 1:
            return RowDigest.empty()
        if (known := self._by_epoch.get(epoch)) is not None:
            return known.total
        following = self._by_epoch.get(epoch + 1)
        return following.total - following.own if following is not None else None

    @cached_property
    def _by_epoch(self) -> dict[int, EpochRows]:
        return {each.epoch: each for each in reversed(self.epochs)}

    def computed_again(self, first: int, last: int) -> int | None:
        """An epoch among these whose digest is of a second time, after its checkpoint was lost."""
        at = bisect_left(self._computed_again, first)
        found = self._computed_again[at : at + 1]
        return found[0] if found and found[0] <= last else None

    @cached_property
    def _computed_again(self) -> list[int]:
        """In their order: a checkpoint may name very many, and every difference asks."""
        return sorted(self.newest.computed_again)

    def with_rows(self, rows: RowDigest) -> EpochRows | None:
        """The first epoch that has these rows."""
        return self._by_rows.get(rows)

    @cached_property
    def _by_rows(self) -> dict[RowDigest, EpochRows]:
        return {each.own: each for each in reversed(self.epochs)}

    def stretches(self) -> Iterator[tuple[int, int]]:
        """The first and last epoch of all that lie before a known one and are only known together.

        Their checkpoints are pruned; those between two that are known too, if one is pinned.
        """
        before = self.since - 1
        for known in self.epochs:
            if known.epoch > before + 1:
                yield before + 1, known.epoch - 1
            before = known.epoch

    def within(self, first: int, last: int) -> SinkHistory:
        """The same with only these epochs; what lies before them is not told."""
        kept = tuple(each for each in self.epochs if first <= each.epoch <= last)
        return replace(self, epochs=kept)


def histories_of(newest_first: Iterable[ScannedCheckpoint]) -> list[SinkHistory]:
    """What each sink of the newest checkpoint has to show.

    Checkpoints that were given up or are damaged say nothing. An epoch counts once the newest
    checkpoint of it, or a later epoch, says that every sink has committed it.
    """
    by_epoch: dict[int, CheckpointManifest] = {}
    points: dict[int, dict[str, Any]] = {}
    late: dict[int, dict[str, Any]] = {}
    newest: CheckpointManifest | None = None
    oldest = I64_MAX
    given_up: list[CheckpointManifest] = []
    for one in newest_first:
        manifest = one.manifest
        if manifest is None or one.damage is not None:
            continue
        if one.superseded:
            given_up.append(manifest)
            continue
        newest = newest or manifest
        for epoch, told in (manifest.late_read_points or {}).items():
            if (number := whole_number(epoch)) is not None:
                late.setdefault(number, told)
        if manifest.epoch < oldest or not by_epoch:
            by_epoch[manifest.epoch] = manifest
            oldest = manifest.epoch
        if manifest.epoch in by_epoch:
            # an earlier checkpoint of the same epoch may know more about what is shown
            known = points.setdefault(manifest.epoch, {})
            for sink, point in (manifest.read_points or {}).items():
                known.setdefault(sink, point)
    if newest is None:
        return []
    # a dictionary remembers their order, which is from the newest down
    recorded = _Recorded(newest, by_epoch, points, late, _still_shown(newest, given_up))
    return [_history(name, recorded) for name in sinks_of(newest)]


def _still_shown(
    newest: CheckpointManifest, given_up: Sequence[CheckpointManifest]
) -> tuple[CheckpointManifest, ...]:
    """Those of a rollback that sinks may still show: no epoch was decided since."""
    last_id = max((each.checkpoint_id for each in given_up), default=0)
    # the rollback may have died before it has saved a checkpoint of its own
    if newest.shown_as is None and newest.checkpoint_id > last_id:
        return ()
    return tuple(each for each in given_up if each.epoch > newest.epoch)


class _Recorded(NamedTuple):
    """What the checkpoints say of all sinks."""

    newest: CheckpointManifest
    by_epoch: Mapping[int, CheckpointManifest]
    """The newest one of each epoch, from the newest epoch down."""
    points: Mapping[int, Mapping[str, Any]]
    """By epoch and sink: what to read."""
    late: Mapping[int, Mapping[str, Any]]
    """The same as later checkpoints have told it."""
    given_up: tuple[CheckpointManifest, ...]
    """Those of later epochs that a rollback has given up."""


def _history(sink: str, recorded: _Recorded) -> SinkHistory:
    newest = recorded.newest
    about = description_of(newest, "sinks", sink) or {}
    history = SinkHistory(
        sink=sink,
        kind=str(about.get("kind") or "unknown"),
        target=str(about.get("target") or ""),
        options=_object(about.get("options")),
        columns=_columns(about.get("columns")),
    )
    epochs: list[EpochRows] = []
    pending: EpochRows | None = None
    for epoch, manifest in recorded.by_epoch.items():
        point = recorded.points.get(epoch, {}).get(sink) or recorded.late.get(epoch, {}).get(sink)
        rows = _rows_of(manifest, sink, point)
        if manifest is newest and not _is_shown(manifest, sink):
            pending = rows
            continue
        if rows is None or (epochs and rows.since != epochs[-1].since):
            break  # older ones are of another target, or were not digested
        epochs.append(rows)
    if not epochs:
        return replace(history, note="no checkpoint has a digest of its rows")
    if pending is not None and pending.since != epochs[-1].since:
        pending = None  # of another target
    rows_given_up = (_rows_of(manifest, sink, None) for manifest in recorded.given_up)
    return replace(
        history,
        epochs=tuple(reversed(epochs)),
        pending=pending,
        given_up=tuple(each for each in rows_given_up if each and each.since == epochs[0].since),
    )


def _rows_of(manifest: CheckpointManifest, sink: str, point: object) -> EpochRows | None:
    """What a checkpoint says of a sink's rows; None when it has no digest of them."""
    digest = comparable_digest(manifest, sink)
    if digest is None:
        return None
    committable = _object((manifest.sink_committables or {}).get(sink))
    return EpochRows(
        epoch=manifest.epoch,
        checkpoint_id=manifest.checkpoint_id,
        own=RowDigest(digest.rows, digest.digest),
        since=digest.since,
        total=RowDigest(digest.total_rows, digest.total_digest),
        point=read_point_in(point),
        prepared=_text(committable.get("digest")),
        computed_again=digest.computed_again,
    )


def whole_number(value: object) -> int | None:
    """A number that a checkpoint says, as one or as text; None for what none of Seamark's says."""
    if isinstance(value, str):
        value = int(value) if _NUMBER.fullmatch(value) else None
    return value if type(value) is int and 0 <= value <= I64_MAX else None


def _is_shown(manifest: CheckpointManifest, sink: str) -> bool:
    status = manifest.sink_commit_statuses.get(sink)
    return status is not None and status.is_committed


def _object(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _text(value: object) -> str | None:
    return value if isinstance(value, str) else None


def _columns(value: object) -> tuple[tuple[str, str], ...]:
    """Names and types, from a checkpoint that may be anybody's; empty if it says something else."""
    if not isinstance(value, list):
        return ()
    columns = [tuple(each) if isinstance(each, list) else () for each in value]
    if not all(len(each) == 2 and all(isinstance(t, str) for t in each) for each in columns):
        return ()
    return tuple((name, kind) for name, kind in columns)
