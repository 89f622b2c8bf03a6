"""Write two outputs of one stream, each row exactly once in both.

Orders go to two folders: all of them, and the large ones alone. Every epoch is one checkpoint, and
both sinks commit with it. The pipeline runs until its input is read, ends, and is started again
when more has come. You see which epochs each run made, and the rows of both sinks::

    python examples/two_sinks.py [FOLDER]
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path

from pyspark.sql import SparkSession

import seamark
from seamark.sinks import FileSink
from seamark.spark.java import use_java


def write_orders(folder: Path, file: str, amounts: list[int]) -> None:
    """Put a file of orders where the pipeline reads."""
    rows = [json.dumps({"id": f"{file}-{n}", "amount": a}) for n, a in enumerate(amounts)]
    (folder / "orders" / f"{file}.json").write_text("\n".join(rows) + "\n")


def orders_pipeline(spark: SparkSession, folder: Path) -> seamark.Pipeline:
    """Declare sources and sinks. A later start declares the same and continues."""
    pipeline = seamark.Pipeline("orders", store=folder / "checkpoints")
    reader = spark.readStream.schema("id STRING, amount INT").option("maxFilesPerTrigger", 1)
    orders = pipeline.source("orders", reader.json(str(folder / "orders")))
    pipeline.sink("all", orders, FileSink(folder / "all"))
    pipeline.sink("large", orders.where("amount >= 100"), FileSink(folder / "large"))
    return pipeline


def main(folder: Path) -> None:
    """Run the pipeline twice, the second time over a new file."""
    (folder / "orders").mkdir(parents=True)
    use_java()
    builder = SparkSession.builder.master("local[2]").appName("orders")
    spark = builder.config("spark.ui.showConsoleProgress", "false").getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")

    write_orders(folder, "monday", [20, 150, 30])
    write_orders(folder, "tuesday", [500, 10])
    first = orders_pipeline(spark, folder).run(available_now=True)
    print(f"first run: up to epoch {first.epoch}")

    write_orders(folder, "wednesday", [70, 900])
    second = orders_pipeline(spark, folder).run(available_now=True)
    print(f"second run: from checkpoint {second.report.chosen_id} to epoch {second.epoch}")

    for sink in ("all", "large"):
        rows = spark.read.parquet(str(folder / sink)).orderBy("id").collect()
        print(f"{sink}: {', '.join(f'{row.id} {row.amount}' for row in rows)}")
    spark.stop()


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else tempfile.mkdtemp()) / "orders")
