"""Whether a pipeline may go on from what its store holds. Changes nothing, claims nothing."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from seamark.errors import DamageError, RefusedError
from seamark.manifest import CheckpointManifest
from seamark.pipeline.declaration.topology import Fit, Policy, Verdict, compare
from seamark.pipeline.epoch.epoch_manifest import Identity
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
    verdict = compare(old, identity.structure, policy, same_spark=same_spark)
    replaced = other_topics(checkpoint.extra.get("source_ids"), identity.source_ids)
    if not replaced or verdict.fit in (Fit.REFUSED, Fit.RESET):
        return verdict
    changes = [*verdict.changes, *replaced]
    if policy == "warn":
        return Verdict(Fit.GOES_ON, changes)
    if policy == "auto_reset":
        return Verdict(Fit.RESET, changes)
    return Verdict(
        Fit.REFUSED,
        changes,
        hint="Rows of the new topic that lie before the old position would never be read. Start "
        "anew with policy='auto_reset' or a new store, or go on from the old position once with "
        "policy='warn'.",
    )


def other_topics(old: Any, new: Mapping[str, Mapping[str, str]]) -> list[str]:
    """Topics that have the name of one that was read, and are not it. Pure."""
    before = old if isinstance(old, dict) else {}
    return [
        f"source {source!r}: the topic {topic!r} was deleted and made again, and the position in "
        "the checkpoint is one of the old topic"
        for source, ids in new.items()
        for topic, found in ids.items()
        if isinstance(before.get(source), dict) and before[source].get(topic, found) != found
    ]


def refuse_changes(store: CheckpointStore, verdict: Verdict) -> None:
    """Raise when the verdict is that the pipeline may not go on."""
    if verdict.fit is Fit.REFUSED:
        raise RefusedError(
            "the pipeline is not the one that this store's checkpoints were made by",
            where=f"{store.url}: {'; '.join(verdict.changes)}.",
            hint=verdict.hint,
        )
