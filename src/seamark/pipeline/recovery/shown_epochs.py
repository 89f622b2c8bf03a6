"""Epochs that sinks show and that have to run again: their checkpoints are lost.

They run on the rows that they were planned for, which the sinks remember.

Tests: ``tests/pipeline/test_changed_pipelines.py``.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from seamark.pipeline.declaration.compile import Output
from seamark.pipeline.epoch.earlier_plans import (
    require_follows,
    require_leaves,
    require_same_leaves,
)
from seamark.pipeline.epoch.epoch_plan import fingerprint_of
from seamark.pipeline.epoch.running_epoch import EpochHistory
from seamark.pipeline.recovery.sink_recovery import most_ahead
from seamark.spark.batch_log import Plan


def remembered_plans(
    outputs: Iterable[Output], history: EpochHistory, batch: int
) -> dict[int, Plan]:
    """The plans of all epochs after a batch that sinks show, by batch, where a sink has them."""
    most_ahead(history.ahead, batch)
    plans: dict[int, Plan] = {}
    for output in outputs:
        for epoch in range(batch + 2, history.ahead.get(output.name, 0) + 1):
            receipt = output.sink.committed(history.timeline, epoch)
            if receipt is not None and receipt.plan is not None:
                plans[epoch - 1] = receipt.plan
    return plans


def require_first_can_run(
    plans: dict[int, Plan],
    history: EpochHistory,
    batch: int,
    leaves_then: Sequence[str],
    leaves: Sequence[str],
) -> None:
    """:class:`RefusedError` when the first of them was planned for outputs that read otherwise.

    :class:`LineageError` when it came after another epoch than the newest one.

    Of a plan that does not say what it reads, it is what the outputs have read until then. Later
    epochs are compared when they come: outputs may have been added in between.
    """
    if not history.ahead:
        return
    where = "; ".join(f"{sink} shows epoch {number}" for sink, number in history.ahead.items())
    plan = plans.get(batch + 1)
    if plan is None or plan.leaves is msgspec.UNSET:
        require_same_leaves(leaves_then, leaves, batch + 2, where)
    if plan is not None:
        require_leaves(plan, leaves, batch + 2, where)
        require_follows(plan, fingerprint_of(history.newest), batch + 2, where)
