"""What state costs in a store: bytes, requests and seconds.

Arithmetic only. It follows what an epoch does: a checkpoint holds what has changed, the base moves
when Spark has made a snapshot, and what the kept checkpoints name stays. How Spark's files relate
to the rows in them is not known here, so state and changes are given as Spark writes them.

Tests: ``tests/capture/test_state_cost.py``.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Final, Literal

from seamark.capture.checkpoint_contents import Sizes
from seamark.capture.movers import LARGE, PACK_BYTES
from seamark.capture.pack_rewrites import MOST_PACKS

Provider = Literal["hdfs", "rocksdb", "rocksdb-changelog"]

EPOCH_WRITES: Final = 3
"""The manifest, the pointer, and the manifest again with what became of the sinks."""
EPOCH_READS: Final = 3
"""The owner: before the decision, after it, and before the record."""
PRUNE_WRITES: Final = 6
"""The owner, and five listings, which services bill like writes. Deletes cost nothing."""
HOURS_A_MONTH: Final = 730

_ROCKSDB_FILE: Final = 64 << 20
"""RocksDB's files are about this large."""
_LARGEST_PUT: Final = 32 << 20
_PART: Final = 8 << 20
_RESTORE_THREADS: Final = 8
_REWRITTEN: Final = 2.0
"""RocksDB writes a changed byte about this often until a snapshot: once, and when it compacts."""
_MANIFEST: Final = 4 << 10
_INDEX_ENTRY: Final = 90
_BASE64: Final = 4 / 3


@dataclass(frozen=True, kw_only=True)
class StateUse:
    """A pipeline's state, how it changes, and how it is kept."""

    state_bytes: int
    changed_bytes: int
    """In an epoch."""
    epochs_per_hour: float
    stores: int = 200
    """State stores: partitions, four times as many for a join of two streams."""
    provider: Provider = "rocksdb-changelog"
    keep: int = 20
    full_every: int = 10
    background_rate: int = 64 << 20
    deltas_for_snapshot: int = 10
    """Spark's ``minDeltasForSnapshot``."""
    maintenance_seconds: float = 60.0
    """Spark's ``maintenanceInterval``."""
    bandwidth: int = 100 << 20
    """Bytes a second that reach the store."""
    latency: float = 0.02
    """Seconds until a request is answered."""


@dataclass(frozen=True)
class Cost:
    """What one thing takes."""

    bytes: int
    writes: int
    reads: int
    seconds: float


@dataclass(frozen=True)
class Estimate:
    """What a state costs, as far as it can be told beforehand."""

    epoch: Cost
    """An epoch: what it adds, and the seconds for which it waits for the store."""
    snapshot: Cost | None
    """A snapshot of Spark's, stored between epochs; None when epochs hold it themselves."""
    snapshot_every: int
    """Epochs from one to the next."""
    prune: Cost
    """Removing old checkpoints, after each full index."""
    full_every: int
    stored_bytes: int
    """What the store holds at most, once it prunes."""
    restore: Cost
    notes: list[str] = field(default_factory=list)

    def hourly(self, epochs_per_hour: float) -> Cost:
        """What an hour adds."""
        rate, parts = epochs_per_hour, [(self.epoch, 1.0), (self.prune, 1 / self.full_every)]
        if self.snapshot is not None:
            parts.append((self.snapshot, 1 / self.snapshot_every))
        return Cost(
            bytes=round(rate * sum(cost.bytes * share for cost, share in parts)),
            writes=round(rate * sum(cost.writes * share for cost, share in parts)),
            reads=round(rate * sum(cost.reads * share for cost, share in parts)),
            seconds=rate * self.epoch.seconds,
        )


@dataclass(frozen=True)
class Prices:
    """What a service asks for."""

    writes: float = 0.0
    """A thousand of them."""
    reads: float = 0.0
    """A thousand of them."""
    storage: float = 0.0
    """A GB (10⁹ bytes) for a month."""

    def of_month(self, hour: Cost, stored_bytes: int) -> float:
        """What a month costs."""
        requests = hour.writes * self.writes + hour.reads * self.reads
        return requests / 1000 * HOURS_A_MONTH + stored_bytes / 1e9 * self.storage


def estimate(use: StateUse) -> Estimate:
    """What that state will cost."""
    written = use.changed_bytes
    if use.provider == "rocksdb":
        written = min(use.state_bytes, round(use.changed_bytes * _REWRITTEN))
    epoch = _epoch(use, written)
    every = _snapshot_every(use)
    snapshot = _snapshot(use, every)
    kept = 1 + use.full_every * math.ceil((use.keep - 1) / use.full_every)
    span = kept + use.full_every  # checkpoints go by whole chains
    moved = snapshot.bytes * math.ceil(span / every) if snapshot is not None else 0
    chain = every if snapshot is not None else 0
    return Estimate(
        epoch=epoch,
        snapshot=snapshot,
        snapshot_every=every,
        prune=prune_cost(span, kept),
        full_every=use.full_every,
        stored_bytes=use.state_bytes + moved + span * epoch.bytes,
        restore=_restore(use, epoch, chain),
        notes=_notes(use, epoch, snapshot, every),
    )


def prune_cost(before: int, after: int) -> Cost:
    """What a prune asks for: every manifest before it, and those that stay once more."""
    return Cost(0, PRUNE_WRITES, EPOCH_READS + before + after, 0.0)


def object_writes(size: int) -> int:
    """Requests that put one object there."""
    return 1 if size <= _LARGEST_PUT else 2 + math.ceil(size / _PART)


def _objects(total: int, files: int) -> int:
    """Objects that hold files of about equal size."""
    return files if total >= files * LARGE else math.ceil(total / PACK_BYTES)


def _files_writes(total: int, files: int) -> int:
    """Requests that store files of about equal size."""
    objects = _objects(total, files)
    return objects * object_writes(total // objects) if objects else 0


def _state_files(use: StateUse, size: int) -> int:
    """Files that hold that much of a snapshot."""
    if use.provider == "hdfs":
        return use.stores
    return max(use.stores, math.ceil(size / _ROCKSDB_FILE))


def _epoch(use: StateUse, written: int) -> Cost:
    is_inline = written <= Sizes().inline_operator
    state_writes = 0 if is_inline else _files_writes(written, use.stores)
    index = 0 if is_inline else use.stores * _INDEX_ENTRY
    in_sidecar = index > Sizes().inline_operator
    metadata = _MANIFEST + round(index * (1 if in_sidecar else _BASE64))
    writes = EPOCH_WRITES + state_writes + in_sidecar
    # what is small goes one after the other; several large objects go at the same time
    waits = EPOCH_WRITES + EPOCH_READS + min(state_writes, 1) + in_sidecar
    return Cost(
        bytes=round(written * _BASE64 if is_inline else written) + metadata,
        writes=writes,
        reads=EPOCH_READS,
        seconds=written / use.bandwidth + waits * use.latency,
    )


def _snapshot_every(use: StateUse) -> int:
    """Spark makes one at the first maintenance after that many changes."""
    if use.provider == "rocksdb":
        return 1
    between = use.maintenance_seconds * use.epochs_per_hour / 3600
    return max(use.deltas_for_snapshot, math.ceil(between), 1)


def _snapshot(use: StateUse, every: int) -> Cost | None:
    if use.provider == "rocksdb":
        return None
    size = use.state_bytes
    if use.provider == "rocksdb-changelog":
        size = min(size, round(every * use.changed_bytes * _REWRITTEN))
    writes = _files_writes(size, _state_files(use, size))
    return Cost(size, writes, 0, size / min(use.background_rate, use.bandwidth))


def _restore(use: StateUse, epoch: Cost, chain: int) -> Cost:
    size = use.state_bytes + chain * use.changed_bytes
    objects = _objects(use.state_bytes, _state_files(use, use.state_bytes))
    changes = 0
    if epoch.writes > EPOCH_WRITES:
        an_epoch = _objects(use.changed_bytes, use.stores)
        # many packs are merged in the background
        changes = chain * an_epoch if an_epoch == use.stores else min(chain * an_epoch, MOST_PACKS)
    reads = objects + changes + use.full_every
    waiting = use.full_every * use.latency + reads * use.latency / _RESTORE_THREADS
    return Cost(size, 0, reads, size / use.bandwidth + waiting)


def _notes(use: StateUse, epoch: Cost, snapshot: Cost | None, every: int) -> list[str]:
    notes = []
    between = every * 3600 / use.epochs_per_hour
    if snapshot is not None and snapshot.seconds > between:
        notes.append(
            f"A snapshot takes {snapshot.seconds:.0f} s to store and comes every {between:.0f} s: "
            "some are skipped and the chain of changes is longer. Raise background_rate or "
            "minDeltasForSnapshot."
        )
    if epoch.seconds > 3600 / use.epochs_per_hour:
        notes.append("An epoch waits longer for the store than there is time between two epochs.")
    if use.stores * LARGE > use.state_bytes * 4 and use.stores > 64:
        notes.append(
            f"{use.stores} state stores hold little each; fewer shuffle partitions make snapshots "
            "cheaper."
        )
    return notes
