"""Claims, rollbacks, pins, prunes and clean-ups, judged by the model."""

from __future__ import annotations

from seamark.errors import (
    CheckpointNotFoundError,
    FencedError,
    InvalidInputError,
    RefusedError,
)
from seamark.store.manifests import Tombstone
from tests.store.support.model import HOURS_AGO
from tests.store.support.world_base import Writer
from tests.store.support.world_saving import Saving


class Owning(Saving):
    """Operations that change ``owner.json`` or remove something."""

    def claim(self, who: int) -> None:
        writer, model = self.writers[who], self.model
        since = model.clock
        writer.generation = writer.tombstone = None
        try:
            claim = writer.store.claim()
        except FencedError as error:
            assert not self._is_certain(since), error
            model.generation = max(model.generation, self.owner().generation)
            model.released = self.owner().released
            self._ended()
            return
        certain = self._is_certain(since)
        if certain:
            assert claim.generation == model.generation + 1
        record = model.records.pop(claim.tombstone_id, None)
        if record is not None:
            assert record.disk is None, "a tombstone is on a checkpoint (I4)"
            assert record.checkpoint_id > model.pointer, "the id was lost, but not forgotten (I5)"
        assert claim.tombstone_id > model.boundary
        writer.generation, writer.tombstone = claim.generation, claim.tombstone_id
        model.generation = max(model.generation, claim.generation, self.owner().generation)
        model.released = self.owner().released
        model.fences.append((claim.tombstone_id, claim.generation))
        model.tombstone = claim.tombstone_id
        for given_up in set(self.owner().voided) - model.voided:
            assert isinstance(self._found(given_up), Tombstone), f"{given_up} was decided (I3)"
            model.voided.add(given_up)
        self._ended()

    def release(self, who: int) -> None:
        writer, model = self.writers[who], self.model
        mine, armed = writer.generation, writer.seat
        armed.disarm()
        writer.store.close()
        if mine is not None and mine == model.generation:
            model.released = True
        self.writers[who] = self._seated()
        self._ended()

    def take_over(self, who: int, *, leave: bool) -> None:
        """All that a successor does: claim, go on, prune, clean up, perhaps end."""
        self.claim(who)
        self.save(who, None, "inline", None)
        self.prune(who, 1, None)
        if self._may_write(self.writers[who]) and self.writers[who].generation:
            self.clean_up(who, 0)
        if leave:
            self.release(who)

    def supersede(self, who: int, first: int, last: int) -> None:
        writer, model = self.writers[who], self.model
        since = model.clock
        try:
            writer.store.supersede(first, last)
        except RefusedError:
            assert writer.generation is None
        except (FencedError, InvalidInputError) as error:  # a fenced one may know less
            if self._is_certain(since):
                assert writer.generation != model.generation, error
        else:
            assert writer.generation == model.generation
            model.superseded.append((first, last))
        self._ended()

    def pin(self, who: int, name: str, checkpoint_id: int, lasting: float | None) -> None:
        model = self.model
        since = model.clock
        record = model.records.get(checkpoint_id)
        known = model.is_there(record)
        taken = model.pins.get(name, (0, False))
        try:
            self.writers[who].store.pin(name, checkpoint_id, expires_in=lasting)
        except CheckpointNotFoundError as error:
            if self._is_certain(since):
                assert not known, error
        except RefusedError as error:
            taken = model.pins.get(name, (0, False))
            assert taken[1], error
            assert taken[0] != checkpoint_id
        else:
            if self._is_certain(since):
                assert known
                assert not (taken[1] and taken[0] != checkpoint_id)
            record = model.records.get(checkpoint_id)
            assert record is not None
            assert not record.pruned, f"{checkpoint_id} was pinned when it was gone (I6)"
            model.pins[name] = (checkpoint_id, lasting is None or lasting > 0)
        self._ended()

    def unpin(self, who: int, name: str) -> None:
        try:
            self.writers[who].store.unpin(name)
        except CheckpointNotFoundError:
            assert name not in self.model.pins
        else:
            del self.model.pins[name]
        self._ended()

    def prune(self, who: int, keep: int | None, within: float | None) -> None:
        writer, model = self.writers[who], self.model
        since = model.clock
        since_ms = None if within is None else (-1 if within > 1e9 else HOURS_AGO + 1)
        if self._depth == 0:
            self._pruning = keep, since_ms
        try:
            count = writer.store.prune(keep, within=within)
        except FencedError as error:
            if self._is_certain(since):
                assert not self._may_write(writer), error
            self._ended()
            return
        finally:
            if self._depth == 0:
                self._pruning = None
        kept = model.retained(keep, since_ms)
        if self._is_certain(since):
            assert self._may_write(writer)
            gone = model.prune_to(kept)
            assert count == len(gone), f"{count} removed, not {sorted(gone)}"
            keys = {self.place.layout.manifest(i) for i in gone}
            assert not keys & self.place.contents().keys()
        else:
            if self._depth and self._has_unknown():
                # the paused one has decided and not been told yet: that one may be the newest
                kept = model.with_parents(model.pinned())
            self._believe_boundary(kept)
        self._ended()

    def clean_up(self, who: int, min_age: float) -> None:
        writer = self.writers[who]
        since = self.model.clock
        try:
            writer.store.cleanup_orphans(min_age)
        except FencedError as error:
            if self._is_certain(since):
                assert not self._may_write(writer), error
        else:
            if self._is_certain(since) and min_age == 0:
                self._only_needed_sidecars_are_left(writer)
        self._ended()

    def _only_needed_sidecars_are_left(self, writer: Writer) -> None:
        model, layout = self.model, self.place.layout
        used = {r.state_key for r in model.records.values() if r.disk is not None}
        for key in self.place.contents():
            at = layout.state_id(key)
            if at is None or key in used or at in writer.staged:
                continue
            record = model.records.get(at)
            unreadable = record is not None and not record.is_readable
            assert unreadable or self._manifest_at(at), f"{key} was left"
