"""Chains of snapshots and deltas: pure decisions over manifests."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator, Mapping
from typing import Final, NamedTuple

import msgspec

from seamark.errors import DamageError
from seamark.state.layout import CheckpointId, CheckpointManifestV2, PartitionSnapshotEntry

LONGEST_CHAIN: Final = 10
"""How many deltas may follow a snapshot, and how many parents a checkpoint may have."""

PartitionKey = tuple[str, int]
"""Operator and partition."""


class Link(NamedTuple):
    """One object of a chain: the checkpoint in whose folder it is, and its entry."""

    origin: CheckpointId
    entry: PartitionSnapshotEntry


Chain = tuple[Link, ...]
"""A snapshot and the deltas after it, oldest first."""


def lineage(
    find: Callable[[CheckpointId], CheckpointManifestV2 | None],
    newest: CheckpointId,
    known: Container[CheckpointId] = (),
) -> list[CheckpointManifestV2]:
    """A checkpoint and its parents up to a known one, newest first.

    :class:`DamageError` names a missing link.
    """
    line: list[CheckpointManifestV2] = []
    current_id: CheckpointId | None = newest
    while current_id is not None and current_id not in known:
        manifest = find(current_id)
        if manifest is None:
            child = f", which {line[-1].checkpoint_id} builds on," if line else ""
            raise DamageError(f"state checkpoint {current_id}{child} is missing")
        line.append(manifest)
        current_id = manifest.parent_id
        if current_id is not None and current_id >= manifest.checkpoint_id:
            raise DamageError(
                f"state checkpoint {manifest.checkpoint_id} names {current_id} as its parent, "
                "which is not older: the chain is cyclic"
            )
    return line


def newest_first(manifests: Mapping[CheckpointId, CheckpointManifestV2]) -> list[CheckpointId]:
    """The order in which checkpoints follow each other, the newest first, each before its parent.

    Epochs and parents decide it. Ids come from the clocks of the writers, which may be wrong, so
    they only decide between equal epochs. A checkpoint that goes back to an older parent is newer
    than what was built on that parent before.
    """
    children: dict[CheckpointId | None, list[CheckpointId]] = {}
    for checkpoint_id, manifest in manifests.items():
        parent = manifest.parent_id
        is_known = parent is not None and parent in manifests and parent < checkpoint_id
        children.setdefault(parent if is_known else None, []).append(checkpoint_id)

    def rank(checkpoint_id: CheckpointId) -> tuple[int, CheckpointId]:
        return manifests[checkpoint_id].epoch, checkpoint_id

    def tip(root: CheckpointId) -> tuple[int, CheckpointId]:
        at = root
        while at in children:
            at = max(children[at], key=rank)
        return rank(at)

    oldest_first: list[CheckpointId] = []
    waiting = sorted(children.get(None, ()), key=tip, reverse=True)
    while waiting:
        oldest_first.append(waiting.pop())
        waiting += sorted(children.get(oldest_first[-1], ()), key=rank, reverse=True)
    return oldest_first[::-1]


def links_of(manifest: CheckpointManifestV2) -> Iterator[tuple[PartitionKey, Link]]:
    """The objects that one manifest names, wherever they were written."""
    for operator, state in manifest.operators.items():
        for entry in state.partitions:
            origin = manifest.checkpoint_id if entry.origin is msgspec.UNSET else entry.origin
            yield (operator, entry.partition_id), Link(origin, entry)


def needs_snapshot(chain: Chain | None, longest: int = LONGEST_CHAIN) -> bool:
    """Whether the next state of a partition must be a snapshot and not one more delta.

    It must when there is none to build on, when the chain is as long as it may get, and when the
    deltas outweigh the snapshot: reading them back would cost more than they saved.
    """
    if not chain:
        return True
    deltas = chain[1:]
    return len(deltas) >= longest or sum(d.entry.size_bytes for d in deltas) > max(
        chain[0].entry.size_bytes, 1
    )


def is_due_for_rebase(line: list[CheckpointManifestV2], longest: int = LONGEST_CHAIN) -> bool:
    """Whether the next checkpoint must name everything itself instead of naming a parent."""
    return len(line) > longest


def as_seen_from(checkpoint_id: CheckpointId, chain: Chain) -> list[PartitionSnapshotEntry]:
    """Entries that refer to a chain's objects, wherever they were written, without copying them."""
    return [
        msgspec.structs.replace(
            link.entry, origin=msgspec.UNSET if link.origin == checkpoint_id else link.origin
        )
        for link in chain
    ]
