"""From what is known about an epoch to its manifest. Every field has a use; see ARCHITECTURE.

Tests: ``tests/manifest/test_stored_bytes.py``.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any, Final

from seamark._common.logs import logger_named
from seamark.capture.checkpoint_contents import PlacedState
from seamark.capture.epoch_files import Captured
from seamark.errors import RefusedError
from seamark.manifest import CheckpointManifest, ConnectorCheckpoint, SinkCommitStatus
from seamark.pipeline.epoch.output_digests import OutputDigests, recorded_digests
from seamark.pipeline.epoch.running_epoch import EpochHistory, RunningEpoch, lines_by_source
from seamark.pipeline.epoch.topic_ids import ids_at
from seamark.sinks.contract import Committable
from seamark.spark.batch_log import readable_offset
from seamark.spark.plans.plan import WatermarkInfo

log = logger_named("seamark.pipeline")

_WARN_AT: Final = 0.8


def source_offsets(
    leaves: Sequence[str], lines: Sequence[str], epoch: int
) -> dict[str, ConnectorCheckpoint]:
    """The end offset of each named source: readable, and verbatim in the metadata."""
    by_source = lines_by_source(leaves, lines)
    return {name: source_offset(own_lines, epoch) for name, own_lines in by_source.items()}


def source_offset(lines: Sequence[str], epoch: int) -> ConnectorCheckpoint:
    """The end offset of one source; several lines for leaves that have come to different places."""
    return ConnectorCheckpoint(
        offsets={
            key if number == 0 else f"{key}#{number + 1}": value
            for number, line in enumerate(lines)
            for key, value in readable_offset(line).items()
        },
        epoch=epoch,
        metadata={
            "line" if number == 0 else f"line#{number + 1}": line
            for number, line in enumerate(lines)
        },
    )


def source_watermarks(
    watermarks: Sequence[WatermarkInfo], reached: Mapping[str, int]
) -> dict[str, int]:
    """How far each source has come, by its slowest watermark."""
    slowest: dict[str, int] = {}
    for mark in watermarks:
        value = reached.get(mark.node_id)
        if value is None:
            continue
        for source in mark.sources:
            slowest[source] = min(value, slowest.get(source, value))
    return slowest


def draft_manifest(
    epoch: RunningEpoch,
    history: EpochHistory,
    captured: Captured,
    placed: PlacedState,
    *,
    committables: Mapping[str, Committable],
    already: set[str],
    next_watermark: int,
    reached: Mapping[str, int],
    digests: OutputDigests | None = None,
    inputs: Mapping[str, Any] | None = None,
    times: Mapping[str, Mapping[str, int]] | None = None,
) -> CheckpointManifest:
    """The manifest of an epoch whose sinks have prepared and not committed.

    Sinks in ``already`` showed the epoch before it was run again; they have no committable.
    ``reached`` are the watermarks by the ids of the plan's nodes, ``digests`` those of the rows of
    each output, ``inputs`` what was read of each source, ``times`` by source and partition when
    the row that comes next was written.
    """
    identity, parent = epoch.identity, history.newest
    statuses = {
        sink: SinkCommitStatus.committed() if sink in already else SinkCommitStatus.pending()
        for sink in identity.sinks
    }
    before = parent.sink_epochs if parent is not None else {}
    return CheckpointManifest.new(
        history.next_id,
        epoch=epoch.number,
        source_offsets=source_offsets(identity.leaves, epoch.entry.lines, epoch.number),
        sink_epochs={
            sink: epoch.number if sink in already else before.get(sink, 0)
            for sink in identity.sinks
        },
        sink_commit_statuses=statuses,
        table_offsets=dict(identity.tables),
        operator_states=placed.operator_states,
        batch=epoch.batch,
        state_versions=captured.versions,
        watermark=epoch.watermark_ms,
        source_watermarks=source_watermarks(identity.watermarks, reached),
        source_names=sorted(set(identity.leaves)),
        sink_names=list(identity.sinks),
        pipeline_hash=identity.config_hash,
        size_bytes=placed.size,
        added_bytes=placed.added_bytes or None,
        restore_bytes=placed.restore_size,
        shared_objects=[list(each) for each in placed.shared_objects] or None,
        is_incremental=not captured.is_full,
        parent_id=parent.checkpoint_id if parent is not None else None,
        state_partitions=max(epoch.entry.state_partitions, 1),
        attempt=epoch.attempt,
        fingerprint=epoch.fingerprint,
        sink_committables=dict(committables),
        timings=_rounded(epoch.phases),
        next_watermark=next_watermark,
        structure=identity.stored_structure,
        leaves=list(identity.leaves),
        sink_guarantees=dict(identity.guarantees),
        target_names=dict(identity.target_names) or None,
        late_read_points={str(e): p for e, p in history.late_read_points.items()} or None,
        spark_version=identity.spark_version,
        source_ids=ids_at(identity, history) or None,
        source_servers=dict(identity.servers) or None,
        source_latest=dict(epoch.latest) or None,
        source_times={name: dict(each) for name, each in (times or {}).items()} or None,
        gaps=list(parent.gaps) or None if parent is not None else None,
        fork=parent.extra.get("fork") if parent is not None else None,
        consumer_group=identity.consumer_group,
        inputs=inputs,
        output_digests=recorded_digests(
            digests.results() if digests is not None else {},
            epoch.number,
            identity.stored_structure,
            parent,
            digests.uncertain if digests is not None else (),
        ),
    )


def check_size(size: int, cap: int | None) -> None:
    """:class:`RefusedError` for a checkpoint that is larger than it may be, a warning if almost."""
    if cap is None or size < cap * _WARN_AT:
        return
    if size > cap:
        raise RefusedError(
            f"the checkpoint has {size} bytes, more than size_cap ({cap})",
            hint="Raise size_cap, or keep less state (a watermark, a shorter window).",
        )
    log.warning("the checkpoint has %d bytes, close to size_cap (%d)", size, cap)


def same_epoch(
    newest: CheckpointManifest, checkpoint_id: int, placed: PlacedState
) -> CheckpointManifest:
    """A checkpoint of the epoch that is there already, whose state is in other places."""
    again = newest.replace(
        checkpoint_id=checkpoint_id,
        timestamp_ms=time.time_ns() // 1_000_000,
        operator_states=placed.operator_states,
        state_checkpoint=None,
        is_incremental=True,
        parent_id=newest.checkpoint_id,
        size_bytes=placed.size,
        state_checksum=None,
    )
    return again.with_extra(
        shared_objects=[list(each) for each in placed.shared_objects] or None,
        added_bytes=placed.added_bytes or None,
        restore_bytes=placed.restore_size,
    )


def _rounded(phases: Mapping[str, float]) -> dict[str, float]:
    return {name: round(seconds, 6) for name, seconds in phases.items()}


def with_sink_statuses(
    manifest: CheckpointManifest,
    statuses: Mapping[str, SinkCommitStatus],
    phases: Mapping[str, float],
    read_points: Mapping[str, Any] | None = None,
) -> CheckpointManifest:
    """The manifest with the commit statuses of its sinks, and what to read to see the epoch."""
    merged = {**manifest.sink_commit_statuses, **statuses}
    epochs = {
        sink: manifest.epoch if merged[sink].is_committed else manifest.sink_epochs.get(sink, 0)
        for sink in merged
    }
    updated = manifest.replace(sink_commit_statuses=merged, sink_epochs=epochs)
    known = {**(manifest.read_points or {}), **(read_points or {})}
    return updated.with_extra(timings=_rounded(phases), read_points=known or None)
