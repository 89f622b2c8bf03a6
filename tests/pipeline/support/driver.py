"""A driver process for tests that need two of them, or one that is stopped in the middle.

``python -m tests.pipeline.support.driver BASE [STEP WHEN EPOCH]``: runs all that is in
``BASE/in``. At the given point it stops itself and its JVM, as a machine that hangs would, and
goes on when it is continued and ``BASE/resumed`` exists. With ``forever EPOCH`` instead it runs
until it has to stop, and waits in that epoch for a signal; with ``until-killed EPOCH`` it never
leaves that epoch. ``BASE/signalled`` appears when it has seen the first signal.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql import functions as f

import seamark
from seamark.errors import SeamarkError
from seamark.pipeline.declaration.settings import OnStep
from seamark.sinks import FileSink
from seamark.spark.java import use_java
from tests.support.spark_classes import spark_java_options


def session(master: str = "local[2]", settings: Mapping[str, str] | None = None) -> SparkSession:
    use_java()
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)  # Spark's own choice is 'python3'
    spark = (
        SparkSession.builder.master(master)
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.executor.memory", "512m")
        .config("spark.executor.extraJavaOptions", spark_java_options())
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.sql.shuffle.partitions", "2")
        .config(map=dict(settings or {}))
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("ERROR")
    return spark


def write_document(path: Path, document: Mapping[str, Any]) -> None:
    """Leave a document for the test, whole when it can be seen."""
    draft = path.with_suffix(".draft")
    draft.write_text(json.dumps(document))
    draft.rename(path)


def declare(made: seamark.Pipeline, spark: SparkSession, base: Path) -> seamark.Pipeline:
    """Counts by window and key beside all rows, of the files in ``BASE/in``."""
    trades = made.source(
        "trades",
        spark.readStream.schema("k int, v int, t timestamp")
        .option("maxFilesPerTrigger", 1)
        .json(str(base / "in")),
    )
    sums = trades.withWatermark("t", "1 second").groupBy(f.window("t", "10 seconds"), "k").count()
    made.sink("sums", sums.select("k", "count"), FileSink(base / "sums"))
    made.sink("all", trades.select("k", "v"), FileSink(base / "all"))
    return made


def stop_at(spark: SparkSession, base: Path, point: tuple[str, str, int]) -> OnStep:
    def hook(step: Any, when: str, epoch: int) -> None:
        if (step.value, when, epoch) == point and not (base / "stopped").exists():
            hang(spark, base)

    return hook


def hang(spark: SparkSession, base: Path) -> None:
    """Stop this process and its JVM, until it is continued and ``BASE/resumed`` exists."""
    jvm: Any = spark.sparkContext._jvm
    jvm_pid = int(jvm.java.lang.ProcessHandle.current().pid())
    (base / "stopping").write_text(f"{os.getpid()} {jvm_pid}")
    (base / "stopping").rename(base / "stopped")  # whole, when it can be seen
    os.kill(jvm_pid, signal.SIGSTOP)
    os.kill(os.getpid(), signal.SIGSTOP)
    while not (base / "resumed").exists():  # the signal may take another thread first
        time.sleep(0.05)


def dawdle_in(base: Path, slow: int, *, until_killed: bool) -> OnStep:
    def hook(step: Any, when: str, epoch: int) -> None:
        if (step.value, when, epoch) == ("prepare", "before", slow):
            (base / "dawdling").touch()
            while signal.getsignal(signal.SIGTERM) != signal.SIG_DFL:  # the first signal resets it
                time.sleep(0.05)
            (base / "signalled").touch()
            while until_killed:
                time.sleep(1)
            time.sleep(5)  # the run looks for signals ten times a second

    return hook


def main(base: Path, *point: str) -> int:
    spark = session()
    forever = point[:1] in (("forever",), ("until-killed",))
    hook: OnStep | None = None
    if forever:
        hook = dawdle_in(base, int(point[1]), until_killed=point[0] == "until-killed")
    elif point:
        hook = stop_at(spark, base, (point[0], point[1], int(point[2])))
    try:
        made = seamark.Pipeline("two-drivers", base / "store", on_step=hook)
        declare(made, spark, base).run(available_now=not forever)
    except SeamarkError as error:
        print(f"{type(error).__name__}: {error.what}", flush=True)  # noqa: T201
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), *sys.argv[2:]))
