"""Runs of a pipeline without Spark: epochs in one thread, moves of state and a scrub in another.

Epochs are undone now and then, prunes come after full ones, runs end well, badly or as if they were
killed, and the next one goes on from what a restore has written or from what was left.
"""

from __future__ import annotations

import random
import shutil
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from typing import Final

import pytest

from seamark import open_store
from seamark.capture import pack_rewrites, scrub
from seamark.capture.capture import Capture
from seamark.capture.checkpoint_contents import Chain, Sizes, place
from seamark.capture.epoch_files import Captured
from seamark.capture.movers import LARGE, DriverMover
from seamark.capture.restore import restore_index
from seamark.capture.scrub import Scrub
from seamark.capture.state_moves import BackgroundMoves
from seamark.capture.uploads import Uploads
from seamark.checkpoint_dir.places.local import LocalCopy
from seamark.checkpoint_dir.state_files import closure, is_state
from seamark.manifest import CheckpointManifest
from seamark.store import CheckpointStore, shared_objects
from tests.checkpoint_dir.support.directories import make_copy, offsets_text, source_entry

PARTITIONS: Final = 3
FULL_EVERY: Final = 5
COMMIT: Final = 'v1\n{"nextBatchWatermarkMs":0}'


@contextmanager
def everything_often() -> Iterator[None]:
    """Packs are rewritten, objects read and orphans removed all the time; threads take turns."""
    before = sys.getswitchinterval()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(scrub, "_SETTLING", 0.0)
        patch.setattr(pack_rewrites, "MOST_PACKS", 4)
        patch.setattr(pack_rewrites, "_MERGED", 3)
        patch.setattr(pack_rewrites, "_WORTH_IT", 0)
        patch.setattr(pack_rewrites, "_MOSTLY_DEAD", 0.9)
        patch.setattr(shared_objects, "UNNAMED_FOR", 0.3)
        patch.setattr(shared_objects, "_ASK_AGAIN", 0.15)
        sys.setswitchinterval(1e-5)
        try:
            yield
        finally:
            sys.setswitchinterval(before)


class RandomRuns:
    """Runs over one working copy and one store; what happens is decided by dice."""

    def __init__(self, root: Path, seed: int) -> None:
        self._root = root
        self._seed = seed
        self._dice = random.Random(seed)
        self._copy = make_copy(root / "copy", 0, partitions=PARTITIONS)
        self._written: dict[str, bytes] = {}
        """The SHA-256 of every state file that Spark ever wrote."""
        self._batch = 0
        self._chain: Chain | None = None
        self.counted: Counter[str] = Counter()

    def run(self) -> None:
        """A run of some epochs, its end, and a restore that is compared with what was written."""
        store = self._open()
        store.claim()
        run = _Run(store, self._copy, self._chain)
        for _ in range(self._dice.randrange(5, 40)):
            if self._epoch(run):
                self._maintain()
                self._batch += 1
            if self._dice.random() < 0.4:
                time.sleep(self._dice.random() * 0.01)
            if self._dice.random() < 0.15:
                self._require_valid()
        self._end(run)
        if run.moves._thread is not None:
            run.moves._thread.join()
        store.close()
        if run.parent is not None:
            self._restore(run.parent.checkpoint_id)

    def _open(self) -> CheckpointStore:
        return open_store(self._root / "store")

    # an epoch

    def _epoch(self, run: _Run) -> bool:
        """What one batch adds; whether it was saved."""
        batch = self._batch
        self._copy.write(f"offsets/{batch}", offsets_text(f'{{"logOffset":{batch}}}').encode())
        self._copy.write(f"sources/0/{batch}", source_entry(batch).encode())
        if batch:
            self._copy.write(f"commits/{batch - 1}", COMMIT.encode())
        for partition in range(PARTITIONS):
            self._put(f"state/0/{partition}/{batch + 1}.delta", (100, 3000, 200_000))
        taken = run.capture.take(batch, COMMIT, full=run.links + 1 >= FULL_EVERY)
        if self._dice.random() < 0.1:
            place(taken, Sizes(inline_operator=0), run.uploads, run.capture.index)
            run.capture.undone()
            self.counted["undone"] += 1
            return False
        run.save(taken, batch, Sizes(inline_operator=self._dice.choice((0, 0, 5000))))
        self.counted["saved"] += 1
        if taken.is_full:
            run.store.prune(self._dice.choice((1, 2, 3)), read_shared=self._dice.random() < 0.5)
            self.counted["pruned"] += 1
        return True

    def _put(self, path: str, sizes: tuple[int, ...]) -> None:
        data = random.Random(f"{path} {self._seed}").randbytes(self._dice.choice(sizes))
        self._written[path] = sha256(data).digest()
        self._copy.write(path, data)

    def _maintain(self) -> None:
        """What Spark's maintenance thread does."""
        for partition in range(PARTITIONS):
            folder = f"state/0/{partition}"
            if self._dice.random() < 0.25:
                self._put(f"{folder}/{self._batch + 1}.snapshot", (500, 50_000, LARGE + 7))
            names = list(self._copy.names(folder))
            snapshots = sorted(_version(name) for name in names if name.endswith(".snapshot"))
            if len(snapshots) > 2 and self._dice.random() < 0.5:
                for name in names:
                    if _version(name) < snapshots[-2]:
                        self._copy.remove(f"{folder}/{name}")

    def _require_valid(self) -> None:
        with self._open() as other:
            for checkpoint_id in other.list_ids():
                result = other.validate_checkpoint(checkpoint_id)
                assert result.valid, f"checkpoint {checkpoint_id}: {result.damage}"

    # the end of a run

    def _end(self, run: _Run) -> None:
        how = self._dice.choice(("well", "well", "badly", "killed"))
        self.counted[f"ended {how}"] += 1
        if how == "well" and (moved := run.capture.moved(1.0)) is not None:
            run.save(moved, self._batch - 1, Sizes())
            self.counted["moved at the end"] += 1
        if how == "killed":
            run.moves.abandon()
        else:
            run.moves.close()

    def _restore(self, newest: int) -> None:
        with self._open() as store:
            report = store.recover_latest_validated()
            assert report.chosen_id == newest, f"{report} instead of {newest}"
            manifest = store.load_by_id(newest)
            assert manifest is not None
            self._chain = chain = Chain.load(store, manifest)
            assert chain.index is not None
            shutil.rmtree(self._root / "restored", ignore_errors=True)
            restored = LocalCopy(self._root / "restored")
            restore_index(restored, chain.index, chain.small, store.shared_objects)
        for path in restored.files_below("state"):
            found = sha256(restored.read(path)).digest()
            assert not is_state(path) or found == self._written[path], path
        for partition in range(PARTITIONS):
            folder = f"state/0/{partition}"
            closure(restored.names_in(folder), chain.batch + 1, restored.reader(folder))
        self._batch = chain.batch + 1
        if self._dice.random() < 0.5:
            shutil.rmtree(self._root / "copy")
            shutil.copytree(self._root / "restored", self._root / "copy")
        else:
            for partition in range(PARTITIONS):
                for name in list(self._copy.names(f"state/0/{partition}")):
                    if (path := f"state/0/{partition}/{name}") not in chain.expected:
                        self._copy.remove(path)


class _Run:
    """What one process has: a claim, what it has captured, and a thread beside it."""

    def __init__(self, store: CheckpointStore, copy: LocalCopy, chain: Chain | None) -> None:
        self.store = store
        shared = store.shared_objects
        self.uploads = Uploads(shared)
        self.moves = BackgroundMoves(
            copy,
            shared,
            1 << 40,
            uploads=Uploads(shared),
            every=0.002,
            scrub=Scrub(shared, every=0.05),
        )
        self.capture = Capture(
            copy,
            DriverMover(copy, self.uploads),
            chain.index if chain else None,
            chain.small_state if chain else None,
            self.moves,
            self.uploads,
        )
        self.parent = chain.manifests[-1] if chain else None
        self.links = len(chain.manifests) - 1 if chain else FULL_EVERY

    def save(self, taken: Captured, batch: int, sizes: Sizes) -> None:
        placed = place(taken, sizes, self.uploads, self.capture.index)
        builds_on = None if taken.is_full or self.parent is None else self.parent.checkpoint_id
        manifest = CheckpointManifest.new(
            self.store.next_id(),
            epoch=batch + 1,
            batch=batch,
            operator_states=placed.operator_states,
            is_incremental=builds_on is not None,
            parent_id=builds_on,
            shared_objects=[list(each) for each in placed.shared_objects] or None,
            restore_bytes=placed.restore_size,
        )
        self.parent = self.store.save_with_state(manifest, placed.chunks or None)
        self.capture.saved(taken, placed.files)
        self.links = 0 if taken.is_full else self.links + 1


def _version(name: str) -> int:
    return int(name.partition(".")[0])
