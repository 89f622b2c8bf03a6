"""A scan of all checkpoints of a store: one listing, and each manifest is read once."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import cache
from itertools import chain
from typing import Final, NamedTuple

from seamark._common.retry import TRIES, pruned_too_fast
from seamark.errors import DamageError, StoreUnavailableError
from seamark.manifest import CheckpointManifest
from seamark.manifest.findings import unrestorable, unsafe_names
from seamark.store.consistent_read import Overtaken, is_pruned, listing, raise_if_overtaken
from seamark.store.layout import Layout
from seamark.store.manifests import StoredManifest, Tombstone
from seamark.store.owner import (
    UNCOUNTED,
    OddGeneration,
    Owner,
    Standing,
    arrived_too_late,
    standing,
)
from seamark.store.ownership import Ownership
from seamark.store.parts import StoreParts
from seamark.store.sidecars import Sidecars, has_sidecar, unvouched

_AT_ONCE: Final = 128


class ScannedCheckpoint(NamedTuple):
    """One checkpoint as its manifest describes it; parents were not looked at."""

    checkpoint_id: int
    manifest: CheckpointManifest | None
    damage: str | None
    """What is proven wrong, or None."""
    superseded: bool
    error: StoreUnavailableError | None = None
    """Why its manifest could not be read, which proves nothing; or None."""
    stored_bytes: int = 0
    """Bytes of the manifest; with state, where that was measured."""


def scan_manifests(
    parts: StoreParts, *, unreadable: bool = False, measure: bool = False
) -> Iterator[ScannedCheckpoint]:
    """Every checkpoint, newest first, damaged ones too. I/O errors pass through.

    With ``unreadable`` those that cannot be read are included, and only an error that concerns
    all is raised. Manifests can be large, so only a few are held at a time.
    """
    for _ in range(TRIES):
        with suppress(Overtaken):  # which is only raised as long as nothing was yielded
            scanned = _scan(parts, unreadable=unreadable)
            yield from _measured(parts, scanned) if measure else chain.from_iterable(scanned)
            return
    raise pruned_too_fast(parts.manifests.url)


def _scan(parts: StoreParts, *, unreadable: bool) -> Iterator[list[ScannedCheckpoint]]:
    """:class:`Overtaken` when the newest ones are pruned before they could be read."""
    manifests, ownership = parts.manifests, parts.ownership
    listed, owner = listing(manifests, ownership)
    named = manifests.read_pointer() or 0
    ids = [i for i in reversed(listed) if standing(owner, i) not in UNCOUNTED]
    if named and named not in listed and standing(owner, named) not in UNCOUNTED:
        ids = sorted({named, *ids}, reverse=True)
    read = manifests.read_each if unreadable else manifests.read_many
    any_scanned = False
    for start in range(0, len(ids), _AT_ONCE):
        batch: list[ScannedCheckpoint] = []
        for checkpoint_id, stored in read(ids[start : start + _AT_ONCE]):
            if stored is None or isinstance(stored, DamageError):
                if not any_scanned:
                    raise_if_overtaken(ownership, owner)
                elif is_pruned(ownership, checkpoint_id):
                    continue  # the newer ones were scanned, and they are enough
            problem: OddGeneration | None = None
            if isinstance(stored, StoredManifest):
                owner, problem = covering_owner(ownership, owner, stored)
                if problem is None and arrived_too_late(owner, stored.manifest):
                    continue
            if not isinstance(stored, Tombstone):
                any_scanned = True
                superseded = standing(owner, checkpoint_id) is Standing.SUPERSEDED
                outcome = problem or stored
                batch.append(_scanned(checkpoint_id, outcome, superseded, named, manifests.layout))
        yield batch


def _measured(
    parts: StoreParts, batches: Iterator[list[ScannedCheckpoint]]
) -> Iterator[ScannedCheckpoint]:
    """The same with the size of state, and state that is missing as damage."""

    @cache
    def sidecar_sizes() -> dict[str, int]:
        return {key: entry.size for key, (_, entry) in parts.sidecars.entries().items()}

    for batch in batches:
        sizes = parts.partitioned.sizes([one.manifest for one in batch if one.manifest is not None])
        for one in batch:
            whole = _with_sidecar(one, parts.sidecars, sidecar_sizes)
            yield _with_state(whole, *sizes.get(one.checkpoint_id, (0, None)))


def _with_sidecar(
    one: ScannedCheckpoint, sidecars: Sidecars, sizes: Callable[[], dict[str, int]]
) -> ScannedCheckpoint:
    m = one.manifest
    if m is not None and m.is_ours:
        return one._replace(stored_bytes=m.size_bytes)
    # what another system records as its size is not what it takes: that is listed, once
    if m is None or not has_sidecar(m):
        return one
    key = sidecars.key_of(m)
    lost = f"{key.rsplit('/', 1)[-1]} not found" if key not in sizes() else None
    return _with_state(one, sizes().get(key, 0), lost)


def _with_state(one: ScannedCheckpoint, size: int, damage: str | None) -> ScannedCheckpoint:
    return one._replace(stored_bytes=one.stored_bytes + size, damage=one.damage or damage)


def covering_owner(
    ownership: Ownership, owner: Owner, stored: StoredManifest
) -> tuple[Owner, OddGeneration | None]:
    """An owner that is not older than a manifest, or what is wrong with the manifest."""
    manifest = stored.manifest
    try:
        return ownership.covering(owner, manifest.generation, manifest.checkpoint_id), None
    except OddGeneration as problem:
        return owner, problem


def _scanned(
    checkpoint_id: int,
    stored: StoredManifest | DamageError | StoreUnavailableError | None,
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
    if isinstance(stored, StoreUnavailableError):
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
