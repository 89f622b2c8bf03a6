"""Stores to be copied: a history with chains, a rollback, sidecars and partitioned state."""

from __future__ import annotations

from seamark.manifest import CheckpointManifest, OperatorCheckpoint, SinkCommitStatus
from seamark.store import CheckpointStore
from tests.store.support.scenarios import plan

BIG = bytes(range(256)) * 40


def save(
    store: CheckpointStore,
    checkpoint_id: int,
    *,
    parent_id: int | None = None,
    partitioned: bool = False,
    **fields: object,
) -> CheckpointManifest:
    """One checkpoint with state inline and in its sidecar, or in partitions beside the store."""
    beside = None
    if partitioned:
        with store.partitioned_state.begin(checkpoint_id) as writer:
            writer.put("agg", 0, b"partition 0 of %d" % checkpoint_id)
            writer.put("agg", 1, BIG)
            beside = f"state/{writer.commit().checkpoint_id}"
    manifest = CheckpointManifest.new(
        checkpoint_id,
        epoch=checkpoint_id + 100,
        operator_states={
            "inline": OperatorCheckpoint.inline(b"small %d" % checkpoint_id),
            "external": OperatorCheckpoint.in_sidecar(0, len(BIG)),
        },
        sink_commit_statuses={"out": SinkCommitStatus.pending()},
        sink_epochs={"out": 0},
        is_incremental=parent_id is not None,
        parent_id=parent_id,
        table_store_checkpoint_path=beside,
        **fields,
    )
    return store.save_with_state(manifest, [BIG])


def commit(store: CheckpointStore, manifest: CheckpointManifest) -> CheckpointManifest:
    """Record that its sink has committed."""
    done = {"out": SinkCommitStatus.committed()}
    return store.update_manifest(
        manifest.replace(sink_commit_statuses=done, sink_epochs={"out": manifest.epoch})
    )


def fill(store: CheckpointStore) -> None:
    """1 ← 2, then two generations, a rollback of 3 to 4, and 5 ← 6 in a new timeline."""
    store.claim(pipeline="orders")
    store.plans.keep(plan(store.owner().timeline, 102))
    commit(store, save(store, 1))
    commit(store, save(store, 2, parent_id=1))
    save(store, 3, partitioned=True)
    save(store, 4)
    store.claim(pipeline="orders")
    store.supersede(3, 4)
    save(store, 5, parent_id=2)
    save(store, 6, parent_id=5, partitioned=True)
    store.plans.keep(plan(store.owner().timeline, BEGUN))
    store.pin("before-upgrade", 2)


COUNTING = [1, 2, 5, 6]
BEGUN = 107
"""The epoch after the newest checkpoint, whose plan is stored."""


def problems(store: CheckpointStore, wanted: list[int]) -> list[str]:
    """What is wrong with a copy that should hold these ids and nothing else that counts."""
    found = []
    if store.list_ids() != wanted:
        found.append(f"it has {store.list_ids()}, not {wanted}")
    for checkpoint_id in wanted:
        result = store.validate_checkpoint(checkpoint_id)
        found += [f"{checkpoint_id}: {damage}" for damage in result.damage]
    chosen = store.recover_latest_validated().chosen_id
    if chosen != wanted[-1]:
        found.append(f"recovery chooses {chosen}, not {wanted[-1]}")
    if store.next_id() <= wanted[-1]:
        found.append(f"the next id would be {store.next_id()}")
    return found
