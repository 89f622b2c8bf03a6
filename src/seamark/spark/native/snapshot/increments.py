"""What the chain of a store's checkpoints holds already, and whether a new one may build on it."""

from __future__ import annotations

from dataclasses import dataclass, field

import msgspec

from seamark.errors import DamageError
from seamark.manifest import CheckpointManifest
from seamark.spark.capture import FILE_LIST, LOG
from seamark.spark.chain import chain_of
from seamark.spark.native.batches import BatchAt
from seamark.spark.placement import contents_of
from seamark.state import StateStore
from seamark.store import CheckpointStore


@dataclass(frozen=True)
class Held:
    """Files that need not be taken again."""

    manifest: CheckpointManifest | None
    """The checkpoint to build on; None for a full one."""
    chain: tuple[CheckpointManifest, ...] = ()
    versions: dict[str, str] = field(default_factory=dict)
    """Path → version of the file, as its place tells it."""
    is_same_batch: bool = False


def nothing_held() -> Held:
    """A full checkpoint is to be made."""
    return Held(None)


def encode_file_list(versions: dict[str, str]) -> bytes:
    """The list of files that a checkpoint keeps for the next one."""
    return msgspec.json.encode(versions)


def held_by(store: CheckpointStore, states: StateStore, at: BatchAt) -> Held:
    """What the newest checkpoint and its chain hold, when it is an earlier batch of one history.

    Offsets carry the time at which a batch was planned, so a batch that was run again after a
    rollback is told apart from the one that was stored.
    """
    try:
        newest = store.load_latest()
        if newest is None or "native" not in newest.extra or newest.wal_position > at.batch:
            return nothing_held()
        chain = chain_of(store, newest)
        versions: dict[str, str] = {}
        logs: dict[str, bytes] = {}
        for manifest in chain:
            for _, contents, _ in contents_of(store, states, manifest, only=LOG):
                logs |= contents
                listed = contents.get(FILE_LIST)
                if listed is None:
                    return nothing_held()
                versions |= msgspec.json.decode(listed, type=dict[str, str])
    except (DamageError, msgspec.DecodeError):
        return nothing_held()  # nothing is built on what cannot be read
    path = f"offsets/{newest.wal_position}"
    is_same_batch = newest.wal_position == at.batch
    if logs.get("metadata") != at.logs["metadata"]:
        return nothing_held()
    here = at.earlier_offsets(newest.wal_position)
    if here is None or here.encode() != logs.get(path):
        return nothing_held()
    return Held(newest, tuple(chain), versions, is_same_batch)
