"""Removing what is no longer needed, and nothing else.

Tests: ``tests/store/test_conformance.py``.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection
from dataclasses import replace
from typing import Final

import msgspec

from seamark._common.logs import logger_named
from seamark._common.os_errors import is_disk_full
from seamark.blobs.contract import Entry, unfinished
from seamark.errors import DamageError, FencedError, StoreUnavailableError
from seamark.store.consistent_read import (
    Overtaken,
    listing,
    raise_if_overtaken,
    raise_if_rolled_back,
    until_settled,
)
from seamark.store.manifests import StoredManifest
from seamark.store.owner import UNCOUNTED, Owner, Standing, covers_any, known_pins, standing
from seamark.store.parts import StoreParts
from seamark.store.plans import is_stale
from seamark.store.retention import Candidate, Retention, Verdict, plan_retention
from seamark.store.sidecars import has_sidecar, unvouched
from seamark.store.validation import CheckpointKind, KnownCheckpoints, ReadState

log = logger_named(__name__)


INTERRUPTED: Final = "left by a prune that was interrupted"


class Removed(int):
    """How many were removed, and what became of partitioned state.

    >>> Removed(3, states=1) == 3
    True
    """

    states: int
    """Partitioned state checkpoints that went with them."""
    objects: int
    """Shared objects that went with them."""
    left_alone: tuple[str, ...]
    """Why some state was not looked at; empty when all was."""

    def __new__(
        cls, count: int, *, states: int = 0, objects: int = 0, left_alone: tuple[str, ...] = ()
    ) -> Removed:
        removed = super().__new__(cls, count)
        removed.states, removed.objects, removed.left_alone = states, objects, left_alone
        return removed


class Orphans(list[Entry]):
    """What a clean-up would remove. A whole partitioned state is one entry, named by its folder."""

    left_alone: tuple[str, ...] = ()
    """Why some partitioned state was not looked at; empty when all was."""


def plan_prune(parts: StoreParts, rule: Retention) -> list[Verdict]:
    """What :func:`prune` would keep and remove, newest first, with a reason for each.

    This includes what an interrupted prune has left below its boundary.
    """

    def look() -> tuple[Owner, list[Candidate]]:
        ids, owner = listing(parts.manifests, parts.ownership)
        candidates = _survey(parts, ids, owner, rule)
        raise_if_rolled_back(parts.ownership, owner)
        return owner, candidates

    owner, candidates = until_settled(look, parts.blobs.url)
    verdicts = _verdicts(candidates, owner, rule)
    left = {*_pruned_manifests(parts, owner), *(i for i, _ in _pruned_sidecars(parts, owner))}
    verdicts += [Verdict(i, False, INTERRUPTED) for i in left]
    return sorted(verdicts, key=lambda verdict: verdict.checkpoint_id, reverse=True)


def prune(parts: StoreParts, rule: Retention, *, read_shared: bool = True) -> Removed:
    """Remove what the rule does not keep; how many checkpoints that were.

    What an interrupted prune has left is removed too, but not counted again. Unless ``read_shared``
    a checkpoint counts as valid whose shared objects are there in full size, as long as none was
    seen to be damaged: for a caller that reads them at another time.

    The boundary is moved in ``owner.json`` first, in the same conditional write that looks at the
    pins. So a pin cannot slip in between, a crash leaves nothing half-removed that still counts,
    and an id that is gone cannot be created again. Manifests go before their state, and
    partitioned state goes last, when no manifest points at it any more.
    """

    def look() -> tuple[Owner, list[Candidate]]:
        owner = parts.ownership.require_writable()
        depth: ReadState = "once" if read_shared else "unshared"
        return owner, _survey(parts, parts.manifests.ids(), owner, rule, depth)

    owner, candidates = until_settled(look, parts.blobs.url)
    doomed: list[int] = []

    def moved(now: Owner) -> Owner:
        if (now.generation, now.writer) != (owner.generation, owner.writer):
            raise FencedError(
                "another writer took the store over while it was being pruned",
                where=parts.blobs.url,
                hint="Nothing was removed.",
            )
        verdicts = _verdicts(candidates, now, rule)
        doomed[:] = sorted(v.checkpoint_id for v in verdicts if not v.keep)
        if not doomed:
            return now
        boundary = max(now.prune_boundary, doomed[-1])
        kept = sorted(v.checkpoint_id for v in verdicts if v.keep and v.checkpoint_id <= boundary)
        return msgspec.structs.replace(
            now,
            prune_boundary=boundary,
            kept_below=tuple(kept),
            superseded=tuple(r for r in now.superseded if r[1] > boundary or covers_any(r, kept)),
            voided=tuple(i for i in now.voided if i > boundary),
            tombstones=tuple(i for i in now.tombstones if i > boundary),
            next_id=max(now.next_id, boundary + 1),
        )

    changed = owner
    if any(not v.keep for v in _verdicts(candidates, owner, rule)):
        changed = _amended(parts, moved, doomed)
    _sweep(parts, changed)
    gone = frozenset(doomed)
    pruned = [candidate for candidate in candidates if candidate.checkpoint_id in gone]
    named = {candidate.state for candidate in pruned if candidate.state is not None}
    states, left_alone = parts.partitioned.drop_pruned(named, pruned=bool(doomed))
    objects, why = _drop_objects(parts, pruned)
    return Removed(len(doomed), states=states, objects=objects, left_alone=(*left_alone, *why))


def _drop_objects(parts: StoreParts, pruned: list[Candidate]) -> tuple[int, tuple[str, ...]]:
    """Remove shared objects that only pruned checkpoints have named; how many, or why none."""
    try:
        return parts.shared.drop_pruned({name for c in pruned for name in c.objects}), ()
    except DamageError as error:
        return 0, (_unknown_objects(error),)


def _unknown_objects(error: DamageError) -> str:
    return f"shared objects were left alone, as nobody knows who needs them: {error.what}"


def _amended(parts: StoreParts, moved: Callable[[Owner], Owner], doomed: list[int]) -> Owner:
    """Move the boundary; on a full disk, make room for that first.

    Then some of what is to go is removed before ``owner.json`` says so, under the lock, so that
    nobody can pin it in between. Children go before their parents: whenever it is interrupted, what
    is left is whole.
    """
    try:
        return parts.ownership.amend(moved)
    except StoreUnavailableError as error:
        if not is_disk_full(error):
            raise
        full = error
    with parts.blobs.exclusive():
        moved(parts.ownership.read())
        for checkpoint_id in sorted(doomed, reverse=True):
            log.warning("the disk is full: checkpoint %d is removed to make room", checkpoint_id)
            _delete_manifests(parts, [checkpoint_id])
            states = parts.sidecars.entries().values()
            _delete_sidecars(parts, [entry.key for i, entry in states if i == checkpoint_id])
            try:
                return parts.ownership.amend(moved)
            except StoreUnavailableError as error:
                if not is_disk_full(error):
                    raise
    raise full


def _survey(
    parts: StoreParts,
    listed: list[int],
    owner: Owner,
    rule: Retention,
    read_state: ReadState = "once",
) -> list[Candidate]:
    """What is known of each checkpoint; state is read only as far as the rule counts.

    :class:`Overtaken` when one is gone or damaged and another prune is the reason.
    """
    ids = [i for i in listed if standing(owner, i) not in UNCOUNTED]
    candidates: list[Candidate] = []
    known = KnownCheckpoints()
    valid = 0
    for checkpoint_id in reversed(ids):
        depth: ReadState = read_state if valid < (rule.last or 1) else "never"
        examined = parts.validator.examine(checkpoint_id, owner, read_state=depth, known=known)
        if examined.kind is CheckpointKind.TOMBSTONE:
            continue
        if examined.kind is not CheckpointKind.CHECKPOINT:
            raise_if_overtaken(parts.manifests, parts.ownership, owner, [checkpoint_id])
        if examined.kind is CheckpointKind.NOTHING:
            continue
        superseded = standing(owner, checkpoint_id) is Standing.SUPERSEDED
        ok = examined.kind is CheckpointKind.CHECKPOINT
        valid += ok and not superseded
        m = examined.manifest
        candidates.append(
            Candidate(
                checkpoint_id=checkpoint_id,
                valid=ok,
                timestamp_ms=m.timestamp_ms if m else 0,
                parent_id=m.parent_id if m and m.is_incremental else None,
                superseded=superseded,
                state=parts.partitioned.expected_of(m) if m else None,
                objects=frozenset(each.name for each in m.shared_objects) if m else frozenset(),
            )
        )
    return candidates


def _verdicts(candidates: list[Candidate], owner: Owner, rule: Retention) -> list[Verdict]:
    now_ms = time.time_ns() // 1_000_000
    current = [  # what was rolled back or pruned since the survey no longer counts
        replace(c, superseded=standing(owner, c.checkpoint_id) is Standing.SUPERSEDED)
        for c in candidates
        if standing(owner, c.checkpoint_id) is not Standing.PRUNED
    ]
    return plan_retention(current, rule, pins=known_pins(owner, now_ms), now_ms=now_ms)


def _sweep(parts: StoreParts, owner: Owner) -> None:
    """Remove what is below the boundary: manifests first, so none is left without its state."""
    _delete_manifests(parts, _pruned_manifests(parts, owner))
    _delete_sidecars(parts, [entry.key for _, entry in _pruned_sidecars(parts, owner)])
    parts.blobs.delete([entry.key for entry in _stale_plans(parts)])


def _stale_plans(parts: StoreParts) -> list[Entry]:
    """Plans that no start can need any more.

    They are listed before the owner is read: the timeline of a plan that is seen is then never
    newer than the owner's.
    """
    plans = parts.plans.entries()
    if not plans:
        return []
    owner = parts.ownership.read()
    oldest = _oldest_epoch(parts, owner)
    return [plan.entry for plan in plans if is_stale(plan, owner.timeline, oldest)]


def _oldest_epoch(parts: StoreParts, owner: Owner) -> int:
    """The epoch of the oldest checkpoint that a start may go on from, pinned ones aside.

    A pin can keep one for years, and a rollback to it starts another timeline.
    """
    for checkpoint_id in parts.manifests.ids():
        if checkpoint_id <= owner.prune_boundary:
            continue
        if standing(owner, checkpoint_id) is not Standing.CURRENT:
            continue
        try:
            stored = parts.manifests.read(checkpoint_id)
        except DamageError:
            continue  # nothing goes on from it
        if isinstance(stored, StoredManifest):
            return stored.manifest.epoch
    return 0


def _pruned_manifests(parts: StoreParts, owner: Owner) -> list[int]:
    if owner.prune_boundary == 0:
        return []
    return [i for i in parts.manifests.ids() if standing(owner, i) is Standing.PRUNED]


def _pruned_sidecars(parts: StoreParts, owner: Owner) -> list[tuple[int, Entry]]:
    if owner.prune_boundary == 0:
        return []
    sidecars = parts.sidecars.entries().values()
    return [(i, entry) for i, entry in sidecars if standing(owner, i) is Standing.PRUNED]


def _delete_manifests(parts: StoreParts, ids: Collection[int]) -> None:
    parts.blobs.delete([parts.layout.manifest(i) for i in ids])
    for i in ids:
        parts.manifests.forget(i)


def _delete_sidecars(parts: StoreParts, keys: list[str]) -> None:
    parts.blobs.delete(keys)
    parts.sidecars.forget(keys)


def cleanup_orphans(parts: StoreParts, min_age: float, own: Collection[str]) -> Removed:
    """Remove what :func:`plan_cleanup` finds; how many."""
    if not parts.is_store():  # before the lock, which makes a file
        return Removed(0)
    with parts.blobs.exclusive():
        owner = parts.ownership.require_writable()
        keys = [entry.key for entry in _old_orphans(parts, min_age, own, parts.blobs.clock())]
        manifests = {parts.layout.manifest(i): i for i in _pruned_manifests(parts, owner)}
        _delete_manifests(parts, [manifests[key] for key in keys if key in manifests])
        _delete_sidecars(parts, [key for key in keys if key not in manifests])
    removed, left_alone = parts.partitioned.remove_orphans(min_age)
    try:
        objects = parts.shared.remove_orphans(min_age)
    except DamageError as error:
        objects, left_alone = 0, (*left_alone, _unknown_objects(error))
    return Removed(len(keys) + removed + objects, objects=objects, left_alone=left_alone)


def plan_cleanup(parts: StoreParts, min_age: float, own: Collection[str]) -> Orphans:
    """Sidecars without a manifest, what was pruned and is still there, plans that no start needs,
    unfinished files and probes, and partitioned state that no checkpoint points at, when they are
    old enough to be removed. Nothing of a place that is not a store.

    ``own`` are sidecars that the caller has written and is about to use.
    """
    if not parts.is_store():
        return Orphans()
    orphans = {entry.key: entry for entry in _old_orphans(parts, min_age, own)}
    partitioned = parts.partitioned.orphans(min_age)
    orphans |= {entry.key: entry for entry in (*partitioned.objects, *partitioned.unnamed)}
    left_alone = partitioned.left_alone
    try:
        shared = parts.shared.orphans(min_age, time.time())
    except DamageError as error:
        shared, left_alone = [], (*left_alone, _unknown_objects(error))
    planned = Orphans([*orphans.values(), *shared])
    planned.left_alone = left_alone
    return planned


def _old_orphans(
    parts: StoreParts, min_age: float, own: Collection[str], now: float | None = None
) -> list[Entry]:
    """``now`` is the time by the store's clock, where it has one; otherwise this machine's."""
    oldest = (time.time() if now is None else now) - min_age
    return until_settled(lambda: _orphans(parts, oldest, own), parts.blobs.url)


def _orphans(parts: StoreParts, oldest: float, own: Collection[str]) -> list[Entry]:
    owner = parts.ownership.read()
    # sidecars before manifests: one that is decided in between is then seen as decided
    sidecars = [(i, e) for i, e in parts.sidecars.entries().values() if e.modified <= oldest]
    leftovers = unfinished(parts.blobs, oldest)
    pruned = _pruned_manifests(parts, owner)
    entries = [parts.blobs.stat(parts.layout.manifest(i)) for i in pruned]
    in_use = _sidecars_in_use(parts, sorted({i for i, _ in sidecars} - set(pruned)))
    orphans = [
        entry
        for i, entry in sidecars
        if in_use.get(i, "") not in (entry.key, None) and entry.key not in own
    ]
    plans = [entry for entry in _stale_plans(parts) if entry.modified <= oldest]
    if orphans or plans:  # or is it only that their manifests were pruned just now?
        raise_if_overtaken(parts.manifests, parts.ownership, owner)
    if orphans and not {entry.key for entry in orphans} <= parts.sidecars.entries().keys():
        raise Overtaken  # on a full disk they are pruned before the owner says so
    return [e for e in entries if e and e.modified <= oldest] + orphans + plans + leftovers


def _sidecars_in_use(parts: StoreParts, ids: list[int]) -> dict[int, str | None]:
    """The sidecar's key of each decided id; None where it is unknown."""
    present = set(parts.manifests.ids())
    used: dict[int, str | None] = {}
    for i, stored in parts.manifests.read_many([i for i in ids if i in present]):
        if isinstance(stored, StoredManifest):
            m = stored.manifest
            odd = not m.is_ours or parts.layout.foreign_state(m) or unvouched(m)
            used[i] = None if odd else parts.sidecars.key_of(m) if has_sidecar(m) else ""
        elif isinstance(stored, Exception):
            used[i] = None
    return used
