"""Making a working copy again from a local store, against a verified copy of the same bytes.

The baseline reads every file of a directory in pieces, in as many threads as a rebuild has,
compares its SHA-256 with a known one and writes it to another directory; neither it nor a rebuild
calls fsync, as a working copy can always be made again. Keeping a copy is compared with only
hashing it.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

from harness import Row, file_system, in_milliseconds, interleaved, options, ratio, scratch, show
from seamark import CheckpointManifest, open_store
from seamark.capture.capture import Capture
from seamark.capture.checkpoint_contents import Chain, Sizes, place
from seamark.capture.movers import DriverMover
from seamark.capture.restore import difference, restore_index
from seamark.checkpoint_dir.places.local import LocalCopy

PARTITIONS: Final = 64
THREADS: Final = 8


def make_copy(root: Path, size: int) -> LocalCopy:
    """What Spark leaves after one batch of a query with that much state, as far as we read it."""
    copy = LocalCopy(root)
    info = {
        "operatorInfo": {"operatorId": 0, "operatorName": "stateStoreSave"},
        "stateStoreInfo": [{"storeName": "default", "numPartitions": PARTITIONS}],
    }
    copy.write("metadata", b'{"id":"bench"}')
    copy.write("offsets/0", b'v1\n{"batchWatermarkMs":0,"conf":{}}\n{"logOffset":0}')
    copy.write("state/0/_metadata/metadata", f"v1\n{json.dumps(info)}".encode())
    for partition in range(PARTITIONS):
        copy.write(f"state/0/{partition}/1.delta", os.urandom(size // PARTITIONS))
    return copy


def hash_of(source: LocalCopy, path: str) -> bytes:
    """SHA-256 of a file, in pieces."""
    with open(source.path(path), "rb", buffering=0) as file:
        return hashlib.file_digest(file, "sha256").digest()


def verified_copy(source: LocalCopy, known: dict[str, bytes], target: Path) -> None:
    """The baseline, with as many threads as a rebuild has."""

    def copy(path: str) -> None:
        place_at = target / path
        place_at.parent.mkdir(parents=True, exist_ok=True)
        hasher = hashlib.sha256()
        with place_at.open("wb", buffering=0) as file:
            for piece in source.stream(path):
                hasher.update(piece)
                file.write(piece)
        if hasher.digest() != known[path]:
            raise RuntimeError(f"{path} differs")

    with ThreadPoolExecutor(THREADS) as pool:
        for _ in pool.map(copy, known):
            pass


def main() -> None:
    """Measure a rebuild, and the comparison of a copy that is kept."""
    given = options(__doc__)
    size = (64 if given.quick else 4096) << 20
    with scratch(given.directory) as folder:
        source = make_copy(folder / "working", size)
        store = open_store(folder / "store")
        shared = store.shared_objects
        capture = Capture(source, DriverMover(source, shared))
        captured = capture.take(0, 'v1\n{"nextBatchWatermarkMs":0}', full=True)
        placed = place(captured, Sizes(), shared, capture.index)
        saved = store.save_with_state(
            CheckpointManifest.new(
                1,
                epoch=1,
                operator_states=placed.operator_states,
                shared_objects=[list(each) for each in placed.shared_objects] or None,
            ),
            placed.chunks or None,
        )
        capture.saved(captured, placed.files)
        known = capture.index.digests
        target = folder / "target"

        def baseline() -> None:
            shutil.rmtree(target, ignore_errors=True)
            verified_copy(source, known, target)

        def hashing() -> None:
            with ThreadPoolExecutor(THREADS) as pool:
                for _ in pool.map(lambda path: hash_of(source, path), known):
                    pass

        def rebuild() -> None:
            shutil.rmtree(target, ignore_errors=True)
            chain = Chain.load(store, saved)
            assert chain.index is not None
            restore_index(LocalCopy(target), chain.index, chain.small, shared)

        def keep() -> None:
            chain = Chain.load(store, saved)
            if why := difference(source, chain.expected, 0):
                raise RuntimeError(why)

        source.write("commits/0", b'v1\n{"nextBatchWatermarkMs":0}')
        rounds = 3
        times = interleaved(
            {"copy": baseline, "rebuild": rebuild, "hash": hashing, "keep": keep}, rounds
        )
        what = f"{size >> 20} MiB in {PARTITIONS} partitions"
        show(
            "A working copy",
            [
                Row(
                    f"rebuild {what}",
                    "verified copy",
                    ratio(times["rebuild"], times["copy"]),
                    1.3,
                ),
                Row(
                    f"verify and keep {what}",
                    "hashing it",
                    ratio(times["keep"], times["hash"]),
                    1.15,
                ),
            ],
            (
                f"verified copy {in_milliseconds(times['copy'])}, rebuild "
                f"{in_milliseconds(times['rebuild'])}, hashing {in_milliseconds(times['hash'])}, "
                f"keep {in_milliseconds(times['keep'])}, "
                f"on {file_system(folder)}",
            ),
        )


if __name__ == "__main__":
    main()
