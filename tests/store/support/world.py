"""Two writers, an observer and the model: every operation is done to the store and judged.

An operation that nobody interrupted must end exactly as the model says. One that was interrupted,
or that runs in the middle of another one, may win or lose; then its answer is taken as a fact, and
all facts together must still fit (I1 to I6).
"""

from __future__ import annotations

from typing import Literal

import pytest

from seamark.errors import (
    DamageError,
)
from seamark.store.layout import OWNER_KEY
from seamark.store.manifests import Tombstone
from tests.store.support.model import Record
from tests.store.support.world_sharing import Sharing

Damage = Literal["flip", "truncate", "delete"]


class World(Sharing):
    """All that can happen to a store, and what must hold after each step."""

    def damage_manifest(self, checkpoint_id: int, how: Damage, bit: int) -> None:
        key = self.place.layout.manifest(checkpoint_id)
        data = self.place.value(key)
        record = self.model.records.get(checkpoint_id)
        if data is None or (record is not None and (record.pruned or record.manifest is None)):
            return
        spoiled = self.spoil(key, how, bit)
        if record is not None:
            record.disk = spoiled
        elif checkpoint_id not in self.model.voided and spoiled is not None:
            self.model.records[checkpoint_id] = Record(checkpoint_id, disk=spoiled)
        self._ended()

    def damage_state(self, checkpoint_id: int, how: Damage, bit: int) -> None:
        record = self.model.records.get(checkpoint_id)
        if record is None or record.pruned or record.disk is None or not record.state_key:
            return
        if self.place.value(record.state_key) is None:
            return
        record.state_disk = self.spoil(record.state_key, how, bit)
        self._ended()

    def damage_pointer(self, how: Damage, bit: int) -> None:
        key = self.place.layout.pointer
        if self.place.value(key) is not None:
            spoiled = self.spoil(key, how, bit)
            self.model.pointer = self.place.layout.decode_pointer(spoiled or b"") or 0
            self.model.pointer_damaged = True
        self._ended()

    def damage_owner(self, how: Literal["flip", "truncate"], bit: int) -> None:
        """Nobody goes on without knowing what was pruned and superseded; then it is repaired."""
        before = self.place.value(OWNER_KEY)
        if before is None:
            return
        self.spoil(OWNER_KEY, how, bit)
        contents = self.place.contents()
        first = self.writers[0].store
        manifest, _ = self._draft(1_000, "none", None)
        for attempt in (
            self.observer.recover_latest_validated,
            self.observer.next_id,
            lambda: first.save(manifest),
            lambda: first.prune(1),
            lambda: first.pin("x", 1),
            lambda: first.cleanup_orphans(0),
            self.writers[1].store.claim,
        ):
            with pytest.raises(DamageError):
                attempt()
        assert self.place.contents() == contents
        self.place.overwrite(OWNER_KEY, before)
        self._ended()

    def spoil(self, key: str, how: Damage, bit: int) -> bytes | None:
        """Flip a bit, cut the end off or remove a value; what is left."""
        data = self.place.value(key)
        assert data is not None
        spoiled: bytes | None = None
        if how == "flip" and data:
            at = bit % (len(data) * 8)
            changed = bytearray(data)
            changed[at // 8] ^= 1 << at % 8
            spoiled = bytes(changed)
        elif how == "truncate":
            spoiled = data[: bit % max(len(data), 1)]
        self.place.overwrite(key, spoiled)
        return spoiled

    def inspect(self, checkpoint_id: int) -> None:
        """Everything a reader can ask about one id (I1)."""
        record = self.model.records.get(checkpoint_id)
        if record is None:
            return
        there = self.model.is_there(record)
        result = self.observer.validate_checkpoint(checkpoint_id)
        if not record.pruned:
            assert result.valid == (there and self.model.is_valid(record)), result
        if there and not record.is_readable:
            with pytest.raises(DamageError):
                self.observer.load_by_id(checkpoint_id)
        else:
            loaded = self.observer.load_by_id(checkpoint_id)
            assert loaded == (record.manifest if there else None)
        if there and record.is_readable and record.state is not None:
            if record.is_whole:
                assert self.observer.load_state_data(checkpoint_id) == record.state
            else:
                with pytest.raises(DamageError):
                    self.observer.load_state_data(checkpoint_id)

    def check(self) -> None:
        """What must hold after every step."""
        contents = self.place.contents()
        self._check_bytes(contents)
        self.check_objects(contents)
        self._check_ids(contents)
        self._check_pointer(contents)
        self._check_recovery(contents)

    def _check_bytes(self, contents: dict[str, bytes]) -> None:
        for record in self.model.records.values():
            if record.pruned:
                continue
            at = record.checkpoint_id
            assert contents.get(self.place.layout.manifest(at)) == record.disk, (
                f"the manifest of {at} was changed or removed (I4, I6)"
            )
            if record.state_key is None or record.disk is None:
                continue  # without its manifest a state is an orphan
            found = contents.get(record.state_key)
            if record.state_disk is None:
                record.state_disk = found  # a loser may put its own where one was lost
            assert found == record.state_disk, f"the state of {at} was changed or removed (I1, I6)"

    def _check_ids(self, contents: dict[str, bytes]) -> None:
        expected = {r.checkpoint_id for r in self.model.listed()}
        listed = set(self.observer.list_ids())
        assert expected <= listed
        for extra in listed - expected:  # a claim that lost its race leaves its tombstone behind
            assert isinstance(self._found(extra), Tombstone), f"{extra} is listed and no checkpoint"
        counted = [
            (r.checkpoint_id, r.manifest.epoch)
            for r in reversed(self.model.listed())
            if r.is_readable and self.model.counts(r) and r.manifest
        ]
        assert self.observer.list() == counted
        assert self.observer.next_id() > self.model.next_id_above(), "an id will repeat (I5)"

    def _check_pointer(self, contents: dict[str, bytes]) -> None:
        data = contents.get(self.place.layout.pointer)
        named = self.place.layout.decode_pointer(data) if data is not None else None
        if named is not None:
            assert named >= self.model.pointer, "the pointer moved back (I5)"
            self.model.pointer = named

    def _check_recovery(self, contents: dict[str, bytes]) -> None:
        model = self.model
        report = self.observer.recover_latest_validated()
        assert report.chosen_id == model.newest_usable(), f"{report} (I3)"
        if report.fresh_start:
            assert report.chosen_id is None
            assert model.boundary == 0
            assert self.place.layout.pointer not in contents, "there is a pointer: not fresh"
            assert not model.listed(), "everything is damaged, and it starts afresh"
        if report.chosen_id is None:
            if model.was_never_used():
                assert report.fresh_start
            told = {at for at, _ in report.skipped}
            assert {r.checkpoint_id for r in model.listed()} <= told
