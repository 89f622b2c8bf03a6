"""Saving and updating, judged by the model."""

from __future__ import annotations

from typing import Literal

import pytest

from seamark import CheckpointManifest, OperatorCheckpoint, SinkCommitStatus
from seamark.errors import (
    CheckpointNotFoundError,
    DamageError,
    FencedError,
    RefusedError,
    SeamarkError,
)
from seamark.manifest.facts import SharedObject
from seamark.store.manifests import Tombstone
from seamark.store.owner import Standing, standing
from seamark.store.shared_objects import SHARED_PREFIX
from tests.store.support.model import AHEAD, HOURS_AGO, Record
from tests.store.support.world_base import WorldBase, Writer, fixed_part

State = Literal["none", "inline", "sidecar", "mixed", "staged", "large", "shared", "referring"]
Objects = dict[SharedObject, bytes]
"""Shared objects that a checkpoint is to name, and what must be in them."""


class Saving(WorldBase):
    """Operations that decide a checkpoint, or change what may change of one."""

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
        has_own = state in ("sidecar", "mixed", "large")
        staged = None if has_own else writer.staged.get(chosen)
        manifest, chunks = self._draft(chosen, state, parent, staged)
        objects = self._objects(writer, state, parent)
        if objects:
            manifest = manifest.with_extra(shared_objects=[list(each) for each in objects])
        expected = staged if chunks is None else b"".join(chunks)
        refusal = self._refusal(writer, chosen, expected or b"")
        if not refusal and self._may_lack(objects):
            refusal = None
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
                at_fault = at_fault and not self._may_lack(objects)
                assert not at_fault, f"next_id() was refused: {error}"
            if chosen == writer.tombstone and not self._may_lack(objects):
                writer.tombstone = None  # damaged or lost; the next try must get past it
        else:
            certain = self._is_certain(since)
            if certain and staged is None:
                assert not refusal, f"{chosen} was saved although {refusal}"
            writer.staged.pop(chosen, None)
            self._decided(writer, saved, expected, objects, certain=certain)
        self._ended()

    # shared objects

    def _upload(self, writer: Writer) -> tuple[SharedObject, bytes]:
        self._unique += 1
        data = b"object %d" % self._unique
        return writer.store.shared_objects.write([data]), data

    def _objects(self, writer: Writer, state: State, parent: int | None) -> Objects:
        """New ones and what was uploaded before; a full one also names those of the newest."""
        if state not in ("shared", "referring"):
            return {}
        objects = dict([*writer.uploaded, self._upload(writer)])
        writer.uploaded = []
        newest = self.model.records.get(self.model.newest_usable() or 0)
        if state == "referring" and parent is None and newest is not None and newest.manifest:
            for shared in newest.manifest.shared_objects:
                objects[shared] = newest.objects[shared.name]
        return objects

    def _may_lack(self, objects: Objects) -> bool:
        """Whether somebody has removed an object by now."""
        return any(self.place.value(SHARED_PREFIX + each.name) is None for each in objects)

    def _note_objects(self, record: Record, writer: Writer, objects: Objects) -> None:
        record.objects = {shared.name: data for shared, data in objects.items()}
        record.lost = self.model.lost
        for name, data in record.objects.items():
            if self.place.value(SHARED_PREFIX + name) != data and name not in self.model.lost:
                # without a claim another writer may prune between the last look and the decision
                raced = writer.generation is None and self.place.kind == "object"
                late = not self.model.counts(record) or record.pruned
                assert raced or late, f"{record.checkpoint_id} names what is not there (I1)"
                self.model.lost.add(name)

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

    def _decided(
        self,
        writer: Writer,
        saved: CheckpointManifest,
        state: bytes | None,
        objects: Objects,
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
            assert fixed_part(there) == fixed_part(saved)
            record.manifest = there
            self._note_state(record, saved, state)
        self._note_objects(record, writer, objects)
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
                # a handle may remember what stood where now is damage, or nothing
                lost = record is not None and (record.is_reborn or not record.is_readable)
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
            assert fixed_part(now) == fixed_part(record.manifest), "it was decided (I4)"
            data = self.place.value(self.place.layout.manifest(checkpoint_id)) or b""
            record.manifest, record.data, record.disk = now, data, data
