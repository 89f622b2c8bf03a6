"""What it costs to count and digest the rows of every output, against the same pipeline without.

Each round runs whole pipelines: rows of Parquet files, one file an epoch, into a FileSink. Measured
is the median of the epochs of a run, with ``digests=True`` as a multiple of ``digests=False``.
"""

from __future__ import annotations

import itertools
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from harness import Row, in_milliseconds, interleaved, options, ratio, scratch, show
from seamark import Pipeline
from seamark.sinks import FileSink
from sink_rows import trades
from tests.pipeline.support.driver import session

LIMIT: Final = 1.03
ROWS: Final = 500_000
QUICK_ROWS: Final = 50_000
SMALL_ROWS: Final = 2_000
FILES: Final = 6

Outputs = Callable[[DataFrame], dict[str, DataFrame]]


def one(rows: DataFrame) -> dict[str, DataFrame]:
    """All rows, as they are."""
    return {"all": rows}


def two(rows: DataFrame) -> dict[str, DataFrame]:
    """All rows, and a part of them again: the batch is persisted."""
    return {"all": rows, "some": rows.where("volume % 3 = 0")}


def aggregated(rows: DataFrame) -> dict[str, DataFrame]:
    """Windows with state."""
    marked = rows.withWatermark("at", "10 seconds")
    windows = marked.groupBy(f.window("at", "1 second"), "symbol")
    return {"bars": windows.agg(f.sum("volume").alias("volume"), f.count("*").alias("n"))}


def put_files(spark: SparkSession, folder: Path, rows: int) -> Path:
    """The input: as many files as epochs, with other rows in each."""
    for number in range(FILES):
        later = f.expr(f"at + INTERVAL {number * rows} MILLISECONDS")
        made = trades(spark, rows).withColumn("at", later)
        made.coalesce(1).write.mode("append").parquet(str(folder))
        spark.catalog.clearCache()
    return folder


def pipeline(
    spark: SparkSession, folder: Path, source: Path, outputs: Outputs, *, digests: bool
) -> Callable[[], float]:
    """Run all epochs, each time into new folders; the median of an epoch."""
    numbers = itertools.count()
    schema = spark.read.parquet(str(source)).schema

    def run() -> float:
        root = folder / f"{outputs.__name__}-{digests}-{next(numbers)}"
        p = Pipeline("bench", root / "store", progress=None, digests=digests)
        stream = spark.readStream.schema(schema).option("maxFilesPerTrigger", 1)
        rows = p.source("rows", stream.parquet(str(source)))
        for name, df in outputs(rows).items():
            p.sink(name, df, FileSink(root / name))
        took = p.run(available_now=True).percentiles()["total"].p50
        shutil.rmtree(root)
        return took

    return run


def compared(
    spark: SparkSession, folder: Path, rows: int, outputs: Outputs, rounds: int
) -> tuple[float, str]:
    """The time with digests as a multiple of that without, and the latter."""
    source = folder / f"input-{rows}"
    if not source.exists():
        put_files(spark, source, rows)
    cases = {
        "without": pipeline(spark, folder, source, outputs, digests=False),
        "with": pipeline(spark, folder, source, outputs, digests=True),
    }
    times = interleaved(cases, rounds)
    return ratio(times["with"], times["without"]), in_milliseconds(times["without"])


def main() -> None:
    """Measure one output, two, and an aggregation; many rows and few."""
    given = options(__doc__)
    many, rounds = (QUICK_ROWS, 3) if given.quick else (ROWS, 7)
    spark = session()
    rows = []
    with scratch(given.directory) as folder:
        for count, outputs in ((many, one), (many, two), (many, aggregated), (SMALL_ROWS, one)):
            measured, base = compared(spark, folder, count, outputs, rounds)
            what = f"{count} rows in an epoch, {outputs.__name__}"
            rows.append(Row(what, f"without digests ({base})", measured, LIMIT))
    show("Digests of rows", rows)
    spark.stop()


if __name__ == "__main__":
    main()
