"""The driver of a pipeline whose working copy is on HDFS, and whose store is on S3.

``python -m tests.integration.support.cluster_driver MASTER BASE STORE WORKING_COPY PROVIDER
[POINT …]`` waits at these points for the test. Credentials come from the environment.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

import seamark
from seamark.capture.executors import ExecutorMover
from seamark.pipeline import run_builder
from seamark.pipeline.declaration.settings import OnStep
from seamark.pipeline.run import Run
from seamark.sinks import FileSink
from tests.pipeline.support.driver import session, write_document
from tests.pipeline.support.pauses import pausing_at
from tests.pipeline.support.workloads import PROVIDERS

_STATE = "spark.sql.streaming.stateStore"
# so that snapshots appear, and are stored in the background, within a few epochs
_SNAPSHOTS = {f"{_STATE}.minDeltasForSnapshot": "2", f"{_STATE}.maintenanceInterval": "1s"}


def main(master: str, base: Path, store: str, working_copy: str, provider: str, *at: str) -> None:
    (base / "events").mkdir(exist_ok=True)
    events = {
        "spark.eventLog.enabled": "true",
        "spark.eventLog.rolling.enabled": "false",
        "spark.eventLog.compress": "false",
        "spark.eventLog.dir": (base / "events").as_uri(),
    }
    spark = session(master, {**PROVIDERS[provider], **_SNAPSHOTS, **events})
    setattr(run_builder, "_LOOK_FAR_EVERY", 1.0)  # noqa: B010
    jvm: Any = spark.sparkContext._jvm
    process = int(jvm.java.lang.ProcessHandle.current().pid())
    (base / "jvm").write_text(str(process))
    pause = pausing_at(base, at)

    def hook(step: Any, when: Any, epoch: int) -> None:
        write_document(base / "hdfs.json", _bytes_on_hdfs(jvm))
        pause(step, when, epoch)

    run = declare(spark, base, store, working_copy, hook).run()
    write_document(base / "result.json", _result(run))
    spark.stop()


def declare(
    spark: SparkSession, base: Path, store: str, working_copy: str, hook: OnStep
) -> seamark.Pipeline:
    """Count by window, and let each id pass once; the state of the latter holds 1 KiB an id."""
    # the driver reads what is checked for damage, once a day, and a run can meet that moment
    pipeline = seamark.Pipeline(
        "far", store, working_copy=working_copy, on_step=hook, scrub_every=None
    )
    reader = spark.readStream.schema("id int, k int, t timestamp")
    trades = pipeline.source(
        "trades", reader.option("maxFilesPerTrigger", 1).json(str(base / "in"))
    )
    by_window = trades.withWatermark("t", "1 second").groupBy(f.window("t", "10 seconds"), "k")
    sums = by_window.count().select(f.unix_timestamp("window.start").alias("w"), "k", "count")
    pipeline.sink("sums", sums, FileSink(base / "sums"))
    pipeline.sink("distinct", _distinct(trades), FileSink(base / "distinct"))
    return pipeline


def _distinct(trades: DataFrame) -> DataFrame:
    hashes = [f.sha2(f.concat_ws("/", "id", f.lit(number)), 512) for number in range(8)]
    long = trades.withColumn("long", f.concat(*hashes))
    return long.dropDuplicates(["id", "long"]).select("id", "k")


def _bytes_on_hdfs(jvm: Any) -> dict[str, int]:
    """What this JVM has read from HDFS and written to it until now."""
    # Spark's own logs are written by way of a FileContext, which counts for itself
    counts = [
        *jvm.org.apache.hadoop.fs.FileSystem.getAllStatistics(),
        *jvm.org.apache.hadoop.fs.FileContext.getAllStatistics().values(),
    ]
    there = [one for one in counts if one.getScheme() == "hdfs"]
    return {
        "read": sum(int(one.getBytesRead()) for one in there),
        "written": sum(int(one.getBytesWritten()) for one in there),
    }


def _result(run: Run) -> dict[str, Any]:
    mover = run._coordinator._capture._mover
    assert isinstance(mover, ExecutorMover)
    return {
        "driver": os.getpid(),
        "read_by": sorted(mover.read_by),
        "fell_back": not mover._is_possible,
        "epoch": run.epoch,
        "working_copy": run.report.working_copy,
    }


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), *sys.argv[3:])
