"""Starting a pipeline: from whatever the last run left, to the newest decided epoch."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from seamark.errors import DamageError, LineageError, RefusedError, SeamarkError
from seamark.manifest import CheckpointManifest
from seamark.pipeline.adoption import adopt_checkpoint
from seamark.pipeline.coordinator import Lineage
from seamark.pipeline.directories import (
    generations,
    mark_ready,
    mark_unfinished,
    own_copy,
    ready_for,
    remove_others,
    take_over,
)
from seamark.pipeline.draft import Identity, committed
from seamark.pipeline.figures import size_text
from seamark.pipeline.finishing import (
    Finished,
    finish_sinks,
    reset_sinks,
    sinks_ahead,
    take_back_abandoned,
)
from seamark.pipeline.judging import judge, refuse_changes
from seamark.pipeline.placement import chain_of, contents_of
from seamark.pipeline.remapping import remap_sources
from seamark.pipeline.report import RecoveryReport
from seamark.pipeline.sink_crew import SinkCrew
from seamark.pipeline.topology import Fit, Policy, compare
from seamark.sinks.contract import Plan
from seamark.spark.capture import LOG
from seamark.spark.readers import Contents
from seamark.spark.restore import difference, install_plan, keep, read_plan, restore
from seamark.spark.working_copy import WorkingCopy
from seamark.state import StateStore
from seamark.store import CheckpointStore
from seamark.store.validation import RecoveryReport as Walk

log = logging.getLogger("seamark.pipeline")


@dataclass
class Recovered:
    """A working copy that is ready to start, and the history that it continues."""

    copy: WorkingCopy
    lineage: Lineage
    held: dict[str, bytes]
    """SHA-256 of every file that the chain of checkpoints holds."""
    report: RecoveryReport


@dataclass
class Chain:
    """A checkpoint and what it builds on, oldest first, and what was read of it."""

    manifests: list[CheckpointManifest]
    digests: dict[str, bytes] = field(default_factory=dict)
    logs: Contents = field(default_factory=dict)
    size: int = 0

    @property
    def leaves(self) -> list[str]:
        """The source of each line of the offset log, when the newest of them was saved."""
        return [str(name) for name in self.manifests[-1].extra.get("leaves", ())]

    @property
    def batch(self) -> int:
        """The batch that the newest checkpoint of the chain is of."""
        return self.manifests[-1].wal_position

    def read(self, store: CheckpointStore, states: StateStore) -> Iterator[Contents]:
        """Every file, verified; what they are is noted on the way."""
        self.digests, self.logs, self.size = {}, {}, 0
        for manifest in self.manifests:
            for label, contents, digests in contents_of(store, states, manifest):
                self.digests |= digests
                self.size += sum(map(len, contents.values()))
                if label == LOG:
                    self.logs |= contents
                yield contents


class Recovery:
    """One start of one pipeline."""

    def __init__(
        self,
        store: CheckpointStore,
        states: StateStore,
        root: str,
        identity: Identity,
        crew: SinkCrew,
        policy: Policy,
        adopt: str | None = None,
    ) -> None:
        self._store = store
        self._states = states
        self._root = root
        self._identity = identity
        self._crew = crew
        self._policy: Policy = policy
        self._adopt = adopt
        self._notes: list[str] = []

    def run(self) -> Recovered:
        """Claim the store, choose a checkpoint, finish its epoch, make a working copy of it."""
        started = time.perf_counter()
        # a pipeline that may not go on should not fence the one that is running
        refuse_changes(self._store, judge(self._store, self._identity, self._policy))
        claim = self._store.claim(pipeline=self._identity.name)
        walk = self._store.recover_latest_validated()
        chosen = self._chosen(walk)
        timeline = claim.timeline
        old = chosen.extra.get("structure") if chosen is not None else None
        verdict = compare(old, self._identity.structure, self._policy)
        refuse_changes(self._store, verdict)
        self._notes += verdict.changes
        if verdict.fit is Fit.RESET:
            # the sinks first: a crash in between repeats the reset
            self._notes += reset_sinks(self._crew)
            timeline = self._store.supersede(1, self._store.next_id() - 1).timeline
            chosen = None
        lineage = Lineage(timeline, claim.generation, self._store.next_id(), chosen)
        mine = own_copy(self._root, claim.generation)
        if chosen is None:
            recovered = self._fresh(mine, lineage)
        else:
            recovered = self._resumed(mine, lineage, chosen)
        mark_ready(mine, self._identity.leaves)
        remove_others(self._root, mine)
        recovered.report = replace(
            recovered.report,
            seconds=time.perf_counter() - started,
            skipped=list(walk.skipped),
        )
        return recovered

    def _chosen(self, walk: Walk) -> CheckpointManifest | None:
        if walk.chosen_id is not None:
            return self._store.load_by_id(walk.chosen_id)
        superseded = walk.skipped and all("superseded" in why for _, why in walk.skipped)
        if walk.fresh_start or superseded:
            return None
        told = "; ".join(f"checkpoint {number}: {why}" for number, why in walk.skipped)
        raise DamageError(
            "no checkpoint of this store can be used",
            where=f"{self._store.url}: {told or 'all are gone'}",
            hint="Nothing was changed and no fresh start was made. Bring the store back from a "
            "copy, or give the pipeline a new store to begin anew.",
        )

    # nothing to go on from

    def _fresh(self, mine: WorkingCopy, lineage: Lineage) -> Recovered:
        ahead = sinks_ahead(self._crew, None, lineage.timeline)
        if ahead:
            raise LineageError(
                "the store has no checkpoint, and sinks show epochs already",
                where=", ".join(f"{sink} shows epoch {epoch}" for sink, epoch in ahead.items()),
                hint="Bring the store back, or give the sinks new targets.",
            )
        finished = finish_sinks(self._crew, None)
        mark_unfinished(mine)
        mine.destroy()
        held: dict[str, bytes] = {}
        what = "new"
        if self._adopt is not None:
            adopted = adopt_checkpoint(self._adopt, mine, self._identity)
            lineage.first_batch, held, what = adopted.next_batch, adopted.held, adopted.words
        else:
            os.makedirs(mine.root, exist_ok=True)
        report = RecoveryReport(
            0.0,
            None,
            None,
            fresh_start=True,
            aborted=finished.aborted,
            working_copy=what,
            notes=self._notes,
        )
        return Recovered(mine, lineage, held, report)

    # going on

    def _resumed(
        self, mine: WorkingCopy, lineage: Lineage, chosen: CheckpointManifest
    ) -> Recovered:
        chain = Chain(chain_of(self._store, chosen))
        lineage.links = len(chain.manifests) - 1
        lineage.full_bytes = sum(manifest.size_bytes for manifest in chain.manifests)
        finished = finish_sinks(self._crew, chosen)
        lineage.newest = self._recorded(chosen, finished)
        self._notes += take_back_abandoned(self._crew, chosen, lineage.timeline)
        lineage.ahead = sinks_ahead(self._crew, chosen, lineage.timeline)
        if lineage.ahead and chain.leaves != list(self._identity.leaves):
            raise RefusedError(
                f"epochs after {chosen.epoch} have to run again, and the sinks have changed",
                where="; ".join(f"{sink} shows epoch {n}" for sink, n in lineage.ahead.items()),
                hint="Start once with the sinks as they were, then change them.",
            )
        found = next((copy for _, copy in generations(self._root)), None)
        what, planned = self._working_copy(found, mine, chain)
        remap_sources(mine, chosen, self._identity)
        self._plan_again(mine, lineage, chain.batch, planned)
        report = RecoveryReport(
            0.0,
            chosen.checkpoint_id,
            chosen.epoch,
            fresh_start=False,
            verified=f"SHA-256, {len(chain.digests)} files, {size_text(chain.size)}",
            finished=finished.words,
            aborted=finished.aborted,
            working_copy=what,
            notes=self._notes,
        )
        return Recovered(mine, lineage, chain.digests, report)

    def _recorded(self, chosen: CheckpointManifest, finished: Finished) -> CheckpointManifest:
        if not finished.statuses:
            return chosen
        try:
            timings = chosen.extra.get("timings", {})
            return self._store.update_manifest(committed(chosen, finished.statuses, timings))
        except SeamarkError as error:
            log.warning("the finished sinks were not recorded: %s", error)
            return chosen

    def _working_copy(
        self, found: WorkingCopy | None, mine: WorkingCopy, chain: Chain
    ) -> tuple[str, dict[int, Plan]]:
        """Keep the last generation's directory when it matches, else make one from the store.

        Either way, what it had planned after the chosen epoch is returned.
        """
        planned: dict[int, Plan] = {}
        order = ready_for(found) if found is not None else None
        if found is not None and order is not None:
            for _ in chain.read(self._store, self._states):
                pass  # only to verify and to learn the hashes
            planned = self._planned(found, order, chain.batch)
            why = difference(found, chain.digests, chain.batch)
            if why is None and order != chain.leaves:
                why = "its sources are in another order"
            if why is None:
                take_over(found, mine)
                words = keep(mine, chain.logs, chain.digests, chain.batch)
                return words, planned
            log.warning("the working copy %s is not kept: %s", found.root, why)
        mark_unfinished(mine)
        mine.destroy()
        written = restore(mine, chain.read(self._store, self._states), chain.batch)
        chosen = chain.manifests[-1].checkpoint_id
        return (
            f"rebuilt from checkpoint {chosen} ({written.files} files, {size_text(written.size)})",
            planned,
        )

    def _planned(self, found: WorkingCopy, order: list[str], after: int) -> dict[int, Plan]:
        """What a directory tells about batches that were planned and are not decided."""
        first_lines = [order.index(name) for name in dict.fromkeys(order)]
        plans = {
            batch: plan
            for batch in found.batches("offsets")
            if batch > after and (plan := read_plan(found, batch, first_lines)) is not None
        }
        if order == list(self._identity.leaves):
            return plans
        # folders of the sources may be numbered anew; Spark plans such a batch itself
        return {}

    def _plan_again(
        self, mine: WorkingCopy, lineage: Lineage, batch: int, planned: dict[int, Plan]
    ) -> None:
        """Have epochs that were planned before run on the same rows, above all those that show."""
        shown = max(lineage.ahead.values(), default=0)
        for output in self._crew.outputs:
            for epoch in range(batch + 2, lineage.ahead.get(output.name, 0) + 1):
                receipt = output.sink.committed(lineage.timeline, epoch)
                if receipt is not None and receipt.plan is not None:
                    planned[epoch - 1] = receipt.plan
        for number in range(batch + 1, max(batch + 1, shown - 1) + 1):
            if (plan := planned.get(number)) is None:
                continue
            if number == batch + 1:
                install_plan(mine, number, plan)
            if number < shown:
                lineage.plans[number] = plan
        if lineage.plans:
            again = ", ".join(str(number + 1) for number in sorted(lineage.plans))
            self._notes.append(f"epoch {again} runs again, on the rows that it was planned for")
