"""Going on from another position when the rows that came next are gone.

A checkpoint of the same epoch records the gap before anything runs, so that no start can take the
old position again. Batch N+1 begins where ``offsets/N`` ends. The line of the source in that entry
is replaced in the working copy, at every start for as long as the copy has the entry: what the
store holds of Spark's log stays as Spark wrote it.

Tests: ``tests/pipeline/test_reanchor.py``.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

from seamark._common.logs import logger_named
from seamark.errors import RefusedError
from seamark.manifest import CheckpointManifest
from seamark.pipeline.declaration.structure import PipelineIdentity
from seamark.pipeline.epoch.epoch_manifest import source_offset
from seamark.pipeline.epoch.running_epoch import EpochHistory
from seamark.spark.source_gaps import Gap, gap_texts
from seamark.store import CheckpointStore

log = logger_named("seamark.pipeline")


def record_gaps(
    store: CheckpointStore, history: EpochHistory, gaps: Sequence[Gap], identity: PipelineIdentity
) -> None:
    """Save the newest epoch once more, with the gaps and the positions after them.

    :class:`RefusedError` when the next epoch was begun: its rows may be in sinks already.
    """
    newest = history.newest
    if newest is None:
        return
    begun = store.plans.epochs_after(history.timeline, newest.epoch)
    if begun or history.ahead:
        raise RefusedError(
            f"epoch {newest.epoch + 1} was begun on rows that are gone, and sinks may show it",
            where=store.url,
            hint="It cannot begin at another position now. Roll back to an earlier checkpoint, "
            "which starts a new timeline, or give the pipeline a new store.",
        )
    saved = store.save(_with_gaps(newest, history.next_id, gaps, identity))
    history.newest, history.next_id = saved, saved.checkpoint_id + 1
    history.links += 1
    for text in gap_texts(saved.gaps[-len(gaps) :]):
        log.warning("%s", text)


def _with_gaps(
    newest: CheckpointManifest, checkpoint_id: int, gaps: Sequence[Gap], identity: PipelineIdentity
) -> CheckpointManifest:
    now = time.time_ns() // 1_000_000
    moved = {gap.source: source_offset(gap.new_lines, newest.epoch) for gap in gaps}
    # it holds nothing itself: all state is that of the checkpoint which it builds on
    again = newest.replace(
        checkpoint_id=checkpoint_id,
        timestamp_ms=now,
        source_offsets={**newest.source_offsets, **moved},
        operator_states={},
        state_checkpoint=None,
        is_incremental=True,
        parent_id=newest.checkpoint_id,
        state_checksum=None,
    )
    return again.with_extra(
        gaps=[*newest.gaps, *(gap.document(newest.epoch, now) for gap in gaps)],
        source_times={n: at for n, at in (newest.source_times or {}).items() if n not in moved}
        or None,
        source_ids=identity.source_ids_after(newest.source_ids) or None,
        shared_objects=None,
        added_bytes=None,
    )
