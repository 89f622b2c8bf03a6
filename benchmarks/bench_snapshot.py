"""Snapshots of a native checkpoint directory against ``cp`` and ``sha256sum`` side by side.

The directory has one aggregation whose state is RocksDB's: SST files of 4 MiB in 64 partitions. The
baseline copies every file with ``cp -r`` and hashes it with ``sha256sum`` at the same time, without
making anything durable.
"""

from __future__ import annotations

import io
import json
import os
import shutil
import subprocess
import zipfile
from pathlib import Path
from typing import Final

from harness import Row, file_system, in_milliseconds, interleaved, options, ratio, scratch, show
from seamark import open_store
from seamark.checkpoint_dir.places.local import LocalCopy, LocalDirectory
from seamark.native.snapshot import take_snapshot

PARTITIONS: Final = 64
SST: Final = 4 << 20


def make_directory(root: Path, size: int) -> LocalCopy:
    """What RocksDB leaves after one batch, as far as it is read."""
    copy = LocalCopy(root)
    conf = {"spark.sql.shuffle.partitions": str(PARTITIONS)}
    copy.write("metadata", b'{"id":"benchmark"}')
    info = {
        "operatorInfo": {"operatorId": 0, "operatorName": "stateStoreSave"},
        "stateStoreInfo": [{"storeName": "default", "numPartitions": PARTITIONS}],
    }
    copy.write("state/0/_metadata/metadata", f"v1\n{json.dumps(info)}".encode())
    files = max(size // SST // PARTITIONS, 1)
    for partition in range(PARTITIONS):
        names = [f"{number:06}-{partition}.sst" for number in range(files)]
        for name in names:
            copy.write(f"state/0/{partition}/SSTs/{name}", os.urandom(SST))
        copy.write(f"state/0/{partition}/1.zip", zipped(names))
    add_batch(copy, 0, conf)
    return copy


def zipped(names: list[str]) -> bytes:
    """A snapshot that refers to SST files."""
    ssts = [{"localFileName": n, "dfsSstFileName": n, "sizeBytes": SST} for n in names]
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w") as archive:
        archive.writestr("metadata", "v1\n" + json.dumps({"sstFiles": ssts}))
    return made.getvalue()


def add_batch(copy: LocalCopy, batch: int, conf: dict[str, str]) -> None:
    """Offsets and commit of one batch."""
    meta = {"batchWatermarkMs": 0, "batchTimestampMs": batch, "conf": conf}
    copy.write(f"offsets/{batch}", f"v1\n{json.dumps(meta)}\n{batch}".encode())
    copy.write(f"commits/{batch}", b'v1\n{"nextBatchWatermarkMs":0}')


def add_change(copy: LocalCopy, batch: int) -> None:
    """One batch more, which changed 4 KiB in every partition."""
    for partition in range(PARTITIONS):
        copy.write(f"state/0/{partition}/{batch + 1}.changelog", os.urandom(4096))
    add_batch(copy, batch, {"spark.sql.shuffle.partitions": str(PARTITIONS)})


def main() -> None:
    """Measure and show."""
    asked = options(__doc__)
    size = (256 << 20) if asked.quick else (1 << 30)
    with scratch(asked.directory) as folder:
        copy = make_directory(folder / "checkpoint", size)
        directory = LocalDirectory(copy.root)

        def baseline() -> None:
            with_hash = f"find '{copy.root}' -type f -print0 | xargs -0 sha256sum > /dev/null"
            hashing = subprocess.Popen(["sh", "-c", with_hash])
            subprocess.run(["cp", "-r", copy.root, folder / "copied"], check=True)
            assert hashing.wait() == 0

        def snapshot() -> None:
            with open_store(folder / "store") as store:
                take_snapshot(directory, store, full=True)

        def cleaned(run: object, name: str) -> float:
            import time

            started = time.perf_counter()
            run()  # type: ignore[operator]
            took = time.perf_counter() - started
            shutil.rmtree(folder / name)
            return took

        cases = {
            "cp and sha256sum": lambda: cleaned(baseline, "copied"),
            "snapshot": lambda: cleaned(snapshot, "store"),
        }
        times = interleaved(cases, 3 if asked.quick else 7)
        faster = 1 / ratio(times["snapshot"], times["cp and sha256sum"])

        with open_store(folder / "store") as store:
            take_snapshot(directory, store)
        increments: list[float] = []
        held: list[int] = []
        for batch in range(1, 8):
            add_change(copy, batch)
            with open_store(folder / "store") as store:
                taken = take_snapshot(directory, store)
            assert not taken.is_full
            increments.append(taken.seconds)
            held.append(taken.size)
        one = times["snapshot"]
        show(
            f"Snapshots of {size >> 20} MiB in {PARTITIONS} partitions on {file_system(folder)}",
            [
                # the limit is a speed: at least 0.8 times as fast
                Row(
                    "full: time for the same bytes",
                    f"cp and sha256sum ({in_milliseconds(times['cp and sha256sum'])})",
                    1 / faster,
                    1 / 0.8,
                ),
                Row(
                    "incremental, 4 KiB a partition",
                    f"the full one ({in_milliseconds(one)})",
                    ratio(increments, one[:1] * len(increments)),
                ),
                Row(
                    "bytes of an incremental one",
                    f"new state {PARTITIONS * 4096 >> 10} KiB",
                    max(held) / (PARTITIONS * 4096),
                ),
            ],
            (f"Speed of the full one: {faster:.2f} of the baseline's (wanted: 0.8).",),
        )


if __name__ == "__main__":
    main()
