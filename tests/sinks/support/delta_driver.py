"""A driver process that writes Delta tables, and dies or hangs inside a commit.

``python -m tests.sinks.support.delta_driver BASE [kill|stop before|after EPOCH]``: runs all that is
in ``BASE/in``. Before or after the entry of the log is written, it is killed, or it stops itself
and its JVM until it is continued and ``BASE/resumed`` exists.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.sql import SparkSession
from pyspark.sql import functions as f

import seamark
from seamark.errors import SeamarkError
from seamark.sinks import DeltaSink, Receipt
from seamark.sinks.delta.committable import FileList
from tests.pipeline.support.driver import session

if TYPE_CHECKING:
    from deltalake import DeltaTable

Point = tuple[str, str, int]


class Interrupted(DeltaSink):
    """Does something else before or after it writes its entry."""

    base: Path
    spark: SparkSession
    point: Point | None = None

    def _write_entry(self, table: DeltaTable, receipt: Receipt, added: FileList) -> None:
        self._maybe("before", receipt.epoch)
        super()._write_entry(table, receipt, added)
        self._maybe("after", receipt.epoch)

    def _maybe(self, when: str, epoch: int) -> None:
        if self.point is None or self.point[1:] != (when, epoch):
            return
        if self.point[0] == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        jvm: Any = self.spark.sparkContext._jvm
        jvm_pid = int(jvm.java.lang.ProcessHandle.current().pid())
        (self.base / "stopping").write_text(f"{os.getpid()} {jvm_pid}")
        (self.base / "stopping").rename(self.base / "stopped")
        os.kill(jvm_pid, signal.SIGSTOP)
        os.kill(os.getpid(), signal.SIGSTOP)
        while not (self.base / "resumed").exists():  # the signal may take another thread first
            time.sleep(0.05)


def run(spark: SparkSession, base: Path, point: Point | None = None) -> Any:
    """Take everything in ``BASE/in`` to two tables: all rows, and the newest of each key."""
    made = seamark.Pipeline("delta", base / "store", output_mode="update")
    reader = spark.readStream.schema("k int, v int, t timestamp").option("maxFilesPerTrigger", 1)
    rows = made.source("rows", reader.json(str(base / "in")))
    newest = rows.groupBy("k").agg(f.max("v").alias("v"), f.count("*").alias("rows"))
    everything = Interrupted(base / "all", partition_by="k")
    everything.base, everything.spark, everything.point = base, spark, point
    made.sink("all", rows.select("k", "v", "t"), everything)
    made.sink("newest", newest, DeltaSink(base / "newest", mode="upsert", keys="k"))
    return made.run(available_now=True)


def main(base: Path, *point: str) -> int:
    spark = session()
    try:
        run(spark, base, (point[0], point[1], int(point[2])) if point else None)
    except SeamarkError as error:
        print(f"{type(error).__name__}: {error}", flush=True)  # noqa: T201
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), *sys.argv[2:]))
