"""What the chain of a store's checkpoints holds already, and whether a new one may build on it.

Tests: ``tests/native/test_snapshot.py``.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from seamark.capture.batches import BatchAt
from seamark.capture.chain import chain_of, file_list_in, logs_of
from seamark.errors import CheckpointNotFoundError, DamageError
from seamark.manifest import CheckpointManifest
from seamark.native.snapshot.manifests import planned
from seamark.store import CheckpointStore
from seamark.store.inspection import examine
from seamark.store.validation import CheckpointKind


@dataclass(frozen=True)
class HeldFiles:
    """Files that need not be taken again."""

    manifest: CheckpointManifest | None
    """The checkpoint to build on; None for a full one."""
    chain: tuple[CheckpointManifest, ...] = ()
    versions: dict[str, str] = field(default_factory=dict)
    """Path → version of the file, as its place tells it."""
    is_same_batch: bool = False
    """Whether it is this very batch, with all that is known about it."""


def nothing_held() -> HeldFiles:
    """A full checkpoint is to be made."""
    return HeldFiles(None)


def held_by(
    store: CheckpointStore, newest: CheckpointManifest | None, at: BatchAt, *, verify: bool = False
) -> HeldFiles:
    """What the newest checkpoint and its chain hold, when it is an earlier batch of one history.

    Offsets carry the time at which a batch was planned, and a commit the ids of its state; a batch
    that was run again after a rollback differs in them from the one that was stored. Nothing
    is built on what is damaged: state must be there and have its size, and with ``verify`` every
    byte of it is read.
    """
    if newest is None or newest.native is None or newest.batch > at.batch:
        return nothing_held()
    try:
        chain = chain_of(store, newest)
        if not _is_whole(store, chain, verify=verify):
            return nothing_held()
        versions: dict[str, str] = {}
        logs: dict[str, bytes] = {}
        for manifest in chain:
            own = logs_of(store, manifest)
            listed = file_list_in(own)
            if own and listed is None:
                return nothing_held()
            versions |= listed.taken if listed is not None else {}
            logs |= own
        plan = planned(newest)
    except (DamageError, CheckpointNotFoundError):  # or pruned by another process just now
        return nothing_held()
    if not _is_of_one_history(newest.batch, logs, at):
        return nothing_held()
    is_same = newest.batch == at.batch and at.plan in (None, plan)
    return HeldFiles(newest, tuple(chain), versions, is_same)


def _is_whole(store: CheckpointStore, chain: list[CheckpointManifest], *, verify: bool) -> bool:
    if verify:
        return store.validate_checkpoint(chain[-1].checkpoint_id).valid
    examined = (examine(store, manifest.checkpoint_id, read_data=False) for manifest in chain)
    return all(one.kind is CheckpointKind.CHECKPOINT for one in examined)


def _is_of_one_history(batch: int, logs: dict[str, bytes], at: BatchAt) -> bool:
    """Whether the directory's own record of a stored batch is the one that was stored."""
    for path in ("metadata", f"offsets/{batch}", f"commits/{batch}"):
        here = at.read_log(path)
        is_optional = path.startswith("commits/")  # Spark 2.1 has no commit log
        if here != logs.get(path) or (here is None and not is_optional):
            return False
    return True
