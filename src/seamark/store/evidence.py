"""What a successful look at a checkpoint has proven about its bytes."""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum

from seamark.manifest import CheckpointManifest
from seamark.store.sidecars import has_sidecar


class Evidence(Enum):
    """How it is known that the state is what was written."""

    NO_STATE = "no state"
    SHA256 = "sha256"
    """A checksum was compared."""
    SIZE = "size"
    """It has no checksum: it is there in full size, and nothing tells whether its bytes are right.
    """


def state_evidence(manifest: CheckpointManifest) -> Evidence:
    """What reading the state of a checkpoint proves, when nothing is found to be wrong."""
    holds_state = bool(manifest.operator_states) or has_sidecar(manifest)
    partitioned = manifest.table_store_checkpoint_path is not None
    if not holds_state and not partitioned:
        return Evidence.NO_STATE
    if holds_state and manifest.state_checksum is None:
        return Evidence.SIZE
    # partitioned state of ours has checksums of its own; another system's is not looked at
    return Evidence.SIZE if partitioned and not manifest.is_ours else Evidence.SHA256


def weakest(manifests: Iterable[CheckpointManifest]) -> Evidence:
    """What is proven of checkpoints that build on each other."""
    found = {state_evidence(manifest) for manifest in manifests}
    for evidence in (Evidence.SIZE, Evidence.SHA256):
        if evidence in found:
            return evidence
    return Evidence.NO_STATE
