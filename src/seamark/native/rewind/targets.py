"""Where an earlier batch can be had from: the directory itself, or a store that has it.

A checkpoint is used only if it is of the history that the directory has now. An entry of the offset
log carries the time at which its batch was planned. So two that are equal are one and the same, and
so is what came before them; two of one number that differ belong to histories that parted before
it. The commit log distinguishes the state of two runs of one plan.

What is proven is followed backwards from the directory's own entries: a checkpoint holds the
entries of its batch and of the one before it, and when one is taken, the entry of the checkpoint
that it follows is compared with the directory.

Tests: ``tests/native/test_rewind.py``.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import sha256

from seamark._common.text import ranges_text
from seamark.capture.checkpoint_contents import contents_of
from seamark.capture.unpack_budget import UnpackBudget
from seamark.checkpoint_dir.places.directory import Tree
from seamark.checkpoint_dir.places.local import LocalCopy, LocalDirectory
from seamark.errors import CheckpointNotFoundError, DamageError, RefusedError, SeamarkError
from seamark.manifest import CheckpointManifest
from seamark.native.new_checkpoint import planned
from seamark.native.restore import RestoreOptions, restore_directory
from seamark.native.rewind.barrier import behind, found_barrier, query_before
from seamark.native.rewind.rewind import (
    RewindPlan,
    SinkPlan,
    plan_rewind,
    possible_batches,
)
from seamark.store import CheckpointStore
from seamark.store.consistent_read import Overtaken, until_settled
from seamark.store.index_parts import LOG
from seamark.store.inspection import was_pruned


@dataclass(frozen=True)
class RewindRequest:
    """What a directory is to be taken back to, and with what."""

    to_batch: int
    metadata: bytes | None = None
    """The file of a new query id."""
    sink: SinkPlan | None = None
    own_classes: Collection[str] = ()
    """Classes in a checkpoint's offset log that may be others than Spark's."""


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
        wishes = RestoreOptions(without_plan=True, own_classes=request.own_classes)
        restore_directory(store, chosen.checkpoint_id, place, wishes)
        LocalCopy(place.url, uri=tree.uri).rewrite_root()
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
    here, not_before = possible_batches(tree)
    held = sorted(shared.proven.keys() - set(here)) if shared is not None else []
    if shared is not None and batch in shared.doubts:
        what = f"{what}; {shared.doubts[batch]}"
    choices = [f"batch {ranges_text(here)} of the directory"] if here else []
    choices += [f"batch {ranges_text(held)} of {store.url}"] if held and store is not None else []
    choices_text = (
        "It can be taken back to " + ", or to ".join(choices) if choices else "There is none"
    )
    if not_before is not None:
        choices_text += f" (batches before {not_before} were not tried: that would take long)"
    return RefusedError(
        f"batch {batch} is not there as a whole (any more), so it cannot be gone back to",
        where=f"{tree.directory.url}: {what}",
        hint=f"{choices_text}.",
    )


# checkpoints of the same history


@dataclass(frozen=True)
class SharedHistory:
    """What a store holds of a directory's history, by batch."""

    proven: Mapping[int, CheckpointManifest]
    """The newest checkpoint of each batch that is of this history."""
    doubts: Mapping[int, str]
    """Why the checkpoints of any other batch are not used."""


def shared_history(tree: Tree, store: CheckpointStore) -> SharedHistory:
    """Compare a directory with every checkpoint that a store has of its query."""
    return until_settled(lambda: _shared_history(tree, store), store.url)


def _shared_history(tree: Tree, store: CheckpointStore) -> SharedHistory:
    query_id = query_before(tree)
    known, budget = _Entries(behind(tree, found_barrier(tree))), UnpackBudget()
    own = [each for each in _manifests(store) if query_of(each) == query_id]
    proven: dict[int, CheckpointManifest] = {}
    doubts: dict[int, str] = {}
    parents: set[int] = set()
    # whatever can prove a checkpoint is of a later batch
    for each in sorted(own, key=lambda m: (m.batch, m.checkpoint_id), reverse=True):
        batch = each.batch
        is_parent = each.checkpoint_id in parents
        held = _compared(store, each, known, budget, is_parent=is_parent)
        if isinstance(held, str):
            doubts.setdefault(batch, held)
            continue
        known.add(held)
        proven.setdefault(batch, each)
        parents.update(_compared_with(each))
    return SharedHistory(proven, {n: why for n, why in doubts.items() if n not in proven})


def _compared_with(manifest: CheckpointManifest) -> Iterator[int]:
    """Earlier checkpoints that were held against the directory when this one was taken."""
    if manifest.is_incremental and manifest.parent_id is not None:
        yield manifest.parent_id
    follows = (manifest.native or {}).get("follows")
    if isinstance(follows, int):
        yield follows


def query_of(manifest: CheckpointManifest) -> str | None:
    """The id of the query that a checkpoint was taken of."""
    return None if manifest.native is None else str(manifest.native.get("query_id"))


class _Entries:
    """SHA-256 of the logs of the directory's history, by path, as far as they are known."""

    def __init__(self, tree: Tree) -> None:
        self._tree = tree
        self._found: dict[str, bytes | None] = {}

    def get(self, path: str) -> bytes | None:
        if path not in self._found and path in self._tree.entries:
            text = self._tree.read_text(path)
            self._found[path] = None if text is None else _digest(text)
        return self._found.get(path)

    def add(self, entries: Mapping[str, bytes]) -> None:
        for path, digest in entries.items():
            if self.get(path) is None:
                self._found[path] = digest


def _digest(text: str) -> bytes:
    return sha256(text.encode()).digest()


def _compared(
    store: CheckpointStore,
    manifest: CheckpointManifest,
    known: _Entries,
    budget: UnpackBudget,
    *,
    is_parent: bool,
) -> dict[str, bytes] | str:
    """The entries of a checkpoint that is of the history, or why it is not known to be."""
    batch = manifest.batch
    here, following = f"offsets/{batch}", known.get(f"offsets/{batch + 1}")
    name = f"checkpoint {manifest.checkpoint_id} of {store.url} holds it"
    unproven = (
        f"{name}, but nothing proves that it is of the history that the directory has now:"
        " neither the directory nor a later checkpoint of it has the same entry in its offset log"
    )
    if not is_parent and known.get(here) is None and following is None:
        return unproven
    held = _entries_of(store, manifest, budget)
    if any(known.get(path) not in (None, digest) for path, digest in held.items()):
        return f"{name}, but of another history: the directory has run this batch differently"
    is_same = here in held and known.get(here) == held[here]
    return held if is_parent or is_same or _is_continued(manifest, following) else unproven


def _entries_of(
    store: CheckpointStore, manifest: CheckpointManifest, budget: UnpackBudget
) -> dict[str, bytes]:
    """SHA-256 of what a checkpoint holds of Spark's logs; nothing when it cannot be read.

    Entries of its batch and of those beside it are unpacked, and no others: it holds none.
    :class:`Overtaken` when it was pruned since it was listed: another may have its batch now.
    """
    numbers = range(manifest.batch - 1, manifest.batch + 2)
    paths = {f"{log}/{number}" for log in ("offsets", "commits") for number in numbers}
    held: dict[str, bytes] = {}
    try:
        for _, _, digests in contents_of(store, manifest, only=LOG, paths=paths, budget=budget):
            held |= digests
    except (DamageError, CheckpointNotFoundError):
        if was_pruned(store, manifest.checkpoint_id):
            raise Overtaken from None
        return {}
    return held


def _is_continued(manifest: CheckpointManifest, following: bytes | None) -> bool:
    """Whether the batch that was planned when a checkpoint was taken is the one that followed."""
    try:
        plan = planned(manifest)
    except DamageError:
        return False
    return plan is not None and _digest(plan.offsets) == following


def _manifests(store: CheckpointStore) -> Iterator[CheckpointManifest]:
    for checkpoint_id in store.list_ids():
        try:
            manifest = store.load_by_id(checkpoint_id)
        except DamageError:
            continue
        if manifest is not None:
            yield manifest
