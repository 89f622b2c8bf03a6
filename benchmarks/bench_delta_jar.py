"""What a small epoch into a Delta table costs, against foreachBatch and Delta's own connector.

The baseline is the recipe of Delta's documentation for exactly once: ``foreachBatch`` with
``txnAppId`` and ``txnVersion``, through Delta's jar. Ours is a pipeline with a ``DeltaSink``, which
also makes a checkpoint of every epoch. They take turns in blocks of epochs; an epoch is Spark's
``triggerExecution``. Delta's jar needs a Spark that it was built for, and a repository to fetch it
from: ``.venv-oldest/bin/python benchmarks/bench_delta_jar.py``.
"""

from __future__ import annotations

import statistics
import uuid
from pathlib import Path
from typing import Final

import pyspark
from deltalake import DeltaTable
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

import seamark
from bench_epochs import ROWS, Block, durations, trades
from harness import Row, options, scratch, show
from seamark.sinks import DeltaSink
from tests.pipeline.support.driver import session

JARS: Final = {"4.0": "io.delta:delta-spark_2.13:4.0.0"}
DELTA: Final = {
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
}
LIMIT: Final = 0.8


def prices(spark: SparkSession) -> DataFrame:
    """Rows without state, so that only the way into the table counts."""
    return trades(spark).select("value", "timestamp", (f.col("value") / 3.0).alias("price"))


def by_jar(spark: SparkSession, folder: Path) -> Block:
    """What Delta's documentation advises."""
    app = uuid.uuid4().hex

    def write(batch: DataFrame, number: int) -> None:
        writer = batch.write.format("delta").mode("append")
        writer.option("txnAppId", app).option("txnVersion", number).save(str(folder / "table"))

    def block(epochs: int) -> list[float]:
        query = (
            prices(spark)
            .writeStream.option("checkpointLocation", str(folder / "checkpoint"))
            .foreachBatch(write)
            .start()
        )
        return durations(query, epochs, query.stop)

    return block


def with_sink(spark: SparkSession, folder: Path) -> Block:
    """The same as a pipeline."""

    def block(epochs: int) -> list[float]:
        pipeline = seamark.Pipeline("bench", folder / "store")
        rows = pipeline.source("trades", prices(spark))
        pipeline.sink("prices", rows, DeltaSink(folder / "table"))
        run = pipeline.start()
        return durations(run.query, epochs, run.stop)

    return block


def main() -> None:
    """Measure blocks of epochs in turns."""
    given = options(__doc__)
    jar = JARS.get(".".join(pyspark.__version__.split(".")[:2]))
    if jar is None:
        known = ", ".join(JARS)
        print(f"skipped: Delta's jar is known for PySpark {known}, not {pyspark.__version__}")
        return
    spark = session("local[2]", {"spark.jars.packages": jar, **DELTA})
    with scratch(given.directory.absolute()) as folder:
        variants = {
            "by jar": by_jar(spark, folder / "jar"),
            "ours": with_sink(spark, folder / "ours"),
        }
        took: dict[str, list[float]] = {name: [] for name in variants}
        for _ in range(2 if given.quick else 4):
            for name, block in variants.items():
                took[name] += block(6 if given.quick else 16)
        for place in ("jar", "ours"):
            stored = DeltaTable(str(folder / place / "table")).to_pyarrow_table(columns=["value"])
            numbers = stored["value"].to_pylist()
            assert sorted(numbers) == list(range(len(numbers))), place
    median = {name: statistics.median(values) for name, values in took.items()}
    baseline = f"foreachBatch, txnVersion, {jar} ({median['by jar']:.0f} ms)"
    what = f"an epoch of {ROWS} rows ({median['ours']:.0f} ms)"
    show("Delta's own connector", [Row(what, baseline, median["ours"] / median["by jar"], LIMIT)])
    spark.stop()


if __name__ == "__main__":
    main()
