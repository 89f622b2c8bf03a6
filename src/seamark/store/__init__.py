"""Checkpoint stores: open one with :func:`open_store`.

>>> from seamark import CheckpointManifest, open_store
>>> with open_store("memory://") as store:
...     _ = store.save(CheckpointManifest.new(1, epoch=1))
...     store.load_latest().epoch
1
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from seamark.blobs.addresses import backend_at
from seamark.blobs.contract import Blobs
from seamark.blobs.filesystem import FilesystemBlobs
from seamark.store.checkpoint_store import CheckpointStore
from seamark.store.layout import FilesystemLayout, ObjectLayout
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


def open_store(
    url: str | os.PathLike[str],
    *,
    storage_options: Mapping[str, Any] | None = None,
    keep: int | None = None,
    vnode_count: int | None = None,
    require_conditional_writes: bool = True,
) -> CheckpointStore:
    """Open the checkpoint store at a path or URL. Creates nothing, locks nothing.

    ``/path``, ``file://``, ``s3://``, ``gs://``, ``az://``, ``abfs://``, ``abfss://``,
    ``memory://name``. ``storage_options`` are obstore's, credentials come from the environment by
    default. ``keep`` prunes to that many valid checkpoints after each save.

    >>> open_store("memory://").list_ids()
    []
    """
    blobs = backend_at(url, storage_options, conditional=require_conditional_writes)
    layout = FilesystemLayout() if isinstance(blobs, FilesystemBlobs) else ObjectLayout()
    return CheckpointStore(blobs, layout, keep=keep, vnode_count=vnode_count)
