"""Looking over all checkpoints of a store at once: one listing, and each manifest read once."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import Final, NamedTuple

from seamark._common.retry import TRIES, too_fast
from seamark.errors import DamageError, StoreUnavailableError
from seamark.manifest import CheckpointManifest
from seamark.manifest.findings import unrestorable, unsafe_names
from seamark.store.consistent_read import (
    UNCOUNTED,
    Overtaken,
    is_pruned,
    listing,
    raise_if_overtaken,
)
from seamark.store.coverage import OddGeneration
from seamark.store.layout import Layout
from seamark.store.manifests import Found, Manifests, Tombstone
from seamark.store.owner import Owner, Standing, arrived_too_late, live_pins, standing
from seamark.store.ownership import Ownership
from seamark.store.sidecars import unvouched

_AT_ONCE: Final = 128


class Surveyed(NamedTuple):
    """One checkpoint as its manifest tells it; its state and its parents were not looked at."""

    checkpoint_id: int
    manifest: CheckpointManifest | None
    damage: str | None
    """What is proven wrong with the manifest, or None."""
    superseded: bool
    error: StoreUnavailableError | None = None
    """Why its manifest could not be read, which proves nothing; or None."""
    manifest_bytes: int = 0


def survey(
    manifests: Manifests, ownership: Ownership, *, unreadable: bool = False
) -> Iterator[Surveyed]:
    """Every checkpoint, newest first, damaged ones too. I/O errors pass through.

    With ``unreadable`` those that cannot be read are told too, and only an error that concerns
    all is raised. Manifests can be large, so only a few are held at a time.
    """
    for _ in range(TRIES):
        with suppress(Overtaken):  # which is only raised as long as nothing was told
            yield from _survey(manifests, ownership, unreadable=unreadable)
            return
    raise too_fast(manifests.url)


def _survey(manifests: Manifests, ownership: Ownership, *, unreadable: bool) -> Iterator[Surveyed]:
    """:class:`Overtaken` when the newest ones are pruned before they could be read."""
    listed, owner = listing(manifests, ownership)
    named = manifests.read_pointer() or 0
    wanted = [i for i in reversed(listed) if standing(owner, i) not in UNCOUNTED]
    if named and named not in listed and standing(owner, named) not in UNCOUNTED:
        wanted = sorted({named, *wanted}, reverse=True)
    read = manifests.read_each if unreadable else manifests.read_many
    told = False
    for start in range(0, len(wanted), _AT_ONCE):
        for checkpoint_id, found in read(wanted[start : start + _AT_ONCE]):
            if found is None or isinstance(found, DamageError):
                if not told:
                    raise_if_overtaken(ownership, owner)
                elif is_pruned(ownership, checkpoint_id):
                    continue  # what is newer has been told already, and is enough
            problem: OddGeneration | None = None
            if isinstance(found, Found):
                owner, problem = _covering(ownership, owner, found)
                if problem is None and arrived_too_late(owner, found.manifest):
                    continue
            if not isinstance(found, Tombstone):
                told = True
                superseded = standing(owner, checkpoint_id) is Standing.SUPERSEDED
                seen = problem or found
                yield _surveyed(checkpoint_id, seen, superseded, named, manifests.layout)


def _covering(
    ownership: Ownership, owner: Owner, found: Found
) -> tuple[Owner, OddGeneration | None]:
    """An owner that is not older than a manifest, or what is wrong with the manifest."""
    manifest = found.manifest
    try:
        return ownership.covering(owner, manifest.generation, manifest.checkpoint_id), None
    except OddGeneration as problem:
        return owner, problem


def _surveyed(
    checkpoint_id: int,
    found: Found | DamageError | StoreUnavailableError | None,
    superseded: bool,
    named: int,
    layout: Layout,
) -> Surveyed:
    if isinstance(found, Found):
        damage = damage_in(found.manifest, layout)
        size = len(found.data)
        return Surveyed(checkpoint_id, found.manifest, damage, superseded, manifest_bytes=size)
    if isinstance(found, StoreUnavailableError):
        return Surveyed(checkpoint_id, None, None, superseded, found)
    why = found.what if found is not None else _gone(checkpoint_id, named)
    return Surveyed(checkpoint_id, None, why, superseded)


def damage_in(manifest: CheckpointManifest, layout: Layout) -> str | None:
    """Why nothing can be restored from a manifest, as far as it tells itself."""
    told = manifest
    if manifest.is_ours:
        # its own checksum vouches for inline state; decoding all of it would take longest
        outside = {name: op for name, op in manifest.operator_states.items() if op.external}
        told = manifest.replace(operator_states=outside)
    found = [*unrestorable(told, manifest.state_bytes), *unsafe_names(manifest)]
    found += [
        problem for problem in (layout.foreign_state(manifest), unvouched(manifest)) if problem
    ]
    return "; ".join(found) or None


def _gone(checkpoint_id: int, named: int) -> str:
    text = f"manifest not found for checkpoint {checkpoint_id}"
    return f"{text}, although the pointer names it" if checkpoint_id == named else text


def known_pins(owner: Owner) -> dict[int, list[str]]:
    """The names of the pins that have not expired, by checkpoint."""
    found: dict[int, list[str]] = {}
    for name, pin in sorted(live_pins(owner).items()):
        found.setdefault(pin.checkpoint_id, []).append(name)
    return found
