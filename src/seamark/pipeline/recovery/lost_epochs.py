"""Epochs that were decided after the checkpoint that a start has chosen, and whose own are lost.

Tests: ``tests/pipeline/test_lost_epochs.py``.
"""

from __future__ import annotations

from seamark.errors import DamageError
from seamark.manifest import CheckpointManifest
from seamark.store import CheckpointStore
from seamark.store.inspection import epoch_in_remains
from seamark.store.recovery import RecoveryReport as Walk


def last_lost_epoch(store: CheckpointStore, chosen: CheckpointManifest, walk: Walk) -> int:
    """The last epoch that may have been decided and has no whole checkpoint; the chosen for none.

    A manifest that can be read says which epoch it has decided, and what is left of one often does.
    Of any other it is not known, and it may have decided one more.
    """
    # only a pin has kept the chosen one then: a prune always leaves a newer one
    behind = chosen.checkpoint_id <= store.owner().prune_boundary and not walk.superseded
    epoch = chosen.epoch + int(behind)
    for checkpoint_id, _ in reversed(walk.broken):  # the oldest first
        decided = _epoch_of(store, checkpoint_id)
        is_known = decided is not None and decided <= epoch + 1
        epoch = max(epoch, decided or 0) if is_known else epoch + 1
    return epoch


def _epoch_of(store: CheckpointStore, checkpoint_id: int) -> int | None:
    try:
        manifest = store.load_by_id(checkpoint_id)
    except DamageError:
        return epoch_in_remains(store, checkpoint_id)
    return None if manifest is None else manifest.epoch
