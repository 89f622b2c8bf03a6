"""The bytes of every kind of manifest that Seamark writes, as they were before fields had types.

``SEAMARK_REWRITE_MANIFESTS=1`` writes the files in ``tests/fixtures/manifests`` again. Then old
stores and copies of them differ from new ones: do it only for a new version of the format.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, cast

import pytest

from seamark.capture.batches import BatchAt
from seamark.capture.checkpoint_contents import PlacedState
from seamark.capture.epoch_files import Captured
from seamark.manifest import (
    CheckpointManifest,
    ConnectorCheckpoint,
    OperatorCheckpoint,
    SinkCommitStatus,
)
from seamark.manifest.facts import SharedObject
from seamark.native.new_checkpoint import native_manifest
from seamark.pipeline.declaration.structure import PipelineIdentity
from seamark.pipeline.epoch.epoch_manifest import (
    draft_manifest,
    with_sink_statuses,
)
from seamark.pipeline.epoch.running_epoch import EpochHistory, RunningEpoch
from seamark.pipeline.recovery.rollback import abandoned_timelines, shown_timeline
from seamark.spark.batch_log import Plan, parse_offsets
from seamark.spark.kafka.positions import TopicFacts
from seamark.spark.plans.plan import WatermarkInfo
from seamark.store.layout import ObjectLayout
from seamark.store.manifest_changes import amended, sealed, stamped
from seamark.store.manifests import StoredManifest
from seamark.store.owner import Owner
from seamark.store.ownership import Claim
from seamark.store.sidecars import WrittenSidecar

FILES = Path(__file__).parent.parent / "fixtures" / "manifests"
ENTRY = (
    'v1\n{"batchWatermarkMs":1700000000000,"batchTimestampMs":1700000000500,'
    '"conf":{"spark.sql.shuffle.partitions":"4",'
    '"spark.sql.streaming.stateStore.providerClass":"org.example.RocksDBStateStoreProvider"}}\n'
    '{"trades":{"0":12,"1":7}}\n{"logOffset":6}'
)
PLAN = Plan(ENTRY, {"sources/1/6": "v1\nfile"})
LEAVES = ("trades", "rates")
STRUCTURE: dict[str, Any] = {
    "sources": {"trades": {"format": "kafka"}, "rates": {"format": "text"}},
    "sinks": {"bars": {"kind": "files", "target": "/lake/bars"}},
}
IDENTITY = PipelineIdentity(
    name="orders",
    structure=STRUCTURE,
    leaves=LEAVES,
    watermarks=(WatermarkInfo("node", "at", 10, ("trades",)),),
    sinks=("bars", "alerts"),
    tables={"codes": ConnectorCheckpoint({"files": "3"}, 0, {"digest": "ab"})},
    guarantees={"bars": "exactly once", "alerts": "at least once"},
    spark_version="4.0.1",
    topics={"trades": {"trades": TopicFacts(topic_id="id-1", partitions={})}},
)
OWNER = Owner(generation=3, writer="driver", timeline="t3", next_id=6, superseded=((2, 4),))
CLAIM = Claim(3, "t3", "driver", 5)
WRITTEN = WrittenSidecar("state/state-000005-x.bin", 9, "0" * 64, "1" * 64, None)
PLACED = PlacedState(
    operator_states={"log": OperatorCheckpoint.in_sidecar(0, 9)},
    chunks=[],
    shared_objects=[SharedObject("3-" + "ab" * 16, 5, "cd" * 32)],
    size=14,
    added_bytes=5,
    restore_size=20,
    files={},
)


def of_epoch(parent: CheckpointManifest | None = None) -> CheckpointManifest:
    epoch = RunningEpoch(
        identity=IDENTITY,
        timeline="t3",
        batch=6,
        entry=parse_offsets(ENTRY),
        plan=PLAN,
        attempt="g0003-abc",
        phases={"write": 0.25, "save": 0.1234567},
    )
    return draft_manifest(
        epoch,
        EpochHistory("t3", 3, 5, parent),
        Captured(files={}, is_full=parent is None, versions=[7, 7, 7, 7]),
        PLACED,
        committables={"bars": {"epoch": 7, "files": ["a", "b"]}, "alerts": {}},
        already={"alerts"},
        next_watermark=1_700_000_000_400,
        reached={"node": 1_700_000_000_400},
    ).replace(timestamp_ms=1_700_000_001_000)


def of_snapshot(follows: CheckpointManifest | None = None) -> CheckpointManifest:
    tree: Any = type("Tree", (), {"directory": type("Place", (), {"url": "file:///query"})})
    at = BatchAt(
        batch=6,
        query_id="query-1",
        entry=parse_offsets(ENTRY),
        next_watermark=17,
        logs={},
        needs=(),
        plan=PLAN,
        files=tree,
    )
    manifest = native_manifest(
        5, tree, at, PLACED, parent=None, follows=follows, attempt="g0003-abc", seconds=0.5
    )
    return manifest.replace(timestamp_ms=1_700_000_001_000)


def stored(manifest: CheckpointManifest, owner: Owner = OWNER) -> StoredManifest:
    """The manifest as the store puts it away, and reads it again."""
    _, data = sealed(stamped(manifest, owner, CLAIM, WRITTEN, ObjectLayout()))
    return StoredManifest(CheckpointManifest.from_json(data), data, cast(Any, None))


def read_and_written(found: StoredManifest) -> bytes:
    return found.manifest.to_json()


def with_sinks_recorded(found: StoredManifest) -> bytes:
    done = {"bars": SinkCommitStatus.committed()}
    return amended(found, with_sink_statuses(found.manifest, done, {"write": 0.25, "commit": 1.5}))[
        1
    ]


def rolled_back(found: StoredManifest) -> bytes:
    chosen = found.manifest
    again = chosen.replace(checkpoint_id=9, parent_id=5, is_incremental=True, state_checksum=None)
    given_up = sorted({"t4", *abandoned_timelines(chosen)})
    return stored(again.with_extra(shown_as=shown_timeline(chosen), abandoned=given_up)).data


WRITTEN_BY = {
    "epoch-draft": lambda: of_epoch().to_json(),
    "epoch": lambda: stored(of_epoch()).data,
    "epoch-never-rolled-back": lambda: stored(of_epoch(), Owner(generation=3)).data,
    "epoch-committed": lambda: with_sinks_recorded(stored(of_epoch())),
    "epoch-rolled-back-to": lambda: rolled_back(stored(of_epoch())),
    "snapshot-draft": lambda: of_snapshot().to_json(),
    "snapshot": lambda: stored(of_snapshot()).data,
    "snapshot-read-and-written": lambda: read_and_written(stored(of_snapshot())),
    "snapshot-rolled-back-to": lambda: rolled_back(stored(of_snapshot())),
    "new": lambda: CheckpointManifest.new(1, 1, timestamp_ms=7).to_json(),
}


@pytest.mark.parametrize("kind", WRITTEN_BY)
def test_a_manifest_is_written_byte_for_byte_as_ever(kind: str) -> None:
    file = FILES / f"{kind}.json"
    written = WRITTEN_BY[kind]()
    if os.environ.get("SEAMARK_REWRITE_MANIFESTS"):
        file.parent.mkdir(exist_ok=True)
        file.write_bytes(written)
    assert written == file.read_bytes()
