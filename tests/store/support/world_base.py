"""A store, its two writers and what is known of it; nothing is done to it here."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

from seamark import CheckpointManifest
from seamark.blobs.contract import Blob
from seamark.errors import (
    DamageError,
)
from seamark.manifest.facts import SharedObject
from seamark.store.checkpoint_store import CheckpointStore
from seamark.store.layout import OWNER_KEY
from seamark.store.manifests import StoredManifest, Tombstone, parse_manifest
from seamark.store.owner import Owner, Standing, decode_owner, standing
from tests.store.support.interleaving import Place, Seat
from tests.store.support.model import Model


@dataclass
class Writer:
    """A handle on the store, and the claim that it believes to hold."""

    store: CheckpointStore
    seat: Seat
    generation: int | None = None
    tombstone: int | None = None
    staged: dict[int, bytes] = field(default_factory=dict)
    uploaded: list[tuple[SharedObject, bytes]] = field(default_factory=list)
    """Shared objects that no checkpoint names yet, and what is in them."""


class WorldBase:
    """What every operation needs to look at the store and at the model."""

    def __init__(self, place: Place) -> None:
        self.place = place
        self.model = Model()
        self.writers = [self._seated(), self._seated()]
        self.observer = place.store()
        self._depth = 0
        self._unique = 0
        self._pruning: tuple[int | None, int | None] | None = None

    def close(self) -> None:
        for handle in (*(w.store for w in self.writers), self.observer):
            handle.close()

    def _seated(self) -> Writer:
        seat = self.place.seat()
        return Writer(self.place.store(seat), seat)

    def _is_certain(self, since: int) -> bool:
        """Whether an operation ran alone, so that the model can say how it must have ended."""
        return self._depth == 0 and self.model.clock == since

    def _ended(self) -> None:
        self.model.clock += 1

    def race(
        self, who: int, at: int, first: Callable[[], None], second: Callable[[], None]
    ) -> None:
        """Run ``first``, a writer's operation, and let ``second`` in before its ``at``-th I/O."""

        def visit() -> None:
            self._depth += 1
            if self._pruning is not None:  # it may have been decided already
                self._believe_boundary(self.model.retained(*self._pruning))
                self._ended()  # how many it removes is no longer known, also if ``second`` reads
            try:
                second()
            finally:
                self._depth -= 1

        seat = self.writers[who].seat
        seat.arm(at, visit)
        try:
            first()
        finally:
            seat.disarm()

    def owner(self) -> Owner:
        data = self.place.value(OWNER_KEY)
        return Owner() if data is None else decode_owner(data)

    def _may_write(self, writer: Writer) -> bool:
        if writer.generation is not None:
            return writer.generation == self.model.generation
        return self.model.released

    def _found(self, checkpoint_id: int) -> Tombstone | Literal["manifest"] | None:
        data = self.place.value(self.place.layout.manifest(checkpoint_id))
        if data is None:
            return None
        try:
            found = parse_manifest(Blob(data, None), checkpoint_id)
        except DamageError:
            return "manifest"
        return found if isinstance(found, Tombstone) else "manifest"

    def _manifest_at(self, checkpoint_id: int) -> CheckpointManifest | None:
        data = self.place.value(self.place.layout.manifest(checkpoint_id))
        found = parse_manifest(Blob(data, None), checkpoint_id) if data is not None else None
        return found.manifest if isinstance(found, StoredManifest) else None

    def _has_unknown(self) -> bool:
        unknown = set(self.observer.list_ids()) - self.model.records.keys()
        return any(self._found(i) == "manifest" for i in unknown)

    def _believe_boundary(self, needed: set[int]) -> None:
        """After a race: whatever the store says is gone is gone, but nothing that is needed is."""
        owner, model = self.owner(), self.model
        assert owner.prune_boundary >= model.boundary
        model.boundary = owner.prune_boundary
        for record in model.records.values():
            gone = standing(owner, record.checkpoint_id) is Standing.PRUNED
            at = record.checkpoint_id
            assert gone or not record.pruned, f"{at} was pruned and counts again (I5)"
            assert not (gone and at in needed), f"{at} was removed and is needed (I6)"
            record.pruned = gone


def fixed_part(manifest: CheckpointManifest) -> CheckpointManifest:
    """What nobody may change once it was decided."""
    return manifest.with_extra(note=None, self_checksum=None).replace(
        sink_commit_statuses={}, sink_epochs={}, size_bytes=0
    )
