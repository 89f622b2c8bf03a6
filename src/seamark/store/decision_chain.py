"""Chaining what a save decides to the checkpoint before it.

Tests: ``tests/store/test_decision_chain.py``.
"""

from __future__ import annotations

from seamark.errors import DamageError
from seamark.manifest import CheckpointManifest
from seamark.manifest.decisions import with_decision
from seamark.store.manifest_changes import sized
from seamark.store.manifests import Manifests, StoredManifest


def chained(manifest: CheckpointManifest, manifests: Manifests) -> CheckpointManifest:
    """A manifest that is about to be stored, with the digests of its decision and its parent's.

    A parent that is gone or damaged leaves it without a link: there a new chain begins.
    """
    parent_id = manifest.parent_id or 0
    older = 0 < parent_id < manifest.checkpoint_id
    return sized(with_decision(manifest, _parent(parent_id, manifests) if older else None))


def _parent(parent_id: int, manifests: Manifests) -> CheckpointManifest | None:
    stored: object = manifests.remembered(parent_id)
    if stored is None:
        try:
            stored = manifests.read(parent_id)
        except DamageError:
            return None
    return stored.manifest if isinstance(stored, StoredManifest) else None
