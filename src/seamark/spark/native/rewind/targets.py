"""Where an earlier batch can be had from: the directory itself, or a store that has it."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from seamark.errors import DamageError, RefusedError, SeamarkError
from seamark.manifest import CheckpointManifest
from seamark.spark.capture import LOG
from seamark.spark.native.batches import read_query_id
from seamark.spark.native.places.directory import Tree
from seamark.spark.native.places.local import LocalDirectory
from seamark.spark.native.restoring import Wishes, restore_directory
from seamark.spark.native.rewind.barrier import found_barrier
from seamark.spark.native.rewind.rewinding import (
    RewindPlan,
    SinkPlan,
    plan_rewind,
    possible_batches,
)
from seamark.spark.placement import contents_of, states_beside
from seamark.spark.working_copy import WorkingCopy
from seamark.store import CheckpointStore


@dataclass(frozen=True)
class Wanted:
    """What a directory is to be taken back to, and with what."""

    to_batch: int
    metadata: bytes | None = None
    """The file of a new query id."""
    sink: SinkPlan | None = None


@contextmanager
def planned_rewind(
    tree: Tree, wanted: Wanted, store: CheckpointStore | None
) -> Iterator[RewindPlan]:
    """The plan for a batch that the directory has, or else a checkpoint of ``store``.

    :class:`RefusedError`, with the batches that can be had, when neither has it as a whole. Files
    of a checkpoint are restored, and verified, for as long as the context lasts.
    """
    query_id = read_query_id(tree)
    begun = found_barrier(tree)
    chosen: CheckpointManifest | None = None
    if begun is None or begun.checkpoint_id is None or begun.to_batch != wanted.to_batch:
        try:
            plan = plan_rewind(tree, wanted.to_batch, metadata=wanted.metadata, sink=wanted.sink)
        except (DamageError, RefusedError, FileNotFoundError) as error:
            chosen = held_batch(tree, store, wanted.to_batch) if store is not None else None
            if chosen is None:
                raise _not_there(error, tree, store, wanted.to_batch) from None
        else:
            yield plan
            return
    elif store is not None:
        # what was begun with a checkpoint is finished with it: the directory proves nothing now
        chosen = store.load_by_id(begun.checkpoint_id)
    if chosen is None or store is None or _query_of(chosen) != query_id:
        raise RefusedError(
            f"the rollback to batch {wanted.to_batch} was begun with a checkpoint that is not here",
            where=tree.directory.url,
            hint="Give the same --store as before.",
        )
    scratch = tempfile.mkdtemp(prefix="seamark-rollback-")
    try:
        place = LocalDirectory(f"{scratch}/directory")
        restore_directory(store, chosen.checkpoint_id, place, Wishes(without_plan=True))
        WorkingCopy(place.url, uri=tree.uri).rewrite_root()
        yield plan_rewind(
            tree,
            wanted.to_batch,
            restored=Tree.of(place),
            checkpoint_id=chosen.checkpoint_id,
            metadata=wanted.metadata,
            sink=wanted.sink,
        )
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def held_batch(tree: Tree, store: CheckpointStore, batch: int) -> CheckpointManifest | None:
    """The newest checkpoint of exactly that batch, when it is of the directory's own history.

    Offsets carry the time at which a batch was planned, so they tell histories apart. When Spark
    has removed those of the batch, a later checkpoint has to agree with the directory, and none
    may show that it was rolled back to before the batch since.
    """
    query_id = read_query_id(tree)
    known = [each for each in _manifests(store) if _query_of(each) == query_id]
    found = next((each for each in reversed(known) if each.wal_position == batch), None)
    if found is None:
        return None
    agrees = _agrees(tree, store, found)
    if agrees is not None:
        return found if agrees else None
    later = [each for each in known if each.checkpoint_id > found.checkpoint_id]
    if any(each.wal_position <= batch for each in later):
        return None
    return found if any(_agrees(tree, store, each) for each in later) else None


def _manifests(store: CheckpointStore) -> Iterator[CheckpointManifest]:
    for checkpoint_id in store.list_ids():
        try:
            manifest = store.load_by_id(checkpoint_id)
        except DamageError:
            continue
        if manifest is not None:
            yield manifest


def _query_of(manifest: CheckpointManifest) -> str | None:
    native = manifest.extra.get("native")
    return str(native.get("query_id")) if isinstance(native, dict) else None


def _agrees(tree: Tree, store: CheckpointStore, manifest: CheckpointManifest) -> bool | None:
    """Whether directory and checkpoint planned the same; None when they have no batch in common."""
    logs: dict[str, bytes] = {}
    try:
        for _, contents, _ in contents_of(store, states_beside(store), manifest, only=LOG):
            logs |= contents
    except DamageError:
        return None
    answer: bool | None = None
    for batch in (manifest.wal_position, manifest.wal_position - 1):
        path = f"offsets/{batch}"
        if path in logs and path in tree.entries:
            answer = tree.read(path) == logs[path]
            if not answer:
                return False
    return answer


def _not_there(
    error: Exception, tree: Tree, store: CheckpointStore | None, batch: int
) -> SeamarkError:
    what = error.what if isinstance(error, SeamarkError) else f"{error} vanished"
    here = possible_batches(tree)
    held: list[int] = []
    if store is not None:
        listed = {each.wal_position for each in _manifests(store)} - set(here)
        held = sorted(each for each in listed if held_batch(tree, store, each) is not None)
    choices = [f"batch {ranges(here)} of the directory"] if here else []
    choices += [f"batch {ranges(held)} of {store.url}"] if held and store is not None else []
    told = "It can be taken back to " + ", or to ".join(choices) if choices else "There is none"
    return RefusedError(
        f"batch {batch} is not there as a whole (any more), so it cannot be gone back to",
        where=f"{tree.directory.url}: {what}",
        hint=f"{told}.",
    )


def ranges(numbers: list[int]) -> str:
    """Numbers in words.

    >>> ranges([1, 2, 3, 7])
    '1 to 3, 7'
    """
    parts: list[list[int]] = []
    for number in numbers:
        if parts and parts[-1][1] == number - 1:
            parts[-1][1] = number
        else:
            parts.append([number, number])
    return ", ".join(str(a) if a == b else f"{a} to {b}" for a, b in parts)
