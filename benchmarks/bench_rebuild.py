"""Making a working copy again from a local store, against a verified copy of the same bytes.

The baseline reads every file of a directory, compares its SHA-256 with a known one and writes it
to another directory; neither it nor a rebuild calls fsync, as a working copy can always be made
again.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from pathlib import Path
from typing import Final

from harness import Row, file_system, in_milliseconds, interleaved, options, ratio, scratch, show
from seamark import CheckpointManifest, open_store
from seamark.capture.capture import Capture
from seamark.capture.checkpoint_contents import Chain, Sizes, chain_of, place
from seamark.capture.restore import difference, restore
from seamark.checkpoint_dir.places.local import WorkingCopy

PARTITIONS: Final = 64


def make_copy(root: Path, size: int) -> WorkingCopy:
    """What Spark leaves after one batch of a query with that much state, as far as we read it."""
    copy = WorkingCopy(root)
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


def verified_copy(source: WorkingCopy, known: dict[str, bytes], target: Path) -> None:
    """The baseline."""
    for path, digest in known.items():
        data = source.read(path)
        if hashlib.sha256(data).digest() != digest:
            raise RuntimeError(f"{path} differs")
        place_at = target / path
        place_at.parent.mkdir(parents=True, exist_ok=True)
        place_at.write_bytes(data)


def main() -> None:
    """Measure a rebuild, and the comparison of a copy that is kept."""
    given = options(__doc__)
    size = (64 if given.quick else 1024) << 20
    with scratch(given.directory) as folder:
        source = make_copy(folder / "working", size)
        store = open_store(folder / "store")
        captured = Capture(source).take(0, 'v1\n{"nextBatchWatermarkMs":0}', full=True)
        placed = place(captured, Sizes(), store.partitioned_state, 1)
        saved = store.save_with_state(
            CheckpointManifest.new(
                1,
                epoch=1,
                operator_states=placed.operator_states,
                table_store_checkpoint_path=placed.state_checkpoint,
            ),
            placed.chunks or None,
        )
        target = folder / "target"

        def baseline() -> None:
            shutil.rmtree(target, ignore_errors=True)
            verified_copy(source, placed.digests | {}, target)

        def rebuild() -> None:
            shutil.rmtree(target, ignore_errors=True)
            restore(WorkingCopy(target), Chain(chain_of(store, saved)).read(store), 0)

        def keep() -> None:
            chain = Chain(chain_of(store, saved))
            for _ in chain.read(store):
                pass
            if why := difference(source, chain.digests, 0):
                raise RuntimeError(why)

        source.write("commits/0", b'v1\n{"nextBatchWatermarkMs":0}')
        rounds = 3 if given.quick else 5
        times = interleaved({"copy": baseline, "rebuild": rebuild, "keep": keep}, rounds)
        what = f"{size >> 20} MiB in {PARTITIONS} partitions"
        show(
            "A working copy",
            [
                Row(f"rebuild {what}", "verified copy", ratio(times["rebuild"], times["copy"]), 2),
                Row(
                    f"verify and keep {what}", "verified copy", ratio(times["keep"], times["copy"])
                ),
            ],
            (
                f"verified copy {in_milliseconds(times['copy'])}, rebuild "
                f"{in_milliseconds(times['rebuild'])}, keep {in_milliseconds(times['keep'])}, "
                f"on {file_system(folder)}",
            ),
        )


if __name__ == "__main__":
    main()
