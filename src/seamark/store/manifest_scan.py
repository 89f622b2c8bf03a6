"""A scan of all checkpoints of a store: one listing, and each manifest is read once."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import cache
from itertools import chain
from typing import Final, NamedTuple

from seamark._common.retry import TRIES, pruned_too_fast
from seamark.errors import DamageError, StoreUnavailableError
from seamark.manifest import CheckpointManifest
from seamark.manifest.findings import unrestorable, unsafe_names
from seamark.store.consistent_read import (
    Overtaken,
    history_of,
    is_pruned,
    pointed_listing,
    raise_if_overtaken,
    raise_if_rewritten,
)
from seamark.store.layout import Layout
from seamark.store.manifests import StoredManifest, Tombstone
from seamark.store.owner import (
    UNCOUNTED,
    OddGeneration,
    OutdatedOwner,
    Owner,
    Standing,
    arrived_too_late,
    standing,
)
from seamark.store.ownership import Ownership
from seamark.store.parts import StoreParts
from seamark.store.shared_objects import SHARED_PREFIX
from seamark.store.sidecars import Sidecars, has_sidecar, unvouched

_AT_ONCE: Final = 128
_Outcome = StoredManifest | DamageError | StoreUnavailableError | None


class ScannedCheckpoint(NamedTuple):
    """One checkpoint as its manifest describes it; parents were not looked at."""

    checkpoint_id: int
    manifest: CheckpointManifest | None
    damage: str | None
    """What is proven wrong, or None."""
    superseded: bool
    error: StoreUnavailableError | OutdatedOwner | None = None
    """Why nothing is known of it, which proves nothing; or None."""
    stored_bytes: int = 0
    """Bytes of the manifest; with state, where that was measured."""


def scan_manifests(
    parts: StoreParts, *, unreadable: bool = False, measure: bool = False
) -> Iterator[ScannedCheckpoint]:
    """Every checkpoint, newest first, damaged ones too. I/O errors pass through.

    With ``unreadable`` those that cannot be read or judged are included, and only an error that
    concerns all is raised. Manifests can be large, so only a few are held at a time.
    """
    for _ in range(TRIES):
        with suppress(Overtaken):  # which is only raised as long as nothing was yielded
            scanned = _scan(parts, unreadable=unreadable)
            yield from _measured(parts, scanned) if measure else chain.from_iterable(scanned)
            return
    raise pruned_too_fast(parts.manifests.url)


def _scan(parts: StoreParts, *, unreadable: bool) -> Iterator[list[ScannedCheckpoint]]:
    """:class:`Overtaken` when the newest ones are pruned or rolled back before they are read.

    The owner that held when the first of them had been read judges all: later ones are older.
    """
    manifests, ownership = parts.manifests, parts.ownership
    listed, owner, pointer = pointed_listing(manifests, ownership)
    named = pointer or 0
    present = frozenset(listed)
    ids = [i for i in reversed(listed) if standing(owner, i) not in UNCOUNTED]
    if named and named not in present and standing(owner, named) not in UNCOUNTED:
        ids = sorted({named, *ids}, reverse=True)
    read = manifests.read_each if unreadable else manifests.read_many
    any_scanned = False
    for start in range(0, len(ids), _AT_ONCE):
        batch: list[ScannedCheckpoint] = []
        for checkpoint_id, stored in read(ids[start : start + _AT_ONCE]):
            if isinstance(stored, Tombstone):
                continue
            outcome: _Outcome = stored
            if isinstance(stored, StoredManifest):
                outcome = _judged(ownership, owner, stored, unreadable=unreadable, first=not start)
                if outcome is None:
                    continue
            elif stored is None or isinstance(stored, DamageError):
                was_there = checkpoint_id in present
                if _is_gone(parts, owner, checkpoint_id, was_there, any_scanned=any_scanned):
                    continue
            any_scanned = True
            superseded = standing(owner, checkpoint_id) is Standing.SUPERSEDED
            batch.append(_scanned(checkpoint_id, outcome, superseded, named, manifests.layout))
        if not start:
            raise_if_rewritten(ownership, owner)
        yield batch


def scan_some(parts: StoreParts, ids: Sequence[int], owner: Owner) -> Iterator[ScannedCheckpoint]:
    """Those of some checkpoints that are there, in the order given, judged by one owner.

    For whoever looks again soon: one that is gone is left out, and one that cannot be read or
    judged comes with the reason. Only an error that concerns all is raised.
    """
    manifests = parts.manifests
    for start in range(0, len(ids), _AT_ONCE):
        for checkpoint_id, stored in manifests.read_each(ids[start : start + _AT_ONCE]):
            outcome: _Outcome = None
            if isinstance(stored, StoredManifest):
                _, problem = covering_owner(parts.ownership, owner, stored, or_doubt=True)
                if problem is None and arrived_too_late(owner, stored.manifest):
                    continue
                outcome = problem or stored
            elif isinstance(stored, DamageError | StoreUnavailableError):
                outcome = stored
            if outcome is not None:
                superseded = standing(owner, checkpoint_id) is Standing.SUPERSEDED
                yield _scanned(checkpoint_id, outcome, superseded, 0, manifests.layout)


def _judged(
    ownership: Ownership, owner: Owner, stored: StoredManifest, *, unreadable: bool, first: bool
) -> StoredManifest | OddGeneration | OutdatedOwner | None:
    """What is known of a checkpoint by its manifest; None when it does not count."""
    now, problem = covering_owner(ownership, owner, stored, or_doubt=unreadable)
    if problem is not None:
        return problem
    if history_of(now) != history_of(owner):
        if first:
            raise Overtaken
        return None  # decided after the newer ones were scanned
    return None if arrived_too_late(owner, stored.manifest) else stored


def _is_gone(
    parts: StoreParts, owner: Owner, checkpoint_id: int, was_there: bool, *, any_scanned: bool
) -> bool:
    """Whether what could not be read was pruned since it was listed.

    :class:`Overtaken` then, unless newer ones were scanned: they are enough.
    """
    if any_scanned:
        return is_pruned(parts.manifests, parts.ownership, checkpoint_id, was_there=was_there)
    there = [checkpoint_id] if was_there else []
    raise_if_overtaken(parts.manifests, parts.ownership, owner, there)
    return False


def _measured(
    parts: StoreParts, batches: Iterator[list[ScannedCheckpoint]]
) -> Iterator[ScannedCheckpoint]:
    """The same with the size of state, and state that is missing as damage."""

    @cache
    def sidecar_sizes() -> dict[str, int]:
        return {key: entry.size for key, (_, entry) in parts.sidecars.entries().items()}

    @cache
    def shared_sizes() -> dict[str, int]:
        return {name: entry.size for name, entry in parts.shared.entries().items()}

    for batch in batches:
        sizes = parts.partitioned.sizes([one.manifest for one in batch if one.manifest is not None])
        for one in batch:
            whole = _with_sidecar(one, parts.sidecars, sidecar_sizes)
            whole = _with_state(whole, *sizes.get(one.checkpoint_id, (0, None)))
            yield _with_shared(whole, shared_sizes)


def _with_sidecar(
    one: ScannedCheckpoint, sidecars: Sidecars, sizes: Callable[[], dict[str, int]]
) -> ScannedCheckpoint:
    m = one.manifest
    if m is not None and m.is_ours:
        return one._replace(stored_bytes=one.stored_bytes + (m.state_bytes or 0))
    # what another system records as its size is not what it takes: that is listed, once
    if m is None or not has_sidecar(m):
        return one
    key = sidecars.key_of(m)
    lost = f"{key.rsplit('/', 1)[-1]} not found" if key not in sizes() else None
    return _with_state(one, sizes().get(key, 0), lost)


def _with_shared(one: ScannedCheckpoint, sizes: Callable[[], dict[str, int]]) -> ScannedCheckpoint:
    """With what was stored for it in shared objects; one that is missing is damage."""
    named = one.manifest.shared_objects if one.manifest is not None else ()
    if not named or one.manifest is None:
        return one
    lost = next((shared for shared in named if sizes().get(shared.name) != shared.size), None)
    damage = f"{SHARED_PREFIX}{lost.name} is missing or cut off" if lost is not None else None
    return _with_state(one, one.manifest.added_bytes, damage)


def _with_state(one: ScannedCheckpoint, size: int, damage: str | None) -> ScannedCheckpoint:
    return one._replace(stored_bytes=one.stored_bytes + size, damage=one.damage or damage)


def covering_owner(
    ownership: Ownership, owner: Owner, stored: StoredManifest, *, or_doubt: bool = False
) -> tuple[Owner, OddGeneration | OutdatedOwner | None]:
    """An owner that is not older than a manifest, or what is wrong with the manifest.

    With ``or_doubt`` an owner that is older comes back with the reason to doubt it.
    """
    manifest = stored.manifest
    try:
        return ownership.covering(owner, manifest.generation, manifest.checkpoint_id), None
    except OddGeneration as problem:
        return owner, problem
    except OutdatedOwner as problem:
        if not or_doubt:
            raise
        return owner, problem


def _scanned(
    checkpoint_id: int,
    stored: _Outcome,
    superseded: bool,
    named: int,
    layout: Layout,
) -> ScannedCheckpoint:
    if isinstance(stored, StoredManifest):
        damage = damage_in(stored.manifest, layout)
        size = len(stored.data)
        return ScannedCheckpoint(
            checkpoint_id, stored.manifest, damage, superseded, stored_bytes=size
        )
    if isinstance(stored, StoreUnavailableError | OutdatedOwner):
        return ScannedCheckpoint(checkpoint_id, None, None, superseded, stored)
    why = stored.what if stored is not None else _gone(checkpoint_id, named)
    return ScannedCheckpoint(checkpoint_id, None, why, superseded)


def damage_in(manifest: CheckpointManifest, layout: Layout) -> str | None:
    """Why nothing can be restored from a manifest, as far as it shows itself."""
    checked = manifest
    if manifest.is_ours:
        # its own checksum vouches for inline state; decoding all of it would take longest
        outside = {name: op for name, op in manifest.operator_states.items() if op.external}
        checked = manifest.replace(operator_states=outside)
    problems = [*unrestorable(checked, manifest.state_bytes), *unsafe_names(manifest)]
    problems += [
        problem for problem in (layout.foreign_state(manifest), unvouched(manifest)) if problem
    ]
    return "; ".join(problems) or None


def _gone(checkpoint_id: int, named: int) -> str:
    text = f"manifest not found for checkpoint {checkpoint_id}"
    return f"{text}, although the pointer names it" if checkpoint_id == named else text
