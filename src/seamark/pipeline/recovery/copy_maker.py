"""A working copy that matches a checkpoint: the one of the last run, or a new one from the store.

Tests: ``tests/pipeline/test_recovery.py``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from msgspec.structs import replace

from seamark._common.logs import logger_named
from seamark._common.text import size_text
from seamark.capture.checkpoint_contents import Chain
from seamark.capture.restore import (
    FetchAll,
    RestoredFiles,
    difference,
    keep,
    restore,
    restore_index,
)
from seamark.checkpoint_dir.working_copy import WorkingCopy
from seamark.pipeline.recovery.moved_state import Moves
from seamark.pipeline.recovery.starting_point import LongWork
from seamark.pipeline.recovery.working_dirs import WorkingDirs
from seamark.pipeline.telemetry.reports import CopyOutcome
from seamark.spark.batch_log import Plan
from seamark.store import CheckpointStore

log = logger_named("seamark.pipeline")


class FittingCopy(NamedTuple):
    """What was done to have a working copy that matches a checkpoint."""

    outcome: CopyOutcome
    text: str
    planned: dict[int, Plan]
    """What the copy had planned after the chosen epoch."""
    restored_bytes: int = 0


@dataclass(frozen=True)
class CopyMaker:
    """Makes the working copy of a start."""

    store: CheckpointStore
    long_work: LongWork
    fetch_all: FetchAll | None = None

    def fitting(
        self, dirs: WorkingDirs, chain: Chain, timeline: str, moves: Moves | None = None
    ) -> FittingCopy:
        """Keep the newest working copy if it matches the checkpoint, else make one from the store.

        ``moves`` is what an upgrade has given other numbers, so that the copy has the old ones.
        """
        planned = dirs.saved_plans(timeline)
        ready = dirs.newest_ready()
        if ready is not None:
            copy, note = ready
            if chain.index is None:
                for _ in chain.read(self.store):
                    pass  # only to verify and to learn the hashes
            planned = dirs.plans_in(copy, note, chain.batch, timeline)
            if moves is not None:
                self.store.check_claim()  # whoever has taken over may use it
                dirs.take_over(copy)
                copy, note = dirs.own, replace(note, leaves=chain.leaves)
                moves.apply(copy, ready[1].leaves, chain.leaves, chain.small_state)
            why = self._difference(copy, chain)
            if why is None and note.leaves != chain.leaves:
                why = "its sources are in another order"
            self.store.check_claim()
            if why is None:
                dirs.take_over(copy)
                done = keep(dirs.own, chain.logs, chain.expected, chain.batch)
                if moves is None:
                    return FittingCopy(CopyOutcome.KEPT, done, planned)
                return FittingCopy(CopyOutcome.REARRANGED, "rearranged", planned)
            log.warning("the working copy %s is not kept: %s", copy.root, why)
        dirs.clear_own()
        written = self._restored(dirs.own, chain)
        chosen = chain.manifests[-1].checkpoint_id
        size = size_text(written.size)
        text = f"rebuilt from checkpoint {chosen} ({written.files} files, {size})"
        return FittingCopy(CopyOutcome.REBUILT, text, planned, written.size)

    def _difference(self, copy: WorkingCopy, chain: Chain) -> str | None:
        expected = chain.expected
        with self.long_work("proving the working copy", chain.bytes_of(expected)) as advance:
            return difference(
                copy, expected, chain.batch, lambda path: advance(chain.bytes_of([path]))
            )

    def _restored(self, copy: WorkingCopy, chain: Chain) -> RestoredFiles:
        if chain.index is None:
            return restore(copy, chain.read(self.store), chain.batch)
        shared = self.store.shared_objects
        with self.long_work("restoring the working copy", chain.index.size) as advance:
            return restore_index(copy, chain.index, chain.small, shared, advance, self.fetch_all)
