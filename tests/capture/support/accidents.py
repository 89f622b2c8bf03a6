"""State on its way into an object store, what can happen to it there, and what must hold after.

The working copy is a real directory and never loses a file, so what is restored after an accident
can be compared with it byte by byte.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
from obstore.store import MemoryStore

from seamark.blobs.object_store import ObjectBlobs
from seamark.capture import pack_rewrites
from seamark.capture.capture import Capture
from seamark.capture.checkpoint_contents import Chain
from seamark.capture.movers import LARGE, DriverMover
from seamark.capture.restore import restore_index
from seamark.capture.scrub import Scrub
from seamark.capture.state_moves import BackgroundMoves
from seamark.checkpoint_dir.places.local import LocalCopy
from seamark.checkpoint_dir.state_files import closure, is_state
from seamark.store import CheckpointStore
from seamark.store.layout import ObjectLayout
from seamark.store.owner import Standing, standing
from tests.capture.test_capture_and_restore import Stored
from tests.checkpoint_dir.support.directories import make_copy

_numbers = itertools.count()


def moves_of(stored: Stored) -> BackgroundMoves:
    moves = stored.capture._moves
    assert isinstance(moves, BackgroundMoves)
    return moves


def look(stored: Stored) -> None:
    """What the background does next."""
    moves_of(stored).look()


def snapshot(stored: Stored, partition: int, version: int, size: int = 200) -> None:
    """Spark has written a snapshot."""
    data = b"partition %d as of version %d " % (partition, version)
    stored.copy.write(f"state/0/{partition}/{version}.snapshot", data.ljust(size, b"."))


class Bucket:
    """An object store, and the directory of a query that keeps its state there."""

    def __init__(self, root: Path) -> None:
        self.bucket = MemoryStore()
        self.root = root / str(next(_numbers))

    def open(self) -> CheckpointStore:
        return CheckpointStore(ObjectBlobs(self.bucket, "test"), ObjectLayout())

    def stored(self, *, inline: bool = False) -> Stored:
        """A writer that moves state in the background. The test is that background."""
        stored = Stored(self.root / "a", inline=inline, store=self.open())
        stored.store.claim()
        self._add_moves(stored)
        return stored

    def _add_moves(self, stored: Stored) -> None:
        moves = BackgroundMoves(
            stored.copy, stored.shared, 1 << 40, scrub=Scrub(stored.shared, every=0.0)
        )
        moves._thread = object()  # type: ignore[assignment]
        stored.capture._moves = moves

    def after(self, decided: int) -> None:
        """Check what an accident has left, when so many checkpoints had been decided."""
        store = self.open()
        owner = store.owner()
        ids = [i for i in store.list_ids() if standing(owner, i) is Standing.CURRENT]
        report = store.recover_latest_validated()
        assert report.chosen_id == max(ids), report
        if standing(owner, decided) is Standing.CURRENT:
            assert max(ids) >= decided, "a decided checkpoint is lost (I3)"
        for checkpoint_id in ids:
            result = store.validate_checkpoint(checkpoint_id)
            assert result.valid, f"{checkpoint_id}: {result.damage} (I1)"
        chain = self._restored(store, report.chosen_id)
        self._goes_on(store, chain)

    def _restored(self, store: CheckpointStore, checkpoint_id: int) -> Chain:
        """Check that a restore of a checkpoint makes the state of its batch again."""
        manifest = store.load_by_id(checkpoint_id)
        assert manifest is not None
        chain = Chain.load(store, manifest)
        assert chain.index is not None
        there, made = LocalCopy(self.root / "a"), self.root / f"restored-{next(_numbers)}"
        copy = LocalCopy(made)
        restore_index(copy, chain.index, chain.small, store.shared_objects)
        for path in copy.files_below("state"):
            if is_state(path):
                assert copy.read(path) == there.read(path)
        for partition in (0, 1):
            folder = f"state/0/{partition}"
            closure(copy.names_in(folder), chain.batch + 1, copy.reader(folder))
        return chain

    def _goes_on(self, store: CheckpointStore, chain: Chain) -> None:
        """The next run goes on, and a clean-up leaves what is needed and nothing else."""
        store.claim()
        after = Stored(self.root / "a", inline=False, store=store)
        after.manifests = [*chain.manifests]
        after.capture = Capture(
            after.copy, DriverMover(after.copy, after.uploads), chain.index, chain.small_state
        )
        batch = chain.batch + 1
        make_copy(self.root / "a", batch + 1)
        after.number = newest = store.next_id()
        after.take(batch, full=True)
        store.cleanup_orphans(min_age=0)
        named = {
            shared.name
            for checkpoint_id in store.list_ids()
            if (manifest := store.load_by_id(checkpoint_id)) is not None
            for shared in manifest.shared_objects
        }
        assert set(store.shared_objects.entries()) == named, "left, or removed too much (I6)"
        for checkpoint_id in store.list_ids():
            assert store.validate_checkpoint(checkpoint_id).valid, "needed and removed (I6)"
        self._restored(store, newest)
        store.prune(1)
        assert store.validate_checkpoint(newest).valid


@dataclass(frozen=True)
class Accident:
    """``prepare`` runs in peace, ``act`` is what the accident hits."""

    name: str
    prepare: Callable[[Stored], None]
    act: Callable[[Stored], None]


def _epochs(stored: Stored) -> None:
    for _ in range(3):
        stored.take(len(stored.manifests))


def _with_snapshots(stored: Stored) -> None:
    _epochs(stored)
    snapshot(stored, 0, 2)
    snapshot(stored, 1, 3, LARGE + 5)


def _with_uploads(stored: Stored) -> None:
    _with_snapshots(stored)
    look(stored)


def _next(stored: Stored) -> None:
    stored.take(len(stored.manifests))


def _next_full(stored: Stored) -> None:
    stored.take(len(stored.manifests), full=True)
    stored.store.prune(1)


def _upload_and_follow(stored: Stored) -> None:
    look(stored)
    _next(stored)
    _next_full(stored)


def _many_packs(stored: Stored) -> None:
    for _ in range(6):
        _next(stored)


def _half_dead(stored: Stored) -> None:
    """One pack with all state, half of which a snapshot has replaced."""
    make_copy(Path(stored.copy.root), 4)
    stored.take(0, full=True)
    for _ in range(3):
        _next(stored)
    snapshot(stored, 0, 4, 50)
    look(stored)
    stored.take(len(stored.manifests), full=True)


def _end(stored: Stored) -> None:
    moved = stored.capture.moved(0)
    if moved is not None:
        stored.save(len(stored.manifests) - 1, moved)
    moves = moves_of(stored)
    moves._thread = None
    moves.close()


def _roll_back(stored: Stored) -> None:
    store = stored.store
    store.supersede(3, store.next_id() - 1)
    chosen = stored.manifests[1]
    again = chosen.replace(
        checkpoint_id=store.next_id(),
        operator_states={},
        is_incremental=True,
        parent_id=chosen.checkpoint_id,
        state_checksum=None,
    )
    store.save(again.with_extra(shared_objects=None))
    store.prune(1)


def _clean_up(stored: Stored) -> None:
    stored.shared.write([b"nobody is going to name it"])
    stored.shared._forget(stored.shared._unnamed.copy())  # as if a dead process had stored all
    stored.store.cleanup_orphans(min_age=0)


ACCIDENTS = [
    Accident("an epoch", _epochs, _next),
    Accident("a full index and a prune", _epochs, _next_full),
    Accident("an upload in the background", _with_snapshots, look),
    Accident("the index after an upload", _with_uploads, _next),
    Accident("an upload, its index and a prune", _with_snapshots, _upload_and_follow),
    Accident("the merge of many packs", _many_packs, _upload_and_follow),
    Accident("the rewrite of a mostly dead pack", _half_dead, _upload_and_follow),
    Accident("the end of a run", _with_uploads, _end),
    Accident("a rollback", _epochs, _roll_back),
    Accident("a clean-up", _with_uploads, _clean_up),
]


def small_packs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a few packs be many, and a few dead bytes be worth a rewrite."""
    monkeypatch.setattr(pack_rewrites, "MOST_PACKS", 3)
    monkeypatch.setattr(pack_rewrites, "_MERGED", 3)
    monkeypatch.setattr(pack_rewrites, "_WORTH_IT", 0)
    monkeypatch.setattr(pack_rewrites, "_MOSTLY_DEAD", 0.9)
