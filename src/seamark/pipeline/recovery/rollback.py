"""Going back to an earlier checkpoint for good: a new timeline, which reuses nothing of the old.

What a rollback would do is decided from the checkpoints alone, before anything is claimed.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal

from seamark._common.checks import check_id
from seamark._common.logs import logger_named
from seamark.errors import CheckpointNotFoundError, DamageError, FencedError, RefusedError
from seamark.manifest import CheckpointManifest
from seamark.manifest.described import described
from seamark.pipeline.declaration.structure import described_sink
from seamark.pipeline.declaration.target_names import target_names
from seamark.pipeline.recovery.sink_opening import open_sink
from seamark.store import CheckpointStore, Owner
from seamark.store.consistent_read import Overtaken, until_settled
from seamark.store.inspection import (
    is_writer_alive,
    newest_checkpoint,
    pruned_or,
    require_same_timeline,
    require_there,
    was_pruned,
)
from seamark.store.owner import Standing, standing
from seamark.store.passing_pins import pinned_while_read
from seamark.store.recovery import RecoveryReport as Walk

if TYPE_CHECKING:
    from seamark.pipeline.declaration.compile import Output

log = logger_named("seamark.pipeline")

Action = Literal["nothing", "unpublish", "unpublish if undo", "beside", "asked"]
_WAYS: Final[Mapping[str, tuple[Action, str]]] = {
    "files": ("unpublish", "the next start takes these epochs back and keeps them aside"),
    "key-value": (
        "unpublish if undo",
        "can go back only if it was written with undo=True and still keeps these epochs; else "
        "the next start refuses, and the view has to be brought back or get a new target",
    ),
    "function": (
        "beside",
        "what it was given stays, and the same rows come again under other keys: bring its target "
        "back to this epoch before the next start",
    ),
    "console": ("beside", "what was shown stays shown"),
    "memory": ("beside", "what it held is gone with its process"),
}
_UNKNOWN: Final[tuple[Action, str]] = (
    "asked",
    "the next start asks it to take these epochs back, and stops if it cannot",
)


def shown_timeline(manifest: CheckpointManifest) -> str:
    """The timeline that sinks have noted for the manifest's own epoch."""
    return manifest.shown_as or manifest.timeline or ""


def abandoned_timelines(manifest: CheckpointManifest) -> set[str]:
    """The histories that were abandoned when the manifest's epoch was rolled back to."""
    own = {shown_timeline(manifest), manifest.timeline or ""}
    return own.union(manifest.abandoned or ())


def require_sinks_can_follow(
    store: CheckpointStore, checkpoint_id: int, pipeline: str, outputs: Collection[Output]
) -> None:
    """:class:`RefusedError` when a sink could not take back what it has shown since."""
    chosen = store.load_by_id(check_id(checkpoint_id))
    sinks = {output.name: described_sink(output.sink) for output in outputs}
    # whichever of the two has the output at this target knows its name there
    names = target_names(newest_checkpoint(store), sinks) | target_names(chosen, sinks)
    for output in outputs if chosen is not None else ():
        sink = output.sink
        if not sink.remembers:
            continue  # it goes on next to what is there
        try:
            open_sink(output, pipeline, store, names.get(output.name, output.name))
            newest = sink.newest()
            if chosen is not None and newest is not None and newest.epoch > chosen.epoch:
                sink.require_unpublish_after(chosen.epoch)
        except FencedError as error:
            log.warning("sink %s is in use and was not asked: %s", output.name, error)
        finally:
            sink.close()


def roll_back(
    store: CheckpointStore,
    checkpoint_id: int,
    pipeline: str | None,
    *,
    only: Collection[int] | None = None,
) -> CheckpointManifest:
    """Claim the store, take all later checkpoints out of use, and repeat this one as the newest.

    A new timeline begins, also when this is the newest one already: then epochs that somebody else
    has run since, on another copy of the store, are not mistaken for those that come.

    A writer that is still running is fenced. Sinks are brought back by the next start, also when
    this is killed at any point. :class:`DamageError` when the checkpoint is not whole,
    :class:`RefusedError` when an earlier rollback has abandoned it; then nobody is fenced. The same
    when others than ``only`` these would be given up, because a writer has saved them until it was
    fenced.
    """
    require_rollback_target(store, checkpoint_id)
    # a prune between that and the claim would have a writer fenced for nothing
    with pinned_while_read(store, checkpoint_id, "rollback"):
        before = store.claim(pipeline=pipeline).timeline
        # once more: from here on nobody else changes anything
        chosen = require_rollback_target(store, checkpoint_id)
    later = set() if only is None else {*plan_rollback(store, checkpoint_id).given_up}
    if more := later.difference(only or ()):
        raise RefusedError(
            f"checkpoint {max(more)} was saved meanwhile, and would have been given up",
            where=store.url,
            hint="Nothing was given up. The writer that saved it is fenced: repeat the command.",
        )
    given_up = {before, *_timelines_after(store, checkpoint_id)}
    newest = store.next_id() - 1
    if newest > checkpoint_id:
        store.supersede(checkpoint_id + 1, newest)
    else:
        store.begin_timeline()
    return _repeated(store, chosen, given_up)


def rolled_back(
    store: CheckpointStore, chosen: CheckpointManifest | None, walk: Walk, timeline: str
) -> CheckpointManifest | None:
    """What a start goes on from: the checkpoint with which a rollback to the chosen one ends.

    It is made here when the rollback was killed before that. Without it nobody would know which
    histories were given up, and what sinks show of them would be taken for somebody else's.
    ``timeline`` is that of the claim.
    """
    if chosen is None or walk.broken or chosen.timeline == timeline:
        return chosen
    given_up = _timelines_after(store, chosen.checkpoint_id)
    if given_up <= abandoned_timelines(chosen):
        return chosen
    log.warning("the rollback to checkpoint %d is finished", chosen.checkpoint_id)
    return _repeated(store, chosen, given_up)


def _timelines_after(store: CheckpointStore, checkpoint_id: int) -> set[str]:
    """The histories of later checkpoints, whether they count or not."""
    timelines: set[str] = set()
    for later_id in store.list_ids():
        if later_id > checkpoint_id:
            with suppress(DamageError):
                later = store.load_by_id(later_id)
                timelines |= set() if later is None else abandoned_timelines(later)
    return timelines


def _repeated(
    store: CheckpointStore, chosen: CheckpointManifest, given_up: Collection[str]
) -> CheckpointManifest:
    """Save a checkpoint again as the newest one, with the histories that were given up for it."""
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
    return store.save(
        again.with_extra(
            shown_as=shown_timeline(chosen),
            abandoned=sorted({*given_up, *abandoned_timelines(chosen)}),
            shared_objects=None,
            added_bytes=None,
        )
    )


@dataclass(frozen=True, kw_only=True)
class SinkRollback:
    """What a rollback means for one sink."""

    name: str
    kind: str
    target: str
    epoch: int
    """The newest one that it shows, or may show."""
    action: Action
    why: str


def sink_rollbacks(
    chosen: CheckpointManifest,
    newest: CheckpointManifest | None,
    given_up_before: Iterable[CheckpointManifest] = (),
) -> list[SinkRollback]:
    """What becomes of each sink when a pipeline goes back from ``newest`` to ``chosen``. Pure.

    ``given_up_before`` are checkpoints of an earlier rollback that no start has followed yet.
    """
    manifests = [chosen, *given_up_before, newest or chosen]
    kinds = {name: sink for each in manifests for name, sink in described(each, "sinks").items()}
    names = dict.fromkeys(name for manifest in manifests for name in manifest.sink_names)
    shown = _shown(manifests)
    return [
        _sink_rollback(name, kinds.get(name, {}), chosen.epoch, shown.get(name, 0))
        for name in names
    ]


def _sink_rollback(name: str, sink: Mapping[str, Any], epoch: int, shown: int) -> SinkRollback:
    kind = str(sink.get("kind") or "unknown")
    action, why = _WAYS.get(kind, _UNKNOWN)
    if shown <= epoch:
        action, why = "nothing", "it shows nothing later"
    return SinkRollback(
        name=name,
        kind=kind,
        target=str(sink.get("target") or ""),
        epoch=shown,
        action=action,
        why=why,
    )


def _shown(manifests: Iterable[CheckpointManifest]) -> dict[str, int]:
    """The newest epoch that each sink shows, or may show, by any of these."""
    newest: dict[str, int] = {}
    for each in manifests:
        statuses = each.sink_commit_statuses.items()
        # a commit may have been cut short before it was recorded
        cut_short = {name: each.epoch for name, status in statuses if not status.is_committed}
        for name, epoch in (each.sink_epochs | cut_short).items():
            newest[name] = max(newest.get(name, 0), epoch)
    return newest


@dataclass(frozen=True, kw_only=True)
class RollbackPlan:
    """What would happen, for people and for programs."""

    chosen: CheckpointManifest
    newest_id: int
    """The newest checkpoint that counts, whole or not."""
    newest: CheckpointManifest | None
    """The newest one that can be read; it says what sinks have shown."""
    given_up: list[int]
    """Checkpoints that no start would use any more."""
    sinks: list[SinkRollback]
    owner: Owner
    is_alive: bool | None
    """Whether the owner's process runs; None where that cannot be found out."""

    @property
    def is_newest(self) -> bool:
        """Whether nothing would be given up; a new timeline would begin all the same."""
        return not self.given_up


def plan_rollback(store: CheckpointStore, checkpoint_id: int) -> RollbackPlan:
    """What :func:`seamark.pipeline.recovery.rollback.roll_back` would do.

    Raises what that would raise: :class:`CheckpointNotFoundError`, :class:`DamageError` when the
    checkpoint is not whole, :class:`RefusedError` when an earlier rollback has given it up.
    """
    return until_settled(lambda: _plan(store, checkpoint_id), store.url)


def _plan(store: CheckpointStore, checkpoint_id: int) -> RollbackPlan:
    """:class:`Overtaken` when the store is rolled back, or its newest one pruned, meanwhile."""
    chosen = require_rollback_target(store, checkpoint_id)
    owner = store.owner()  # after that: it reads all state, and a watched store is claimed often
    if standing(owner, checkpoint_id) is Standing.SUPERSEDED:
        raise Overtaken
    later = [
        i for i in store.list_ids() if i > checkpoint_id and standing(owner, i) is Standing.CURRENT
    ]
    newest: CheckpointManifest | None = None
    counting: list[int] = []
    for later_id in reversed(later):
        try:
            manifest = store.load_by_id(later_id)
        except DamageError:
            counting.append(later_id)
            continue
        if manifest is not None:  # a fenced writer's late one does not count
            counting.append(later_id)
            newest = newest or manifest
    if later and later[-1] not in counting and was_pruned(store, later[-1]):
        raise Overtaken
    require_there(store, checkpoint_id)
    given_up_before = _given_up_before(store, owner, chosen, newest)
    now = require_same_timeline(store, owner)  # which may have been given back meanwhile
    return RollbackPlan(
        chosen=chosen,
        newest_id=counting[0] if counting else checkpoint_id,
        newest=newest or chosen,
        given_up=sorted(counting),
        sinks=sink_rollbacks(chosen, newest, given_up_before),
        owner=now,
        is_alive=is_writer_alive(store, now),
    )


def _given_up_before(
    store: CheckpointStore,
    owner: Owner,
    chosen: CheckpointManifest,
    newest: CheckpointManifest | None,
) -> list[CheckpointManifest]:
    """What an earlier rollback gave up, when no start has brought the sinks back since.

    Then the newest checkpoint is the one that the rollback has saved.
    """
    if newest is None or newest.abandoned is None:
        return []
    abandoned = []
    for checkpoint_id in store.list_ids():
        given_up = standing(owner, checkpoint_id) is Standing.SUPERSEDED
        if given_up and checkpoint_id > chosen.checkpoint_id:
            with suppress(DamageError):
                abandoned.append(store.load_by_id(checkpoint_id))
    return [manifest for manifest in abandoned if manifest is not None]


def require_rollback_target(store: CheckpointStore, checkpoint_id: int) -> CheckpointManifest:
    """The manifest of a checkpoint that can be rolled back to; raises when there is none."""
    chosen = store.load_by_id(check_id(checkpoint_id))
    if chosen is None:
        raise CheckpointNotFoundError(f"there is no checkpoint {checkpoint_id}", where=store.url)
    if standing(store.owner(), checkpoint_id) is Standing.SUPERSEDED:
        raise RefusedError(
            f"checkpoint {checkpoint_id} was given up by an earlier rollback",
            where=store.url,
            hint="Its sinks have gone back to before it, so nothing can go on from there. Choose "
            "one that is in use.",
        )
    verified = store.validate_checkpoint(checkpoint_id)
    if not verified.valid:
        damage = DamageError(
            f"checkpoint {checkpoint_id} is not whole, so nothing was rolled back to it",
            where="; ".join(verified.damage),
            hint="Choose another one.",
        )
        raise pruned_or(store, checkpoint_id, damage)
    return chosen
