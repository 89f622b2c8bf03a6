"""Run a changed pipeline beside the one that it replaces, on the same state, and compare them.

A shop counts its orders. A new version also lists the large ones. It is forked from the running
pipeline: the counts go on from where they are, the list begins with the next order, and both
versions run side by side, each with files of its own, until the new one is trusted. Its files have
what has changed since the fork: Ann's third order, and nothing of Bob, who has not ordered again::

    python examples/blue_green.py [FOLDER]
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql import functions as f

import seamark
from seamark.sinks import FileSink
from seamark.spark.java import use_java


def write_orders(folder: Path, day: str, orders: list[tuple[str, int]]) -> None:
    """Add a file of orders, complete at once."""
    rows = [json.dumps({"customer": customer, "amount": amount}) for customer, amount in orders]
    hidden = folder / "orders" / f".{day}.json"
    hidden.write_text("\n".join(rows) + "\n")
    hidden.rename(hidden.with_name(f"{day}.json"))


def declare(
    spark: SparkSession, folder: Path, name: str, *, large: bool = False, **options: Any
) -> seamark.Pipeline:
    """One version of the pipeline, with a store and targets of its own."""
    store = folder / name / "checkpoints"
    pipeline = seamark.Pipeline(name, store=store, output_mode="update", **options)
    reader = spark.readStream.schema("customer STRING, amount INT").option("maxFilesPerTrigger", 1)
    orders = pipeline.source("orders", reader.json(str(folder / "orders")))
    if large:
        pipeline.sink("large", orders.where("amount > 50"), FileSink(folder / name / "large"))
    counts = orders.groupBy("customer").agg(f.count("*").alias("n"))
    pipeline.sink("counts", counts, FileSink(folder / name / "counts"))
    return pipeline


def show(spark: SparkSession, folder: Path, name: str) -> None:
    """Print the newest count of each customer."""
    rows = spark.read.parquet(str(folder / name / "counts"))
    newest = rows.groupBy("customer").agg(f.max_by("n", "epoch").alias("n")).orderBy("customer")
    values = ", ".join(f"{row['customer']} {row['n']}" for row in newest.collect())
    print(f"{name}: {values}")


def main(folder: Path) -> None:
    """Run blue, fork green from it, run both on, and compare what they have written."""
    (folder / "orders").mkdir(parents=True)
    use_java()
    builder = SparkSession.builder.master("local[2]").appName("shop")
    builder = builder.config("spark.sql.shuffle.partitions", "2")
    spark = builder.config("spark.ui.showConsoleProgress", "false").getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")

    write_orders(folder, "monday", [("ann", 20), ("bob", 500), ("ann", 30)])
    declare(spark, folder, "blue").run()
    show(spark, folder, "blue")

    write_orders(folder, "tuesday", [("ann", 70), ("cid", 10)])
    blue = folder / "blue" / "checkpoints"
    green = declare(spark, folder, "green", large=True, fork=blue, policy="evolve")
    print(green.run().report.notes[0].partition(" (")[0].replace(f"{folder}/", ""))
    declare(spark, folder, "blue").run()
    for name in ("blue", "green"):
        show(spark, folder, name)
    spark.stop()

    compare = ["seamark", "compare", str(blue), str(folder / "green" / "checkpoints")]
    subprocess.run([sys.executable, "-m", *compare], check=True)


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else tempfile.mkdtemp()) / "shop")
