"""A consistent cut: what to read of every sink of a pipeline to see exactly the epochs up to one.

It is all in the checkpoints. Whoever can read the store needs neither the pipeline nor its Spark.

Tests: ``tests/sinks/test_consistent_cut.py``.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from typing import Any, Literal

from seamark._common.checks import U64_MAX, check_number
from seamark.errors import (
    CheckpointNotFoundError,
    DamageError,
    InvalidInputError,
    RefusedError,
)
from seamark.manifest import CheckpointManifest
from seamark.manifest.described import description_of, sinks_of
from seamark.sinks.contract import Guarantee
from seamark.sinks.epoch_ranges import MergedSpans
from seamark.sinks.read_point import ReadPoint, read_point_in
from seamark.sinks.reader_calls import calls_for
from seamark.store import CheckpointStore, open_store
from seamark.store.inspection import scan
from seamark.store.manifest_scan import ScannedCheckpoint


@dataclass(frozen=True, kw_only=True)
class SinkCut:
    """What to read of one sink."""

    sink: str
    kind: str
    target: str
    guarantee: str
    point: ReadPoint | None
    """What selects the epochs; None when nothing says it."""
    readable: bool
    """Whether reading it shows exactly the epochs up to that of the cut."""
    note: str = ""
    """Why it cannot be read, or what to take care of."""

    @property
    def calls(self) -> dict[str, str]:
        """Ready-made calls by reader: ``spark``, ``duckdb``, ``pandas``; empty if not readable."""
        return calls_for(self.point) if self.point is not None and self.readable else {}


@dataclass(frozen=True, kw_only=True)
class Cut:
    """One epoch that every sink has committed, and what to read to see it in each of them."""

    store: str
    checkpoint_id: int
    epoch: int
    timeline: str
    timestamp_ms: int
    sinks: tuple[SinkCut, ...]

    def __getitem__(self, sink: str) -> SinkCut:
        """One sink of the cut, by its name."""
        for each in self.sinks:
            if each.sink == sink:
                return each
        raise KeyError(sink)


def read_epoch(
    store: CheckpointStore | str | os.PathLike[str],
    epoch: int | Literal["latest"] = "latest",
    *,
    storage_options: Mapping[str, Any] | None = None,
) -> Cut:
    """What to read of each sink to see exactly the epochs up to this one.

    ``store`` is the pipeline's store or its URL. ``latest`` is the newest epoch that all sinks have
    committed; an earlier one can be given as long as its checkpoint is kept. A sink whose older
    epochs cannot be seen any more says so in the result. Nothing is changed, and a pipeline may be
    running.

    :class:`CheckpointNotFoundError` when the epoch has no checkpoint, :class:`RefusedError` when
    not every sink has committed it.
    """
    wanted = None if epoch == "latest" else _number(epoch)
    opened: AbstractContextManager[CheckpointStore]
    if isinstance(store, CheckpointStore):
        opened = nullcontext(store)
    else:
        opened = open_store(store, storage_options=storage_options)
    with opened as reader:
        newest = _complete_newest(reader) if wanted is None else None
        in_use = [newest] if newest is not None else _in_use(scan(reader), wanted)
        cut = choose_cut(reader.url, in_use, wanted)
    spans = MergedSpans()
    return replace(cut, sinks=tuple(_unless_merged(sink, spans) for sink in cut.sinks))


def _unless_merged(sink: SinkCut, spans: MergedSpans) -> SinkCut:
    """What the folder itself says, if it can be seen from here: later epochs may be merged in."""
    point = sink.point
    if point is None or point.kind != "files":
        return sink
    last = spans.beyond(point.target, point.at.get("epoch"), point.at.get("epochs_per_folder"))
    if last is None:
        return sink
    note = f"its epochs up to {last} were merged and can only be read together"
    return replace(sink, readable=False, note=note)


def _number(epoch: object) -> int:
    if not isinstance(epoch, int) or isinstance(epoch, bool):
        raise InvalidInputError(f"an epoch is a number or 'latest', not {epoch!r}")
    return check_number("epoch", epoch, 1, U64_MAX)


def _complete_newest(store: CheckpointStore) -> ScannedCheckpoint | None:
    """The newest checkpoint, if nothing else has to be read to tell about its epoch."""
    try:
        manifest = store.load_latest()
    except DamageError:
        return None
    if manifest is None or not _is_finished(manifest):
        return None
    guarantees, points = manifest.sink_guarantees or {}, manifest.read_points or {}
    telling = {sink for sink, what in guarantees.items() if what == Guarantee.EXACTLY_ONCE.value}
    if not telling <= points.keys():
        return None
    return ScannedCheckpoint(manifest.checkpoint_id, manifest, None, superseded=False)


def _in_use(scanned: Iterable[ScannedCheckpoint], epoch: int | None) -> list[ScannedCheckpoint]:
    """The checkpoints that count, newest first, down to what is needed to tell about an epoch."""
    needed: list[ScannedCheckpoint] = []
    for one in scanned:
        if one.superseded:
            continue
        needed.append(one)
        manifest = one.manifest
        if manifest is None or one.damage is not None:
            continue
        if epoch is not None and manifest.epoch < epoch:
            break
        if epoch is None and _is_finished(manifest):
            break
    return needed


def choose_cut(url: str, newest_first: Sequence[ScannedCheckpoint], epoch: int | None) -> Cut:
    """The cut at an epoch, or at the newest that all sinks have committed. Pure.

    A checkpoint that is followed by another epoch was committed by every sink, whatever it says
    itself: no pipeline goes on before that.
    """
    later: list[ScannedCheckpoint] = []
    chosen: CheckpointManifest | None = None
    points: dict[str, Any] = {}
    newest = -1
    for one in newest_first:
        manifest = None if one.damage is not None else one.manifest
        if manifest is None:
            newest = max(newest, -1 if one.manifest is None else one.manifest.epoch)
            later.append(one)
            continue
        if chosen is not None and manifest.epoch != chosen.epoch:
            break
        is_passed = newest > manifest.epoch
        is_wanted = manifest.epoch == epoch if epoch is not None else True
        if chosen is None and is_wanted and (is_passed or _is_finished(manifest)):
            chosen = manifest
        elif chosen is None and is_wanted and epoch is not None:
            raise _unfinished(url, manifest)
        elif chosen is None:
            newest = max(newest, manifest.epoch)
            later.append(one)
        if chosen is not None:
            # an older one of the same epoch may know more about its sinks
            for name, point in (manifest.read_points or {}).items():
                points.setdefault(name, point)
    if chosen is None:
        raise _not_there(url, newest_first, epoch)
    newer = _Newer.of(chosen.epoch, later)
    completed = chosen.replace(read_points=points or None)
    return Cut(
        store=url,
        checkpoint_id=chosen.checkpoint_id,
        epoch=chosen.epoch,
        timeline=chosen.timeline or "",
        timestamp_ms=chosen.timestamp_ms,
        sinks=tuple(_sink_cut(name, completed, newer) for name in sinks_of(chosen)),
    )


@dataclass(frozen=True)
class _Newer:
    """What checkpoints of later epochs say, put together once for all sinks."""

    is_empty: bool
    newest: int | None
    """The highest of their epochs; None when none of them can be read."""
    points: Mapping[str, ReadPoint]
    """By sink: what to read to see the chosen epoch, told late."""
    shown: Mapping[str, int]
    """By sink: the newest epoch that it shows."""

    @classmethod
    def of(cls, epoch: int, newest_first: Iterable[ScannedCheckpoint]) -> _Newer:
        """Of those after an epoch; one that cannot be read may be of a later epoch too."""
        is_empty = True
        epochs: list[int] = []
        points: dict[str, ReadPoint] = {}
        shown: dict[str, int] = {}
        for one in newest_first:
            manifest = one.manifest
            if manifest is not None and manifest.epoch <= epoch:
                continue
            is_empty = False
            if manifest is None:
                continue
            epochs.append(manifest.epoch)
            late = (manifest.late_read_points or {}).get(str(epoch), {})
            for name, told in late.items():
                if name not in points and (point := read_point_in(told)) is not None:
                    points[name] = point
            for name, status in manifest.sink_commit_statuses.items():
                if status.is_committed:
                    shown.setdefault(name, manifest.epoch)
        return cls(is_empty, max(epochs, default=None), points, shown)


def _is_finished(manifest: CheckpointManifest) -> bool:
    return all(status.is_committed for status in manifest.sink_commit_statuses.values())


def _sink_cut(name: str, chosen: CheckpointManifest, newer: _Newer) -> SinkCut:
    about = description_of(chosen, "sinks", name) or {}
    point = read_point_in((chosen.read_points or {}).get(name)) or newer.points.get(name)
    guarantee = (chosen.sink_guarantees or {}).get(name, "")
    if point is None:
        readable, note = False, _unknown(guarantee)
    else:
        readable, note = _verdict(name, point, chosen, newer)
    return SinkCut(
        sink=name,
        kind=point.kind if point else str(about.get("kind") or "unknown"),
        target=point.target if point else str(about.get("target") or ""),
        guarantee=guarantee,
        point=point,
        readable=readable,
        note=note,
    )


def _unknown(guarantee: str) -> str:
    if guarantee == Guarantee.EXACTLY_ONCE.value:
        return "its checkpoint does not say what to read: an earlier version has written it"
    return "nothing says which rows are of which epoch" + (f" ({guarantee})" if guarantee else "")


def _verdict(
    name: str, point: ReadPoint, chosen: CheckpointManifest, newer: _Newer
) -> tuple[bool, str]:
    """Whether a sink can be read at an epoch, and what there is to say about it."""
    if not point.only_newest:
        return True, ""
    if newer.is_empty and chosen.abandoned is not None:
        return False, (
            "it shows its newest epoch only, and that may be one that the rollback has given up "
            "until the pipeline has committed another"
        )
    if newer.is_empty:
        return True, "it shows its newest epoch only: right until the next one is committed"
    if (shown := newer.shown.get(name)) is not None:
        return False, f"it shows its newest epoch only, which is {shown} by now"
    which = f"epoch {newer.newest}" if newer.newest is not None else "a later epoch"
    return False, f"it shows its newest epoch only, and may show {which} already"


def _unfinished(url: str, manifest: CheckpointManifest) -> RefusedError:
    statuses = manifest.sink_commit_statuses.items()
    waiting = ", ".join(sink for sink, status in statuses if not status.is_committed)
    return RefusedError(
        f"epoch {manifest.epoch} is decided, and not every sink has committed it",
        where=f"{url}: {waiting}",
        hint="The running pipeline, or its next start, commits it. Until then read an earlier "
        "epoch, or 'latest'.",
    )


def _not_there(
    url: str, newest_first: Sequence[ScannedCheckpoint], epoch: int | None
) -> CheckpointNotFoundError:
    epochs = [one.manifest.epoch for one in newest_first if one.manifest is not None]
    if epoch is None:
        what = "no epoch of this store was committed by all sinks"
        hint = "Has the pipeline run? 'seamark list' shows what there is."
    elif epochs and epoch > max(epochs):
        what = f"there is no epoch {epoch} yet: the newest is {max(epochs)}"
        hint = "Epochs are counted from 1, and start again from the one that was rolled back to."
    else:
        what = f"epoch {epoch} has no checkpoint any more, or a damaged one"
        hint = "Only epochs whose checkpoints are kept can be read: 'keep' says how many, and a "
        hint += "pin keeps one for good. 'seamark list' shows which there are."
    return CheckpointNotFoundError(what, where=url, hint=hint)
