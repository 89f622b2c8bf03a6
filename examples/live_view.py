"""Keep the newest row of each key where other programs can read it while the pipeline runs.

Sensors report temperatures. A ``KeyValueSink`` keeps the last one of each sensor in RocksDB. The
reader below opens the view read-only, as a program of its own would, while the pipeline is
running. You see the view after the first file and after the second, and which epoch it shows::

    python examples/live_view.py [FOLDER]
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from pathlib import Path

from pyspark.sql import SparkSession

import seamark
from seamark.progress import SourceCheckpointStore, open_progress, rocksdb_url
from seamark.sinks import KeyValueSink
from seamark.spark.java import use_java


def write_readings(folder: Path, second: int, readings: dict[str, float]) -> None:
    """Add a file of readings, complete at once."""
    rows = [json.dumps({"sensor": s, "at": second, "celsius": c}) for s, c in readings.items()]
    hidden = folder / "readings" / f".{second}.json"
    hidden.write_text("\n".join(rows) + "\n")
    hidden.rename(hidden.with_name(f"{second}.json"))


def show(view: SourceCheckpointStore, epoch: int) -> None:
    """Wait until the view shows an epoch, then print it."""
    for _ in range(2500):
        at = view.read_checkpoint("readings")
        if at is not None and at.sequence >= epoch:
            break
        time.sleep(0.1)
    else:
        raise SystemExit(f"epoch {epoch} has not come")
    rows = {key.decode(): json.loads(value)["celsius"] for key, value in view.items("view")}
    print(f"epoch {epoch}: {', '.join(f'{sensor} {rows[sensor]} °C' for sensor in sorted(rows))}")


def main(folder: Path) -> None:
    """Run the pipeline in the background and read its view."""
    (folder / "readings").mkdir(parents=True)
    use_java()
    builder = SparkSession.builder.master("local[2]").appName("readings")
    spark = builder.config("spark.ui.showConsoleProgress", "false").getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    url = rocksdb_url(folder / "latest")

    pipeline = seamark.Pipeline("readings", store=folder / "checkpoints")
    reader = spark.readStream.schema("sensor STRING, at INT, celsius DOUBLE")
    readings = pipeline.source("readings", reader.json(str(folder / "readings")))
    pipeline.sink("latest", readings, KeyValueSink(url, key="sensor", order_by="at"))
    write_readings(folder, 1, {"attic": 31.5, "cellar": 12.0})
    run = pipeline.start(trigger={"processingTime": "0 seconds"})
    with open_progress(url, read_only=True) as view:
        show(view, epoch=1)
        write_readings(folder, 2, {"attic": 30.0, "kitchen": 21.5})
        show(view, epoch=2)
    run.stop()
    spark.stop()


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else tempfile.mkdtemp()) / "sensors")
