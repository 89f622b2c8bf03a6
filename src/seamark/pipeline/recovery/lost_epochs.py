"""Epochs that were decided after the checkpoint that a start has chosen, and whose own are lost.

Tests: ``tests/pipeline/test_lost_epochs.py``.
"""

from __future__ import annotations

from seamark.errors import DamageError
from seamark.manifest import CheckpointManifest
from seamark.store import CheckpointStore
from seamark.store.recovery import RecoveryReport as Walk


def last_lost_epoch(store: CheckpointStore, chosen: CheckpointManifest, walk: Walk) -> int:
    """The last epoch that may have been decided and has no whole checkpoint; the chosen for none.

    A manifest that can be read says which epoch it has decided. Of any other it is not known, and
    each may have decided one more.
    """
    # only a pin has kept the chosen one then: a prune always leaves a newer one
    behind = chosen.checkpoint_id <= store.owner().prune_boundary and not walk.superseded
    epoch = chosen.epoch + int(behind)
    for checkpoint_id, _ in reversed(walk.broken):  # the oldest first
        try:
            manifest = store.load_by_id(checkpoint_id)
        except DamageError:
            manifest = None
        epoch = epoch + 1 if manifest is None else manifest.epoch
    return epoch
