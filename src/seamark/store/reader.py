"""The reading half of a checkpoint store: nothing here changes anything.

Tests: ``tests/store/test_consistent_read.py``.
"""

from __future__ import annotations

import builtins
import threading
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Final

from seamark._common.checks import U16_MAX, U64_MAX, check_duration, check_id, check_number
from seamark._common.logs import logger_named
from seamark.blobs.contract import Blobs, Buffer
from seamark.errors import (
    CheckpointNotFoundError,
    DamageError,
    InvalidInputError,
    RefusedError,
    SeamarkError,
)
from seamark.manifest import DEFAULT_VNODE_COUNT, CheckpointManifest
from seamark.state import StateStore
from seamark.store import cleanup as housekeeping
from seamark.store import recovery
from seamark.store.consistent_read import (
    is_pruned,
    listing,
    raise_if_overtaken,
    raise_if_rewritten,
    until_settled,
)
from seamark.store.layout import Layout
from seamark.store.manifests import StoredManifest
from seamark.store.owner import UNCOUNTED, Owner, Pin, Standing, arrived_too_late, standing
from seamark.store.ownership import Ownership
from seamark.store.parts import StoreParts
from seamark.store.recovery import RecoveryReport
from seamark.store.retention import Retention, Verdict
from seamark.store.shared_objects import SharedObjects
from seamark.store.sidecars import WrittenSidecar
from seamark.store.validation import (
    CheckpointKind,
    ExaminedCheckpoint,
    ValidationResult,
)

log = logger_named(__name__)

HOUR: Final = 3600.0


class StoreReader:
    """Everything that can be learned from a store."""

    def __init__(
        self,
        blobs: Blobs,
        layout: Layout,
        *,
        keep: int | None = None,
        vnode_count: int | None = None,
    ) -> None:
        self._keep = Retention(last=keep) if keep is not None else None
        if vnode_count is not None:
            check_number("vnode_count", vnode_count, 1, U16_MAX)
        self._vnode_count = vnode_count
        self._blobs = blobs
        self._layout = layout
        self._parts = parts = StoreParts.of(blobs, layout, vnode_count)
        self._manifests = parts.manifests
        self._sidecars = parts.sidecars
        self._ownership = parts.ownership
        self._validator = parts.validator
        self._own_states: dict[int, WrittenSidecar] = {}
        self._last_decided: int | None = None
        self._lock = threading.RLock()
        self._closed = False

    @property
    def url(self) -> str:
        """Where the store is, without secrets."""
        return self._blobs.url

    @property
    def backend(self) -> Blobs:
        """What the store is kept in; a :class:`seamark.state.StateStore` can share it."""
        return self._blobs

    @property
    def partitioned_state(self) -> StateStore:
        """Where the partitioned state of checkpoints is. It is written before the manifest."""
        return self._parts.partitioned.states

    @property
    def shared_objects(self) -> SharedObjects:
        """Bytes that several checkpoints need. They are written before the manifest."""
        return self._parts.shared

    def vnode_count(self) -> int:
        """The number of state partitions that manifests are expected to have."""
        return DEFAULT_VNODE_COUNT if self._vnode_count is None else self._vnode_count

    def load_latest(self) -> CheckpointManifest | None:
        """The newest checkpoint that counts, or None when there is none.

        The pointer is only a hint and is not needed. A newest checkpoint that is damaged raises
        :class:`DamageError`; going back to an older one is :meth:`recover_latest_validated`.
        """
        return until_settled(self._latest, self.url)

    def _latest(self) -> CheckpointManifest | None:
        ids, owner = listing(self._manifests, self._reading())
        for checkpoint_id in reversed(ids):
            if standing(owner, checkpoint_id) is Standing.CURRENT:
                stored = self._read(checkpoint_id, owner, listed=True)
                if stored is not None:
                    return stored.manifest
        return None

    def load_by_id(self, checkpoint_id: int) -> CheckpointManifest | None:
        """The manifest of that id, or None when there is no such checkpoint."""
        stored, _ = self._found(checkpoint_id)
        return stored.manifest if stored else None

    def _found(self, checkpoint_id: int) -> tuple[StoredManifest | None, Owner]:
        """A checkpoint that counts, and the owner by which it does."""
        check_id(checkpoint_id)

        def look() -> tuple[StoredManifest | None, Owner]:
            owner = self._reading().read()
            return self._read(checkpoint_id, owner), owner

        return until_settled(look, self.url)

    def list(self) -> builtins.list[tuple[int, int]]:
        """(id, epoch) of every readable checkpoint, ascending. Reads every manifest."""
        return until_settled(self._epochs, self.url)

    def _epochs(self) -> builtins.list[tuple[int, int]]:
        owner, ids = self._visible()
        epochs: builtins.list[tuple[int, int]] = []
        gone = last = 0
        for checkpoint_id, stored in self._manifests.read_many(ids):
            if stored is None:
                gone = checkpoint_id
                continue
            if isinstance(stored, StoredManifest):
                if arrived_too_late(owner, stored.manifest):
                    continue
                epochs.append((checkpoint_id, stored.manifest.epoch))
            last = checkpoint_id
        raise_if_rewritten(self._ownership, owner)
        if gone > last:  # the newest is among what was pruned: there must be newer ones
            raise_if_overtaken(self._manifests, self._ownership, owner, [gone])
        return epochs

    def list_ids(self) -> builtins.list[int]:
        """Ids of all checkpoints, ascending, damaged ones too. Reads no manifest."""
        return self._visible()[1]

    def load_state_data(self, checkpoint_id: int) -> bytes | None:
        """The sidecar of a checkpoint, or None when it has none.

        Verified against the manifest when there is one; :class:`DamageError` when it differs.
        """

        def look() -> bytes | None:
            stored, owner = self._found(checkpoint_id)
            if stored is None and is_pruned(
                self._manifests, self._ownership, checkpoint_id, was_there=False
            ):
                return None
            try:
                return self._sidecars.load(checkpoint_id, stored.manifest if stored else None)
            except DamageError:
                there = [checkpoint_id] if stored is not None else []
                raise_if_overtaken(self._manifests, self._ownership, owner, there)
                raise

        return until_settled(look, self.url)

    def stream_state_data(self, checkpoint_id: int) -> Iterator[Buffer]:
        """The sidecar in pieces of a few MiB, for state that should not fill the memory.

        Use nothing of it before the end: only after the last piece is it known to be right, and
        :class:`DamageError` is raised there when it is not. A piece is valid until the one after
        the next is asked for.
        """
        stored, _ = self._found(checkpoint_id)
        if stored is None:
            raise self._not_found(checkpoint_id)
        try:
            if self._sidecars.holds_sidecar(stored.manifest):
                yield from self._sidecars.verified_stream(stored.manifest)
        except DamageError as error:
            raise self._pruned_or(checkpoint_id, error) from None

    def validate_checkpoint(self, checkpoint_id: int) -> ValidationResult:
        """Check manifest, state and every parent of a checkpoint, byte by byte."""
        return self._examined(
            checkpoint_id, lambda owner: self._validator.examine(checkpoint_id, owner)
        ).result

    def _examined(
        self, checkpoint_id: int, examine: Callable[[Owner], ExaminedCheckpoint]
    ) -> ExaminedCheckpoint:
        check_id(checkpoint_id)

        def look() -> ExaminedCheckpoint:
            owner = self._reading().read()
            examined = examine(owner)
            if examined.kind is not CheckpointKind.CHECKPOINT:
                there = [checkpoint_id] if examined.kind is CheckpointKind.DAMAGED else []
                raise_if_overtaken(self._manifests, self._ownership, owner, there)
            return examined

        return until_settled(look, self.url)

    def recover_latest_validated(self, *, read_data: bool = True) -> RecoveryReport:
        """Walk down from the newest checkpoint to the first valid one. Changes nothing.

        Without ``read_data`` state only has to be there in full size; whoever uses it verifies it.

        When everything is damaged, ``chosen_id`` is None and ``fresh_start`` False: whoever starts
        a pipeline must refuse that. An I/O error that proves nothing is raised.
        """
        self._reading()
        return recovery.recover(self._parts, "always" if read_data else "size")

    def owner(self) -> Owner:
        """What the store says about its owner, pins, boundary and superseded ranges."""
        return self._reading().read()

    def next_id(self) -> int:
        """The id for the next checkpoint: larger than every id that was ever used.

        Nothing is reserved by asking: two threads that ask before either saves get the same id.
        """
        owner = self._reading().read()
        newest = self._manifests.newest_id()
        if newest and self._ownership.tombstone_tag(newest) is not None:
            newest -= 1  # held for this writer: the next save takes its place
        sidecars = [checkpoint_id for checkpoint_id, _ in self._sidecars.entries().values()]
        used = max([owner.prune_boundary, owner.next_id - 1, newest, *sidecars])
        if used >= U64_MAX:
            raise RefusedError("all ids of this store are used up", where=self.url)
        return used + 1

    def pins(self) -> dict[str, Pin]:
        """All pins by name, expired ones too."""
        return dict(self._reading().read().pins)

    def plan_prune(
        self, keep: int | None = None, *, within: float | timedelta | None = None
    ) -> builtins.list[Verdict]:
        """What :meth:`prune` would do, newest first, with the reason for each. Changes nothing."""
        self._reading()
        return housekeeping.plan_prune(self._parts, Retention(last=keep, within=within))

    def plan_cleanup(self, min_age: float | timedelta = HOUR) -> housekeeping.Orphans:
        """What :meth:`cleanup_orphans` would remove. Changes nothing."""
        self._reading()
        age = check_duration("the age of an orphan", min_age)
        return housekeeping.plan_cleanup(self._parts, age, self._own_state_keys())

    # inside

    def _reading(self) -> Ownership:
        if self._closed:
            raise InvalidInputError("this store is closed", where=self.url)
        return self._ownership

    def _own_state_keys(self) -> set[str]:
        """Sidecars that this handle has written and not yet used."""
        return {written.key for written in self._own_states.values()}

    def _visible(self) -> tuple[Owner, builtins.list[int]]:
        """The ids of all checkpoints, and the owner by which they count."""
        listed, owner = listing(self._manifests, self._reading())
        ids = [i for i in listed if standing(owner, i) not in UNCOUNTED]
        maybe = owner.lookup.tombstones.intersection(ids)
        void = {i for i in maybe if self._ownership.is_tombstone(i)}
        return owner, [i for i in ids if i not in void]

    def _read(
        self, checkpoint_id: int, owner: Owner, *, listed: bool = False
    ) -> StoredManifest | None:
        """A checkpoint that counts. An error for damage says where it is and what to do next.

        :class:`Overtaken` when it is gone or damaged, and the owner has changed since; also when
        it was ``listed`` and is gone.
        """
        if standing(owner, checkpoint_id) in UNCOUNTED:
            return None
        try:
            stored = self._manifests.read(checkpoint_id)
            if stored is None:
                there = [checkpoint_id] if listed else []
                raise_if_overtaken(self._manifests, self._ownership, owner, there)
        except DamageError as error:
            raise_if_overtaken(self._manifests, self._ownership, owner)
            raise DamageError(
                f"checkpoint {checkpoint_id}: {error.what}",
                where=f"{self.url}/{self._layout.manifest(checkpoint_id)}",
                hint="recover_latest_validated() finds the newest checkpoint that is whole.",
            ) from None
        if not isinstance(stored, StoredManifest):
            return None
        owner = self._ownership.covering(owner, stored.manifest.generation, checkpoint_id)
        return None if arrived_too_late(owner, stored.manifest) else stored

    def _pruned_or(self, checkpoint_id: int, error: DamageError) -> SeamarkError:
        """What it means that a part of a checkpoint was missing or wrong.

        The error itself, unless the checkpoint has been pruned since.
        """
        if not is_pruned(self._manifests, self._reading(), checkpoint_id):
            return error
        return self._pruned(checkpoint_id)

    def _pruned(self, checkpoint_id: int) -> CheckpointNotFoundError:
        return CheckpointNotFoundError(
            f"checkpoint {checkpoint_id} was pruned while it was being read",
            where=self.url,
            hint="The store is in use. Pin a checkpoint before you read it, or take a newer one.",
        )

    def _not_found(self, checkpoint_id: int) -> CheckpointNotFoundError:
        return CheckpointNotFoundError(
            f"there is no checkpoint {checkpoint_id}",
            where=self.url,
            hint="list_ids() lists those that there are.",
        )
