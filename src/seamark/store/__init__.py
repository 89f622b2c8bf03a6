"""Checkpoint stores: open one with :func:`open_store`.

>>> from seamark import CheckpointManifest, open_store
>>> with open_store("memory://") as store:
...     _ = store.save(CheckpointManifest.new(1, epoch=1))
...     store.load_latest().epoch
1
"""

from seamark.blobs.contract import Blobs
from seamark.store.checkpoint_store import CheckpointStore
from seamark.store.opening import open_store
from seamark.store.owner import Owner, Pin
from seamark.store.ownership import Claim
from seamark.store.recovery import RecoveryReport
from seamark.store.retention import Retention, Verdict
from seamark.store.validation import ValidationIssue, ValidationResult

__all__ = [
    "Blobs",
    "CheckpointStore",
    "Claim",
    "Owner",
    "Pin",
    "RecoveryReport",
    "Retention",
    "ValidationIssue",
    "ValidationResult",
    "Verdict",
    "open_store",
]
