"""Whether what a store holds fits together: owner, format, pointer, the newest checkpoint.

Tests: ``tests/cli/test_doctor.py``.
"""

from __future__ import annotations

import time
from typing import Final

from seamark.errors import DamageError
from seamark.store.checkpoint_store import CheckpointStore
from seamark.store.consistent_read import Overtaken, until_settled
from seamark.store.health import HealthCheck, failed, ok, tried, warning
from seamark.store.inspection import was_pruned, writer_of
from seamark.store.owner import Standing, standing
from seamark.store.ownership import claim_age
from seamark.store.recovery import RecoveryReport
from seamark.store.validation import Evidence, weakest

_MOMENT: Final = 0.5
"""Seconds within which a save that has decided moves the pointer."""


def check_contents(store: CheckpointStore) -> list[HealthCheck]:
    """What the store says of itself, and whether its newest checkpoint is whole. Writes nothing."""
    checks = [tried("format", lambda: _format(store))]
    if checks[0].verdict == "failed":
        return checks  # owner.json decides which checkpoints count
    checks.append(tried("owner", lambda: _owner(store)))
    checks.append(tried("pointer", lambda: _pointer(store)))
    checks.append(tried("newest checkpoint", lambda: _newest(store)))
    return checks


def _format(store: CheckpointStore) -> HealthCheck:
    owner = store.owner()
    if owner.generation == 0:
        return ok("format", "nobody has claimed this store yet")
    pipeline = f", pipeline {owner.pipeline}" if owner.pipeline else ""
    return ok("format", f"store format {owner.format_version}{pipeline}")


def _owner(store: CheckpointStore) -> HealthCheck:
    owner, alive = writer_of(store)
    if owner.generation == 0:
        return ok("owner", "none")
    who = f"generation {owner.generation} ({owner.writer})"
    since = claim_age(owner)
    if owner.released:
        return ok("owner", f"given back by {who}, claimed {since}")
    if alive:
        return ok("owner", f"in use by {who}, claimed {since}")
    if alive is None:
        return ok("owner", f"{who}, claimed {since}; this store does not know whether it is alive")
    return warning(
        "owner",
        f"{who}, claimed {since}, has died without giving it back",
        "Nothing is lost: the next start of the pipeline claims it and finishes the last epoch.",
    )


def _pointer(store: CheckpointStore) -> HealthCheck:
    found = until_settled(lambda: _compared_pointer(store), store.url)
    if found.verdict == "warning" and writer_of(store)[1] is not False:
        time.sleep(_MOMENT)  # a save moves the pointer right after its decision
        found = until_settled(lambda: _compared_pointer(store), store.url)
    return found


def _compared_pointer(store: CheckpointStore) -> HealthCheck:
    """:class:`Overtaken` when the pointer has changed, and not to a checkpoint saved meanwhile."""
    manifests = store._parts.manifests
    named = manifests.read_pointer()
    newest = max(store.list_ids(), default=None)
    now = named if named == newest else manifests.read_pointer()
    if now != named:
        if now is None or now < (named or 0) or was_pruned(store, now):
            raise Overtaken
        return ok("pointer", f"names {now}, which was saved meanwhile")
    owner = store.owner()
    advice = "It is only a hint, and the next save puts it right."
    if newest is None:
        if not named or standing(owner, named) is Standing.PRUNED:
            return ok("pointer", "nothing to point at")
        return failed(
            "pointer",
            DamageError(
                f"it names checkpoint {named}, and there is none at all",
                hint="Was the store emptied by hand? Restore it from a copy.",
            ),
        )
    if named is None:
        return warning("pointer", f"missing; the newest checkpoint is {newest}", advice)
    if named == newest:
        return ok("pointer", f"names {newest}, the newest checkpoint")
    if named > newest and standing(owner, named) is Standing.CURRENT:
        return failed(
            "pointer",
            DamageError(
                f"it names checkpoint {named}, which is gone; the newest is {newest}",
                hint="Was it removed by hand? Restore it from a copy, if there is one.",
            ),
        )
    return warning("pointer", f"names {named}; the newest checkpoint is {newest}", advice)


def _newest(store: CheckpointStore) -> HealthCheck:
    walk = store.recover_latest_validated()
    name = "newest checkpoint"
    if walk.fresh_start:
        return ok(name, "the store is empty")
    broken = walk.broken
    if walk.begins_anew:
        return ok(name, "all are superseded: the next start starts over")
    if broken:
        return failed(name, _damage(walk, broken))
    evidence = _evidence(store, walk.chosen_id)
    if evidence is None:
        return ok(name, f"{walk.chosen_id} was whole, and was pruned while it was looked at")
    if evidence is Evidence.SIZE:
        return warning(
            name,
            f"{walk.chosen_id} is there in full size; its state has no checksum",
            "Nothing shows whether its bytes are right: its writer stored no checksum.",
        )
    if evidence is Evidence.NO_STATE:
        return ok(name, f"{walk.chosen_id} is whole, and has no state")
    return ok(name, f"{walk.chosen_id} is whole, every byte was read")


def _evidence(store: CheckpointStore, checkpoint_id: int | None) -> Evidence | None:
    """What the walk has proven of the chosen checkpoint and of those that it builds on.

    None when one of them is gone.
    """
    chain = []
    while checkpoint_id:
        manifest = store.load_by_id(checkpoint_id)
        if manifest is None:
            return None
        chain.append(manifest)
        checkpoint_id = manifest.parent_id if manifest.is_incremental else None
    return weakest(chain)


def _damage(walk: RecoveryReport, broken: list[tuple[int, str]]) -> DamageError:
    worst = f"{broken[0][0]} is damaged: {broken[0][1]}"
    if len(broken) > 1:
        worst += f", and {len(broken) - 1} more"
    if walk.chosen_id is None:
        return DamageError(worst, hint="No checkpoint can be used. Restore the store from a copy.")
    return DamageError(
        worst,
        hint=f"A start would go back to {walk.chosen_id}: 'seamark recover STORE --explain'.",
    )
