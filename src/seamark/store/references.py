"""What the checkpoints of a store refer to outside of themselves.

Tests: ``tests/store/test_shared_objects.py``.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from seamark.errors import DamageError
from seamark.manifest import CheckpointManifest
from seamark.manifest.facts import FACTS
from seamark.state import CheckpointId
from seamark.store.consistent_read import listing, raise_if_overtaken, until_settled
from seamark.store.manifests import Manifests, StoredManifest
from seamark.store.owner import UNCOUNTED, arrived_too_late, standing
from seamark.store.ownership import Ownership

STATE_PREFIX: Final = "state/"


class InUse(NamedTuple):
    """What is needed by at least one checkpoint that counts."""

    states: set[CheckpointId]
    """Partitioned state."""
    objects: set[str]
    """Names of shared objects."""


class References:
    """Asks all checkpoints that count."""

    def __init__(self, manifests: Manifests, ownership: Ownership) -> None:
        self._manifests = manifests
        self._ownership = ownership

    def in_use(self) -> InUse:
        """What must stay. :class:`DamageError` when a manifest cannot be read."""
        return until_settled(self._look, self._manifests.url)

    def _look(self) -> InUse:
        ids, owner = listing(self._manifests, self._ownership)
        in_use = InUse(set(), set())
        for checkpoint_id, stored in self._manifests.read_many(
            [i for i in ids if standing(owner, i) not in UNCOUNTED]
        ):
            if stored is None or isinstance(stored, DamageError):
                raise_if_overtaken(self._manifests, self._ownership, owner, [checkpoint_id])
            if isinstance(stored, DamageError):
                raise DamageError(f"checkpoint {checkpoint_id}: {stored.what}", where=stored.where)
            if isinstance(stored, StoredManifest):
                manifest = stored.manifest
                owner = self._ownership.covering(owner, manifest.generation, checkpoint_id)
                if not arrived_too_late(owner, manifest):
                    _note(in_use, manifest)
        return in_use


def _note(in_use: InUse, manifest: CheckpointManifest) -> None:
    if FACTS["shared_objects"].is_wrong_in(manifest):
        # read as an empty list, all that it needs would be in nobody's use
        raise DamageError(
            f"checkpoint {manifest.checkpoint_id}: its field 'shared_objects' cannot be read"
        )
    state = named_state(manifest)
    if state is not None:
        in_use.states.add(state)
    in_use.objects.update(shared.name for shared in manifest.shared_objects)


def named_state(manifest: CheckpointManifest) -> CheckpointId | None:
    """The partitioned state checkpoint that a manifest points at."""
    path = manifest.state_checkpoint
    if path is None:
        return None
    try:
        return CheckpointId.parse(path.removeprefix(STATE_PREFIX))
    except ValueError:
        raise DamageError(
            f"checkpoint {manifest.checkpoint_id} points at {path!r}, which is no state checkpoint"
        ) from None
