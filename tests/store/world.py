"""Two writers, an observer and the model: every operation is done to the store and judged.

An operation that nobody interrupted must end exactly as the model says. One that was interrupted,
or that runs in the middle of another one, may win or lose; then its answer is taken as a fact, and
all facts together must still fit (I1 to I6).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

import pytest

from seamark import CheckpointManifest, OperatorCheckpoint, SinkCommitStatus
from seamark.errors import (
    CheckpointNotFoundError,
    DamageError,
    FencedError,
    InvalidInputError,
    RefusedError,
    SeamarkError,
)
from seamark.store.blobs import Blob
from seamark.store.checkpoint_store import CheckpointStore
from seamark.store.layout import OWNER_KEY
from seamark.store.manifests import Found, Tombstone, parse_manifest
from seamark.store.owner import Owner, Standing, decode_owner, standing
from tests.store.interleaving import Place, Seat
from tests.store.model import AHEAD, HOURS_AGO, Model, Record

State = Literal["none", "inline", "sidecar", "mixed", "staged", "large"]
Damage = Literal["flip", "truncate", "delete"]


@dataclass
class Writer:
    """A handle on the store, and the claim that it believes to hold."""

    store: CheckpointStore
    seat: Seat
    generation: int | None = None
    tombstone: int | None = None
    staged: dict[int, bytes] = field(default_factory=dict)


class World:
    """A store, its two writers and what is known of it."""

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

    # saving

    def stage(self, who: int) -> None:
        """Write a sidecar; the manifest follows later, or never."""
        writer, since = self.writers[who], self.model.clock
        self._unique += 1
        state = b"staged %d" % self._unique
        try:
            at = writer.store.next_id()
            writer.store.save_state_data(at, [state])
        except FencedError as error:
            assert not (self._is_certain(since) and self._may_write(writer)), error
        else:
            writer.staged[at] = state
        self._ended()

    def save(self, who: int, checkpoint_id: int | None, state: State, parent: int | None) -> None:
        """``checkpoint_id`` None asks ``next_id()``, as a pipeline does."""
        writer, model = self.writers[who], self.model
        since = model.clock
        waiting = max(writer.staged, default=None) if state == "staged" else None
        asked = checkpoint_id is None and waiting is None
        chosen = waiting or checkpoint_id or writer.store.next_id()
        if parent is not None and parent >= chosen:
            parent = None
        # a sidecar that was staged belongs to the id, whatever the manifest says
        staged = writer.staged.get(chosen) if state in ("none", "inline", "staged") else None
        manifest, chunks = self._draft(chosen, state, parent, staged)
        expected = staged if chunks is None else b"".join(chunks)
        refusal = self._refusal(writer, chosen, expected or b"")
        try:
            if state == "staged" and staged is None:
                writer.store.save_state_data(chosen, chunks or [])
                writer.staged[chosen] = expected or b""
            saved = writer.store.save_with_state(manifest, None if state == "staged" else chunks)
        except (RefusedError, DamageError) as error:
            # what it builds on is gone, or somebody has removed or replaced the staged state
            has_parent = parent is None or self._is_good_parent(parent)
            assert not (self._is_certain(since) and has_parent and staged is None), error
        except FencedError as error:
            if self._is_certain(since) and staged is None:
                assert refusal != "", f"nobody was in the way of {chosen}, and yet: {error}"
                at_fault = asked and self._may_write(writer) and chosen != writer.tombstone
                assert not at_fault, f"next_id() was refused: {error}"
            if chosen == writer.tombstone:
                writer.tombstone = None  # damaged or lost; the next try must get past it
        else:
            certain = self._is_certain(since)
            if certain and staged is None:
                assert not refusal, f"{chosen} was saved although {refusal}"
            writer.staged.pop(chosen, None)
            self._decided(writer, saved, expected, certain=certain)
        self._ended()

    def _is_good_parent(self, parent: int) -> bool:
        record = self.model.records.get(parent)
        return record is not None and self.model.is_there(record) and record.is_readable

    def _draft(
        self, checkpoint_id: int, state: State, parent: int | None, staged: bytes | None = None
    ) -> tuple[CheckpointManifest, list[bytes] | None]:
        self._unique += 1
        text = b"%d of %d" % (self._unique, checkpoint_id)
        operators = {}
        chunks: list[bytes] | None = None
        if state in ("inline", "mixed"):
            operators["inside"] = OperatorCheckpoint.inline(text)
        if state in ("sidecar", "mixed", "staged", "large"):
            chunks = [staged or text + b"." * (100 if state == "large" else 1)]
            operators["outside"] = OperatorCheckpoint.in_sidecar(0, len(chunks[0]))
        manifest = CheckpointManifest.new(
            checkpoint_id,
            epoch=self._unique,
            timestamp_ms=AHEAD if self._unique % 2 else HOURS_AGO,
            operator_states=operators,
            sink_names=["out"],
            sink_commit_statuses={"out": SinkCommitStatus.pending()},
            is_incremental=parent is not None,
            parent_id=parent,
        )
        return manifest, chunks

    def _refusal(self, writer: Writer, checkpoint_id: int, state: bytes) -> str | None:
        """Why the save must fail, nothing when it must succeed, None when it may do either."""
        model = self.model
        if not self._may_write(writer):
            return "another writer owns the store"
        if checkpoint_id <= model.boundary:
            return "the id was pruned"
        if checkpoint_id in model.voided or model.is_superseded(checkpoint_id):
            return "the id was given up"
        there = self._found(checkpoint_id)
        late = model.records.get(checkpoint_id)
        if there == "manifest" and not (writer.generation and late and model.is_late(late)):
            return "the id is taken"
        if there is None and writer.generation and checkpoint_id == model.tombstone:
            return None  # its tombstone was removed; whether it still counts on it is its affair
        if isinstance(there, Tombstone) and there.generation > model.generation:
            return "the id was given up"
        lying = self.place.value(self.place.layout.state(checkpoint_id))
        locked = self.place.kind != "object"
        if state and locked and not writer.generation and lying not in (None, state):
            return "another state lies there"
        return ""

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
        return found.manifest if isinstance(found, Found) else None

    def _decided(
        self,
        writer: Writer,
        saved: CheckpointManifest,
        state: bytes | None,
        *,
        certain: bool,
    ) -> None:
        checkpoint_id, model = saved.checkpoint_id, self.model
        before = model.records.get(checkpoint_id)
        if before is not None and before.pruned:
            assert not certain, f"{checkpoint_id} was pruned and is back (I5)"
            return  # a late write behind the boundary: check() sees that nobody takes it for one
        free = before is None or before.disk is None or model.is_late(before)
        assert free, f"{checkpoint_id} was decided twice (I4)"
        there = self._manifest_at(checkpoint_id)
        data = self.place.value(self.place.layout.manifest(checkpoint_id)) or b""
        record = Record(checkpoint_id, saved.generation, saved, data, data)
        if checkpoint_id == writer.tombstone:
            writer.tombstone = None
        record.is_reborn = before is not None
        model.has_decided = True
        model.records[checkpoint_id] = record
        record.pruned = self._is_pruned(record)
        if certain:
            assert there == saved
        if record.pruned:
            assert not certain, f"{checkpoint_id} was saved behind the boundary"
        else:
            assert there is not None, f"{checkpoint_id} was saved and is not there (I3)"
            assert _fixed_part(there) == _fixed_part(saved)
            record.manifest = there
            self._note_state(record, saved, state)
        in_time = model.counts(record) and not record.pruned
        if certain:
            assert in_time, f"{checkpoint_id} was saved and does not count (I3)"
            self._pointer_names_at_least(checkpoint_id)
        elif not in_time:
            assert self.place.kind == "object", f"{checkpoint_id} was saved under the lock (I4)"
        if not in_time and writer.generation is not None:
            with pytest.raises(FencedError):  # the loser learns of it before it commits a sink (I4)
                writer.store.check_claim()

    def _is_pruned(self, record: Record) -> bool:
        return standing(self.owner(), record.checkpoint_id) is Standing.PRUNED

    def _note_state(self, record: Record, saved: CheckpointManifest, state: bytes | None) -> None:
        if saved.state_bytes is None:
            return
        named = saved.extra.get("state_object")
        record.state_key = str(named or self.place.layout.state(record.checkpoint_id))
        record.state_disk = record.state = self.place.value(record.state_key)
        if record.state is not None and record.state == state:
            return
        # only the one who took over may have cleaned up what does not count
        assert not self.model.counts(record), f"{saved.checkpoint_id} has no state (I1)"
        record.state = b"gone"

    def _pointer_names_at_least(self, checkpoint_id: int) -> None:
        data = self.place.value(self.place.layout.pointer)
        named = self.place.layout.decode_pointer(data or b"")
        assert self.model.pointer_damaged or (named or 0) >= checkpoint_id

    def update(self, who: int, checkpoint_id: int, word: int) -> None:
        writer, model = self.writers[who], self.model
        since = model.clock
        record = model.records.get(checkpoint_id)
        base = record.manifest if record and record.manifest else CheckpointManifest.new(1, epoch=1)
        changed = base.replace(
            checkpoint_id=checkpoint_id,
            sink_commit_statuses={"out": SinkCommitStatus.failed(str(word))},
            sink_epochs={"out": word},
        ).with_extra(note=word)
        expected = self._why_not_updated(writer, record)
        try:
            if expected is None:
                writer.store.load_by_id(checkpoint_id)  # to change what is there, not a memory
            stored = writer.store.update_manifest(changed)
        except SeamarkError as error:
            if self._is_certain(since):
                # a handle may remember what stood where all traces were lost
                lost = record is not None and (record.is_reborn or record.manifest is None)
                assert lost or (expected and isinstance(error, expected)), error
        else:
            if self._is_certain(since):
                assert expected is None
                assert self._manifest_at(checkpoint_id) == stored
            self._updated(checkpoint_id)
        self._ended()

    def _why_not_updated(
        self, writer: Writer, record: Record | None
    ) -> type[FencedError | CheckpointNotFoundError | DamageError] | None:
        if not self._may_write(writer):
            return FencedError
        if record is None or not self.model.is_there(record):
            return CheckpointNotFoundError
        return None if record.is_readable else DamageError

    def _updated(self, checkpoint_id: int) -> None:
        record = self.model.records[checkpoint_id]
        now = self._manifest_at(checkpoint_id)
        assert (now is None) == record.pruned, f"an update lost or revived {checkpoint_id} (I5)"
        if now is not None:
            assert record.manifest is not None
            assert _fixed_part(now) == _fixed_part(record.manifest), "it was decided (I4)"
            data = self.place.value(self.place.layout.manifest(checkpoint_id)) or b""
            record.manifest, record.data, record.disk = now, data, data

    # owning

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

    # keeping house

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

    # damage

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
        self.writers[1].generation = None
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

    # looking

    def owner(self) -> Owner:
        data = self.place.value(OWNER_KEY)
        return Owner() if data is None else decode_owner(data)

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


def _fixed_part(manifest: CheckpointManifest) -> CheckpointManifest:
    """What nobody may change once it was decided."""
    return manifest.with_extra(note=None, self_checksum=None).replace(
        sink_commit_statuses={}, sink_epochs={}, size_bytes=0
    )
