"""Copying checkpoints with all that belongs to them, partitioned state included."""

from __future__ import annotations

from seamark.capture.placement import state_id, states_beside, watch_partitioned_state
from seamark.manifest import CheckpointManifest
from seamark.store import CheckpointStore
from seamark.store.copy.copying import copy_planned
from seamark.store.copy.survey import Copied, CopyPlan, plan_copy
from seamark.store.copy.transfer import Advance


def copy_checkpoints(
    source: CheckpointStore,
    target: CheckpointStore,
    plan: CopyPlan | None = None,
    *,
    advance: Advance | None = None,
) -> list[Copied]:
    """Copy what a plan says, by default all checkpoints that count; what became of each.

    Every byte is verified on its way and once more in the target. A pipeline that is started on
    the target goes on from there. Repeat it after an interruption.

    >>> from seamark import CheckpointManifest, open_store
    >>> with open_store("memory://") as here, open_store("memory://") as there:
    ...     _ = here.save(CheckpointManifest.new(1, epoch=1))
    ...     [(each.checkpoint_id, each.outcome) for each in copy_checkpoints(here, there)]
    [(1, 'copied')]
    """
    states, states_there = states_beside(source), states_beside(target)
    watch_partitioned_state(target, states_there)

    def copy_more(manifest: CheckpointManifest) -> int:
        found = state_id(manifest) if manifest.is_ours else None
        if found is None:
            return 0
        states.copy(found, states_there)
        chains = states.partitions(found).values()
        return sum(link.entry.size_bytes for chain in chains for link in chain)

    return copy_planned(
        source,
        target,
        plan if plan is not None else plan_copy(source, target),
        copy_more=copy_more,
        advance=advance if advance is not None else _silently,
    )


def _silently(by: float, *, total: float | None = None) -> None:
    """Nobody is watching."""
