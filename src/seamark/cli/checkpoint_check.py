"""Checking many checkpoints, each one's bytes once, also while others write and prune.

Tests: ``tests/cli/test_verify.py``.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from seamark.cli.output import Advance
from seamark.errors import StoreUnavailableError
from seamark.manifest import CheckpointManifest
from seamark.store import CheckpointStore
from seamark.store.inspection import examine, partitioned_bytes
from seamark.store.owner import Standing, standing
from seamark.store.validation import CheckpointKind, Evidence, state_evidence


@dataclass
class CheckpointCheck:
    """What was found about one checkpoint."""

    id: int
    status: str
    """ok, damaged, gone (pruned meanwhile, or as its warnings say) or unreadable."""
    damage: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    parent_id: int | None = None
    bytes_read: int = 0
    data_read: bool = False
    evidence: Evidence | None = None
    """What reading its state has proven; None when it was not read."""
    error: StoreUnavailableError | None = None


def check_checkpoints(
    store: CheckpointStore,
    ids: Sequence[int],
    *,
    read: Collection[int],
    progress: Advance | None = None,
    weights: Mapping[int, int] | None = None,
) -> list[CheckpointCheck]:
    """Check manifests, and all bytes of those in ``read``; one that builds on damage is damaged.

    After an I/O error a checkpoint is ``unreadable``, and the others are still checked. Progress
    counts checkpoints, or their ``weights``.
    """
    checks: dict[int, CheckpointCheck] = {}
    for checkpoint_id in ids:
        checks[checkpoint_id] = _check(store, checkpoint_id, checkpoint_id in read)
        if progress is not None:
            progress(1 if weights is None else weights.get(checkpoint_id, 0))
    for checkpoint_id in sorted(checks):
        _look_at_parent(store, checks, checkpoint_id)
    return [checks[checkpoint_id] for checkpoint_id in ids]


def _check(store: CheckpointStore, checkpoint_id: int, read: bool) -> CheckpointCheck:
    try:
        examined = examine(store, checkpoint_id, read_data=read)
        if examined.kind is not CheckpointKind.CHECKPOINT and _is_gone(store, checkpoint_id):
            return CheckpointCheck(checkpoint_id, "gone")
    except StoreUnavailableError as error:
        return CheckpointCheck(checkpoint_id, "unreadable", error=error)
    warnings = [str(issue) for issue in examined.result.issues if issue.severity == "warning"]
    m = examined.manifest
    if examined.kind in (CheckpointKind.TOMBSTONE, CheckpointKind.TOO_LATE):
        return CheckpointCheck(checkpoint_id, "gone", warnings=examined.result.damage)
    is_ok = examined.kind is CheckpointKind.CHECKPOINT
    evidence = state_evidence(m) if read and is_ok and m is not None else None
    return CheckpointCheck(
        checkpoint_id,
        "ok" if is_ok else "damaged",
        damage=examined.result.damage,
        warnings=warnings,
        parent_id=m.parent_id if m is not None and m.is_incremental else None,
        bytes_read=data_bytes(store, m) if evidence is Evidence.SHA256 and m is not None else 0,
        data_read=read,
        evidence=evidence,
    )


def _is_gone(store: CheckpointStore, checkpoint_id: int) -> bool:
    """Whether it was pruned since it was listed; a prune says so before it removes anything."""
    return standing(store.owner(), checkpoint_id) is Standing.PRUNED


def _look_at_parent(
    store: CheckpointStore, checks: dict[int, CheckpointCheck], checkpoint_id: int
) -> None:
    check = checks[checkpoint_id]
    if check.status != "ok" or check.parent_id is None:
        return
    parent = checks.get(check.parent_id)
    if parent is not None and parent.status == "ok":
        return
    if parent is not None and parent.status == "unreadable":
        check.status, check.error = "unreadable", parent.error
        return
    try:
        if _is_gone(store, checkpoint_id):
            check.status = "gone"
            return
    except StoreUnavailableError as error:
        check.status, check.error = "unreadable", error
        return
    broken = parent is not None and parent.status == "damaged"
    check.status = "damaged"
    check.damage.append(
        f"it builds on {check.parent_id}, which is {'damaged' if broken else 'not there'}"
    )


def data_bytes(store: CheckpointStore, manifest: CheckpointManifest) -> int:
    """How many bytes of state a checkpoint has, inside and outside of its manifest."""
    partitioned = partitioned_bytes(store, manifest)
    inline = sum(len(op.decode_inline() or b"") for op in manifest.operator_states.values())
    sidecar = manifest.state_bytes
    if sidecar is None:
        ends = [o.external_offset + o.external_length for o in manifest.operator_states.values()]
        sidecar = max(ends, default=0)
    return inline + sidecar + partitioned
