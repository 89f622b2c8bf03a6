"""Exactly-once, verifiable, portable checkpoints for PySpark streaming pipelines.

Every epoch of a pipeline becomes one durable, checksummed checkpoint in a store of your own:
a folder, S3, Azure or Google Cloud Storage::

    import seamark

    store = seamark.open_store("s3://bucket/trades")

Names are loaded on first use, so ``import seamark`` costs nothing and needs no Spark.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from seamark._common.lazy import lazy_names
from seamark._version import __version__

if TYPE_CHECKING:
    from seamark.errors import FencedError, LineageError, SeamarkError
    from seamark.manifest import (
        CheckpointManifest,
        ConnectorCheckpoint,
        InFlightRecord,
        OperatorCheckpoint,
        SinkCommitStatus,
    )
    from seamark.native.protect import Protection, protect
    from seamark.pipeline.pipeline import Pipeline
    from seamark.sinks.consistent_cut import read_epoch
    from seamark.spark.kafka_packages import kafka_packages
    from seamark.store import open_store

__all__ = [
    "CheckpointManifest",
    "ConnectorCheckpoint",
    "FencedError",
    "InFlightRecord",
    "LineageError",
    "OperatorCheckpoint",
    "Pipeline",
    "Protection",
    "SeamarkError",
    "SinkCommitStatus",
    "__version__",
    "kafka_packages",
    "open_store",
    "protect",
    "read_epoch",
]

_HOMES = {
    "seamark.errors": "FencedError LineageError SeamarkError",
    "seamark.manifest": "CheckpointManifest ConnectorCheckpoint "
    "InFlightRecord OperatorCheckpoint SinkCommitStatus",
    "seamark.native.protect": "Protection protect",
    "seamark.pipeline.pipeline": "Pipeline",
    "seamark.sinks.consistent_cut": "read_epoch",
    "seamark.spark.kafka_packages": "kafka_packages",
    "seamark.store": "open_store",
}

if not TYPE_CHECKING:  # a type checker would take every misspelt name for an object
    __getattr__, __dir__ = lazy_names(__name__, _HOMES, globals())
