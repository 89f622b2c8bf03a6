"""The checkpoint manifest: one JSON document that is the single source of truth of a checkpoint.

>>> m = CheckpointManifest.new(1, epoch=1, source_names=["trades"])
>>> CheckpointManifest.from_json(m.to_json()) == m
True
"""

from __future__ import annotations

from seamark.manifest.checkpoint_manifest import (
    DEFAULT_VNODE_COUNT,
    NAMED_FIELDS,
    CheckpointManifest,
)
from seamark.manifest.facts import SEAMARK_FIELDS
from seamark.manifest.parts import (
    ConnectorCheckpoint,
    InFlightRecord,
    OperatorCheckpoint,
    SinkCommitStatus,
)

__all__ = [
    "DEFAULT_VNODE_COUNT",
    "NAMED_FIELDS",
    "SEAMARK_FIELDS",
    "CheckpointManifest",
    "ConnectorCheckpoint",
    "InFlightRecord",
    "OperatorCheckpoint",
    "SinkCommitStatus",
]
