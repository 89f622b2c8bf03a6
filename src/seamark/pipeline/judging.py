"""Whether a pipeline may go on from what its store holds. Changes nothing, claims nothing."""

from __future__ import annotations

from seamark.errors import DamageError, RefusedError
from seamark.manifest import CheckpointManifest
from seamark.pipeline.draft import Identity
from seamark.pipeline.topology import Fit, Policy, Verdict, compare
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
    return verdict_on(newest, identity, policy)


def verdict_on(
    checkpoint: CheckpointManifest | None, identity: Identity, policy: Policy
) -> Verdict:
    """Compare a pipeline with the checkpoint that it is to go on from."""
    if checkpoint is None:
        return compare(None, identity.structure, policy)
    made_by = str(checkpoint.extra.get("spark_version") or "")
    same_spark = made_by.split(".")[:2] == identity.spark_version.split(".")[:2]
    old = checkpoint.extra.get("structure")
    return compare(old, identity.structure, policy, same_spark=same_spark)


def refuse_changes(store: CheckpointStore, verdict: Verdict) -> None:
    """Raise when the verdict is that the pipeline may not go on."""
    if verdict.fit is Fit.REFUSED:
        raise RefusedError(
            "the pipeline is not the one that this store's checkpoints were made by",
            where=f"{store.url}: {'; '.join(verdict.changes)}.",
            hint=verdict.hint,
        )
