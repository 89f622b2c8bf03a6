"""Starting a pipeline: from whatever the last run left, to the newest decided epoch."""

from __future__ import annotations

import time
import uuid
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from typing import Final

from seamark._common.logs import logger_named
from seamark._common.text import size_text
from seamark.capture.checkpoint_contents import Chain
from seamark.capture.file_index import FileIndex
from seamark.capture.gap_lines import apply_gaps
from seamark.capture.plans import install_plan
from seamark.capture.restore import FetchAll
from seamark.capture.unread_entries import forget_unread
from seamark.checkpoint_dir.working_copy import WorkingCopy
from seamark.errors import (
    CheckpointNotFoundError,
    DamageError,
    FencedError,
    LineageError,
    RefusedError,
    SeamarkError,
)
from seamark.manifest import CheckpointManifest
from seamark.manifest.decisions import edits_of
from seamark.manifest.described import described
from seamark.pipeline.declaration.compatibility import (
    Compatibility,
    CompatibilityCheck,
    check_checkpoint,
    check_store,
    refuse_if_incompatible,
)
from seamark.pipeline.declaration.structure import DeclaredPipeline
from seamark.pipeline.declaration.target_names import has_same_target
from seamark.pipeline.epoch.epoch_manifest import with_sink_statuses
from seamark.pipeline.epoch.epoch_plan import functions_in, refuse_unknown_rows, stored_plans
from seamark.pipeline.epoch.pipeline_sinks import PipelineSinks
from seamark.pipeline.epoch.running_epoch import EpochHistory
from seamark.pipeline.recovery.adoption import adopt_checkpoint
from seamark.pipeline.recovery.carried_plans import timeline_before_upgrade
from seamark.pipeline.recovery.copy_maker import CopyMaker
from seamark.pipeline.recovery.lost_epochs import last_lost_epoch
from seamark.pipeline.recovery.pipeline_changes import PipelineChanges
from seamark.pipeline.recovery.reanchor import record_gaps
from seamark.pipeline.recovery.rollback import abandoned_timelines, rolled_back, shown_timeline
from seamark.pipeline.recovery.shown_epochs import remembered_plans, require_first_can_run
from seamark.pipeline.recovery.sink_recovery import (
    FinishedSinks,
    epoch_before,
    finish_sinks,
    most_ahead,
    require_reset,
    reset_sinks,
    sinks_ahead,
    take_back_abandoned,
)
from seamark.pipeline.recovery.starting_point import LongWork, StartingPoint, unwatched
from seamark.pipeline.recovery.working_dirs import WorkingDirs, reorder_sources
from seamark.pipeline.telemetry.checkpoint_metrics import CHAIN_ENDED
from seamark.pipeline.telemetry.reports import CopyOutcome, StartReport
from seamark.spark.batch_log import Plan
from seamark.spark.plans.lossy_options import recorded_losses
from seamark.spark.source_gaps import Gap, gap_texts, planned_texts
from seamark.store import CheckpointStore
from seamark.store.ownership import Claim
from seamark.store.recovery import RecoveryReport as Walk

log = logger_named("seamark.pipeline")

_RESTORE: Final = (
    "Restore the store from a copy, or roll the pipeline back to an earlier checkpoint."
)


class Recovery:
    """One start of one pipeline."""

    def __init__(
        self,
        declared: DeclaredPipeline,
        store: CheckpointStore,
        sinks: PipelineSinks,
        *,
        place: WorkingCopy,
        adopt: WorkingCopy | None = None,
        long_work: LongWork | None = None,
        fetch_all: FetchAll | None = None,
    ) -> None:
        self._declared = declared
        self._upgrade_options = declared.settings.upgrade
        self._identity = declared.identity
        self._policy = declared.settings.policy
        self._anchors = declared.settings.reanchor
        self._store = store
        self._sinks = sinks
        self._place = place
        self._adopt = adopt
        work = long_work or (lambda *_: nullcontext(unwatched))
        self._copies = CopyMaker(store, work, fetch_all)
        self._notes: list[str] = []
        self._changes = PipelineChanges(declared, store, place, adopt, work, fetch_all)

    def run(self) -> StartingPoint:
        """Claim the store, choose a checkpoint, finish its epoch, make a working copy of it."""
        started = time.perf_counter()
        # a pipeline that may not go on should not fence the one that is running
        check = check_store(
            self._store, self._identity, self._policy, self._anchors, self._upgrade_options
        )
        refuse_if_incompatible(self._store, check)
        self._changes.refuse_impossible(check.upgrade)
        claim = self._store.claim(pipeline=self._identity.name)
        walk = self._store.recover_latest_validated(read_data=False)
        try:
            start = self._start_from(walk, claim)
        except DamageError as error:
            error.where = error.where or f"{self._store.url}: checkpoint {walk.chosen_id}"
            error.hint = error.hint or _RESTORE
            self._store.check_claim()  # who has taken over may have pruned it
            # what was only seen to be there is read now: an older checkpoint may be whole
            read = self._store.recover_latest_validated()
            if read.chosen_id == walk.chosen_id:
                raise
            log.warning("checkpoint %s is damaged: %s", walk.chosen_id, error)
            walk, self._notes = read, []
            start = self._start_from(walk, claim)
        seconds = time.perf_counter() - started
        start.report = replace(
            start.report, seconds=seconds, skipped=list(walk.skipped), damaged=len(walk.broken)
        )
        return start

    def _start_from(self, walk: Walk, claim: Claim) -> StartingPoint:
        timeline = claim.timeline
        chosen = rolled_back(self._store, self._chosen(walk), walk, timeline)
        if chosen is None and self._changes.adopts:
            self._refuse_shown(timeline)
            self._notes += self._changes.begun_by_adopted()
            chosen = self._changes.adopted()
            self._notes.append(f"adopted after batch {chosen.batch} of {self._changes.adopts}")
        check = self._checked(chosen)
        if check.fit is Compatibility.EVOLVES and chosen is not None and check.upgrade is not None:
            self._notes += [row.text for row in check.upgrade.changes]
            # a rollback has given them up; else an output that it removed could not come again
            own = chosen.timeline or ""
            self._notes += take_back_abandoned(self._sinks, chosen, own)
            ahead = sinks_ahead(self._sinks, chosen, own)
            # once it is decided, nothing tells that they were
            if last_lost_epoch(self._store, chosen, walk) > chosen.epoch:
                self._changes.refuse_if_begun(chosen, check.upgrade, ahead)
                refuse_unknown_rows(self._sinks.outputs, chosen.epoch + 1, self._store.url)
            chosen = self._changes.upgraded(chosen, check.upgrade, ahead)
            timeline = chosen.timeline or ""
            check = self._checked(chosen)
        planned = planned_texts(check.gaps)  # they are told once they are recorded
        self._notes += [text for text in check.changes if text not in planned]
        self._notes += [
            loss for loss in recorded_losses(self._identity.structure) if loss not in check.changes
        ]
        if check.changes and check.fit is Compatibility.GOES_ON and self._policy == "warn":
            log.warning("the pipeline was changed: %s", "; ".join(check.changes))
        is_reset = check.fit is Compatibility.RESET
        if is_reset and chosen is not None:
            self._refuse_reset(self._store.recover_latest_validated(), chosen)
            # the decision first: what is left to do is repeated by the next start
            timeline = self._store.supersede(1, self._store.next_id() - 1).timeline
            chosen = None
        history = EpochHistory(timeline, claim.generation, self._store.next_id(), chosen)
        after_reset = is_reset or bool(walk.skipped)
        dirs = WorkingDirs(
            self._place,
            claim.generation,
            self._identity,
            is_new_history=after_reset if chosen is None else timeline != shown_timeline(chosen),
            former=timeline_before_upgrade(self._store, chosen),
        )
        if chosen is None:
            start = self._fresh(dirs, history, after_reset=after_reset)
        else:
            lost = last_lost_epoch(self._store, chosen, walk)
            start = self._resumed(dirs, history, chosen, check.gaps, lost)
        dirs.mark_ready(history.timeline)
        dirs.forget_plans()
        dirs.remove_others()
        return start

    def _checked(self, chosen: CheckpointManifest | None) -> CompatibilityCheck:
        check = check_checkpoint(
            chosen, self._identity, self._policy, self._anchors, self._upgrade_options
        )
        refuse_if_incompatible(self._store, check)
        return check

    def _chosen(self, walk: Walk) -> CheckpointManifest | None:
        if walk.chosen_id is not None:
            chosen = self._store.load_by_id(walk.chosen_id)
            if chosen is None:  # never taken for a fresh start
                self._store.check_claim()
                raise CheckpointNotFoundError(
                    f"checkpoint {walk.chosen_id} is gone since it was chosen",
                    where=self._store.url,
                    hint="Did another process prune the store? Start again.",
                )
            return chosen
        if walk.begins_anew:
            return None
        reasons = "; ".join(f"checkpoint {number}: {why}" for number, why in walk.skipped)
        raise DamageError(
            "no checkpoint of this store can be used",
            where=f"{self._store.url}: {reasons or 'all are gone'}",
            hint="Nothing was changed and no fresh start was made. Restore the store from a "
            "copy, or give the pipeline a new store to start over.",
        )

    def _refuse_reset(self, walk: Walk, chosen: CheckpointManifest) -> None:
        damaged = [number for number, _ in walk.broken]
        if damaged:
            raise RefusedError(
                "the newest checkpoint is damaged, and an older one is of another configuration",
                where=f"{self._store.url}: checkpoint {damaged[0]}",
                hint="Damage alone never makes a pipeline start over. Restore the checkpoint "
                "from a copy, or give the pipeline a new store.",
            )
        require_reset(self._sinks, chosen)
        self._changes.refuse_reset()

    # nothing to go on from

    def _fresh(
        self, dirs: WorkingDirs, history: EpochHistory, *, after_reset: bool
    ) -> StartingPoint:
        if not after_reset:  # else what they show is taken back
            self._refuse_shown(history.timeline)
        known = None if after_reset else [history.timeline]
        finished = finish_sinks(self._sinks, None, history.generation, timelines=known)
        self._notes += finished.of_others
        if after_reset:
            self._notes += reset_sinks(self._sinks, history.timeline)
        self._refuse_shown(history.timeline)
        planned: dict[int, Plan] = {}
        if self._adopt is None:
            begun = self._stored_plans(history)  # first: to plan anew is no remedy for it
            planned = dirs.first_plans(history.timeline) | begun
        self._store.check_claim()
        dirs.clear_own()
        mine, what = dirs.own, "new"
        if self._adopt is not None:
            adopted = adopt_checkpoint(self._adopt, mine, self._identity)
            history.first_batch, what = adopted.next_batch, adopted.text
            self._notes += self._changes.begun_by_adopted()
            planned = self._stored_plans(history)
        else:
            mine.make()
        first = history.first_batch
        if (plan := planned.get(first)) is not None:
            # sources that start 'now' have noted where that was
            if self._adopt is None:
                mine.write("metadata", f'{{"id":"{uuid.uuid4()}"}}'.encode())
            install_plan(mine, first, plan, self._identity.inputs)
            what += ", with what was planned for the first epoch"
        report = StartReport(
            fresh_start=True,
            aborted=finished.aborted,
            working_copy=what,
            copy_outcome=CopyOutcome.NEW if self._adopt is None else CopyOutcome.ADOPTED,
            notes=self._notes,
        )
        return StartingPoint(mine, history, report)

    def _refuse_shown(self, timeline: str) -> None:
        """:class:`LineageError` when sinks show epochs of which the store knows nothing."""
        if ahead := sinks_ahead(self._sinks, None, timeline):
            raise LineageError(
                "the store has no checkpoint, and sinks show epochs already",
                where=", ".join(f"{sink} shows epoch {epoch}" for sink, epoch in ahead.items()),
                hint="Restore the store from a copy, or give the sinks new targets.",
            )

    def _stored_plans(self, history: EpochHistory) -> dict[int, Plan]:
        """Plans that epochs were started with and have to keep, even if a directory has others."""
        functions = functions_in(self._sinks.outputs, self._identity)
        plans = stored_plans(self._store, history, self._identity, functions)
        history.plans |= plans
        return plans

    # going on

    def _resumed(
        self,
        dirs: WorkingDirs,
        history: EpochHistory,
        chosen: CheckpointManifest,
        gaps: Sequence[Gap],
        lost: int,
    ) -> StartingPoint:
        """``lost`` is the last epoch that may have been decided and has no checkpoint any more."""
        chain = Chain.load(self._store, chosen)
        for edit in edits_of(chain.manifests):
            log.warning("%s: %s", self._store.url, edit)
            self._notes.append(edit)
        history.links = len(chain.manifests) - 1
        history.full_bytes = chosen.restore_bytes or sum(m.size_bytes for m in chain.manifests)
        # first: a sink must not be finished by a checkpoint whose state turns out to be damaged
        copied = self._copies.fitting(dirs, chain, history.timeline, self._changes.moves)
        planned = copied.planned
        before = partial(epoch_before, self._store, chosen)
        # what is staged in the target of another history is not removed
        known = abandoned_timelines(chosen) | {history.timeline}
        sinks_ahead(self._sinks, chosen, history.timeline, known)
        moved = self._moved(chosen)
        finished = finish_sinks(self._sinks, chosen, history.generation, moved, before, known)
        self._notes += finished.of_others
        history.newest = self._recorded(chosen, finished)
        self._notes += take_back_abandoned(self._sinks, chosen, history.timeline)
        history.ahead = sinks_ahead(self._sinks, chosen, history.timeline)
        shown = remembered_plans(self._sinks.outputs, history, chain.batch)
        require_first_can_run(shown, history, chain.batch, chain.leaves, self._identity.leaves)
        mine = dirs.own
        if chain.leaves != list(self._identity.leaves):
            reorder_sources(mine, chosen, self._identity)
            # the chain's logs go by the old numbers of the sources: nothing builds on them
            history.links = CHAIN_ENDED
            if chain.index is not None:
                files = chain.index.files.items()
                chain.index = FileIndex({p: f for p, f in files if not p.startswith("sources/")})
        if gaps:
            if lost > chosen.epoch:
                refuse_unknown_rows(self._sinks.outputs, chosen.epoch + 1, self._store.url)
            record_gaps(self._store, history, gaps, self._identity)
        if apply_gaps(mine, history.newest.gaps, self._identity.leaves, chain.batch):
            planned = {}  # made before the rows were left out, for all that is known
        self._notes += gap_texts(history.newest.gaps)
        forget_unread(mine, chain.batch, self._identity.inputs)
        self._plan_again(mine, history, chain.batch, planned | shown)
        if (unknown := history.first_unplanned) <= lost:
            refuse_unknown_rows(self._sinks.outputs, unknown, self._store.url)
        report = StartReport(
            chosen_id=chosen.checkpoint_id,
            epoch=chosen.epoch,
            verified=f"SHA-256, {len(chain.digests)} files, {size_text(chain.size)}",
            finished=finished.outcomes,
            aborted=finished.aborted,
            working_copy=copied.text,
            copy_outcome=copied.outcome,
            restored_bytes=copied.restored_bytes,
            notes=self._notes,
        )
        return StartingPoint(mine, history, report, chain.index, chain.small_state)

    def _recorded(self, chosen: CheckpointManifest, finished: FinishedSinks) -> CheckpointManifest:
        if not finished.statuses and not finished.read_points:
            return chosen
        try:
            timings = chosen.timings or {}
            recorded = with_sink_statuses(chosen, finished.statuses, timings, finished.read_points)
            return self._store.update_manifest(recorded)
        except FencedError:
            raise
        except SeamarkError as error:
            log.warning("the finished sinks were not recorded: %s", error)
            return chosen

    def _moved(self, chosen: CheckpointManifest) -> set[str]:
        """Sinks that write to another place than before; a policy has let that pass."""
        before = described(chosen, "sinks")
        now = self._identity.structure["sinks"]
        return {
            name
            for name in now.keys() & before.keys()
            if not has_same_target(before[name], now[name])
        }

    def _plan_again(
        self, mine: WorkingCopy, history: EpochHistory, batch: int, planned: dict[int, Plan]
    ) -> None:
        """Have epochs that were planned before run on the same rows, above all those that show."""
        shown = most_ahead(history.ahead, batch)
        planned |= self._stored_plans(history)
        for number in range(batch + 1, max(batch + 1, shown - 1) + 1):
            if (plan := planned.get(number)) is None:
                continue
            if number == batch + 1:
                install_plan(mine, number, plan, self._identity.inputs)
            if number < shown:
                history.plans[number] = plan
        if history.plans:
            again = ", ".join(str(number + 1) for number in sorted(history.plans))
            self._notes.append(f"epoch {again} runs again, on the rows that it was planned for")
