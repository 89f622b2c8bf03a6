"""State too large or too scattered for one sidecar.

:class:`StateStore` writes the states of many operators and partitions from many threads and
processes and reads them back; :class:`CheckpointBatcher` packs small blobs of one epoch.
"""

from seamark.state.batcher import BatchMetrics, CheckpointBatcher
from seamark.state.cleanup import StateVerification
from seamark.state.layout import (
    CheckpointId,
    CheckpointManifestV2,
    CheckpointPaths,
    OperatorSnapshotEntry,
    PartitionSnapshotEntry,
    SourceOffsetEntry,
)
from seamark.state.lcb1 import decode_batch, encode_batch
from seamark.state.read_states import ReadStates
from seamark.state.reader import PartitionState
from seamark.state.store import StateStore
from seamark.state.task import StateTask, TaskReceipt
from seamark.state.writer import StateWriter

__all__ = [
    "BatchMetrics",
    "CheckpointBatcher",
    "CheckpointId",
    "CheckpointManifestV2",
    "CheckpointPaths",
    "OperatorSnapshotEntry",
    "PartitionSnapshotEntry",
    "PartitionState",
    "ReadStates",
    "SourceOffsetEntry",
    "StateStore",
    "StateTask",
    "StateVerification",
    "StateWriter",
    "TaskReceipt",
    "decode_batch",
    "encode_batch",
]
