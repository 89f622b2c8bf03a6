"""What an epoch costs, against the same query written by hand with foreachBatch and df.write.

Three variants of one stateful query, on the same rows and in the same format, run in turns: each
for a block of epochs, then the next, so that a noisy neighbour hits all of them. The first epochs
of a block warm up and do not count. An epoch's time is Spark's own ``triggerExecution``, so it
covers what Spark writes before and after.
"""

from __future__ import annotations

import shutil
import statistics
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

import seamark
from harness import Row, options, scratch, show
from seamark.pipeline.run import Run
from seamark.sinks import FileSink
from seamark.spark.session import FILE_MANAGER, fast_file_manager
from tests.pipeline.support.driver import session

ROWS: Final = 2000
KEYS: Final = 1500
WARM_UP: Final = 4
PROTOCOL: Final = ("begin", "capture", "save", "commit", "record")


def trades(spark: SparkSession) -> DataFrame:
    """The same rows in every run: a batch of them an epoch."""
    return (
        spark.readStream.format("rate-micro-batch")
        .option("rowsPerBatch", ROWS)
        .option("numPartitions", 2)
        .load()
    )


def totals(rows: DataFrame) -> DataFrame:
    """A stateful aggregation that shows every key that has changed."""
    key = (f.col("value") * 7919 % KEYS).alias("k")
    return rows.groupBy(key).agg(f.count("*").alias("n"), f.sum("value").alias("s"))


Stop = Callable[[], None]
Block = Callable[[int], list[float]]


def durations(query: Any, epochs: int, stop: Stop) -> list[float]:
    """Milliseconds of that many epochs of a running query, which is then stopped."""
    seen: dict[int, float] = {}
    while len(seen) < epochs + WARM_UP:
        for progress in query.recentProgress:
            took = progress.durationMs.get("triggerExecution")
            if took is not None and progress.numInputRows:
                seen[progress.batchId] = float(took)
        if not query.isActive:
            raise RuntimeError(f"the query ended: {query.exception()}")
        threading.Event().wait(0.05)
    stop()
    return [seen[batch] for batch in sorted(seen)][WARM_UP : WARM_UP + epochs]


def by_hand(spark: SparkSession, folder: Path, *, fast: bool) -> Block:
    """What a careful user writes without Seamark."""

    def write(batch: DataFrame, _: int) -> None:
        batch.write.mode("append").parquet(str(folder / "out"))

    def block(epochs: int) -> list[float]:
        if fast:
            spark.conf.set(FILE_MANAGER, fast_file_manager(spark))
        try:
            query = (
                totals(trades(spark))
                .writeStream.outputMode("update")
                .option("checkpointLocation", str(folder / "checkpoint"))
                .foreachBatch(write)
                .start()
            )
        finally:
            spark.conf.unset(FILE_MANAGER)
        return durations(query, epochs, query.stop)

    return block


class WithSeamark:
    """The same as a pipeline, and what its steps took."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self._spark = spark
        self._folder = folder
        self.phases: dict[str, list[float]] = {}
        self.starts: list[float] = []

    def __call__(self, epochs: int) -> list[float]:
        pipeline = seamark.Pipeline("bench", self._folder / "store", output_mode="update")
        rows = pipeline.source("trades", trades(self._spark))
        pipeline.sink("totals", totals(rows), FileSink(self._folder / "out"))
        run = pipeline.start()
        if not run.report.fresh_start:
            self.starts.append(run.report.seconds)
        took = durations(run.query, epochs, run.stop)
        self._note(run)
        return took

    def _note(self, run: Run) -> None:
        for phase, share in run.percentiles().items():
            self.phases.setdefault(phase, []).append(share.p50 * 1000)

    def median(self, *names: str) -> float:
        """Milliseconds of some phases together: the sum of their medians."""
        return sum(statistics.median(self.phases[name]) for name in names)


def compare(spark: SparkSession, folder: Path, partitions: int, *, quick: bool) -> list[Row]:
    """Run the variants in turns, and compare their medians."""
    spark.conf.set("spark.sql.shuffle.partitions", partitions)
    ours = WithSeamark(spark, folder / "seamark")
    variants: dict[str, Block] = {
        "stock": by_hand(spark, folder / "stock", fast=False),
        "fast": by_hand(spark, folder / "fast", fast=True),
        "seamark": ours,
    }
    took: dict[str, list[float]] = {name: [] for name in variants}
    for _ in range(2 if quick else 4):
        for name, block in variants.items():
            took[name] += block(6 if quick else 16)
    median = {name: statistics.median(values) for name, values in took.items()}
    epochs = len(took["seamark"])
    print(f"{partitions} partitions, {epochs} epochs each, median ms: {median}")
    print(f"  steps of ours, median ms: { {n: round(ours.median(n), 2) for n in ours.phases} }")
    stock = median["seamark"] / median["stock"]
    fast = median["seamark"] / median["fast"]
    name = f"{partitions} partitions: epoch on the fast file manager"
    few = partitions == 4
    return [
        Row(name, "by hand, stock file manager", stock, 0.8 if few else 0.35),
        Row(name, "by hand, fast file manager", fast, 1.08 if few else None),
        Row(
            f"{partitions} partitions: capture, save, commit, record",
            "-",
            ours.median(*PROTOCOL),
            8.0 if few else 15.0,
            " ms",
        ),
        Row(f"{partitions} partitions: sink's fsyncs", "-", ours.median("prepare"), None, " ms"),
        Row(
            f"{partitions} partitions: start with an intact working copy",
            "-",
            statistics.median(ours.starts),
            2.0,
            " s",
            strict=True,
        ),
    ]


def main() -> None:
    """Measure with few and with many state partitions."""
    given = options(__doc__)
    spark = session()
    with scratch(given.directory) as folder:
        rows = []
        for partitions in (4, 200):
            rows += compare(spark, folder / str(partitions), partitions, quick=given.quick)
            shutil.rmtree(folder / str(partitions), ignore_errors=True)
        show("An epoch", rows)
    spark.stop()


if __name__ == "__main__":
    main()
