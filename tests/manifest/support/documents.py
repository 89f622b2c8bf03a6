"""Documents for tests of the manifest, and the shortest way to read one."""

from __future__ import annotations

import json
from typing import Any

import pytest

from seamark.errors import DamageError
from seamark.manifest import CheckpointManifest

SMALLEST: dict[str, Any] = {"version": 1, "checkpoint_id": 2, "epoch": 3, "timestamp_ms": 4}
FIELDS = [
    "version",
    "checkpoint_id",
    "epoch",
    "timestamp_ms",
    "source_offsets",
    "sink_epochs",
    "sink_commit_statuses",
    "table_offsets",
    "operator_states",
    "table_store_checkpoint_path",
    "wal_position",
    "per_core_wal_positions",
    "watermark",
    "source_watermarks",
    "source_names",
    "sink_names",
    "pipeline_hash",
    "inflight_data",
    "size_bytes",
    "is_incremental",
    "parent_id",
    "state_checksum",
    "vnode_count",
]


def read(**members: Any) -> CheckpointManifest:
    return CheckpointManifest.from_json(json.dumps({**SMALLEST, **members}).encode())


def refused(data: bytes) -> bool:
    with pytest.raises(DamageError, match="corrupt manifest"):
        CheckpointManifest.from_json(data)
    return True
