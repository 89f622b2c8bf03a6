"""What an epoch reads: what Spark has planned, whether that may run, and plans in the store.

Plans are stored for sinks that change their target before the decision. Without them a crash
between such a sink and the checkpoint could have the epoch planned again, with more rows. A target
that knows the epoch already would then drop the new ones, without an error.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final

import msgspec

from seamark._common.logs import logger_named
from seamark._common.retry import retry_unavailable
from seamark.capture.changed_inputs import BRING_BACK, require_unchanged_files
from seamark.capture.planned_files import modified_by
from seamark.capture.plans import PUT_BACK, read_plan, require_planned_files
from seamark.checkpoint_dir.working_copy import WorkingCopy
from seamark.errors import DamageError, LineageError, RefusedError, SeamarkError
from seamark.manifest import CheckpointManifest
from seamark.pipeline.declaration.compile import Output
from seamark.pipeline.declaration.structure import PipelineIdentity
from seamark.pipeline.epoch.begun_epoch import PROMISES_NOTHING, changes_since, drops_known_keys
from seamark.pipeline.epoch.earlier_plans import require_follows, require_leaves
from seamark.pipeline.epoch.running_epoch import (
    EpochHistory,
    PlanDiffers,
    RunningEpoch,
    fingerprint,
    new_attempt,
)
from seamark.pipeline.epoch.topic_ids import (
    note_late_topics,
    require_topics_of_plan,
    topic_ids_at,
)
from seamark.spark.batch_log import Plan, parse_offsets, require_unnamed
from seamark.spark.kafka.lag import latest_by_source
from seamark.spark.plans.lossy_options import may_lose_of
from seamark.spark.query import RunningQuery
from seamark.store import CheckpointStore
from seamark.store.plans import StoredPlan

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log = logger_named("seamark.pipeline")

_SOURCE_ENTRY: Final = re.compile(r"sources/(?!\.)[^/\\\x00]{1,255}/[0-9]{1,18}(\.compact)?")
_NEW_TIMELINE: Final = (
    "A rollback starts a new timeline, in which every epoch is planned again, also a rollback to "
    "the newest checkpoint; bring the targets of functions back to that epoch first."
)
_DECIDED: Final = (
    "The epoch is decided and nothing of it is lost. Start again: it is finished from its "
    "checkpoint, and its rows are not read again."
)

_ADOPTED: Final = (
    "Bring it back as it was, with the time that it had. If it cannot be, have the adopted query "
    "finish the batch on its own directory, which has planned it, and adopt that then."
)


def planned_epoch(
    copy: WorkingCopy,
    identity: PipelineIdentity,
    history: EpochHistory,
    batch_id: int,
    latest: Sequence[str | None] = (),
) -> RunningEpoch:
    """The epoch of the batch that Spark runs; :class:`PlanDiffers` when it needs its old plan.

    ``latest`` has by leaf the newest offset that the source had.
    """
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
    follows = fingerprint_of(history.newest)
    plan = msgspec.structs.replace(plan, leaves=identity.leaves, follows=follows)
    note_late_topics(identity, entry.lines, history)
    earlier = history.plans.get(batch_id)
    if earlier is not None and not earlier.has_rows_of(plan):
        require_leaves(earlier, identity.leaves, batch_id + 1, copy.root)
        require_follows(earlier, follows, batch_id + 1, copy.root)
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
        attempt=new_attempt(history.generation, history.timeline),
        latest=latest_by_source(identity.leaves, latest),
    )


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


def require_files(
    spark: SparkSession, query: RunningQuery, epoch: RunningEpoch, history: EpochHistory
) -> None:
    """:class:`SeamarkError` when a file of the plan is gone, or not the one that was planned."""
    plan, number = epoch.plan, epoch.number
    gone_hint, changed_hint = _hints(epoch.batch, history)
    may_be_gone = _folders_that_may_miss_files(epoch.identity)
    require_planned_files(spark, plan, number, query.listed_files, gone_hint, may_be_gone)
    if epoch.batch <= history.planned_before:
        times = query.listed_times
        require_unchanged_files(plan, number, times, modified_by(spark), changed_hint)


def _hints(batch: int, history: EpochHistory) -> tuple[str, str]:
    """What to do when a file of a batch's plan is gone, and when it was modified."""
    if batch <= history.decided_batch:
        return _DECIDED, _DECIDED
    if history.newest is None and batch == history.first_batch > 0:
        return _ADOPTED, _ADOPTED
    return PUT_BACK, BRING_BACK


def _folders_that_may_miss_files(identity: PipelineIdentity) -> list[str]:
    """Folders below ``sources`` of sources that are declared to ignore files that are gone."""
    sources = identity.structure.get("sources") or {}
    return [
        str(number)
        for number, line in enumerate(identity.first_lines)
        if "ignoreMissingFiles" in may_lose_of(sources.get(identity.leaves[line]))
    ]


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


def functions_in(outputs: Iterable[Output], identity: PipelineIdentity) -> tuple[str, ...]:
    """The outputs whose sinks change their targets before the checkpoint exists.

    They are named as in the keys that the sinks get. Epochs need stored plans when there are any.
    """
    return tuple(sorted(identity.name_at_target(o.name) for o in outputs if o.sink.shows_at_once))


def store_plan(
    store: CheckpointStore,
    epoch: RunningEpoch,
    history: EpochHistory,
    functions: tuple[str, ...],
    patience: float,
) -> None:
    """Have the plan of an epoch in the store before any function is called with its rows.

    :class:`PlanDiffers` when another plan is there: the epoch has to run on that one.
    """
    new = StoredPlan(
        timeline=epoch.timeline,
        epoch=epoch.number,
        fingerprint=epoch.fingerprint,
        follows=fingerprint_of(history.newest),
        leaves=epoch.identity.leaves,
        offsets=epoch.plan.offsets,
        sources=epoch.plan.sources,
        functions=functions,
        structure=epoch.identity.stored_structure,
        tables=dict(epoch.identity.tables),
        spark_version=epoch.identity.spark_version,
        source_ids=topic_ids_at(epoch.identity, history),
    )
    stored = retry_unavailable(
        partial(store.plans.keep, new), patience, "storing the plan of the epoch"
    )
    if stored == new:
        return
    plan = _following(stored, new.follows, store.url)
    _require_unchanged(stored, epoch.identity, functions, store.url)
    if plan.has_rows_of(epoch.plan):
        return  # an earlier version has stored it, or a function that takes whatever comes is new
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
    store: CheckpointStore,
    history: EpochHistory,
    identity: PipelineIdentity,
    functions: tuple[str, ...],
) -> dict[int, Plan]:
    """Plans of the epochs that come after the newest checkpoint, by batch, as far as they go on.

    With ``functions`` an unusable one is an error. Without, nothing depends on it and it is left
    out. Whether the pipeline is what it was then is asked of later epochs when they come: it may
    have changed in between.
    """
    timeline, newest, needed = history.timeline, history.newest, bool(functions)
    before = newest.epoch if newest is not None else history.first_batch
    begun = store.plans.epochs_after(timeline, newest.epoch if newest is not None else 0)
    epochs = {number for number in begun if number > before}
    if needed and begun - epochs:
        raise _overtaken(min(begun), store.url)
    plans: dict[int, Plan] = {}
    follows = fingerprint_of(newest)
    for number in range(before + 1, before + 1 + len(epochs)):
        if number not in epochs:
            if needed:
                raise LineageError(
                    f"epoch {number} has no plan, and epoch {min(e for e in epochs if e > number)}"
                    " of the same timeline was started",
                    where=store.url,
                    hint="A function was called with epochs whose rows are not known any more. "
                    "Roll the pipeline back to this checkpoint: that starts a new timeline.",
                )
            break
        try:
            stored = store.plans.read(timeline, number)
            if stored is None:
                break
            plan = _following(stored, follows, store.url)
            if number == before + 1 or not needed:
                _require_unchanged(stored, identity, functions, store.url)
            plans[number - 1] = plan
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
        if output.sink.shows_at_once and output.sink.guarantee not in PROMISES_NOTHING:
            raise LineageError(
                f"epoch {epoch} may have been decided before, and its rows are not known any more",
                where=f"{where}: a newer checkpoint is damaged, and no plan of the epoch is "
                f"stored. The function of sink {output.name!r} may have been called with it",
                hint="Restore the store from a copy, or roll the pipeline back to the newest "
                "checkpoint that is whole. That starts a new timeline; bring the function's "
                "target back to that epoch first.",
            )


def fingerprint_of(newest: CheckpointManifest | None) -> str:
    """That of the newest decided epoch; empty when there is none."""
    return "" if newest is None else newest.fingerprint or ""


def _following(stored: StoredPlan, follows: str, where: str) -> Plan:
    """The plan, when it is whole and was made after the epoch that comes before it here."""
    _check(stored)
    if stored.follows != follows:
        raise LineageError(
            f"epoch {stored.epoch} was started before, after a different epoch {stored.epoch - 1}",
            where=f"{where}: functions may have been called with rows that would now be others",
            hint=_NEW_TIMELINE,
        )
    return Plan(stored.offsets, stored.sources, stored.leaves)


def _require_unchanged(
    stored: StoredPlan, identity: PipelineIdentity, functions: tuple[str, ...], where: str
) -> None:
    """:class:`RefusedError` when the epoch was started by a pipeline that was another one."""
    leaves = identity.leaves
    if stored.leaves != leaves:
        reads = f"it reads {', '.join(stored.leaves)}; the pipeline now reads {', '.join(leaves)}"
        raise _changed_since(stored, f"{where}: {reads}")
    # under another name a function gets other keys, by which no target knows rows that it has
    if functions and (gone := set(stored.functions or ()).difference(functions)):
        called = f"the function of output {min(gone)!r} may have been called with it"
        now = f"the pipeline now has functions for {', '.join(functions)}"
        raise _changed_since(stored, f"{where}: {called}; {now}")
    # the plan is written once: a later try could not know that a new function had the epoch, too
    new = set() if stored.functions is None else set(functions).difference(stored.functions)
    if drops_known_keys(identity, new):
        raise _changed_since(stored, f"{where}: the function of output {min(new)!r} is new")
    require_topics_of_plan(stored, identity, functions, where)
    if changes := changes_since(stored, identity, functions):
        raise _changed_since(stored, f"{where}: {'; '.join(changes)}")


def _changed_since(stored: StoredPlan, where: str) -> RefusedError:
    return RefusedError(
        f"epoch {stored.epoch} was started before the pipeline was changed, but not finished",
        where=where,
        hint="Start once with the pipeline as it was, so that the epoch can be finished, then "
        "change it. If it cannot be, roll back to the newest checkpoint, or take a new store "
        "when there is none; bring the targets of functions back to that epoch first.",
    )


def _overtaken(epoch: int, where: str) -> LineageError:
    return LineageError(
        f"epoch {epoch} was started here, and the adopted query has gone past it since",
        where=f"{where}: a function may have been called with rows that the query has written too",
        hint="Remove from the function's target what it was given in that epoch, and adopt the "
        "query with a new store.",
    )


def _check(stored: StoredPlan) -> None:
    """:class:`DamageError` for a plan that was not made here."""
    try:
        entry = parse_offsets(stored.offsets)
        entry.watermark_ms  # noqa: B018 - the first epoch that runs on the plan needs it
    except DamageError as error:
        raise _damaged(stored, error.what) from None
    lines = entry.lines
    if len(lines) != len(stored.leaves):
        raise _damaged(stored, f"it has {len(lines)} offsets for {len(stored.leaves)} sources")
    if odd := next((path for path in stored.sources if not _SOURCE_ENTRY.fullmatch(path)), None):
        raise _damaged(stored, f"it holds a file {odd!r}, which is not an entry of a source's log")
    if fingerprint(stored.timeline, lines, stored.sources) != stored.fingerprint:
        raise _damaged(stored, "its fingerprint is that of another one")


def _damaged(stored: StoredPlan, why: str) -> DamageError:
    return DamageError(f"the plan of epoch {stored.epoch} is damaged: {why}", hint=_NEW_TIMELINE)
