"""An epoch's cost against the size of the state, in a real pipeline.

A keyed aggregation is filled with state once. Then every epoch changes the same number of bytes:
1 % of the state, and for smaller states the same absolute amount. What counts is the time of the
steps capture and save of every epoch after the first one, how much the driver's Python grows, and
how many bytes were ever stored as shared objects, against the files of Spark that any checkpoint
has named.
"""

from __future__ import annotations

import os
import statistics
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

import seamark
from harness import Row, options, scratch, show
from seamark.capture.checkpoint_contents import Chain
from seamark.pipeline.declaration.settings import Step
from seamark.sinks import FileSink

PAYLOAD: Final = 1024
PARTITIONS: Final = 16
MIB: Final = 1 << 20
_STATE: Final = "spark.sql.streaming.stateStore"
_PROVIDERS: Final = "org.apache.spark.sql.execution.streaming.state"


@dataclass(frozen=True)
class Measured:
    """What one run has shown."""

    epochs: list[float]
    """Seconds of capture and save."""
    growth: int
    """Bytes by which the driver's Python grew after the first epoch."""
    stored: int
    """Bytes of all objects that were seen in the store."""
    named: int
    """Bytes of all files that a checkpoint has named."""

    @property
    def median(self) -> float:
        """Of the epochs after the first."""
        return statistics.median(self.epochs[1:])

    @property
    def slowest(self) -> float:
        """Of the epochs after the first."""
        return max(self.epochs[1:])


def session() -> Any:
    """A local Spark whose maintenance makes snapshots often."""
    from pyspark.sql import SparkSession

    spark = (
        SparkSession.builder.master("local[2]")
        .config("spark.driver.memory", "10g")
        .config("spark.ui.enabled", "false")
        .config("spark.sql.shuffle.partitions", PARTITIONS)
        .config(f"{_STATE}.maintenanceInterval", "10s")
        .config(f"{_STATE}.minDeltasForSnapshot", "5")
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("OFF")  # maintenance complains about folders that are gone
    return spark


_ROCKSDB: Final = {
    f"{_STATE}.providerClass": f"{_PROVIDERS}.RocksDBStateStoreProvider",
    f"{_STATE}.rocksdb.changelogCheckpointing.enabled": "true",
}
_HDFS_BACKED: Final = {
    f"{_STATE}.providerClass": f"{_PROVIDERS}.HDFSBackedStateStoreProvider",
    f"{_STATE}.maxVersionsToRetainInMemory": "1",
}


def write_rows(path: Path, first: int, count: int) -> None:
    """Rows with payloads that do not compress, in pieces."""
    schema = pa.schema([("k", pa.int64()), ("payload", pa.binary())])
    part = path.with_suffix(".part")
    with pq.ParquetWriter(part, schema, compression="none") as writer:
        for start in range(first, first + count, 64 << 10):
            keys = range(start, min(start + (64 << 10), first + count))
            noise = os.urandom(len(keys) * PAYLOAD)
            payloads = [noise[n * PAYLOAD : (n + 1) * PAYLOAD] for n in range(len(keys))]
            writer.write_table(pa.table({"k": keys, "payload": payloads}, schema=schema))
    part.rename(path)


def memory() -> int:
    """Bytes of this process that are in memory now."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


class Watch:
    """Notes what each epoch has cost."""

    def __init__(self, store: Path) -> None:
        self._store = store
        self._started = 0.0
        self.times: list[float] = []
        self.sizes: list[int] = []
        self.objects: dict[str, int] = {}
        self.files: dict[tuple[str, bytes], int] = {}

    def on_step(self, step: Step, when: str, _: int) -> None:
        """Called by the pipeline."""
        if (step, when) == (Step.CAPTURE, "before"):
            self._started = time.perf_counter()
        elif (step, when) == (Step.SAVE, "after"):
            self.times.append(time.perf_counter() - self._started)
            self.sizes.append(memory())
            self._look()

    def _look(self) -> None:
        with seamark.open_store(self._store) as store:
            for key, entry in store.shared_objects.entries().items():
                self.objects[key] = entry.size
            newest = store.load_latest()
            index = Chain.load(store, newest).index if newest is not None else None
            for path, file in (index.files if index is not None else {}).items():
                self.files[path, file.sha256] = file.size


def measured(spark: Any, folder: Path, size: int, changed: int, epochs: int) -> Measured:
    """Run the pipeline over one file of all keys, then small ones."""
    from pyspark.sql import functions as F

    (folder / "in").mkdir(parents=True)
    keys, some = size // PAYLOAD, changed // PAYLOAD
    write_rows(folder / "in" / "00000.parquet", 0, keys)
    for number in range(1, epochs + 1):
        first = (number * some) % max(keys - some, 1)
        write_rows(folder / "in" / f"{number:05}.parquet", first, some)
    rows = (
        spark.readStream.schema("k bigint, payload binary")
        .option("maxFilesPerTrigger", 1)
        .parquet(str(folder / "in"))
    )
    watch = Watch(folder / "store")
    pipeline = seamark.Pipeline(
        "growth",
        store=folder / "store",
        working_copy=folder / "copy",
        output_mode="update",
        on_step=watch.on_step,
        keep=2,
    )
    last = pipeline.source("rows", rows).groupBy("k").agg(F.last("payload").alias("payload"))
    counted = last.select("k", F.length("payload").alias("n"))
    pipeline.sink("out", counted, FileSink(folder / "out"))
    pipeline.run()
    sizes = watch.sizes
    stored, named = sum(watch.objects.values()), sum(watch.files.values())
    return Measured(watch.times, max(sizes[1:]) - sizes[0], stored, named)


def main() -> None:
    """Measure several sizes with the same change, and the other kind of state at one size."""
    given = options(__doc__)
    sizes = [64, 256] if given.quick else [64, 512, 4096]
    other = 64 if given.quick else 1024
    epochs = 12 if given.quick else 60
    spark = session()
    changed = max(sizes) * MIB // 100
    plan = [(f"RocksDB, {mib} MiB", _ROCKSDB, mib, changed) for mib in sizes]
    plan.append((f"HDFS-backed, {other} MiB", _HDFS_BACKED, other, other * MIB // 100))
    results: dict[str, Measured] = {}
    for what, settings, mib, change in plan:
        for name, value in settings.items():
            spark.conf.set(name, value)
        with scratch(given.directory) as folder:
            results[what] = measured(spark, folder, mib * MIB, change, epochs)
        result = results[what]
        print(
            f"{what}: median {result.median * 1000:.0f} ms, slowest {result.slowest * 1000:.0f} ms,"
            f" stored {result.stored // MIB} MiB, named {result.named // MIB} MiB: "
            + " ".join(f"{each * 1000:.0f}" for each in result.epochs),
            file=sys.stderr,
        )
    first = plan[0][0]
    rows = []
    for what, result in results.items():
        rows.append(Row(f"{what}: slowest epoch", "median", result.slowest / result.median, 3))
        if what.startswith("RocksDB"):
            ratio = result.median / results[first].median
            rows.append(Row(f"{what}: median", first, ratio, 1.5))
        rows += [
            Row(f"{what}: Python grows by", "first epoch", result.growth / MIB, 200, unit="MiB"),
            Row(f"{what}: stored", "files that are named", result.stored / result.named, 1.1),
        ]
    show("State that grows", rows, (f"{epochs} epochs; {changed // MIB} MiB change in each",))


if __name__ == "__main__":
    main()
