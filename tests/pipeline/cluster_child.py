"""The driver of the cluster test: a stateful pipeline whose executors are other processes."""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path

from pyspark.sql import SparkSession
from pyspark.sql import functions as f

import seamark
from seamark.pipeline.settings import Step
from seamark.sinks import FileSink
from seamark.spark.java import use_java
from seamark.spark.readers import ExecutorReader


def main(master: str, base: Path, pause_before: int) -> None:
    use_java()
    spark = (
        SparkSession.builder.master(master)
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.sql.shuffle.partitions", "4")
        .config("spark.executor.memory", "512m")
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("ERROR")

    def wait_for_the_test(step: Step, when: str, epoch: int) -> None:
        if (step, when, epoch) == (Step.WRITE, "before", pause_before):
            (base / "paused").touch()
            while not (base / "go").exists():
                time.sleep(0.1)

    pipeline = seamark.Pipeline(
        "cluster",
        store=base / "store",
        working_copy=base / "shared",
        on_step=wait_for_the_test,
    )
    trades = pipeline.source(
        "trades",
        spark.readStream.schema("k int, v int, t timestamp")
        .option("maxFilesPerTrigger", 1)
        .json(str(base / "in")),
    )
    sums = trades.withWatermark("t", "1 second").groupBy(f.window("t", "10 seconds"), "k").count()
    pipeline.sink("sums", sums.select("k", "count"), FileSink(base / "sums"))
    pipeline.sink("all", trades.select("k", "v"), FileSink(base / "all"))
    run = pipeline.run()
    reader = run._coordinator._capture._reader
    assert isinstance(reader, ExecutorReader)
    (base / "result.json").write_text(
        json.dumps(
            {
                "driver": os.getpid(),
                "read_by": sorted(reader.read_by),
                "fell_back": reader._fallback is not None,
                "epoch": run.epoch,
            }
        )
    )
    spark.stop()


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]))
