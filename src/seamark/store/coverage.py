"""Manifests of a later generation than ``owner.json`` knows: which of the two is wrong.

``owner.json`` says what was rolled back, so an old one that was put back must not be believed: all
reading stops. One manifest with a senseless generation looks the same at first, but then there is
proof that nobody has claimed the store since, and only that manifest is damaged.

Tests: ``tests/store/test_survey.py``.
"""

from __future__ import annotations

from seamark.errors import DamageError
from seamark.store.manifests import Manifests, StoredManifest
from seamark.store.owner import REBUILD, Owner


class OddGeneration(DamageError):
    """A manifest names a generation that never was; ``owner.json`` is not in doubt."""


def uncovered(
    owner: Owner, manifests: Manifests, generation: int, checkpoint_id: int
) -> DamageError:
    """The error for a manifest of a later generation: :class:`OddGeneration` if that is proven."""
    if _is_fenced(owner, checkpoint_id) or _wrote_newest(owner, manifests, checkpoint_id):
        return OddGeneration(
            f"corrupt manifest: it says generation {generation}, and the store has never had more "
            f"than {owner.generation}"
        )
    return DamageError(
        f"owner.json is gone or too old: checkpoint {checkpoint_id} was written by generation "
        f"{generation}, owner.json knows {owner.generation}",
        hint=REBUILD,
    )


def _is_fenced(owner: Owner, checkpoint_id: int) -> bool:
    """Whether an id is below the last fence: later generations only decide ids from there on."""
    return bool(owner.fences) and checkpoint_id < owner.fences[-1][0]


def _wrote_newest(owner: Owner, manifests: Manifests, checkpoint_id: int) -> bool:
    """Whether the owner has decided the newest id, after this one. A later claim would be newer."""
    newest = max(manifests.ids(), default=0)
    if newest <= checkpoint_id or not owner.generation:
        return False
    try:
        stored = manifests.read(newest)
    except DamageError:
        return False
    if not isinstance(stored, StoredManifest):
        return stored is not None and stored.generation == owner.generation
    said = stored.manifest
    return said.generation == owner.generation and said.writer == owner.writer
