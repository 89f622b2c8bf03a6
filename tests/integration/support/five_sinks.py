"""A pipeline from Kafka into five sinks, as a process that can be killed at any moment.

``python -m tests.integration.support.five_sinks ROOT`` reads ``ROOT/places.json`` (:class:`Places`)
and runs until it has read everything. ``ROOT/kill.json`` (:class:`Kill`), when it is there, says
when the process kills itself; it removes that file first, so that it dies once.
"""

from __future__ import annotations

import os
import shutil
import signal
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
from pyspark.sql import functions as f

import seamark
from seamark.pipeline.declaration.settings import OnStep, Step
from seamark.sinks import DeltaSink, IcebergSink, KafkaSink, KeyValueSink, PostgresSink
from tests.pipeline.support.driver import session
from tools.kafka import connector_jars

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

ROWS_PER_EPOCH = 400
TABLE = "trades.all"
"""In Iceberg."""


class Places(msgspec.Struct):
    """Where the rows come from and go to."""

    kafka: str
    """The servers that the source reads from."""
    proxied_kafka: str
    """The same servers, for the sink, through a proxy."""
    topic_in: str
    topic_out: str
    postgres: str
    """Through a proxy."""
    root: str

    @property
    def store(self) -> str:
        return f"{self.root}/store"

    @property
    def delta(self) -> str:
        return f"{self.root}/delta"

    @property
    def view(self) -> str:
        return f"rocksdb://{self.root}/view"

    @property
    def working_copy(self) -> Path:
        return Path(self.root, "copy")

    @property
    def iceberg(self) -> dict[str, str]:
        """A catalog in SQLite."""
        return {
            "type": "sql",
            "uri": f"sqlite:///{self.root}/catalog.db",
            "warehouse": f"file://{self.root}/warehouse",
        }


class Kill(msgspec.Struct):
    """When the process is to die."""

    epochs: int
    """So many epochs after its start."""
    step: str
    """Before this step begins."""
    delay: float
    """And then so many seconds later, wherever it is then."""


def killing(root: Path) -> OnStep:
    """Die where ``kill.json`` says."""
    file = root / "kill.json"
    if not file.exists():
        return lambda *_: None
    kill = msgspec.json.decode(file.read_bytes(), type=Kill)
    file.unlink()
    left = kill.epochs

    def die() -> None:
        time.sleep(kill.delay)
        os.kill(os.getpid(), signal.SIGKILL)

    def on_step(step: Step, when: str, _: int) -> None:
        nonlocal left
        if (step, when) != (kill.step, "before"):
            return
        left -= 1
        if left == 0:
            threading.Thread(target=die, daemon=True).start()

    return on_step


def declare(spark: SparkSession, places: Places, on_step: OnStep) -> seamark.Pipeline:
    """All rows into tables, a database and a topic, and the sums of each key into a view."""
    root = Path(places.root)
    pipeline = seamark.Pipeline(
        "five",
        places.store,
        working_copy=places.working_copy,
        output_mode="update",
        on_step=on_step,
        keep=1_000_000,
    )
    options = {
        "kafka.bootstrap.servers": places.kafka,
        "subscribe": places.topic_in,
        "startingOffsets": "earliest",
        "maxOffsetsPerTrigger": str(ROWS_PER_EPOCH),
    }
    source = pipeline.source("trades", spark.readStream.format("kafka").options(**options))
    rows = parsed(source)
    pipeline.sink("delta", rows, DeltaSink(places.delta))
    pipeline.sink("iceberg", rows, IcebergSink(places.iceberg, TABLE))
    pipeline.sink(
        "postgres", rows, PostgresSink(places.postgres, "trades", epoch_column="seamark_epoch")
    )
    records = rows.select(
        f.col("id").cast("string").alias("key"), f.to_json(f.struct("*")).alias("value")
    )
    pipeline.sink(
        "kafka",
        records,
        KafkaSink(
            places.proxied_kafka,
            places.topic_out,
            key="key",
            value="value",
            staging=root / "staged",
        ),
    )
    sums = rows.groupBy("k").agg(f.count("*").alias("n"), f.sum("v").alias("sum"))
    pipeline.sink("view", sums, KeyValueSink(places.view, key="k"))
    return pipeline


def parsed(source: DataFrame) -> DataFrame:
    """The columns of the JSON values of a topic."""
    value = f.from_json(f.col("value").cast("string"), "id bigint, k int, v bigint")
    return source.select(value.alias("row")).select("row.*")


def main(root: Path) -> None:
    places = msgspec.json.decode((root / "places.json").read_bytes(), type=Places)
    spark = session(settings={"spark.jars": ",".join(map(str, connector_jars()))})
    declare(spark, places, killing(root)).run()
    (root / "done").touch()
    spark.stop()


def lose_working_copy(places: Places) -> None:
    """As on a machine that is gone."""
    shutil.rmtree(places.working_copy, ignore_errors=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
