"""Going back to an earlier checkpoint for good: a new timeline, which reuses nothing of the old."""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import TYPE_CHECKING

from seamark._common.checks import check_id
from seamark._common.logs import logger_named
from seamark.errors import FencedError
from seamark.manifest import CheckpointManifest
from seamark.pipeline.recovery.rollback_plan import require_rollback_target
from seamark.store import CheckpointStore

if TYPE_CHECKING:
    from seamark.pipeline.declaration.compile import Output

log = logger_named("seamark.pipeline")


def shown_timeline(manifest: CheckpointManifest) -> str:
    """The timeline that sinks have noted for the manifest's own epoch."""
    return manifest.shown_as or manifest.timeline or ""


def abandoned_timelines(manifest: CheckpointManifest) -> set[str]:
    """The histories that were abandoned when the manifest's epoch was rolled back to."""
    own = {shown_timeline(manifest), manifest.timeline or ""}
    return own.union(manifest.abandoned or ())


def require_sinks_can_follow(
    store: CheckpointStore, checkpoint_id: int, pipeline: str, outputs: Iterable[Output]
) -> None:
    """:class:`RefusedError` when a sink could not take back what it has shown since."""
    chosen = store.load_by_id(check_id(checkpoint_id))
    for output in outputs if chosen is not None else ():
        sink = output.sink
        if not sink.remembers:
            continue  # it goes on next to what is there
        try:
            sink.open(pipeline, output.name, output.df.schema)
            newest = sink.newest()
            if chosen is not None and newest is not None and newest.epoch > chosen.epoch:
                sink.require_unpublish_after(chosen.epoch)
        except FencedError as error:
            log.warning("sink %s is in use and was not asked: %s", output.name, error)
        finally:
            sink.close()


def roll_back(
    store: CheckpointStore, checkpoint_id: int, pipeline: str | None
) -> CheckpointManifest:
    """Claim the store, take all later checkpoints out of use, and repeat this one as the newest.

    A writer that is still running is fenced. Sinks are brought back by the next start, also when
    this is killed at any point. :class:`DamageError` when the checkpoint is not whole,
    :class:`RefusedError` when an earlier rollback has abandoned it; then nobody is fenced.
    """
    require_rollback_target(store, checkpoint_id)
    before = store.claim(pipeline=pipeline).timeline
    # once more: from here on nobody else changes anything
    chosen = require_rollback_target(store, checkpoint_id)
    newest = store.next_id() - 1
    if newest > checkpoint_id:
        store.supersede(checkpoint_id + 1, newest)
    # it holds nothing itself: all state is that of the checkpoint which it builds on
    again = chosen.replace(
        checkpoint_id=store.next_id(),
        timestamp_ms=time.time_ns() // 1_000_000,
        operator_states={},
        state_checkpoint=None,
        is_incremental=True,
        parent_id=chosen.checkpoint_id,
        state_checksum=None,
    )
    given_up = sorted({before, *abandoned_timelines(chosen)})
    return store.save(again.with_extra(shown_as=shown_timeline(chosen), abandoned=given_up))
