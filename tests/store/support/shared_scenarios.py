"""Operations on checkpoints that name shared objects, to be broken at any point."""

from __future__ import annotations

from seamark.manifest import CheckpointManifest, OperatorCheckpoint, SinkCommitStatus
from seamark.manifest.facts import SharedObject
from seamark.store import CheckpointStore, open_store
from seamark.store.copy.run import copy_checkpoints
from tests.store.support.facts import Facts, Open, Scenario


def save_shared(
    store: CheckpointStore,
    facts: Facts,
    checkpoint_id: int,
    named: list[SharedObject],
    parent_id: int | None = None,
) -> None:
    """Save a checkpoint that names these objects."""
    facts.may_appear.add(checkpoint_id)
    manifest = CheckpointManifest.new(
        checkpoint_id,
        epoch=checkpoint_id + 100,
        operator_states={"inline": OperatorCheckpoint.inline(b"small %d" % checkpoint_id)},
        sink_commit_statuses={"out": SinkCommitStatus.pending()},
        shared_objects=[list(each) for each in named] or None,
        is_incremental=parent_id is not None,
        parent_id=parent_id,
    )
    store.save(manifest)
    facts.decided[checkpoint_id] = manifest.epoch


def _three(open_store: Open, facts: Facts) -> CheckpointStore:
    """1 names a and b, 2 builds on it and adds c, 3 is full again and names a, c and d."""
    store = open_store()
    facts.generation = store.claim().generation
    a, b, c, d = (store.shared_objects.write([letter * 100]) for letter in (b"a", b"b", b"c", b"d"))
    facts.objects += [a, b, c, d]
    save_shared(store, facts, 1, [a, b])
    save_shared(store, facts, 2, [c], parent_id=1)
    save_shared(store, facts, 3, [a, c, d])
    return store


def _with_orphans(open_store: Open, facts: Facts) -> CheckpointStore:
    store = _three(open_store, facts)
    store.shared_objects.write([b"an upload that nobody named"])
    store = open_store()
    facts.generation = store.claim().generation
    return store


def _owned(open_store: Open, facts: Facts) -> CheckpointStore:
    _three(open_store, facts).shared_objects.write([b"an upload that nobody named"])
    return open_store()


def _to_be_copied(open_store_: Open, facts: Facts) -> CheckpointStore:
    facts.source = open_store("memory://")
    _three(lambda: facts.source or open_store_(), facts)
    facts.decided, facts.generation = {}, 0
    return open_store_()


def _save_next(store: CheckpointStore, facts: Facts) -> None:
    new = store.shared_objects.write([b"new"])
    save_shared(store, facts, 4, [new], parent_id=3)


def _save_full(store: CheckpointStore, facts: Facts) -> None:
    a, _, _, d = facts.objects
    save_shared(store, facts, 4, [a, d, store.shared_objects.write([b"new"])])


def _prune(store: CheckpointStore, facts: Facts) -> None:
    facts.may_vanish.update({1, 2})
    store.prune(1)
    facts.boundary = 2
    for checkpoint_id in (1, 2):
        facts.decided.pop(checkpoint_id)


def _clean(store: CheckpointStore, facts: Facts) -> None:
    assert store.cleanup_orphans(min_age=0) == 1


def _take_over(store: CheckpointStore, facts: Facts) -> None:
    facts.generation = store.claim().generation
    save_shared(store, facts, store.next_id(), facts.objects[:1])
    facts.may_vanish.update({1, 2, 3})
    assert store.prune(1).objects == 4
    for checkpoint_id in (1, 2, 3):
        facts.decided.pop(checkpoint_id)


def _roll_back(store: CheckpointStore, facts: Facts) -> None:
    facts.may_be_superseded.add(3)
    store.supersede(3, 3)
    facts.superseded.add(3)
    save_shared(store, facts, 4, [], parent_id=2)
    facts.may_vanish.add(3)
    store.prune(1)
    facts.decided.pop(3, None)


def _copy(store: CheckpointStore, facts: Facts) -> None:
    assert facts.source is not None
    copy_checkpoints(facts.source, store)
    facts.decided = {1: 101, 2: 102, 3: 103}


SHARED_SCENARIOS = [
    Scenario("a save with shared objects", _three, _save_next),
    Scenario("a full index over old objects", _three, _save_full),
    Scenario("a prune of shared objects", _three, _prune),
    Scenario("a clean-up of shared objects", _with_orphans, _clean),
    Scenario("a take-over of shared objects", _owned, _take_over),
    Scenario("a rollback over shared objects", _three, _roll_back),
    Scenario("a copy of shared objects", _to_be_copied, _copy),
]


def unneeded_objects(open_store: Open) -> list[str]:
    """What is wrong after a clean-up of a store that nobody else writes to (I6)."""
    store = open_store()
    if not store.shared_objects.entries():
        return []
    store.claim()
    store.cleanup_orphans(min_age=0)
    named: set[str] = set()
    problems = []
    for checkpoint_id in store.list_ids():
        manifest = store.load_by_id(checkpoint_id)
        if manifest is not None:
            named |= {shared.name for shared in manifest.shared_objects}
        result = store.validate_checkpoint(checkpoint_id)
        if not result.valid:
            problems.append(f"I6 a clean-up broke checkpoint {checkpoint_id}: {result.damage}")
    if left := set(store.shared_objects.entries()) - named:
        problems.append(f"I6 a clean-up has left {left}")
    return problems
