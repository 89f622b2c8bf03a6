"""Plans of epochs in the store: for sinks that change their target before the decision.

Without them a crash between such a sink and the checkpoint could have the epoch planned again, with
more rows. A target that knows the epoch already would then drop the new ones, without an error.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import partial
from typing import Final

from seamark._common.logs import logger_named
from seamark._common.retry import retry_unavailable
from seamark.errors import DamageError, LineageError, RefusedError
from seamark.manifest import CheckpointManifest
from seamark.pipeline.declaration.compile import Output
from seamark.pipeline.epoch.history import EpochHistory, PlanDiffers
from seamark.pipeline.epoch.running_epoch import RunningEpoch, fingerprint
from seamark.sinks.contract import Guarantee
from seamark.spark.batch_log import Plan, parse_offsets
from seamark.store import CheckpointStore
from seamark.store.plans import StoredPlan

log = logger_named("seamark.pipeline")

_SOURCE_ENTRY: Final = re.compile(r"sources/(?!\.)[^/\\\x00]{1,255}/[0-9]{1,18}(\.compact)?")
_NEW_TIMELINE: Final = (
    "A rollback to an earlier checkpoint starts a new timeline, in which every epoch is planned "
    "again; bring the targets of functions back to that epoch first."
)


def needs_stored_plans(outputs: Iterable[Output]) -> bool:
    """Whether a sink changes its target before the checkpoint exists."""
    return any(output.sink.shows_at_once for output in outputs)


def store_plan(
    store: CheckpointStore, epoch: RunningEpoch, history: EpochHistory, patience: float
) -> None:
    """Have the plan of an epoch in the store before any function is called with its rows.

    :class:`PlanDiffers` when another plan is there: the epoch has to run on that one.
    """
    new = StoredPlan(
        timeline=epoch.timeline,
        epoch=epoch.number,
        fingerprint=epoch.fingerprint,
        follows=_fingerprint_of(history.newest),
        leaves=epoch.identity.leaves,
        offsets=epoch.plan.offsets,
        sources=epoch.plan.sources,
    )
    stored = retry_unavailable(
        partial(store.plans.keep, new), patience, "storing the plan of the epoch"
    )
    if stored == new:
        return
    plan = _usable(stored, new.follows, epoch.identity.leaves, store.url)
    if epoch.batch not in history.planned_again:
        history.plans[epoch.batch] = plan
        history.planned_again.add(epoch.batch)
        raise PlanDiffers(epoch.batch)
    if stored.fingerprint != new.fingerprint:
        raise LineageError(
            f"epoch {epoch.number} cannot be run on the rows that it was started with",
            where=f"{store.url}: Spark plans other rows than the stored plan has",
            hint=_NEW_TIMELINE,
        )


def stored_plans(
    store: CheckpointStore, history: EpochHistory, leaves: tuple[str, ...], *, needed: bool
) -> dict[int, Plan]:
    """Plans of the epochs that come after the newest checkpoint, by batch, as far as they go on.

    With ``needed`` an unusable one is an error. Without, nothing depends on it and it is left out.
    """
    timeline, newest = history.timeline, history.newest
    before = newest.epoch if newest is not None else history.first_batch
    epochs = store.plans.epochs_after(timeline, before)
    plans: dict[int, Plan] = {}
    follows = _fingerprint_of(newest)
    for number in range(before + 1, before + 1 + len(epochs)):
        if number not in epochs:
            break
        try:
            stored = store.plans.read(timeline, number)
            if stored is None:
                break
            plans[number - 1] = _usable(stored, follows, leaves, store.url)
        except (DamageError, RefusedError) as error:
            if needed:
                raise
            log.warning("the stored plan of epoch %d is not used: %s", number, error.what)
            break
        follows = stored.fingerprint
    return plans


def refuse_unknown_rows(outputs: Iterable[Output], epoch: int, where: str) -> None:
    """Refuse to give an epoch to a function again when the checkpoint of it was lost, and its plan.

    The rows would be others, and a target that knows the epoch would drop them. A function that
    does not call itself idempotent gets them twice at worst, which is what it promises.
    """
    for output in outputs:
        if output.sink.shows_at_once and output.sink.guarantee is Guarantee.IDEMPOTENT:
            raise LineageError(
                f"epoch {epoch} was decided before, and its rows are not known any more",
                where=f"{where}: its checkpoint is damaged, and no plan of it is stored. The "
                f"function of sink {output.name!r} was called with it",
                hint="Restore the store from a copy, or roll the pipeline back to the newest "
                "checkpoint that is whole. That starts a new timeline; bring the function's "
                "target back to that epoch first.",
            )


def _fingerprint_of(newest: CheckpointManifest | None) -> str:
    return "" if newest is None else newest.fingerprint or ""


def _usable(stored: StoredPlan, follows: str, leaves: tuple[str, ...], where: str) -> Plan:
    """The plan, when it is whole and belongs where the pipeline stands."""
    _check(stored)
    if stored.leaves != leaves:
        raise RefusedError(
            f"epoch {stored.epoch} was started before the pipeline was changed, but not finished",
            where=f"{where}: it reads {', '.join(stored.leaves)}; the pipeline now reads "
            f"{', '.join(leaves)}",
            hint="Start once with the sinks as they were, so that the epoch can be finished, then "
            "change them. If it cannot be, roll back to an earlier checkpoint, or take a new store "
            "when there is none; bring the targets of functions back to that epoch first.",
        )
    if stored.follows != follows:
        raise LineageError(
            f"epoch {stored.epoch} was started before, after a different epoch {stored.epoch - 1}",
            where=f"{where}: functions may have been called with rows that would now be others",
            hint=_NEW_TIMELINE,
        )
    return Plan(stored.offsets, stored.sources)


def _check(stored: StoredPlan) -> None:
    """:class:`DamageError` for a plan that was not made here."""
    lines = parse_offsets(stored.offsets).lines
    if len(lines) != len(stored.leaves):
        raise _damaged(stored, f"it has {len(lines)} offsets for {len(stored.leaves)} sources")
    if odd := next((path for path in stored.sources if not _SOURCE_ENTRY.fullmatch(path)), None):
        raise _damaged(stored, f"it holds a file {odd!r}, which is no entry of a source's log")
    if fingerprint(stored.timeline, lines, stored.sources) != stored.fingerprint:
        raise _damaged(stored, "its fingerprint is that of another one")


def _damaged(stored: StoredPlan, why: str) -> DamageError:
    return DamageError(f"the plan of epoch {stored.epoch} is damaged: {why}", hint=_NEW_TIMELINE)
