"""Questions about a store beyond the methods of :class:`CheckpointStore`, for our own packages."""

from __future__ import annotations

import re
from collections.abc import Hashable, Iterator, Sequence
from typing import Final, NamedTuple

from seamark._common.checks import check_id
from seamark.errors import DamageError, SeamarkError
from seamark.manifest import CheckpointManifest
from seamark.state import ReadStates
from seamark.state.chains import Link, PartitionKey
from seamark.store.checkpoint_store import CheckpointStore
from seamark.store.consistent_read import (
    Overtaken,
    history_of,
    is_pruned,
    raise_if_overtaken,
    raise_if_rolled_back,
    until_settled,
    view_of,
)
from seamark.store.manifest_scan import ScannedCheckpoint, scan_manifests, scan_some
from seamark.store.manifests import MANIFEST_LIMIT
from seamark.store.owner import Owner
from seamark.store.owner_rebuild import OwnerRebuild, plan_rebuild
from seamark.store.ownership import claim_mark
from seamark.store.partitioned_state import own_state
from seamark.store.reader import StoreReader
from seamark.store.recovery import RecoveryReport
from seamark.store.sidecars import has_sidecar
from seamark.store.validation import ExaminedCheckpoint, ReadState, SeenState

_EPOCH: Final = re.compile(rb'"epoch":\s*([0-9]{1,18})\b')


def is_store(store: StoreReader) -> bool:
    """Whether anything shows that this is a store, and not a folder of somebody else's."""
    return store._parts.is_store()


def scan(
    store: StoreReader, *, unreadable: bool = False, measure: bool = False
) -> Iterator[ScannedCheckpoint]:
    """What every manifest says, newest first, with one listing; damage is a value here.

    With ``unreadable`` a manifest that cannot be read is one too, and hides no other. With
    ``measure`` state is looked up for its size, and state that is missing is damage. Parents and
    the bytes of state are not looked at: that is :meth:`CheckpointStore.validate_checkpoint`.
    """
    store._reading()
    return scan_manifests(store._parts, unreadable=unreadable, measure=measure)


def epoch_in_remains(store: StoreReader, checkpoint_id: int) -> int | None:
    """The epoch that is still to be read in a damaged manifest, as a hint; None for none.

    0 for what was a tombstone, which has decided no epoch.
    """
    parts = store._parts
    try:
        blob = parts.blobs.read(parts.manifests.layout.manifest(checkpoint_id), MANIFEST_LIMIT)
    except DamageError:
        return None
    if blob is None:
        return None
    if blob.data.startswith(b'{"tombstone":'):
        return 0
    match = _EPOCH.search(blob.data)
    return int(match[1]) if match is not None else None


class Glance(NamedTuple):
    """What two small reads show of a store: most changes of it change one of these."""

    pointer: int | None
    """The newest checkpoint as the pointer has it: a hint; None when there is no pointer."""
    owner: Owner


def glance(store: StoreReader) -> Glance:
    """The pointer and the owner; for whoever waits for a store to change."""
    pointer = store._parts.manifests.read_pointer()
    return Glance(pointer, store._reading().read())


def mark_of(store: StoreReader, newest: int) -> Hashable:
    """Changes with a decision, a commit, a prune or a rollback; nothing is listed for it.

    ``newest`` is the newest checkpoint that was seen. The pointer may fail to follow a decision, so
    the id after that one is looked at as well.
    """
    parts = store._parts
    entries = [parts.blobs.stat(parts.layout.manifest(number)) for number in (newest, newest + 1)]
    versions = tuple(entry and entry.version for entry in entries)
    pointer, owner = glance(store)
    return pointer, view_of(owner), versions


def scan_chosen(
    store: StoreReader, ids: Sequence[int], owner: Owner
) -> Iterator[ScannedCheckpoint]:
    """What some manifests say, by an owner that was read before; those that are gone are absent.

    One that cannot be read is a value too. State is not looked at.
    """
    store._reading()
    return scan_some(store._parts, ids, owner)


def reading_handle(store: CheckpointStore) -> CheckpointStore:
    """Another handle on the same backend, to read beside a writer. It must not be closed."""
    return CheckpointStore(store.backend, store._parts.layout)


def newest_whole(
    store: StoreReader, *, read_data: bool = True
) -> tuple[RecoveryReport, CheckpointManifest | None]:
    """The walk to the newest valid checkpoint, and its manifest; None only if none was chosen.

    One that is pruned before its manifest was read is no longer the newest: the walk is repeated.
    """

    def look() -> tuple[RecoveryReport, CheckpointManifest | None]:
        walk = store.recover_latest_validated(read_data=read_data)
        if walk.chosen_id is None:
            return walk, None
        manifest = store.load_by_id(walk.chosen_id)
        if manifest is None:
            raise Overtaken
        return walk, manifest

    return until_settled(look, store.url)


def newest_checkpoint(store: CheckpointStore) -> CheckpointManifest | None:
    """The newest checkpoint that can be read."""
    try:
        return store.load_latest()
    except DamageError:
        return newest_whole(store)[1]


def is_writer_alive(store: StoreReader, owner: Owner) -> bool | None:
    """Whether the process that has claimed the store lives; None where the backend cannot tell.

    :class:`Overtaken` when the claim was given back or taken over since the owner was read: that
    nobody holds its mark says nothing then.
    """
    if not owner.generation or owner.released:
        return False
    alive = store.backend.is_held(claim_mark(owner.generation))
    if alive is False and _claim_in(store.owner()) != _claim_in(owner):
        raise Overtaken
    return alive


def _claim_in(owner: Owner) -> tuple[object, ...]:
    return owner.generation, owner.writer, owner.released


def writer_of(store: StoreReader) -> tuple[Owner, bool | None]:
    """The owner, and whether the process that has claimed the store lives, of one moment."""

    def look() -> tuple[Owner, bool | None]:
        owner = store.owner()
        return owner, is_writer_alive(store, owner)

    return until_settled(look, store.url)


def examine(
    store: StoreReader,
    checkpoint_id: int,
    *,
    read_data: bool = True,
    seen: SeenState | None = None,
) -> ExaminedCheckpoint:
    """Check one checkpoint by itself, without its parents and without what was seen before.

    Without ``read_data`` only the manifest is read; its state must be there. State that
    was ``seen`` is not read again; what is read is added.
    """
    depth: ReadState = "always" if read_data else "size"
    examine_one = store._parts.validator.examine_one
    return store._examined(
        check_id(checkpoint_id),
        lambda owner: examine_one(checkpoint_id, owner, depth, seen),
    )


def problems_at_first_sight(store: StoreReader, checkpoint_id: int) -> list[str]:
    """What is wrong with a checkpoint and those it builds on, without reading their state."""
    look = store._parts.validator.examine
    examined = store._examined(
        check_id(checkpoint_id), lambda owner: look(checkpoint_id, owner, read_state="size")
    )
    return examined.result.damage


def planned_rebuild(store: StoreReader) -> OwnerRebuild:
    """What :meth:`CheckpointStore.rebuild_owner` would write, and why. Changes nothing."""
    store._reading()
    return plan_rebuild(store._parts)


def stored_bytes(store: StoreReader, manifest: CheckpointManifest) -> int:
    """What manifest and sidecar of a checkpoint take in the store, as the store says."""
    parts = store._parts
    keys = [parts.layout.manifest(manifest.checkpoint_id)]
    keys += [parts.sidecars.key_of(manifest)] if has_sidecar(manifest) else []
    entries = [parts.blobs.stat(key) for key in keys]
    return sum(entry.size for entry in entries if entry is not None)


def partitioned_bytes(store: StoreReader, manifest: CheckpointManifest, seen: ReadStates) -> int:
    """Bytes of the partitioned state that a checkpoint names; 0 when there is none to be found.

    State that was ``seen`` is not read again.
    """
    try:
        state = own_state(manifest)
    except DamageError:
        return 0
    if state is None:
        return 0
    if (held := seen.manifests.get(state)) is not None:
        return held.total_size_bytes
    return sum(store.partitioned_state.sizes([state]).values())


def new_links_of(
    store: StoreReader, manifest: CheckpointManifest, seen: ReadStates
) -> Iterator[tuple[PartitionKey, Link]]:
    """The objects of a checkpoint's partitioned state, without those given before in one pass."""
    state = own_state(manifest)
    return iter(()) if state is None else store.partitioned_state.new_links(state, seen)


def read_sidecar_range(
    store: StoreReader, manifest: CheckpointManifest, offset: int, length: int
) -> bytes | None:
    """Some bytes of a checkpoint's sidecar, not verified; None when it is not there."""
    store._reading()
    return store.backend.read_range(store._parts.sidecars.key_of(manifest), offset, length)


def was_pruned(store: StoreReader, checkpoint_id: int, *, was_there: bool = True) -> bool:
    """Whether a checkpoint is gone for good; one that ``was_there`` is if it is not any more."""
    parts = store._parts
    return is_pruned(parts.manifests, store._reading(), checkpoint_id, was_there=was_there)


def require_same_history(store: StoreReader, owner: Owner) -> Owner:
    """The owner as it is now; :class:`Overtaken` when the store was claimed or rolled back since.

    To be asked after all that an owner is to judge was read.
    """
    now = store._reading().read()
    if history_of(now) != history_of(owner):
        raise Overtaken
    return now


def require_same_timeline(store: StoreReader, owner: Owner) -> Owner:
    """The owner as it is now; :class:`Overtaken` when the store was rolled back since.

    To be asked after state was read, which may take longer than the store goes without a claim.
    """
    return raise_if_rolled_back(store._reading(), owner)


def require_listed(store: StoreReader, owner: Owner, ids: Sequence[int]) -> None:
    """:class:`Overtaken` when ids that were listed, and not found, have been pruned since."""
    if ids:
        raise_if_overtaken(store._parts.manifests, store._reading(), owner, ids)


def pruned_or(store: StoreReader, checkpoint_id: int, error: DamageError) -> SeamarkError:
    """The error itself, unless the checkpoint has been pruned since."""
    return store._pruned_or(checkpoint_id, error)


def require_there(store: StoreReader, checkpoint_id: int) -> None:
    """:class:`CheckpointNotFoundError` when a checkpoint was pruned since its manifest was read.

    To be asked after all of it was looked at, by whoever takes what is missing for nothing.
    """
    if was_pruned(store, checkpoint_id):
        raise store._pruned(checkpoint_id)
