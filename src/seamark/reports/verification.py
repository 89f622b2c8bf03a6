"""Whether what is stored is what was written, checkpoint by checkpoint.

Tests: ``tests/cli/test_verify.py``.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from seamark._common.progress_bars import Advance, Bar
from seamark.errors import CheckpointNotFoundError, DamageError, StoreUnavailableError
from seamark.manifest import CheckpointManifest
from seamark.manifest.decisions import Link, chain_findings, link_of
from seamark.reports.checkpoint_summary import (
    CheckpointSummary,
    chain_ids,
    owner_problem,
    summarize_checkpoints,
)
from seamark.reports.document import Document
from seamark.reports.named_checkpoints import load, resolve_id
from seamark.store import CheckpointStore
from seamark.store.consistent_read import Overtaken
from seamark.store.inspection import examine, partitioned_bytes, was_pruned
from seamark.store.owner import OutdatedOwner
from seamark.store.validation import CheckpointKind, Evidence, SeenState, state_evidence


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
    error: StoreUnavailableError | OutdatedOwner | None = None
    link: Link | None = None
    """What it says about what it decided and what its parent did."""


def present_ids(known: Mapping[int, CheckpointSummary]) -> set[int]:
    """The checkpoints whose manifests have been read."""
    return {i for i, summary in known.items() if summary.was_read}


def check_checkpoints(
    store: CheckpointStore,
    ids: Sequence[int],
    *,
    read: Collection[int],
    there: Collection[int] = (),
    progress: Advance | None = None,
    weights: Mapping[int, int] | None = None,
) -> list[CheckpointCheck]:
    """Check manifests, and all bytes of those in ``read``; one that builds on damage is damaged.

    One of ``there`` whose manifest is gone was pruned meanwhile. After an I/O error a checkpoint is
    ``unreadable``, and the others are still checked. Progress counts checkpoints, or their
    ``weights``.
    """
    checks: dict[int, CheckpointCheck] = {}
    seen = SeenState()
    for checkpoint_id in ids:
        was_there = checkpoint_id in there
        checks[checkpoint_id] = _check(store, checkpoint_id, was_there, checkpoint_id in read, seen)
        if progress is not None:
            progress(1 if weights is None else weights.get(checkpoint_id, 0))
    links = {number: check.link for number, check in checks.items() if check.link is not None}
    for checkpoint_id, finding in chain_findings(links).items():
        checks[checkpoint_id].status = "damaged"
        checks[checkpoint_id].damage.append(finding)
    for checkpoint_id in sorted(checks):
        _look_at_parent(store, checks, checkpoint_id, checkpoint_id in there)
    return [checks[checkpoint_id] for checkpoint_id in ids]


def _check(
    store: CheckpointStore, checkpoint_id: int, was_there: bool, read: bool, seen: SeenState
) -> CheckpointCheck:
    try:
        examined = examine(store, checkpoint_id, read_data=read, seen=seen)
        is_whole = examined.kind is CheckpointKind.CHECKPOINT
        if not is_whole and was_pruned(store, checkpoint_id, was_there=was_there):
            return CheckpointCheck(checkpoint_id, "gone")
    except (StoreUnavailableError, OutdatedOwner) as error:
        return CheckpointCheck(checkpoint_id, "unreadable", error=error)
    warnings = [str(issue) for issue in examined.result.issues if issue.severity == "warning"]
    m = examined.manifest
    if examined.kind in (CheckpointKind.TOMBSTONE, CheckpointKind.TOO_LATE):
        return CheckpointCheck(checkpoint_id, "gone", warnings=examined.result.damage)
    evidence = state_evidence(m) if read and is_whole and m is not None else None
    return CheckpointCheck(
        checkpoint_id,
        "ok" if is_whole else "damaged",
        damage=examined.result.damage,
        warnings=warnings,
        parent_id=m.parent_id if m is not None and m.is_incremental else None,
        bytes_read=data_bytes(store, m, seen)
        if evidence is Evidence.SHA256 and m is not None
        else 0,
        data_read=read,
        evidence=evidence,
        link=link_of(m) if is_whole and m is not None else None,
    )


def _look_at_parent(
    store: CheckpointStore,
    checks: dict[int, CheckpointCheck],
    checkpoint_id: int,
    was_there: bool,
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
        if was_pruned(store, checkpoint_id, was_there=was_there):
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


def data_bytes(store: CheckpointStore, manifest: CheckpointManifest, seen: SeenState) -> int:
    """How many bytes of state a checkpoint has, inside and outside of its manifest."""
    partitioned = partitioned_bytes(store, manifest, seen.partitioned)
    inline = sum(len(op.decode_inline() or b"") for op in manifest.operator_states.values())
    sidecar = manifest.state_bytes
    if sidecar is None:
        ends = [o.external_offset + o.external_length for o in manifest.operator_states.values()]
        sidecar = max(ends, default=0)
    shared = sum(each.size for each in manifest.shared_objects)
    return inline + sidecar + partitioned + shared


def check_named(
    store: CheckpointStore, checkpoint: str | None, share: float, seed: int, bar: Bar
) -> list[CheckpointCheck]:
    """Check one checkpoint and what it builds on, or all of them.

    ``share`` of their bytes is read. :class:`Overtaken` when all that there was is pruned before it
    is checked.
    """
    # first: what is saved after the summary would seem to build on nothing
    checkpoint_id = resolve_id(store, checkpoint) if checkpoint is not None else None
    known = summarize_checkpoints(store)
    ids = list(known)
    if checkpoint_id is not None:
        ids = _chain_of(store, checkpoint_id, known, is_latest=checkpoint == "latest")
    read = chosen_share(ids, known, share, seed)
    weights = {i: _size(known, i) for i in ids} if read else None
    total = sum(weights.values()) if weights is not None else len(ids)
    with bar("Verifying", total, of_bytes=weights is not None) as advance:
        there = present_ids(known)
        checks = check_checkpoints(
            store, ids, read=read, there=there, progress=advance, weights=weights
        )
    is_pruned = checks and all(check.status == "gone" and not check.warnings for check in checks)
    if is_pruned and checkpoint in (None, "latest"):
        raise Overtaken
    return checks


def _chain_of(
    store: CheckpointStore,
    checkpoint_id: int,
    known: dict[int, CheckpointSummary],
    *,
    is_latest: bool,
) -> list[int]:
    """A checkpoint and what it builds on; :class:`Overtaken` when the summary has missed it."""
    if checkpoint_id in known:
        return chain_ids(checkpoint_id, known)
    try:
        load(store, checkpoint_id)  # says that there is none, or what is wrong with it
    except CheckpointNotFoundError:
        if not is_latest:
            raise
    raise Overtaken


def chosen_share(
    ids: list[int], known: dict[int, CheckpointSummary], share: float, seed: int
) -> set[int]:
    """Checkpoints that together hold at least this share of the bytes; the same for one seed."""
    if share >= 1:
        return set(ids)
    shuffled = sorted(ids)
    random.Random(seed).shuffle(shuffled)
    goal = share * sum(_size(known, i) for i in ids)
    chosen: set[int] = set()
    reached = 0
    for checkpoint_id in shuffled:
        if reached >= goal:
            break
        chosen.add(checkpoint_id)
        reached += _size(known, checkpoint_id)
    return chosen


def _size(known: dict[int, CheckpointSummary], checkpoint_id: int) -> int:
    return (known[checkpoint_id].new_bytes or 0) if checkpoint_id in known else 0


def verification_document(url: str, checks: list[CheckpointCheck], share: float) -> Document:
    """What ``seamark verify --json`` prints."""
    counted = Counter(check.status for check in checks)
    code = 0
    if counted["unreadable"]:
        code = StoreUnavailableError.exit_code
    problem = owner_problem(check.error for check in checks)
    if counted["damaged"] or problem:
        code = DamageError.exit_code
    return {
        "store": url,
        "checkpoints": [
            {
                "id": check.id,
                "status": check.status,
                "damage": check.damage,
                "warnings": check.warnings,
                "error": check.error.what if check.error is not None else None,
                "data_read": check.data_read,
                "evidence": check.evidence.value if check.evidence is not None else None,
            }
            for check in checks
        ],
        "ok": counted["ok"],
        "damaged": counted["damaged"],
        "unreadable": counted["unreadable"],
        "gone": counted["gone"],
        "owner_problem": problem,
        "read_data": share,
        "bytes_read": sum(check.bytes_read for check in checks),
        "data_read": sum(check.data_read for check in checks),
        "without_checksum": sum(check.evidence is Evidence.SIZE for check in checks),
        "exit_code": code,
    }
