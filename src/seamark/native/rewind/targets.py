"""Where an earlier batch can be had from: the directory itself, or a store that has it.

Tests: ``tests/native/test_rewind.py``.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from seamark._common.text import ranges_text
from seamark.checkpoint_dir.places.directory import Tree
from seamark.checkpoint_dir.places.local import LocalDirectory
from seamark.checkpoint_dir.working_copy import WorkingCopy
from seamark.errors import DamageError, RefusedError, SeamarkError
from seamark.manifest import CheckpointManifest
from seamark.native.restore import RestoreOptions, restore_directory
from seamark.native.rewind.barrier import found_barrier, query_before
from seamark.native.rewind.histories import SharedHistory, query_of, shared_history
from seamark.native.rewind.rewind import (
    RewindPlan,
    SinkPlan,
    batches_to_try,
    plan_rewind,
    possible_batches,
)
from seamark.store import CheckpointStore


@dataclass(frozen=True)
class RewindRequest:
    """What a directory is to be taken back to, and with what."""

    to_batch: int
    metadata: bytes | None = None
    """The file of a new query id."""
    sink: SinkPlan | None = None


@contextmanager
def planned_rewind(
    tree: Tree, request: RewindRequest, store: CheckpointStore | None
) -> Iterator[RewindPlan]:
    """The plan for a batch that the directory has, or else a checkpoint of ``store``.

    :class:`RefusedError`, with the batches that can be had, when neither has it as a whole, and
    when nothing proves that the checkpoint is of the directory's own history. Files of a checkpoint
    are restored, and verified, for as long as the context lasts.
    """
    begun = found_barrier(tree)
    chosen: CheckpointManifest | None = None
    if begun is None or begun.checkpoint_id is None or begun.to_batch != request.to_batch:
        try:
            plan = plan_rewind(tree, request.to_batch, metadata=request.metadata, sink=request.sink)
        except (DamageError, RefusedError, FileNotFoundError) as error:
            shared = shared_history(tree, store) if store is not None else None
            chosen = shared.proven.get(request.to_batch) if shared is not None else None
            if chosen is None:
                raise _not_there(error, tree, store, shared, request.to_batch) from None
        else:
            yield plan
            return
    elif store is not None:
        # a rollback that used a checkpoint is finished with it: the directory proves nothing now
        chosen = store.load_by_id(begun.checkpoint_id)
    if chosen is None or store is None or query_of(chosen) != query_before(tree):
        raise RefusedError(
            f"the rollback to batch {request.to_batch} used a checkpoint that is not here",
            where=tree.directory.url,
            hint="Give the same --store as before.",
        )
    scratch = tempfile.mkdtemp(prefix="seamark-rollback-")
    try:
        place = LocalDirectory(f"{scratch}/directory")
        restore_directory(store, chosen.checkpoint_id, place, RestoreOptions(without_plan=True))
        WorkingCopy(place.url, uri=tree.uri).rewrite_root()
        yield plan_rewind(
            tree,
            request.to_batch,
            restored=Tree.of(place),
            checkpoint_id=chosen.checkpoint_id,
            metadata=request.metadata,
            sink=request.sink,
        )
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def _not_there(
    error: Exception,
    tree: Tree,
    store: CheckpointStore | None,
    shared: SharedHistory | None,
    batch: int,
) -> SeamarkError:
    what = error.what if isinstance(error, SeamarkError) else f"{error} vanished"
    here = possible_batches(tree)
    held = sorted(shared.proven.keys() - set(here)) if shared is not None else []
    if shared is not None and batch in shared.doubts:
        what = f"{what}; {shared.doubts[batch]}"
    choices = [f"batch {ranges_text(here)} of the directory"] if here else []
    choices += [f"batch {ranges_text(held)} of {store.url}"] if held and store is not None else []
    choices_text = (
        "It can be taken back to " + ", or to ".join(choices) if choices else "There is none"
    )
    tried = batches_to_try(tree)
    if len(tried) < len(tree.batches("commits")):
        choices_text += (
            f" (batches before {tried[0]} were not tried: the directory has too many files)"
        )
    return RefusedError(
        f"batch {batch} is not there as a whole (any more), so it cannot be gone back to",
        where=f"{tree.directory.url}: {what}",
        hint=f"{choices_text}.",
    )
