"""Take a query's own checkpoint directory back to an earlier batch, and bring it back elsewhere.

A stock query without Seamark writes JSON files. The command ``seamark spark`` then works on its
checkpoint directory alone: a snapshot goes into a store, the directory and the log of the file
sink go back to batch 0, and the snapshot becomes a directory at another place. You see what each
command prints, and that the query runs the later batches again::

    python examples/rewind_query.py [FOLDER]
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

from pyspark.sql import SparkSession

from seamark.spark.java import use_java


def run_query(spark: SparkSession, folder: Path, checkpoint: Path) -> int:
    """Run the query over all files that it has not read; return how many rows its output has."""
    lines = spark.readStream.option("maxFilesPerTrigger", 1).text(str(folder / "in"))
    query = (
        lines.writeStream.format("json")
        .option("checkpointLocation", str(checkpoint))
        .trigger(availableNow=True)
        .start(str(folder / "out"))
    )
    query.awaitTermination()
    return spark.read.schema("value STRING").json(str(folder / "out")).count()


def seamark(*arguments: str | Path) -> None:
    """Run the command line and show what it prints."""
    print("$ seamark", *(Path(word).name for word in arguments), flush=True)
    subprocess.run([sys.executable, "-m", "seamark", *map(str, arguments)], check=True)


def main(folder: Path) -> None:
    """Run three batches, keep them, go back to the first, and run the others again."""
    (folder / "in").mkdir(parents=True)
    for number in range(3):
        (folder / "in" / f"{number}.txt").write_text(f"line {number}\n")
    use_java()
    builder = SparkSession.builder.master("local[2]").appName("lines")
    spark = builder.config("spark.ui.showConsoleProgress", "false").getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")

    job, store, out = folder / "checkpoint", folder / "store", folder / "out"
    print(f"rows after three batches: {run_query(spark, folder, job)}", flush=True)
    seamark("spark", "snapshot", job, store)
    seamark("spark", "rollback", job, "--to-batch", "0", "--file-sink", out, "--yes")
    rows = spark.read.schema("value STRING").json(str(out)).count()
    print(f"rows after the rollback: {rows}", flush=True)
    print(f"rows after the query ran again: {run_query(spark, folder, job)}", flush=True)
    seamark("spark", "restore", store, "latest", folder / "elsewhere", "--query-id", "new")
    seamark("spark", "inspect", folder / "elsewhere")
    spark.stop()


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else tempfile.mkdtemp()) / "lines")
