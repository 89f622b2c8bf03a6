"""The checkpoint store: manifests and state, saved atomically, verified, recovered, pruned.

Tests: ``tests/store/test_conformance.py``.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta
from typing import Final, Self

from seamark._common.checks import check_duration, check_id
from seamark._common.logs import logger_named
from seamark.blobs.conditional_writes import Taken
from seamark.blobs.contract import Blob, Buffer, Tag, TagMismatch
from seamark.errors import (
    DamageError,
    FencedError,
    InvalidInputError,
    RefusedError,
    SeamarkError,
    StoreUnavailableError,
)
from seamark.manifest import CheckpointManifest
from seamark.store import cleanup
from seamark.store.cleanup import Removed
from seamark.store.decision_chain import decided
from seamark.store.manifest_changes import (
    amended,
    is_outdated,
    may_replace,
    rebased_update,
    refuse_unsafe,
    takes_back,
    unknown_save,
)
from seamark.store.manifests import MANIFEST_LIMIT, StoredManifest, Tombstone, parse_manifest
from seamark.store.owned_store import OwnedStore
from seamark.store.owner import UNCOUNTED, Owner, Standing, arrived_too_late, standing
from seamark.store.plans import Plans
from seamark.store.reader import HOUR
from seamark.store.retention import Retention
from seamark.store.shared_objects import SHARED_PREFIX
from seamark.store.sidecars import WrittenSidecar, checksum_prefix

log = logger_named(__name__)

_TRIES: Final = 8


class CheckpointStore(OwnedStore):
    """Checkpoints of one pipeline in one place. Synchronous; safe from several threads.

    Opened by :func:`seamark.open_store`. Opening creates nothing and locks nothing.
    """

    # writing

    def save(self, manifest: CheckpointManifest) -> CheckpointManifest:
        """Decide a checkpoint: the manifest appears whole or not at all, and only once.

        Returns it as stored, with what the store added. :class:`FencedError` when the id is taken
        or another writer owns the store.
        """
        return self.save_with_state(manifest)

    def save_with_state(
        self, manifest: CheckpointManifest, chunks: Iterable[Buffer] | None = None
    ) -> CheckpointManifest:
        """Save the sidecar first, then the manifest. Without the one the other never appears.

        ``chunks`` may be an iterator; it is consumed once and never held as a whole.
        """
        refuse_unsafe(manifest)
        checkpoint_id = manifest.checkpoint_id
        with self._lock:
            owner = self._writable(checkpoint_id)
            self._require_parent(manifest, owner)
            written = None
            if chunks is not None:
                written = self._write_state(manifest, chunks, owner)
            elif manifest.has_external_state or checkpoint_id in self._own_states:
                written = self._existing_state(manifest)
            with self._blobs.exclusive():
                if self._blobs.max_put is None:
                    # a local check is cheap, so nothing slips in between it and the decision
                    owner = self._writable(checkpoint_id)
                    self._require_parent(manifest, owner)
                    if (
                        written and not self._sidecars.is_still(written)
                    ) or self._parts.partitioned.is_missing(manifest):
                        raise self._state_replaced(checkpoint_id)
                if (gone := self._parts.shared.missing(manifest)) is not None:
                    raise self._object_removed(checkpoint_id, gone)
                claim = self._ownership.claim_held
                saved, data = decided(manifest, owner, claim, written, self._manifests)
                self._decide(saved, data, owner)
                self._manifests.advance_pointer(checkpoint_id)
            self._last_decided = checkpoint_id
            self._own_states.pop(checkpoint_id, None)
            self._parts.shared.named(saved)
            self._auto_prune()
        return saved

    def save_state_data(self, checkpoint_id: int, chunks: Iterable[Buffer]) -> None:
        """Write only the sidecar of a checkpoint that is to be saved next, create-only.

        :class:`FencedError` when the id is decided already: nothing would ever refer to it.
        """
        with self._lock:
            owner = self._writable(check_id(checkpoint_id))
            there = self._blobs.read(self._layout.manifest(checkpoint_id), MANIFEST_LIMIT)
            if there is not None and self._ownership.tombstone_tag(checkpoint_id) is None:
                try:
                    self._own_tombstone(there, checkpoint_id, owner)
                except Taken:
                    raise self._decided(checkpoint_id, "already") from None
            bare = CheckpointManifest.new(checkpoint_id, epoch=1)
            self._own_states[checkpoint_id] = self._write_state(bare, chunks, owner)

    def update_manifest(self, manifest: CheckpointManifest) -> CheckpointManifest:
        """Record sink statuses, sink epochs and extra fields of a checkpoint that is there.

        Nothing else can change, and nothing that is stored gets lost: checksums and fields that
        this version does not know stay. Returns the manifest as stored.
        """
        refuse_unsafe(manifest)
        checkpoint_id = manifest.checkpoint_id
        with self._lock, self._blobs.exclusive():
            owner = self._writable(checkpoint_id, existing=True)
            known = self._known(manifest, owner)
            base = known or self._found(checkpoint_id)[0]
            blind = known is None and manifest.self_checksum is None
            now, update = base, manifest
            for _ in range(_TRIES):
                if base is None or now is None:
                    raise self._not_found(checkpoint_id)
                if is_outdated(manifest, base):
                    break
                if blind and takes_back(update, now.manifest):
                    break  # nothing shows that the caller knows of the commit
                merged, data = amended(now, update)
                try:
                    self._manifests.decide(merged, data, now.tag)
                    return merged
                except TagMismatch:
                    now = self._found(checkpoint_id)[0]
                    rebased = now and rebased_update(manifest, base.manifest, now.manifest)
                    if now is not None and rebased is None:
                        break
                    update = rebased or manifest
        raise FencedError(
            f"checkpoint {checkpoint_id} was changed by another writer since it was read",
            where=self.url,
            hint="Nothing was changed here. Load it again and repeat the update.",
        )

    def _known(self, update: CheckpointManifest, owner: Owner) -> StoredManifest | None:
        """What this handle remembers of a checkpoint, when it still counts and fits the update."""
        known = self._manifests.remembered(update.checkpoint_id)
        if known is None or is_outdated(update, known):
            return None
        gone = standing(owner, update.checkpoint_id) in UNCOUNTED
        return None if gone or arrived_too_late(owner, known.manifest) else known

    @property
    def plans(self) -> Plans:
        """Plans of epochs that have started, for sinks that cannot wait for the decision."""
        return self._parts.plans

    # keeping house

    def prune(
        self,
        keep: int | None = None,
        *,
        within: float | timedelta | None = None,
        read_shared: bool = True,
    ) -> Removed:
        """Remove checkpoints, but not the newest ``keep`` valid ones, those younger than
        ``within``, pinned ones, or anything that one of these needs. How many were removed.

        Shared objects that this handle has neither read nor written are read to see what is valid.
        ``read_shared=False`` is for who reads them at another time: their sizes will do.
        """
        rule = Retention(last=keep, within=within)
        with self._lock:
            self._reading()
            return cleanup.prune(self._parts, rule, read_shared=read_shared)

    def cleanup_orphans(self, min_age: float | timedelta = HOUR) -> Removed:
        """Remove state without a manifest and unfinished files older than ``min_age``; how many.

        The age protects a save in flight; 0 is for a store that nobody else writes to.
        """
        age = check_duration("the age of an orphan", min_age)
        with self._lock:
            self._reading()
            return cleanup.cleanup_orphans(self._parts, age, self._own_state_keys())

    def close(self) -> None:
        """Give back the claim, if there is one, and everything else that is held."""
        with self._lock:
            if not self._closed:
                self._ownership.release()
                self._blobs.close()
                self._closed = True

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<CheckpointStore {self.url}>"

    # inside

    def _writable(self, checkpoint_id: int, *, existing: bool = False) -> Owner:
        owner = self._reading().require_writable()
        self._ownership.probe()
        given_up = standing(owner, checkpoint_id) in (Standing.SUPERSEDED, Standing.VOID)
        if not existing and given_up:
            raise FencedError(
                f"id {checkpoint_id} has been given up", where=self.url, hint="Use next_id()."
            )
        if not existing and checkpoint_id <= owner.prune_boundary:
            raise FencedError(
                f"id {checkpoint_id} has been used and pruned; ids up to {owner.prune_boundary}"
                " are gone",
                where=self.url,
                hint="Save under next_id().",
            )
        mine = self._ownership.claim_held
        if not existing and mine is not None:
            follows = mine.tombstone_id, (self._last_decided or 0) + 1
            if checkpoint_id not in follows:  # who used the ids before it?
                self._ownership.check_covered(owner)
        return owner

    def _require_parent(self, manifest: CheckpointManifest, owner: Owner) -> None:
        """An incremental checkpoint is worth nothing without what it builds on."""
        parent_id = manifest.parent_id
        if not manifest.is_incremental or not parent_id or parent_id >= manifest.checkpoint_id:
            return
        gone = standing(owner, parent_id) is Standing.PRUNED
        if not gone and (self._manifests.remembered(parent_id) or self._found(parent_id)[0]):
            if parent_id != self._last_decided:
                self._manifests.make_durable(parent_id)
            return
        raise RefusedError(
            f"checkpoint {manifest.checkpoint_id} builds on {parent_id}, which is not there",
            where=self.url,
            hint="Save a full one.",
        )

    def _write_state(
        self, manifest: CheckpointManifest, chunks: Iterable[Buffer], owner: Owner
    ) -> WrittenSidecar:
        if isinstance(chunks, bytes | bytearray | memoryview | str) or not isinstance(
            chunks, Iterable
        ):
            raise InvalidInputError("state is given as chunks in an iterable, not as one value")
        mine = self._ownership.claim_held
        if mine and self._blobs.max_put is None:
            self._remove_unfinished(manifest.checkpoint_id)
        return self._sidecars.write(
            manifest.checkpoint_id,
            chunks,
            prefix=checksum_prefix(manifest),
            generation=mine.generation if mine else owner.generation,
        )

    def _remove_unfinished(self, checkpoint_id: int) -> None:
        """A fenced writer's sidecar may lie where the owner wants to put its own."""
        key = self._layout.state(checkpoint_id)
        if self._blobs.stat(key) is None:
            return
        with self._blobs.exclusive():
            self._ownership.require_writable()
            try:
                stored = self._manifests.read(checkpoint_id)
            except DamageError:
                return
            if stored is None or isinstance(stored, Tombstone):
                self._blobs.delete([key])

    def _existing_state(self, manifest: CheckpointManifest) -> WrittenSidecar:
        """The sidecar that ``save_state_data`` has written for this manifest."""
        checkpoint_id = manifest.checkpoint_id
        own = self._own_states.get(checkpoint_id)
        if own and not self._sidecars.is_still(own):
            del self._own_states[checkpoint_id]
            raise self._state_replaced(checkpoint_id)
        key = own.key if own else self._layout.state(checkpoint_id)
        if own and not manifest.has_inline_state:
            return own
        written = self._sidecars.describe(key, prefix=checksum_prefix(manifest))
        if written is None:
            raise RefusedError(
                f"checkpoint {checkpoint_id} refers to a sidecar, and there is none",
                where=self.url,
                hint="Give the chunks to save_with_state(), or write them by save_state_data().",
            )
        return written

    def _state_replaced(self, checkpoint_id: int) -> FencedError:
        return FencedError(
            f"the state of checkpoint {checkpoint_id} was removed or replaced while it was being"
            " saved",
            where=self.url,
            hint="Did a clean-up or another writer run? Save again, state included.",
        )

    def _decide(self, manifest: CheckpointManifest, data: bytes, owner: Owner) -> None:
        checkpoint_id = manifest.checkpoint_id
        tag = self._ownership.tombstone_tag(checkpoint_id)
        try:
            try:
                self._manifests.decide(manifest, data, tag)
            except Taken as taken:
                tag = self._own_tombstone(taken.blob, checkpoint_id, owner)
                self._manifests.decide(manifest, data, tag)
            if tag is not None:
                self._ownership.tombstone_used()
        except (Taken, TagMismatch):
            self._ownership.tombstone_used()  # or it is damaged; either way it is of no use now
            if not self._is_there(manifest):
                raise self._decided(checkpoint_id, "by another writer") from None

    def _is_there(self, manifest: CheckpointManifest) -> bool:
        """Whether this very checkpoint was decided by an earlier try, and then updated by others.

        :class:`OutcomeUnknownError` when that cannot be found out.
        """
        if not manifest.attempt:
            return False
        try:
            stored = self._manifests.read(manifest.checkpoint_id)
        except (StoreUnavailableError, DamageError) as error:
            raise unknown_save(manifest.checkpoint_id, error) from error
        if not isinstance(stored, StoredManifest):
            return False
        ours = (manifest.attempt, manifest.generation)
        return ours == (stored.manifest.attempt, stored.manifest.generation)

    def _decided(self, checkpoint_id: int, how: str) -> FencedError:
        return FencedError(
            f"checkpoint {checkpoint_id} was decided {how}",
            where=f"{self.url}/{self._layout.manifest(checkpoint_id)}",
            hint="Nothing of this one is visible. Ids never repeat: save under next_id().",
        )

    def _own_tombstone(self, blob: Blob, checkpoint_id: int, owner: Owner) -> Tag:
        """The tag of something that this handle may replace; :class:`Taken` for all else."""
        try:
            stored = parse_manifest(blob, checkpoint_id)
        except DamageError:
            raise Taken(blob) from None
        if not may_replace(stored, owner, is_claimed=self._ownership.claim_held is not None):
            raise Taken(blob)
        return stored.tag

    def _object_removed(self, checkpoint_id: int, name: str) -> FencedError:
        return FencedError(
            f"an object that checkpoint {checkpoint_id} needs was removed before it was saved",
            where=f"{self.url}/{SHARED_PREFIX}{name}",
            hint="Did somebody clean up with a short age? Store it again, then save.",
        )

    def _auto_prune(self) -> None:
        if self._keep is None:
            return
        try:
            for reason in cleanup.prune(self._parts, self._keep).left_alone:
                log.warning("%s", reason)
        except SeamarkError as error:
            log.warning("the checkpoint is saved, but pruning failed: %s", error)
