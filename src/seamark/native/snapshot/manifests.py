"""The manifest of a checkpoint that was taken of a directory which Spark keeps by itself.

Tests: ``tests/native/test_snapshot.py``.
"""

from __future__ import annotations

import base64
from typing import Final

import msgspec

from seamark._common.checks import U16_MAX
from seamark._common.json_documents import UNREADABLE
from seamark.capture.batches import BatchAt
from seamark.capture.placement import PlacedState
from seamark.checkpoint_dir.places.directory import Tree
from seamark.errors import DamageError
from seamark.manifest import CheckpointManifest, ConnectorCheckpoint, InFlightRecord
from seamark.spark.batch_log import Plan, readable_offset

PLAN: Final = "plan"
"""The name under which the batch in flight is kept."""

_PROVIDER: Final = "spark.sql.streaming.stateStore.providerClass"


def native_manifest(
    checkpoint_id: int,
    tree: Tree,
    at: BatchAt,
    placed: PlacedState,
    *,
    parent: CheckpointManifest | None,
    follows: CheckpointManifest | None,
    attempt: str,
    seconds: float,
) -> CheckpointManifest:
    """What is known about the batch; the fields mean the same as in a pipeline's manifest.

    ``follows`` is an earlier checkpoint that is known to be of the same history, also when a full
    one does not build on it.
    """
    epoch = at.batch + 1
    names = at.source_names
    partitions = max((need.folder.partition + 1 for need in at.needs), default=0)
    return CheckpointManifest.new(
        checkpoint_id,
        epoch=epoch,
        source_offsets={
            name: ConnectorCheckpoint(readable_offset(line), epoch, {"line": line})
            for name, line in zip(names, at.entry.lines, strict=True)
        },
        source_names=sorted(set(names)),
        operator_states=placed.operator_states,
        state_checkpoint=placed.state_checkpoint,
        batch=at.batch,
        state_versions=[epoch] * partitions,
        watermark=at.entry.watermark_ms or None,
        inflight_data=_in_flight(at),
        size_bytes=placed.size,
        is_incremental=parent is not None,
        parent_id=parent.checkpoint_id if parent is not None else None,
        state_partitions=min(max(at.entry.state_partitions, 1), U16_MAX),
        attempt=attempt,
        leaves=names,
        next_watermark=at.next_watermark,
        timings={"capture": round(seconds, 6)},
        native={
            "query_id": at.query_id,
            "directory": tree.directory.url,
            "follows": follows.checkpoint_id if follows is not None else None,
            "offset_log": at.entry.version,
            "provider": str(at.entry.conf.get(_PROVIDER, "")).rsplit(".", 1)[-1],
        },
    )


def _in_flight(at: BatchAt) -> dict[str, list[InFlightRecord]]:
    if at.plan is None:
        return {}
    data = base64.b64encode(msgspec.json.encode(at.plan)).decode()
    return {PLAN: [InFlightRecord(at.batch + 1, data)]}


def planned(manifest: CheckpointManifest) -> Plan | None:
    """The batch that was planned and not finished; :class:`DamageError` when it cannot be read."""
    for record in manifest.inflight_data.get(PLAN, ()):
        if record.input_id != manifest.batch + 1:
            continue
        try:
            return msgspec.json.decode(base64.b64decode(record.data_b64, validate=True), type=Plan)
        except UNREADABLE as error:
            raise DamageError(f"the plan of the batch in flight cannot be read: {error}") from None
    return None
