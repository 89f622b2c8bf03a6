"""An archive of the classes that Spark loads: a JVM with it starts in half of the time.

Most of what a short test in Spark does is to load classes, which each JVM reads and checks anew.
Java maps them from an archive instead (application class-data sharing) that a JVM has written when
it ended. Where there is none, or another Java or other jars are used, Java goes on without.
"""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tests.support.light_java import LIGHT
from tests.support.spark import local_spark

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ARCHIVE: Final = Path(sys.prefix) / "spark-classes.jsa"
# an archive that does not fit is told on the standard output, where tests look for other lines
_QUIET: Final = "-Xlog:cds*=off"
_ROCKSDB: Final = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"


def spark_java_options() -> str:
    """What the JVMs of Spark are started with in tests."""
    archive = (f"-XX:SharedArchiveFile={ARCHIVE}", _QUIET) if ARCHIVE.exists() else ()
    return " ".join((*LIGHT, *archive))


def make_archive() -> None:
    """Run in a Spark what many tests run, and have its JVM write what it has loaded."""
    draft = ARCHIVE.with_suffix(f".{os.getpid()}")
    writing = (*LIGHT, f"-XX:ArchiveClassesAtExit={draft}", _QUIET)
    os.environ["SPARK_SUBMIT_OPTS"] = " ".join(writing)
    with tempfile.TemporaryDirectory(prefix="seamark-") as scratch:
        with local_spark(Path(scratch) / "warehouse", log_level="OFF") as session:
            _run_queries(session, Path(scratch))
        draft.replace(ARCHIVE)


def _run_queries(session: SparkSession, scratch: Path) -> None:
    from pyspark.sql import functions as f

    rows = session.range(100).select(
        "id", f.col("id").cast("string").alias("name"), f.timestamp_seconds("id").alias("at")
    )
    for kind in ("json", "csv", "orc", "parquet"):
        rows.write.format(kind).save(str(scratch / kind))
        session.read.schema(rows.schema).format(kind).load(str(scratch / kind)).toArrow()
    _run_pipeline(session, scratch / "memory", scratch / "parquet")
    session.conf.set("spark.sql.streaming.stateStore.providerClass", _ROCKSDB)
    _run_pipeline(session, scratch / "rocksdb", scratch / "parquet")


def _run_pipeline(session: SparkSession, folder: Path, source: Path) -> None:
    from pyspark.sql import functions as f

    import seamark
    from seamark.sinks import FileSink

    pipeline = seamark.Pipeline("classes", store=folder / "store")
    read = session.readStream.schema("id LONG, name STRING, at TIMESTAMP")
    rows = pipeline.source("rows", read.parquet(str(source))).withWatermark("at", "1 second")
    counts = rows.groupBy(f.window("at", "10 seconds"), "name").count()
    pipeline.sink("counts", counts, FileSink(folder / "counts"))
    pipeline.sink("once", rows.dropDuplicatesWithinWatermark(["name"]), FileSink(folder / "once"))
    pipeline.run()


if __name__ == "__main__":
    make_archive()
