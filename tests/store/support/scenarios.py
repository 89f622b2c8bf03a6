"""Operations to break, what was true before each, and what must be true after any accident."""

from __future__ import annotations

from collections.abc import Iterator

from seamark.errors import SeamarkError
from seamark.manifest import CheckpointManifest, OperatorCheckpoint, SinkCommitStatus
from seamark.store import CheckpointStore
from seamark.store.plans import StoredPlan
from tests.store.support.facts import Facts, Open, Scenario
from tests.store.support.shared_scenarios import SHARED_SCENARIOS, unneeded_objects

BIG = bytes(range(256)) * 40
__all__ = [
    "EVERY_DAY",
    "SCENARIOS",
    "Facts",
    "Open",
    "Scenario",
    "full",
    "plan",
    "save",
    "violations",
]


def full(checkpoint_id: int, **fields: object) -> tuple[CheckpointManifest, list[bytes]]:
    states = {
        "inline": OperatorCheckpoint.inline(b"small %d" % checkpoint_id),
        "external": OperatorCheckpoint.in_sidecar(0, len(BIG)),
    }
    manifest = CheckpointManifest.new(
        checkpoint_id,
        epoch=checkpoint_id + 100,
        operator_states=states,
        sink_commit_statuses={"out": SinkCommitStatus.pending()},
        **fields,
    )
    return manifest, [BIG]


def save(store: CheckpointStore, facts: Facts, checkpoint_id: int, **fields: object) -> None:
    facts.may_appear.add(checkpoint_id)
    manifest, chunks = full(checkpoint_id, **fields)
    store.save_with_state(manifest, chunks)
    facts.decided[checkpoint_id] = manifest.epoch


def _empty(open_store: Open, facts: Facts) -> CheckpointStore:
    return open_store()


def _three(open_store: Open, facts: Facts) -> CheckpointStore:
    store = open_store()
    for checkpoint_id in (1, 2, 3):
        save(store, facts, checkpoint_id)
    return store


def _three_claimed(open_store: Open, facts: Facts) -> CheckpointStore:
    store = _three(open_store, facts)
    _claim(store, facts)
    return store


def _chain(open_store: Open, facts: Facts) -> CheckpointStore:
    store = open_store()
    _claim(store, facts)
    save(store, facts, 1)
    save(store, facts, 2)
    save(store, facts, 3, is_incremental=True, parent_id=2)
    save(store, facts, 4, is_incremental=True, parent_id=3)
    return store


def _owned_by_another(open_store: Open, facts: Facts) -> CheckpointStore:
    _three_claimed(open_store, facts)
    return open_store()


def _claim(store: CheckpointStore, facts: Facts) -> None:
    facts.generation = store.claim().generation


def _claim_and_save(store: CheckpointStore, facts: Facts) -> None:
    _claim(store, facts)
    save(store, facts, store.next_id())


def _save_inline(store: CheckpointStore, facts: Facts) -> None:
    facts.may_appear.add(4)
    operators = {"a": OperatorCheckpoint.inline(b"x")}
    store.save(CheckpointManifest.new(4, epoch=104, operator_states=operators))
    facts.decided[4] = 104


def _save_next(store: CheckpointStore, facts: Facts) -> None:
    save(store, facts, 4)


def _state_then_manifest(store: CheckpointStore, facts: Facts) -> None:
    facts.may_appear.add(4)
    manifest, chunks = full(4)
    store.save_state_data(4, chunks)
    store.save(manifest)
    facts.decided[4] = manifest.epoch


def _update(store: CheckpointStore, facts: Facts) -> None:
    manifest = store.load_by_id(3)
    assert manifest is not None
    done = {"out": SinkCommitStatus.committed()}
    store.update_manifest(manifest.replace(sink_commit_statuses=done))
    facts.committed.add(3)


def _prune(store: CheckpointStore, facts: Facts) -> None:
    facts.may_vanish.update({1, 2})
    store.prune(1)
    facts.boundary = 2
    for checkpoint_id in (1, 2):
        facts.decided.pop(checkpoint_id)


def _prune_chain(store: CheckpointStore, facts: Facts) -> None:
    facts.may_vanish.add(1)
    store.prune(1)
    facts.decided.pop(1)


def _pin_and_prune(store: CheckpointStore, facts: Facts) -> None:
    store.pin("keep", 1)
    facts.pinned.add(1)
    facts.may_vanish.add(2)
    store.prune(1)
    facts.decided.pop(2)


def _supersede(store: CheckpointStore, facts: Facts) -> None:
    facts.may_be_superseded.update({2, 3})
    store.supersede(2, 3)
    facts.superseded.update({2, 3})


def _close(store: CheckpointStore, facts: Facts) -> None:
    store.close()


def _with_orphan(open_store: Open, facts: Facts) -> CheckpointStore:
    open_store().save_state_data(9, [b"orphan"])
    return _three_claimed(open_store, facts)


def _clean(store: CheckpointStore, facts: Facts) -> None:
    assert store.cleanup_orphans(min_age=0) == 1


def plan(timeline: str, epoch: int, line: str = '{"logOffset":7}') -> StoredPlan:
    return StoredPlan(
        timeline=timeline,
        epoch=epoch,
        fingerprint=f"of {line}",
        follows="",
        leaves=("in",),
        offsets=f"v1\n{{}}\n{line}",
    )


def keep_plan(store: CheckpointStore, facts: Facts, epoch: int, line: str) -> None:
    facts.plans[epoch] = store.plans.keep(plan(store.owner().timeline, epoch, line))


def _with_plans(open_store: Open, facts: Facts) -> CheckpointStore:
    store = _three_claimed(open_store, facts)
    for epoch in (101, 102, 103, 104):
        keep_plan(store, facts, epoch, "1")
    return store


def _keep_plans(store: CheckpointStore, facts: Facts) -> None:
    keep_plan(store, facts, 104, "2")  # begun by somebody before
    keep_plan(store, facts, 105, "1")


def _prune_plans(store: CheckpointStore, facts: Facts) -> None:
    for epoch in (101, 102, 103):
        facts.plans.pop(epoch)
    _prune(store, facts)


SCENARIOS = [
    Scenario("the first save of a store", _empty, lambda s, f: save(s, f, 1)),
    Scenario("a save of inline state", _three, _save_inline),
    Scenario("a save with a sidecar", _three, _save_next),
    Scenario("a save by the owner", _three_claimed, _save_next),
    Scenario("state first, manifest later", _three, _state_then_manifest),
    Scenario("an update", _three_claimed, _update),
    Scenario("the first claim", _three, _claim),
    Scenario("a take-over", _owned_by_another, _claim_and_save),
    Scenario("a prune", _three_claimed, _prune),
    Scenario("a prune of a chain", _chain, _prune_chain),
    Scenario("a pin and a prune", _three, _pin_and_prune),
    Scenario("a supersession", _three_claimed, _supersede),
    Scenario("a release", _three_claimed, _close),
    Scenario("a clean-up", _with_orphan, _clean),
    Scenario("plans of epochs", _with_plans, _keep_plans),
    Scenario("a prune of plans", _with_plans, _prune_plans),
    *SHARED_SCENARIOS,
]

SLOW = {
    "a full index over old objects",
    "a take-over of shared objects",
    "a rollback over shared objects",
    "a copy of shared objects",
}
EVERY_DAY = [scenario.name for scenario in SCENARIOS if scenario.name not in SLOW]


def violations(open_store: Open, facts: Facts) -> Iterator[str]:
    """Every invariant that does not hold in what an accident has left."""
    store = open_store()
    ids = store.list_ids()
    allowed = facts.decided.keys() | facts.may_appear
    if extra := set(ids) - allowed:
        yield f"I4 ids {extra} appeared that nobody saved"
    if lost := facts.decided.keys() - set(ids) - facts.may_vanish:
        yield f"I3 decided checkpoints {lost} are lost"
    for checkpoint_id in ids:
        if checkpoint_id in facts.may_vanish:
            continue  # half-way through a prune it may be either
        result = store.validate_checkpoint(checkpoint_id)
        if not result.valid:
            yield f"I1 checkpoint {checkpoint_id} is visible and damaged: {result.damage}"
    yield from _recovery_violations(store, facts, ids)
    if unpinned := facts.pinned - set(ids):
        yield f"I6 pinned checkpoints {unpinned} are gone"
    used = facts.decided.keys() | facts.may_appear & set(ids) | facts.may_vanish
    if store.next_id() <= max(used, default=0):
        yield f"I5 next_id {store.next_id()} was used before"
    yield from _forgotten(store, facts)
    yield from _life_goes_on(open_store)
    yield from unneeded_objects(open_store)


def _forgotten(store: CheckpointStore, facts: Facts) -> Iterator[str]:
    """What a caller was told to be done must stay done."""
    owner = store.owner()
    if owner.generation < facts.generation:
        yield f"I4 generation {facts.generation} was claimed, the store says {owner.generation}"
    if owner.prune_boundary < facts.boundary:
        yield f"I5 the boundary fell back from {facts.boundary} to {owner.prune_boundary}"
    for epoch, begun in facts.plans.items():
        if store.plans.read(begun.timeline, epoch) != begun:
            yield f"I2 epoch {epoch} was begun with {begun}, and would now run on other rows"
    for found in store.plans.entries():
        if store.plans.read(found.timeline, found.epoch) is None:
            yield f"I1 the plan of epoch {found.epoch} is listed and cannot be read"
    for checkpoint_id in facts.committed:
        manifest = store.load_by_id(checkpoint_id)
        if manifest is None or not manifest.sink_commit_statuses["out"].is_committed:
            yield f"I2 the recorded commit of {checkpoint_id} is lost"


def _recovery_violations(store: CheckpointStore, facts: Facts, ids: list[int]) -> Iterator[str]:
    report = store.recover_latest_validated()
    if not facts.decided and not ids:
        if report.chosen_id is not None or report.skipped:
            yield f"I3 an empty store recovers to {report}"
        return
    gone = facts.superseded | facts.may_be_superseded
    certain = [i for i in facts.decided if i not in gone and i not in facts.may_vanish]
    if report.chosen_id is None or report.chosen_id < max(certain, default=0):
        yield f"I3 recovery chose {report.chosen_id}, but {max(certain)} was decided ({report})"
    if report.chosen_id in facts.superseded:
        yield f"I3 recovery chose the superseded {report.chosen_id}"
    if report.fresh_start:
        yield "I8 a store with checkpoints is called fresh"


def _life_goes_on(open_store: Open) -> Iterator[str]:
    """The next start claims, saves and recovers."""
    store = open_store()
    try:
        store.claim()
        checkpoint_id = store.next_id()
        manifest, chunks = full(checkpoint_id)
        store.save_with_state(manifest, chunks)
        report = store.recover_latest_validated()
    except SeamarkError as error:
        yield f"the next start cannot go on: {error!r}"
        return
    if report.chosen_id != checkpoint_id:
        yield f"the next start saved {checkpoint_id} and recovers {report}"
