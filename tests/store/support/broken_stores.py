"""Checkpoint stores that each break one promise, and the promise that each one breaks.

Most of these are weaknesses that a checkpoint store of the field really had.
"""

from __future__ import annotations

import builtins
import logging
from collections.abc import Callable, Iterable
from dataclasses import replace
from datetime import timedelta

import msgspec

from seamark._common.json_documents import seal
from seamark.blobs.contract import Buffer
from seamark.errors import DamageError, FencedError, SeamarkError
from seamark.manifest import CheckpointManifest
from seamark.store import CheckpointStore, Claim, Pin, RecoveryReport, ValidationResult
from seamark.store.cleanup import Removed
from seamark.store.owner import Owner

Broken = type[CheckpointStore]
BREAKS: dict[str, list[Broken]] = {}

log = logging.getLogger(__name__)


def breaks(promise: str) -> Callable[[Broken], Broken]:
    """Note that the decorated store breaks the promise of that name."""

    def note(store: Broken) -> Broken:
        BREAKS.setdefault(f"test_{promise}", []).append(store)
        return store

    return note


class _Past(CheckpointStore):
    """Reaches past the rules, straight to the stored bytes."""

    def _put(self, key: str, data: bytes) -> None:
        there = self._blobs.read(key, 1 << 40)
        if there is None:
            self._blobs.create(key, data)
        else:
            self._blobs.replace(key, data, there.tag)

    def _remove(self, ids: Iterable[int]) -> None:
        for checkpoint_id in ids:
            self._blobs.delete(
                [self._layout.manifest(checkpoint_id), self._layout.state(checkpoint_id)]
            )


@breaks("the_checksum_is_kept_by_an_update")
class UpdateDropsTheChecksum(_Past):
    def update_manifest(self, manifest: CheckpointManifest) -> CheckpointManifest:
        merged = super().update_manifest(manifest).replace(state_checksum=None)
        self._put(self._layout.manifest(manifest.checkpoint_id), seal(merged.to_json()))
        return merged


@breaks("extra_fields_are_added_and_unknown_ones_kept")
class UpdateDropsUnknownFields(_Past):
    def update_manifest(self, manifest: CheckpointManifest) -> CheckpointManifest:
        merged = super().update_manifest(manifest).with_extra(of_tomorrow=None)
        self._put(self._layout.manifest(manifest.checkpoint_id), seal(merged.to_json()))
        return merged


@breaks("nothing_else_may_change")
class UpdateChangesAnything(_Past):
    def update_manifest(self, manifest: CheckpointManifest) -> CheckpointManifest:
        self._put(self._layout.manifest(manifest.checkpoint_id), seal(manifest.to_json()))
        return manifest


@breaks("an_update_does_not_bring_back_what_was_pruned")
@breaks("an_update_needs_a_checkpoint")
class UpdateIsSave(_Past):
    def update_manifest(self, manifest: CheckpointManifest) -> CheckpointManifest:
        if self.load_by_id(manifest.checkpoint_id) is None:
            self._ownership.amend(lambda now: msgspec.structs.replace(now, prune_boundary=0))
            self._put(self._layout.manifest(manifest.checkpoint_id), seal(manifest.to_json()))
        return super().update_manifest(manifest)


@breaks("the_loser_of_a_create_is_told")
@breaks("one_of_many_racing_saves_decides")
class LoserIsNotTold(CheckpointStore):
    def save_with_state(
        self, manifest: CheckpointManifest, chunks: Iterable[Buffer] | None = None
    ) -> CheckpointManifest:
        try:
            return super().save_with_state(manifest, chunks)
        except FencedError:
            log.debug("already there, skipped")
            return manifest


@breaks("the_loser_of_a_create_is_told")
class SaveOverwrites(_Past):
    def save_with_state(
        self, manifest: CheckpointManifest, chunks: Iterable[Buffer] | None = None
    ) -> CheckpointManifest:
        self._remove([manifest.checkpoint_id])
        return super().save_with_state(manifest, chunks)


@breaks("the_manifest_appears_after_its_state")
class ManifestBeforeState(CheckpointStore):
    def save_with_state(
        self, manifest: CheckpointManifest, chunks: Iterable[Buffer] | None = None
    ) -> CheckpointManifest:
        saved = super().save_with_state(manifest)
        if chunks is not None:
            super().save_state_data(manifest.checkpoint_id, chunks)
        return saved


@breaks("the_pointer_never_moves_back")
class PointerMovesBack(_Past):
    def save_with_state(
        self, manifest: CheckpointManifest, chunks: Iterable[Buffer] | None = None
    ) -> CheckpointManifest:
        saved = super().save_with_state(manifest, chunks)
        self._put(self._layout.pointer, self._layout.encode_pointer(manifest.checkpoint_id))
        return saved


@breaks("an_update_of_an_older_one_leaves_the_pointer")
class UpdateMovesThePointer(_Past):
    def update_manifest(self, manifest: CheckpointManifest) -> CheckpointManifest:
        self._put(self._layout.pointer, self._layout.encode_pointer(manifest.checkpoint_id))
        return super().update_manifest(manifest)


@breaks("a_lost_pointer_is_not_a_fresh_start")
class LostPointerIsAFreshStart(CheckpointStore):
    def recover_latest_validated(self, *, read_data: bool = True) -> RecoveryReport:
        if self._manifests.read_pointer() is None:
            return RecoveryReport(None, [], 0, 0.0, True)
        return super().recover_latest_validated()


@breaks("a_stale_pointer_does_not_lose_a_checkpoint")
class PointerIsBelieved(CheckpointStore):
    def recover_latest_validated(self, *, read_data: bool = True) -> RecoveryReport:
        report = super().recover_latest_validated()
        return replace(report, chosen_id=self._manifests.read_pointer())


@breaks("all_damaged_is_not_a_fresh_start")
class AllDamagedIsAFreshStart(CheckpointStore):
    def recover_latest_validated(self, *, read_data: bool = True) -> RecoveryReport:
        report = super().recover_latest_validated()
        return replace(report, fresh_start=report.chosen_id is None)


@breaks("damaged_checkpoints_are_skipped_with_a_reason")
class NewestIsTakenUnseen(CheckpointStore):
    def recover_latest_validated(self, *, read_data: bool = True) -> RecoveryReport:
        ids = self.list_ids()
        return replace(super().recover_latest_validated(), chosen_id=max(ids, default=None))


@breaks("superseded_checkpoints_are_never_chosen")
class SupersededIsChosen(CheckpointStore):
    def supersede(self, first_id: int, last_id: int) -> Claim:
        claim = super().supersede(first_id, last_id)
        self._ownership.amend(lambda now: msgspec.structs.replace(now, superseded=()))
        return claim


@breaks("prune_counts_only_valid_checkpoints")
class PruneCountsDamagedOnes(_Past):
    def prune(
        self,
        keep: int | None = None,
        *,
        within: float | timedelta | None = None,
        read_shared: bool = True,
    ) -> Removed:
        doomed = self.list_ids()[: -(keep or 1)]
        self._remove(doomed)
        return Removed(len(doomed))


@breaks("prune_keeps_the_parents_of_what_it_keeps")
class PruneTakesParents(_Past):
    def prune(
        self,
        keep: int | None = None,
        *,
        within: float | timedelta | None = None,
        read_shared: bool = True,
    ) -> Removed:
        self._remove(self.list_ids()[: -(keep or 1)])
        return super().prune(keep, within=within)


@breaks("a_pinned_checkpoint_is_never_pruned")
class PinsAreForgotten(CheckpointStore):
    def pin(
        self, name: str, checkpoint_id: int, *, expires_in: float | timedelta | None = None
    ) -> Pin:
        return super().pin(name, checkpoint_id, expires_in=0)


@breaks("pruning_everything_is_refused")
class PruneTakesZero(_Past):
    def prune(
        self,
        keep: int | None = None,
        *,
        within: float | timedelta | None = None,
        read_shared: bool = True,
    ) -> Removed:
        if keep == 0:
            self._remove(self.list_ids())
            return Removed(1)
        return super().prune(keep, within=within)


@breaks("a_zombie_that_saves_a_pruned_id_is_refused")
@breaks("a_pruned_store_is_not_a_fresh_start")
@breaks("a_zombies_late_write_of_a_pruned_id_is_invisible")
class PruneForgetsItsBoundary(CheckpointStore):
    def prune(
        self,
        keep: int | None = None,
        *,
        within: float | timedelta | None = None,
        read_shared: bool = True,
    ) -> Removed:
        removed = super().prune(keep, within=within)
        self._ownership.amend(
            lambda now: msgspec.structs.replace(now, prune_boundary=0, kept_below=())
        )
        return removed


@breaks("clean_up_leaves_a_save_in_flight")
class CleanUpIsHasty(CheckpointStore):
    def cleanup_orphans(self, min_age: float | timedelta = 0.0) -> Removed:
        return super().cleanup_orphans(0.0)


@breaks("clean_up_leaves_the_state_of_a_damaged_manifest")
class CleanUpTakesTheStateOfTheDamaged(_Past):
    def cleanup_orphans(self, min_age: float | timedelta = 3600.0) -> Removed:
        damaged = {*self.list_ids()} - {number for number, _ in self.list()}
        self._blobs.delete([self._layout.state(number) for number in damaged])
        return super().cleanup_orphans(min_age)


@breaks("a_writer_that_lost_its_claim_is_fenced")
@breaks("a_handle_without_a_claim_is_fenced_while_one_is_held")
class NobodyIsFenced(CheckpointStore):
    def _writable(self, checkpoint_id: int, *, existing: bool = False) -> Owner:
        return self._ownership.read()


@breaks("a_fenced_writers_late_manifest_does_not_count")
class ClaimsLeaveNoFence(CheckpointStore):
    def claim(
        self, *, writer: str | None = None, pipeline: str | None = None, take_over: bool = True
    ) -> Claim:
        claim = super().claim(writer=writer, pipeline=pipeline, take_over=take_over)
        self._ownership.amend(lambda now: msgspec.structs.replace(now, fences=()))
        return claim


@breaks("a_claim_that_decided_nothing_leaves_no_trace_in_the_lists")
class TombstonesAreListed(CheckpointStore):
    def list_ids(self) -> builtins.list[int]:
        return self._manifests.ids()


@breaks("ids_beyond_six_digits_are_sorted_as_numbers")
class IdsAreSortedAsText(CheckpointStore):
    def list_ids(self) -> builtins.list[int]:
        return sorted(super().list_ids(), key=lambda number: f"{number:06}")


@breaks("the_next_id_is_one_more_than_all_that_were_used")
@breaks("a_pruned_id_is_not_given_out_again")
class NextIdIsTheNumberOfCheckpoints(CheckpointStore):
    def next_id(self) -> int:
        return len(self.list_ids()) + 1


@breaks("a_damaged_owner_is_told_and_never_a_fresh_start")
class DamagedOwnerIsNobody(CheckpointStore):
    def recover_latest_validated(self, *, read_data: bool = True) -> RecoveryReport:
        try:
            return super().recover_latest_validated()
        except DamageError:
            return RecoveryReport(None, [], 0, 0.0, True)


@breaks("harmed_state_is_damage")
class StateIsNotRead(CheckpointStore):
    def validate_checkpoint(self, checkpoint_id: int) -> ValidationResult:
        owner = self._ownership.read()
        return self._validator.examine(checkpoint_id, owner, read_state="never").result


@breaks("harmed_state_is_not_handed_out")
class StateIsHandedOutUnseen(CheckpointStore):
    def load_state_data(self, checkpoint_id: int) -> bytes | None:
        blob = self._blobs.read(self._layout.state(checkpoint_id), 1 << 40)
        return blob.data if blob else None


@breaks("bytes_that_are_no_manifest_are_damage_and_nothing_else")
class DamageReadsAsAbsence(CheckpointStore):
    def load_by_id(self, checkpoint_id: int) -> CheckpointManifest | None:
        try:
            return super().load_by_id(checkpoint_id)
        except SeamarkError:
            return None
