"""Give a running pipeline a second stateful output without losing the state of the first.

A shop counts its orders. Then it also wants to know the largest order of each customer. The new
output is declared first, so that the count gets another number in Spark's plan: a plain query would
lose its state. You see what the upgrade does with each part, and that the counts go on while the
largest orders begin with the second day::

    python examples/upgrade.py [FOLDER]
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

import seamark
from seamark.errors import RefusedError
from seamark.sinks import FileSink
from seamark.spark.java import use_java


def write_orders(folder: Path, day: str, orders: list[tuple[str, int]]) -> None:
    """Add a file of orders, complete at once."""
    rows = [json.dumps({"customer": customer, "amount": amount}) for customer, amount in orders]
    hidden = folder / "orders" / f".{day}.json"
    hidden.write_text("\n".join(rows) + "\n")
    hidden.rename(hidden.with_name(f"{day}.json"))


def declare(spark: SparkSession, folder: Path, *, largest: bool, policy: str) -> seamark.Pipeline:
    """The pipeline of the first day, or that of the second."""
    pipeline = seamark.Pipeline(
        "shop", store=folder / "checkpoints", output_mode="update", policy=policy
    )
    reader = spark.readStream.schema("customer STRING, amount INT")
    orders = pipeline.source("orders", reader.json(str(folder / "orders")))
    by_customer = orders.groupBy("customer")
    if largest:
        pipeline.sink(
            "largest", by_customer.agg(f.max("amount").alias("n")), FileSink(folder / "largest")
        )
    pipeline.sink("counts", by_customer.agg(f.count("*").alias("n")), FileSink(folder / "counts"))
    return pipeline


def show(spark: SparkSession, folder: Path, name: str) -> None:
    """Print the newest value of each customer."""
    rows: DataFrame = spark.read.parquet(str(folder / name))
    newest = rows.groupBy("customer").agg(f.max_by("n", "epoch").alias("n")).orderBy("customer")
    values = ", ".join(f"{row['customer']} {row['n']}" for row in newest.collect())
    print(f"{name}: {values}")


def main(folder: Path) -> None:
    """Run the first pipeline, change it, and run the second one on the same store."""
    (folder / "orders").mkdir(parents=True)
    use_java()
    builder = SparkSession.builder.master("local[2]").appName("shop")
    builder = builder.config("spark.sql.shuffle.partitions", "2")
    spark = builder.config("spark.ui.showConsoleProgress", "false").getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")

    write_orders(folder, "monday", [("ann", 20), ("bob", 500), ("ann", 30)])
    declare(spark, folder, largest=False, policy="strict").run()
    show(spark, folder, "counts")

    write_orders(folder, "tuesday", [("ann", 70), ("bob", 10)])
    try:
        declare(spark, folder, largest=True, policy="strict").run()
    except RefusedError as refusal:
        print(f"strict refuses: {refusal.what}")
    changed = declare(spark, folder, largest=True, policy="evolve")
    changed.check()
    changed.run()
    show(spark, folder, "counts")
    show(spark, folder, "largest")
    spark.stop()


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else tempfile.mkdtemp()) / "shop")
