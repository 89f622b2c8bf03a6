"""What the state of a pipeline has cost so far, by the newest checkpoints of its store.

Tests: ``tests/pipeline/test_costs.py``.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice, pairwise
from typing import Final

from seamark.capture.checkpoint_contents import Chain
from seamark.capture.state_cost import (
    EPOCH_READS,
    EPOCH_WRITES,
    Cost,
    object_writes,
    prune_cost,
)
from seamark.errors import CheckpointNotFoundError
from seamark.manifest import CheckpointManifest
from seamark.manifest.facts import SharedObject
from seamark.store import CheckpointStore
from seamark.store.consistent_read import Overtaken, until_settled
from seamark.store.inspection import require_there, scan, stored_bytes

MOST: Final = 200
"""Checkpoints that are looked at."""


@dataclass(frozen=True)
class ObservedEpoch:
    """What one checkpoint has stored."""

    checkpoint_id: int
    is_full: bool
    """Whether it has the whole index; then old checkpoints are removed."""
    cost: Cost


@dataclass(frozen=True)
class ObservedCost:
    """What was stored, and what a restore of the newest checkpoint takes."""

    epochs: Sequence[ObservedEpoch]
    """Oldest first, the oldest checkpoint of the store left out: nothing tells what it added."""
    epochs_per_hour: float | None
    stored_bytes: int
    restore: Cost
    state_bytes: int
    """Files of the newest checkpoint."""
    state_partitions: int

    @property
    def epoch(self) -> Cost | None:
        """The median epoch."""
        costs = [each.cost for each in self.epochs]
        if not costs:
            return None
        return Cost(
            bytes=round(statistics.median(cost.bytes for cost in costs)),
            writes=round(statistics.median(cost.writes for cost in costs)),
            reads=EPOCH_READS,
            seconds=statistics.median(cost.seconds for cost in costs),
        )

    @property
    def largest(self) -> Cost | None:
        """The epoch that has added most: usually the one after a snapshot of Spark's."""
        costs = [each.cost for each in self.epochs]
        return max(costs, key=lambda cost: cost.bytes, default=None)

    @property
    def prune(self) -> Cost:
        """What a prune asks for, with as many checkpoints as there are."""
        count = len(self.epochs) + 1
        return prune_cost(count, count)

    def hourly(self) -> Cost | None:
        """What an hour adds, by the mean of what was stored; None when there are too few epochs."""
        if not self.epochs or self.epochs_per_hour is None:
            return None
        rate, costs = self.epochs_per_hour, [each.cost for each in self.epochs]
        prunes = sum(each.is_full for each in self.epochs) / len(costs)
        return Cost(
            bytes=round(rate * statistics.mean(cost.bytes for cost in costs)),
            writes=round(
                rate * (statistics.mean(cost.writes for cost in costs) + prunes * self.prune.writes)
            ),
            reads=round(rate * (EPOCH_READS + prunes * self.prune.reads)),
            seconds=rate * statistics.mean(cost.seconds for cost in costs),
        )


def observed_cost(store: CheckpointStore) -> ObservedCost:
    """What the newest checkpoints say. :class:`CheckpointNotFoundError` when there is none.

    When the newest one is pruned meanwhile, there are newer ones: those are looked at.
    """
    return until_settled(partial(_look, store), store.url)


def _look(store: CheckpointStore) -> ObservedCost:
    scanned = [
        (one.manifest, one.stored_bytes + (one.manifest.state_bytes or 0))
        for one in islice(scan(store), MOST)
        if one.manifest is not None and one.damage is None and not one.superseded
    ]
    own_bytes = {manifest.checkpoint_id: size for manifest, size in scanned}
    newest_first = [manifest for manifest, _ in scanned]
    if not newest_first:
        raise CheckpointNotFoundError(
            "there is no checkpoint from which the cost could be told",
            where=store.url,
            hint="Give the figures instead: seamark estimate --state 4GiB --changed 1% --every 30s",
        )
    manifests = newest_first[::-1]
    seen: set[SharedObject] = set(manifests[0].shared_objects)
    epochs = []
    for manifest in manifests[1:]:
        new = [each for each in manifest.shared_objects if each not in seen]
        seen.update(new)
        epochs.append(_epoch(manifest, own_bytes[manifest.checkpoint_id], new))
    entries = store.shared_objects.entries().values()
    return ObservedCost(
        epochs=epochs,
        epochs_per_hour=_per_hour(manifests),
        stored_bytes=sum(entry.size for entry in entries) + sum(own_bytes.values()),
        restore=_restore(store, newest_first[0]),
        state_bytes=newest_first[0].restore_bytes or 0,
        state_partitions=newest_first[0].state_partitions or 0,
    )


def _epoch(manifest: CheckpointManifest, own: int, new: list[SharedObject]) -> ObservedEpoch:
    timings = manifest.timings or {}
    writes = EPOCH_WRITES + sum(object_writes(each.size) for each in new)
    cost = Cost(
        bytes=own + sum(each.size for each in new),
        writes=writes + bool(manifest.state_bytes),
        reads=EPOCH_READS,
        seconds=timings.get("capture", 0.0) + timings.get("save", 0.0),
    )
    return ObservedEpoch(manifest.checkpoint_id, not manifest.is_incremental, cost)


def _per_hour(manifests: Sequence[CheckpointManifest]) -> float | None:
    """By the median time between two: a pause says nothing about an epoch."""
    between = [b.timestamp_ms - a.timestamp_ms for a, b in pairwise(manifests)]
    usual = statistics.median(between) if between else 0
    return 3_600_000 / usual if usual > 0 else None


def _restore(store: CheckpointStore, manifest: CheckpointManifest) -> Cost:
    """What is read of manifests, sidecars and objects to restore a checkpoint.

    :class:`Overtaken` when it is pruned meanwhile.
    """
    try:
        chain = Chain.load(store, manifest, with_contents=False)
        own = sum(stored_bytes(store, each) for each in chain.manifests)
        require_there(store, manifest.checkpoint_id)  # what is gone has no bytes
    except CheckpointNotFoundError:
        raise Overtaken from None
    objects = chain.index.shared_objects if chain.index is not None else []
    sidecars = sum(bool(each.state_bytes) for each in chain.manifests)
    return Cost(
        bytes=own + sum(each.size for each in objects),
        writes=0,
        reads=len(chain.manifests) + sidecars + len(objects),
        seconds=0.0,
    )
