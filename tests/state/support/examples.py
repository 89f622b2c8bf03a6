"""States to write, and ways to look at and to harm what was written."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Protocol

import pytest

from seamark.blobs.contract import Blobs, Buffer, Tag
from seamark.errors import StoreUnavailableError
from seamark.state import CheckpointId, CheckpointPaths, PartitionState, StateStore

Place = tuple[str, int]
States = Mapping[Place, bytes]

PATHS = CheckpointPaths()
LARGE = bytes(range(256)) * 4
"""Larger than what is packed by the stores of :data:`ALONE`."""
ALONE = 100
"""``pack_below`` of a store that gives :data:`LARGE` an object of its own."""


class OpenState(Protocol):
    """Opens the state store under test once more, as another process would."""

    def __call__(self, **options: Any) -> StateStore: ...


def write(
    store: StateStore,
    snapshots: States,
    deltas: States | None = None,
    *,
    parent: CheckpointId | None = None,
    epoch: int = 1,
    rebase: bool = False,
) -> CheckpointId:
    """Commit a checkpoint with these states."""
    with store.begin(epoch, parent=parent, rebase=rebase) as writer:
        for (operator, partition), state in snapshots.items():
            writer.put(operator, partition, state)
        for (operator, partition), state in (deltas or {}).items():
            writer.put(operator, partition, state, is_delta=True)
        return writer.commit().checkpoint_id


def chain_of(store: StateStore, length: int, *, state: bytes = b"0" * 99) -> list[CheckpointId]:
    """A full checkpoint and children that each bring one delta of one partition."""
    ids = [write(store, {("agg", 0): state, ("agg", 1): b"never changed"})]
    for number in range(1, length):
        ids.append(write(store, {}, {("agg", 0): b"%d" % number}, parent=ids[-1], epoch=number + 1))
    return ids


def restored(store: StateStore, checkpoint_id: CheckpointId) -> dict[Place, PartitionState]:
    """Every partition of a checkpoint."""
    return {(name, number): state for name, number, state in store.restore_all(checkpoint_id)}


def keys(blobs: Blobs) -> list[str]:
    """Every key below the prefix."""
    return sorted(entry.key for entry in blobs.entries(PATHS.prefix))


def objects(blobs: Blobs) -> list[str]:
    """The keys of all states: neither manifests nor the pointer."""
    other = ("/manifest.json", "/_latest")
    return [key for key in keys(blobs) if not key.endswith(other)]


def stored_bytes(blobs: Blobs) -> int:
    """How many bytes the states take."""
    wanted = set(objects(blobs))
    return sum(entry.size for entry in blobs.entries(PATHS.prefix) if entry.key in wanted)


def pointer(blobs: Blobs) -> str | None:
    """What ``_latest`` says."""
    blob = blobs.read(PATHS.latest_pointer(), 1 << 20)
    return blob.data.decode() if blob else None


def point_at(blobs: Blobs, data: bytes) -> None:
    """Put something else into ``_latest``."""
    blobs.delete([PATHS.latest_pointer()])
    blobs.create(PATHS.latest_pointer(), data)


def entry(path: str, size: int = 1, *, is_delta: bool = False, **fields: Any) -> dict[str, Any]:
    """A row of a manifest, true or not."""
    row = {"partition_id": 0, "is_delta": is_delta, "path": path, "size_bytes": size}
    return row | fields


def forge(blobs: Blobs, *entries: dict[str, Any], **fields: Any) -> CheckpointId:
    """A manifest that no writer of ours would have written."""
    checkpoint_id: CheckpointId = fields.pop("checkpoint_id", None) or CheckpointId.now()
    document = {
        "version": 2,
        "checkpoint_id": str(checkpoint_id),
        "epoch": 1,
        "timestamp_ms": 1,
        "operators": {"agg": {"partitions": entries}},
    }
    blobs.create(PATHS.manifest(checkpoint_id), json.dumps(document | fields).encode())
    return checkpoint_id


def watch_writes(patch: pytest.MonkeyPatch, blobs: Blobs, before: Callable[[str], None]) -> None:
    """Let ``before`` see the key of each new value before it is written."""
    create, create_stream = blobs.create, blobs.create_stream
    inside = threading.local()  # a backend may write all values as streams

    def watched_create(key: str, data: bytes) -> Tag:
        before(key)
        inside.create = True
        try:
            return create(key, data)
        finally:
            inside.create = False

    def watched_stream(key: str, pieces: Iterable[Buffer]) -> Tag | None:
        if not getattr(inside, "create", False):
            before(key)
        return create_stream(key, pieces)

    patch.setattr(blobs, "create", watched_create)
    patch.setattr(blobs, "create_stream", watched_stream)


def fail_writes(patch: pytest.MonkeyPatch, blobs: Blobs, good: int) -> None:
    """After some good ones, every write fails."""
    seen: list[str] = []

    def before(key: str) -> None:
        seen.append(key)
        if len(seen) > good:
            raise StoreUnavailableError(f"writing {key} failed: no route", where=blobs.url)

    watch_writes(patch, blobs, before)
