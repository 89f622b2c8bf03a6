"""Which checkpoints of a store are of the history that a directory has now.

An entry of the offset log carries the time at which its batch was planned. So two that are equal
are one and the same, and so is what came before them; two of one number that differ belong to
histories that parted before it. The commit log distinguishes the state of two runs of one plan.

From the directory's own entries it is followed backwards what is proven: a checkpoint holds the
entries of its batch and of the one before it, and when one is taken, the entry of the checkpoint
that it follows is compared with the directory.

Tests: ``tests/native/test_rewind.py``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from seamark.capture.capture import LOG
from seamark.capture.placement import contents_of
from seamark.checkpoint_dir.places.directory import Tree
from seamark.errors import CheckpointNotFoundError, DamageError
from seamark.manifest import CheckpointManifest
from seamark.native.rewind.barrier import behind, found_barrier, query_before
from seamark.native.snapshot.manifests import planned
from seamark.store import CheckpointStore


@dataclass(frozen=True)
class SharedHistory:
    """What a store holds of a directory's history, by batch."""

    proven: Mapping[int, CheckpointManifest]
    """The newest checkpoint of each batch that is of this history."""
    doubts: Mapping[int, str]
    """Why the checkpoints of any other batch are not used."""


def shared_history(tree: Tree, store: CheckpointStore) -> SharedHistory:
    """Compare a directory with every checkpoint that a store has of its query."""
    query_id = query_before(tree)
    known = _Entries(behind(tree, found_barrier(tree)))
    own = [each for each in _manifests(store) if query_of(each) == query_id]
    proven: dict[int, CheckpointManifest] = {}
    doubts: dict[int, str] = {}
    parents: set[int] = set()
    # whatever can prove a checkpoint is of a later batch
    for each in sorted(own, key=lambda m: (m.batch, m.checkpoint_id), reverse=True):
        batch = each.batch
        held = _compared(store, each, known, is_parent=each.checkpoint_id in parents)
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
    """The logs of the directory's history, by path, as far as they are known."""

    def __init__(self, tree: Tree) -> None:
        self._tree = tree
        self._found: dict[str, bytes | None] = {}

    def get(self, path: str) -> bytes | None:
        if path not in self._found and path in self._tree.entries:
            text = self._tree.read_text(path)
            self._found[path] = None if text is None else text.encode()
        return self._found.get(path)

    def add(self, entries: Mapping[str, bytes]) -> None:
        for path, data in entries.items():
            if self.get(path) is None:
                self._found[path] = data


def _compared(
    store: CheckpointStore, manifest: CheckpointManifest, known: _Entries, *, is_parent: bool
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
    held = _entries_of(store, manifest)
    if any(known.get(path) not in (None, data) for path, data in held.items()):
        return f"{name}, but of another history: the directory has run this batch differently"
    is_same = here in held and known.get(here) == held[here]
    return held if is_parent or is_same or _is_continued(manifest, following) else unproven


def _entries_of(store: CheckpointStore, manifest: CheckpointManifest) -> dict[str, bytes]:
    """What a checkpoint holds of Spark's logs; nothing when it cannot be read."""
    logs: dict[str, bytes] = {}
    try:
        for _, contents, _ in contents_of(store, manifest, only=LOG):
            logs |= contents
    except (DamageError, CheckpointNotFoundError):
        return {}
    return {p: data for p, data in logs.items() if p.startswith(("offsets/", "commits/"))}


def _is_continued(manifest: CheckpointManifest, following: bytes | None) -> bool:
    """Whether the batch that was planned when a checkpoint was taken is the one that followed."""
    try:
        plan = planned(manifest)
    except DamageError:
        return False
    return plan is not None and plan.offsets.encode() == following


def _manifests(store: CheckpointStore) -> Iterator[CheckpointManifest]:
    for checkpoint_id in store.list_ids():
        try:
            manifest = store.load_by_id(checkpoint_id)
        except DamageError:
            continue
        if manifest is not None:
            yield manifest
