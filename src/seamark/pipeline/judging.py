"""Whether a pipeline may go on from what its store holds. Changes nothing, claims nothing."""

from __future__ import annotations

from seamark.errors import DamageError, RefusedError
from seamark.manifest import CheckpointManifest
from seamark.pipeline.draft import Identity
from seamark.pipeline.placement import state_id
from seamark.pipeline.topology import Fit, Policy, Verdict, compare
from seamark.state import StateStore
from seamark.store import CheckpointStore


def judge(store: CheckpointStore, identity: Identity, policy: Policy) -> Verdict:
    """Compare a pipeline with the newest checkpoint that can be read."""
    owner = store.owner()
    if owner.pipeline is not None and owner.pipeline != identity.name:
        raise RefusedError(
            f"this store belongs to the pipeline {owner.pipeline!r}, not {identity.name!r}",
            where=store.url,
            hint="Give each pipeline a store of its own.",
        )
    try:
        newest = store.load_latest()
    except DamageError:
        chosen_id = store.recover_latest_validated().chosen_id
        newest = None if chosen_id is None else store.load_by_id(chosen_id)
    old = newest.extra.get("structure") if newest is not None else None
    return compare(old, identity.structure, policy)


def refuse_changes(store: CheckpointStore, verdict: Verdict) -> None:
    """Raise when the verdict is that the pipeline may not go on."""
    if verdict.fit is Fit.REFUSED:
        raise RefusedError(
            "the pipeline is not the one that this store's checkpoints were made by",
            where=f"{store.url}: {'; '.join(verdict.changes)}.",
            hint=verdict.hint,
        )


def watch_partitioned_state(store: CheckpointStore, states: StateStore) -> None:
    """Have the store's validation look at the partitioned state that manifests point at."""
    seen: set[str] = set()

    def check(manifest: CheckpointManifest, believe: bool) -> str | None:
        path = manifest.table_store_checkpoint_path
        if path is None or not manifest.is_ours or (believe and path in seen):
            return None
        found = state_id(manifest)
        problems = states.verify(found).issues if found is not None else []
        if problems:
            return f"{path}: {'; '.join(map(str, problems))}"
        seen.add(path)
        return None

    store.check_further(check)
