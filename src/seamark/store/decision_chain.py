"""What a save decides, chained to what the checkpoint before it has decided.

Tests: ``tests/store/test_decision_chain.py``.
"""

from __future__ import annotations

from seamark.errors import DamageError
from seamark.manifest import CheckpointManifest
from seamark.manifest.decisions import with_decision
from seamark.store.manifest_changes import sealed, sized, stamped
from seamark.store.manifests import Manifests, StoredManifest
from seamark.store.owner import Owner
from seamark.store.ownership import Claim
from seamark.store.sidecars import WrittenSidecar


def decided(
    manifest: CheckpointManifest,
    owner: Owner,
    claim: Claim | None,
    written: WrittenSidecar | None,
    manifests: Manifests,
) -> tuple[CheckpointManifest, bytes]:
    """The manifest as it will be stored, with the digests of its decision and its parent's.

    A parent that is gone or damaged leaves it without a link: there a new chain begins.
    """
    whole = stamped(manifest, owner, claim, written, manifests.layout)
    parent_id = whole.parent_id or 0
    is_older = 0 < parent_id < whole.checkpoint_id
    parent = _parent(parent_id, manifests) if is_older else None
    return sealed(sized(with_decision(whole, parent)))


def _parent(parent_id: int, manifests: Manifests) -> CheckpointManifest | None:
    stored: object = manifests.remembered(parent_id)
    if stored is None:
        try:
            stored = manifests.read(parent_id)
        except DamageError:
            return None
    return stored.manifest if isinstance(stored, StoredManifest) else None
