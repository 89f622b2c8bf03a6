"""What a start does with the sinks: finish the decided epoch, and remove what no epoch owns.

Tests: ``tests/pipeline/test_recovery.py``, ``tests/pipeline/test_sink_recovery.py``.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from seamark._common.retry import retry_unavailable
from seamark.errors import DamageError, LineageError, RefusedError
from seamark.limits import MOST_EPOCHS_AHEAD
from seamark.manifest import CheckpointManifest, SinkCommitStatus
from seamark.manifest.described import described, description_of
from seamark.pipeline.declaration.compile import Output
from seamark.pipeline.declaration.structure import described_sink
from seamark.pipeline.declaration.target_names import has_same_target
from seamark.pipeline.epoch.begun_epoch import PROMISES_NOTHING
from seamark.pipeline.epoch.pipeline_sinks import PipelineSinks
from seamark.pipeline.epoch.read_points import missing_read_points
from seamark.pipeline.epoch.running_epoch import is_from_earlier, is_of_others
from seamark.pipeline.recovery.rollback import abandoned_timelines, shown_timeline
from seamark.pipeline.recovery.sink_opening import PATIENCE
from seamark.sinks.contract import Receipt, Sink, require_own, taken_back
from seamark.sinks.folders import is_token
from seamark.store import CheckpointStore

EpochBefore = Callable[[], CheckpointManifest | None]
"""Looks up the checkpoint of the epoch before the chosen one; None when it is not known."""


@dataclass
class FinishedSinks:
    """What was done: as text for the report, and as statuses for the manifest."""

    outcomes: dict[str, str] = field(default_factory=dict)
    statuses: dict[str, SinkCommitStatus] = field(default_factory=dict)
    aborted: list[str] = field(default_factory=list)
    of_others: list[str] = field(default_factory=list)
    """Notes on what was staged for another store. It was left where it is."""
    read_points: dict[str, Any] = field(default_factory=dict)
    """What to read to see the epoch, of sinks for which the manifest does not say it."""


def finish_sinks(
    sinks: PipelineSinks,
    chosen: CheckpointManifest | None,
    generation: int,
    moved: Collection[str] = (),
    before: EpochBefore = lambda: None,
    timelines: Collection[str] | None = None,
) -> FinishedSinks:
    """Commit the chosen epoch in every sink that lacks it, and abort attempts of earlier writers.

    Attempts of this generation or a later one stay: a writer that has taken over the store may be
    working on them. So do those of other ``timelines``: this may be the wrong store, and the right
    one may have decided their epoch. Sinks in ``moved`` have a new target and start there. A sink
    that has lost the epoch of ``before`` since is not taken past it.
    """
    done = FinishedSinks()
    if chosen is not None:
        _require_all(sinks, chosen, moved)
        _require_own(sinks, chosen, moved)
        for output in sinks.outputs:
            if output.name in moved:
                begins = f"has a new target, starts at epoch {chosen.epoch + 1}"
                done.outcomes[output.name] = begins + _beside(output.sink, chosen)
                continue
            _finish(output, sinks, chosen, done, before)
        shown = {*chosen.sink_commit_statuses}.difference(moved)
        timeline = shown_timeline(chosen)
        done.read_points = missing_read_points(sinks.outputs, chosen, shown, timeline)
    own = chosen.attempt if chosen is not None else None
    for output in sinks.outputs:
        _remove_leftovers(output, done, own, generation, timelines)
    return done


def epoch_before(store: CheckpointStore, chosen: CheckpointManifest) -> CheckpointManifest | None:
    """The checkpoint of the epoch before; None when it is not there, or damaged."""
    at: CheckpointManifest | None = chosen
    while at is not None and at.epoch >= chosen.epoch:
        number, parent = at.checkpoint_id, at.parent_id
        try:
            at = store.load_by_id(parent) if parent and parent < number else None
        except DamageError:
            return None
    return at


def _remove_leftovers(
    output: Output,
    done: FinishedSinks,
    own: str | None,
    generation: int,
    timelines: Collection[str] | None,
) -> None:
    name, sink = output.name, output.sink
    asking = f"asking sink {name} for what is staged"
    for attempt in retry_unavailable(sink.leftovers, PATIENCE, asking):
        if timelines is not None and is_of_others(attempt, timelines):
            done.of_others.append(
                f"sink {name}: attempt {attempt} is staged there by a pipeline with another store, "
                "and was left alone. Is this the right store?"
            )
        elif attempt != own and is_from_earlier(attempt, generation):
            what = f"attempt {attempt} of sink {name}"
            retry_unavailable(partial(sink.abort, attempt), PATIENCE, f"removing {what}")
            done.aborted.append(what)


def _require_all(sinks: PipelineSinks, chosen: CheckpointManifest, moved: Collection[str]) -> None:
    for sink, status in chosen.sink_commit_statuses.items():
        if (sink not in sinks.names or sink in moved) and not status.is_committed:
            what = "moved" if sink in moved else "removed"
            raise RefusedError(
                f"sink {sink!r} was {what} before it had committed epoch {chosen.epoch}",
                hint="Put it back for one start, so that the epoch can be finished.",
            )


def _require_own(sinks: PipelineSinks, chosen: CheckpointManifest, moved: Collection[str]) -> None:
    """:class:`DamageError` when the checkpoint has for a sink what is not of it and of its epoch.

    Asked of all before one is finished. Sinks make names of files and tables of an attempt.
    """
    about = {
        "timeline": shown_timeline(chosen),
        "epoch": chosen.epoch,
        "fingerprint": chosen.fingerprint,
        "attempt": chosen.attempt,
    }
    for output in sinks.outputs:
        name = output.name
        committable = _committables(chosen).get(name)
        if committable is None or name in moved:
            continue
        where = f"checkpoint {chosen.checkpoint_id}, {output.sink.describe().target}"
        if not isinstance(committable, dict):
            raise _not_usable(name, "it is no object", where)
        if name not in chosen.sink_commit_statuses:
            raise _not_usable(name, "nothing says whether it is committed", where)
        for named in ("timeline", "attempt"):
            if named in committable and not is_token(about[named]):
                raise _not_usable(name, f"its {named} is no name that a pipeline gives", where)
        require_own(committable, {**sinks.names_at_target(name), **about}, name, where)


def _not_usable(name: str, why: str, where: str) -> DamageError:
    return DamageError(
        f"what the checkpoint keeps for output {name!r} cannot be used: {why}",
        where=where,
        hint="Nothing was shown. Restore the store from a copy, or roll the pipeline back to the "
        "epoch before.",
    )


def _finish(
    output: Output,
    sinks: PipelineSinks,
    chosen: CheckpointManifest,
    done: FinishedSinks,
    before: EpochBefore,
) -> None:
    name, sink = output.name, output.sink
    status = chosen.sink_commit_statuses.get(name)
    if status is None:
        done.outcomes[name] = f"is new, starts at epoch {chosen.epoch + 1}{_beside(sink, chosen)}"
        return
    if not sink.remembers:
        if not status.is_committed:
            done.statuses[name] = SinkCommitStatus.committed()
        done.outcomes[name] = f"keeps no record of epochs ({sink.guarantee.value})"
        return
    receipt = sink.committed(shown_timeline(chosen), chosen.epoch)
    if receipt is not None:
        _require_same(name, receipt, chosen)
        done.outcomes[name] = "already committed"
        # also what has been renamed and not yet synced is made durable by committing again
        _commit(name, sinks, chosen, done, quiet=True)
        return
    if _committables(chosen).get(name) is None:
        why = "it shows nothing of it, and the checkpoint does not say where its rows are"
        raise _fell_behind(name, chosen, why)
    if not sink.catches_up and (earlier := before()) is not None:
        _require_before(output, chosen, earlier)
    _commit(name, sinks, chosen, done)


def _beside(sink: Sink, chosen: CheckpointManifest) -> str:
    """What a sink that comes back shows already of another history; nothing when there is none.

    So does a target. A rollback without it may have given those epochs up, and nobody has taken
    them back.
    """
    newest = sink.newest() if sink.remembers else None
    if newest is None or newest.timeline in (shown_timeline(chosen), chosen.timeline):
        return ""
    return (
        f", beside epochs up to {newest.epoch} of timeline {newest.timeline}: "
        "unpublish_after() takes back what was rolled back while it was away"
    )


def _require_before(output: Output, chosen: CheckpointManifest, before: CheckpointManifest) -> None:
    """:class:`DamageError` when a sink has lost the epoch before, which it had committed."""
    name = output.name
    old, new = (description_of(one, "sinks", name) for one in (before, chosen))
    status = before.sink_commit_statuses.get(name)
    if status is None or old is None or new is None or not has_same_target(old, new):
        return  # it began with the chosen epoch
    newest, timeline = output.sink.newest(), shown_timeline(before)
    if newest is None:
        shows = "nothing"
    elif newest.epoch > before.epoch:
        return
    else:
        found = (newest.epoch, newest.timeline, newest.fingerprint)
        if found == (before.epoch, timeline, before.fingerprint):
            return
        # a target that goes back to before a rollback has the same number of another history
        shows = f"epoch {newest.epoch} of timeline {newest.timeline}"
    had = f"epoch {before.epoch} of timeline {timeline}"
    raise _fell_behind(name, chosen, f"it shows {shows}, and had committed {had}")


def _commit(
    name: str,
    sinks: PipelineSinks,
    chosen: CheckpointManifest,
    done: FinishedSinks,
    *,
    quiet: bool = False,
) -> None:
    committable = _committables(chosen).get(name)
    if committable is None:
        return
    result = sinks.commit({name: committable})[name]
    if not result.is_committed:
        raise _fell_behind(name, chosen, result.message or "")
    if not chosen.sink_commit_statuses[name].is_committed:
        done.statuses[name] = result
    if not quiet:
        done.outcomes[name] = "committed from its committable"


def _committables(chosen: CheckpointManifest) -> dict[str, dict[str, object]]:
    return chosen.sink_committables or {}


def _require_same(name: str, receipt: Receipt, chosen: CheckpointManifest) -> None:
    theirs, ours = receipt.fingerprint, chosen.fingerprint
    if theirs != ours or receipt.timeline != shown_timeline(chosen):
        raise LineageError(
            f"sink {name!r} shows another epoch {chosen.epoch} than checkpoint "
            f"{chosen.checkpoint_id} says",
            where=f"It shows attempt {receipt.attempt} of timeline {receipt.timeline}; the "
            f"checkpoint is of timeline {shown_timeline(chosen)}.",
            hint="Was the store or the sink brought back from a copy? Restore both together, or "
            "take the epoch back from the sink.",
        )


def _fell_behind(name: str, chosen: CheckpointManifest, why: str) -> DamageError:
    return DamageError(
        f"sink {name!r} cannot be brought to epoch {chosen.epoch}",
        where=why,
        hint=f"Checkpoint {chosen.checkpoint_id} says that the epoch was decided. Restore the sink "
        "from a copy, or roll the pipeline back to an epoch that it shows.",
    )


def take_back_abandoned(
    sinks: PipelineSinks, chosen: CheckpointManifest, *timelines: str
) -> list[str]:
    """Take back the epochs that rollbacks have abandoned; returns notes for the report.

    Those of the ``timelines`` that are given stay.
    """
    abandoned = abandoned_timelines(chosen).difference(timelines)
    notes = []
    for output in sinks.outputs:
        newest = output.sink.newest() if output.sink.remembers else None
        if newest is not None and newest.epoch > chosen.epoch and newest.timeline in abandoned:
            taken = taken_back(output.sink, chosen.epoch, newest.timeline)
            notes.append(f"sink {output.name}: {len(taken)} epochs taken back and kept aside")
    return notes


def sinks_ahead(
    sinks: PipelineSinks,
    chosen: CheckpointManifest | None,
    timeline: str,
    abandoned: Collection[str] = (),
) -> dict[str, int]:
    """Sinks that show later epochs of this timeline than the chosen one, and up to which.

    It happens when a newer checkpoint was damaged after its epoch had been committed.
    :class:`LineageError` when what a sink shows belongs to another history, unless that is one of
    the ``abandoned`` ones, which are taken back.
    """
    ahead: dict[str, int] = {}
    epoch = chosen.epoch if chosen is not None else 0
    for output in sinks.outputs:
        newest = output.sink.newest() if output.sink.remembers else None
        if newest is None or newest.epoch <= epoch:
            continue
        if chosen is None or newest.timeline == timeline:
            ahead[output.name] = newest.epoch
        elif newest.timeline not in abandoned:
            raise LineageError(
                f"sink {output.name!r} shows epoch {newest.epoch} of another history",
                where=f"The newest checkpoint is epoch {epoch} of timeline {timeline}; the sink is "
                f"at timeline {newest.timeline}.",
                hint=f"Take it back with unpublish_after({epoch}), or give the sink a new target.",
            )
    return ahead


def most_ahead(ahead: Mapping[str, int], batch: int) -> int:
    """The latest epoch that a sink shows beyond the checkpoint of ``batch``; 0 for none. Pure.

    :class:`DamageError` for one that no run can have reached: every epoch up to it is looked up.
    """
    name, shown = max(ahead.items(), key=lambda item: item[1], default=("", 0))
    if shown - batch > MOST_EPOCHS_AHEAD:
        raise DamageError(
            f"sink {name!r} shows epoch {shown}, and the newest checkpoint is of epoch {batch + 1}",
            hint="Is it the folder of this pipeline? Take back what does not belong there.",
        )
    return shown


def require_reset(sinks: PipelineSinks, chosen: CheckpointManifest) -> None:
    """:class:`RefusedError` when a sink cannot take back what it shows; changes nothing.

    Asked before a reset is decided: afterwards there is no checkpoint to go on from.
    """
    for output in sinks.outputs:
        _require_new_function(output, chosen)
        if not output.sink.remembers or output.sink.newest() is None:
            continue
        try:
            output.sink.require_unpublish_after(0)
        except RefusedError as error:
            raise RefusedError(
                f"the pipeline cannot start over, because of sink {output.name!r}: {error.what}",
                where=error.where,
                hint="Its checkpoints are as they were, and it can go on as it was. To start over, "
                "give this sink a target that it has not written to.",
            ) from error


def _require_new_function(output: Output, chosen: CheckpointManifest) -> None:
    """:class:`RefusedError` when a function would get rows again that its target has by their keys.

    The keys of a new timeline are other ones. A function that promises nothing gets them again.
    """
    sink, now = output.sink, described_sink(output.sink)
    if not sink.shows_at_once or sink.guarantee in PROMISES_NOTHING:
        return
    if any(has_same_target(before, now) for before in described(chosen, "sinks").values()):
        raise RefusedError(
            f"the pipeline cannot start over, because of sink {output.name!r}: a function cannot "
            "take back what it has written, and would get all rows again under other keys",
            where=f"function {now['target']}",
            hint="Its checkpoints are as they were, and it can go on as it was. To start over, "
            "empty what the function writes to or give it a new target, and say so by another "
            "name: ForeachBatchSink(…, name=…).",
        )


def reset_sinks(sinks: PipelineSinks, timeline: str) -> list[str]:
    """Have every sink take back what it shows of other timelines; returns notes for the report."""
    notes = []
    for output in sinks.outputs:
        newest = output.sink.newest()
        if newest is not None and newest.timeline == timeline:
            continue  # this very reset, repeated after a crash
        try:
            if newest is not None:
                taken = taken_back(output.sink, 0, newest.timeline)
            else:
                taken = output.sink.unpublish_after(0)
        except RefusedError:
            if output.sink.remembers and newest is not None:
                raise
            notes.append(f"sink {output.name}: goes on next to what is there")
            continue
        notes.append(f"sink {output.name}: {len(taken)} epochs taken back and kept aside")
    return notes
