"""The first step of an epoch: what Spark has planned, and whether it may run.

Tests: ``tests/pipeline/test_stored_plans.py``.
"""

from __future__ import annotations

from collections.abc import Sequence

from seamark.capture.plans import read_plan
from seamark.checkpoint_dir.working_copy import WorkingCopy
from seamark.errors import LineageError, SeamarkError
from seamark.pipeline.declaration.compile import Output
from seamark.pipeline.declaration.structure import PipelineIdentity
from seamark.pipeline.epoch.history import EpochHistory, PlanDiffers
from seamark.pipeline.epoch.running_epoch import RunningEpoch, new_attempt
from seamark.spark.batch_log import Plan, parse_offsets, require_unnamed


def planned_epoch(
    copy: WorkingCopy, identity: PipelineIdentity, history: EpochHistory, batch_id: int
) -> RunningEpoch:
    """The epoch of the batch that Spark runs; :class:`PlanDiffers` when it needs its old plan."""
    plan = read_plan(copy, batch_id, identity.first_lines)
    if plan is None:
        raise SeamarkError(
            f"the plan of batch {batch_id} is not in the working copy",
            where=copy.root,
            hint="Was the directory removed or replaced while the query was running?",
        )
    entry = require_unnamed(parse_offsets(plan.offsets))
    if len(entry.lines) != len(identity.leaves):
        raise SeamarkError(
            f"Spark planned {len(entry.lines)} sources, and the pipeline has "
            f"{len(identity.leaves)}",
            where=copy.path(f"offsets/{batch_id}"),
        )
    earlier = history.plans.get(batch_id)
    if earlier is not None and not _reads_the_same(earlier, plan):
        if batch_id in history.planned_again:
            raise LineageError(
                f"epoch {batch_id + 1} cannot be run on the rows that it was planned for",
                where=copy.path(f"offsets/{batch_id}"),
                hint="Take the epoch back from the sinks that show it (unpublish_after).",
            )
        history.planned_again.add(batch_id)
        raise PlanDiffers(batch_id)
    return RunningEpoch(
        identity=identity,
        timeline=history.timeline,
        batch=batch_id,
        entry=entry,
        plan=plan,
        attempt=new_attempt(history.generation),
    )


def _reads_the_same(earlier: Plan, plan: Plan) -> bool:
    same_lines = parse_offsets(earlier.offsets).lines == parse_offsets(plan.offsets).lines
    return same_lines and earlier.sources == plan.sources


def is_replay(epoch: RunningEpoch, history: EpochHistory, copy: WorkingCopy) -> bool:
    """Whether the epoch is decided already; :class:`LineageError` when it is out of order."""
    newest = history.newest
    expected = history.first_batch + 1 if newest is None else newest.epoch + 1
    if epoch.number == expected:
        return False
    if newest is not None and epoch.number == newest.epoch:
        return True
    raise LineageError(
        f"Spark runs epoch {epoch.number}, and the next one of this pipeline is {expected}",
        where=copy.root,
        hint="The working copy belongs to another history. Stop, remove it, and start again.",
    )


def shown_already(
    epoch: RunningEpoch, history: EpochHistory, outputs: Sequence[Output]
) -> set[str]:
    """Sinks that show this epoch: their checkpoint was lost, and the epoch is run again."""
    shown: set[str] = set()
    for output in outputs:
        if epoch.number > history.ahead.get(output.name, 0):
            continue
        receipt = output.sink.committed(epoch.timeline, epoch.number)
        if receipt is None:
            continue
        if receipt.fingerprint != epoch.fingerprint:
            raise LineageError(
                f"sink {output.name!r} shows epoch {epoch.number} with other rows",
                where=f"It was written by attempt {receipt.attempt} of timeline "
                f"{receipt.timeline}, and what Spark has planned now is something else.",
                hint="Take the epoch back from the sink (unpublish_after), or restore the "
                "checkpoint that belongs to it.",
            )
        shown.add(output.name)
    return shown
