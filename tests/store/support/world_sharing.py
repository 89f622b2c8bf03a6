"""Shared objects of two writers: uploads, checkpoints that name old ones, copies beside them."""

from __future__ import annotations

from typing import Literal

from seamark.errors import StoreUnavailableError
from seamark.store import open_store
from seamark.store.copy.run import copy_checkpoints
from seamark.store.shared_objects import SHARED_PREFIX
from tests.store.support.world_owning import Owning


class Sharing(Owning):
    """Operations on the objects that several checkpoints need."""

    def upload(self, who: int) -> None:
        """Store an object ahead of the checkpoint that is to name it; a fenced writer may too."""
        writer = self.writers[who]
        writer.uploaded.append(self._upload(writer))
        self._ended()

    def copy(self, who: int) -> None:
        """Copy all that counts elsewhere, through the seat of a writer that may be paused."""
        model, since = self.model, self.model.clock
        with open_store("memory://") as target:
            try:
                results = copy_checkpoints(self.writers[who].store, target)
            except StoreUnavailableError:
                assert not self._is_certain(since), "nobody has rolled it back meanwhile"
                return
            for result in results:
                record = model.records.get(result.checkpoint_id)
                if result.outcome == "damaged" and record is not None and not record.pruned:
                    assert not model.is_valid(record), f"{result} is whole (I9)"
            for checkpoint_id in target.list_ids():
                valid = target.validate_checkpoint(checkpoint_id)
                record = model.records.get(checkpoint_id)
                known = record is not None and not record.pruned and not model.is_valid(record)
                assert valid.valid or known, f"{valid.damage} was copied (I9)"
            if self._is_certain(since):
                chosen = target.recover_latest_validated().chosen_id
                assert chosen == model.newest_usable(), "a copy goes on elsewhere (I9)"

    def damage_object(self, checkpoint_id: int, how: Literal["flip", "delete"], bit: int) -> None:
        """Spoil an object of a checkpoint, and so every checkpoint that names it."""
        record = self.model.records.get(checkpoint_id)
        if record is None or record.pruned or record.disk is None or not record.objects:
            return
        name = sorted(record.objects)[bit % len(record.objects)]
        if self.place.value(SHARED_PREFIX + name) is None:
            return
        data = bytearray(record.objects[name])
        data[bit % len(data)] ^= 1 << bit % 8
        self.place.overwrite(SHARED_PREFIX + name, bytes(data) if how == "flip" else None)
        self.model.lost.add(name)
        for writer in self.writers:
            # a prune believes what its handle has written, until that is seen to be damaged
            writer.store.shared_objects._verified.forget([name])
        self._ended()

    def check_objects(self, contents: dict[str, bytes]) -> None:
        """Nothing that a checkpoint needs was changed or removed (I6)."""
        for record in self.model.records.values():
            if record.pruned or not record.is_readable or not self.model.counts(record):
                continue
            for name, data in record.objects.items():
                if name not in self.model.lost:
                    found = contents.get(SHARED_PREFIX + name)
                    assert found == data, f"an object of {record.checkpoint_id} is gone (I6)"

    def clean_up(self, who: int, min_age: float) -> None:
        """Also see that it leaves no object that nobody needs."""
        writer, since = self.writers[who], self.model.clock
        certain = self._is_certain(since) and self._may_write(writer)
        super().clean_up(who, min_age)
        records = [r for r in self.model.records.values() if not r.pruned and r.disk is not None]
        if not certain or min_age or not all(r.is_readable for r in records):
            return
        named = {name for record in records for name in record.objects}
        waiting = set(writer.store.shared_objects._unnamed)
        left = set(self.observer.shared_objects.entries()) - named - waiting
        assert not left, f"{left} were left (I6)"
