"""The demo's pipeline and its folder, in a process that is killed and started again.

    python -m seamark.cli.demo.pipeline FOLDER [EPOCH]

reports its start and each epoch as a line of JSON on stdout. Killed with SIGKILL between the
save and the commit of EPOCH if one is given; SIGTERM lets it finish the epoch and end well.

Tests: ``tests/cli/demo/test_command.py``.
"""

from __future__ import annotations

import json
import logging
import os
import shutil
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

from seamark.cli.demo.trades import (
    BAR_MS,
    DELAY_MS,
    LARGE_ABOVE,
    MS_BETWEEN_TRADES,
    OPENING_MS,
    SYMBOLS,
    TRADES_PER_EPOCH,
)
from seamark.errors import RefusedError
from seamark.pipeline.declaration.settings import OnStep, Step

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from seamark import Pipeline

CHECKPOINTS: Final = "checkpoints"
BARS: Final = "bars"
LARGE: Final = "large"
LATEST: Final = "latest"
SINKS: Final = (BARS, LARGE, LATEST)
SPARK: Final = "spark"
LOG: Final = f"{SPARK}/spark.log"
MARKER: Final = "about-this-folder.txt"

_ABOUT: Final = """\
Made by 'seamark demo'. The next demo removes it; so may you.

checkpoints/          the store: a checkpoint for every epoch
checkpoints/working/  the files of Spark's own checkpoint
bars/ large/          files: what two of the sinks show
latest/               RocksDB: the view that the third one keeps
spark/                Spark's log and temporary files
"""
EPOCH_FIELDS: Final = (
    "epoch", "checkpoint_id", "rows", "seconds", "phases", "new_bytes", "full_bytes", "watermark",
    "sinks",
)  # fmt: skip


def make_room(folder: Path) -> None:
    """Leave the folder with nothing but the marker; removes an earlier demo, and only that."""
    names = {entry.name for entry in folder.iterdir()} if folder.exists() else set()
    own = {CHECKPOINTS, *SINKS, SPARK, MARKER}
    strangers = sorted(names - own) or (sorted(names) if names and MARKER not in names else [])
    if strangers:
        raise RefusedError(
            f"{folder} holds something else than an earlier demo",
            where=f"There is {strangers[0]!r} in it.",
            hint="Nothing was removed. Choose another folder with --dir.",
        )
    for name in names - {MARKER}:
        shutil.rmtree(folder / name)
    (folder / SPARK).mkdir(parents=True)
    (folder / MARKER).write_text(_ABOUT)


def start_spark(folder: Path) -> SparkSession:
    """A small, quiet Spark that leaves nothing outside the demo's folder, also when killed."""
    from pyspark.sql import SparkSession

    scratch = folder / SPARK
    settings: dict[str, bool | float | int | str | None] = {
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.extraJavaOptions": f'"-Djava.io.tmpdir={scratch}"',
        "spark.driver.host": "127.0.0.1",
        "spark.local.dir": str(scratch),
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": 4,
        "spark.sql.warehouse.dir": str(scratch / "warehouse"),
        "spark.ui.enabled": False,
        "spark.ui.showConsoleProgress": False,
    }
    spark = SparkSession.builder.master("local[2]").config(map=settings).getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    return spark


def as_trades(counted: DataFrame) -> DataFrame:
    """``trades.trade`` for the column ``value``, in Spark's words."""
    from pyspark.sql import functions as f

    number = f.col("value")
    symbols = f.array(*(f.lit(symbol) for symbol in SYMBOLS))
    return counted.select(
        number.alias("number"),
        f.timestamp_millis(OPENING_MS + number * MS_BETWEEN_TRADES).alias("time"),
        f.element_at(symbols, (number % len(SYMBOLS) + 1).cast("int")).alias("symbol"),
        ((10_000 + number * 7919 % 2003) / 100).alias("price"),
        (number * 104_729 % 1009 + 1).alias("qty"),
    )


def as_bars(trades: DataFrame) -> DataFrame:
    """``trades.closed_bars``, in Spark's words."""
    from pyspark.sql import functions as f

    return (
        trades.withWatermark("time", f"{DELAY_MS} milliseconds")
        .groupBy(f.window("time", f"{BAR_MS} milliseconds"), "symbol")
        .agg(
            f.min_by("price", "number").alias("open"),
            f.max("price").alias("high"),
            f.min("price").alias("low"),
            f.max_by("price", "number").alias("close"),
            f.sum("qty").alias("volume"),
            f.count("*").alias("trades"),
        )
        .select(
            "symbol",
            f.col("window.start").alias("start"),
            f.col("window.end").alias("end"),
            *("open", "high", "low", "close", "volume", "trades"),
        )
    )


def declare(spark: SparkSession, folder: Path, on_step: OnStep | None) -> Pipeline:
    """One source, one stateful aggregation, one filter; two sinks of files and a live view."""
    import seamark
    from seamark.progress import rocksdb_url
    from seamark.sinks import FileSink, KeyValueSink

    p = seamark.Pipeline("demo", store=folder / CHECKPOINTS, on_step=on_step)
    source = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", TRADES_PER_EPOCH)
    trades = as_trades(p.source("trades", source.load()))
    p.sink(BARS, as_bars(trades), FileSink(folder / BARS))
    p.sink(LARGE, trades.where(f"qty > {LARGE_ABOVE}"), FileSink(folder / LARGE))
    view = KeyValueSink(rocksdb_url(folder / LATEST), key="symbol", order_by="number")
    p.sink(LATEST, trades, view)
    return p


def kill_after_save(fatal_epoch: int) -> OnStep:
    """A hook that kills this process and its JVM when the epoch is saved and not yet committed."""

    def on_step(step: Step, when: Literal["before", "after"], epoch: int) -> None:
        if (step, when, epoch) == (Step.SAVE, "after", fatal_epoch):
            report_event("killing", epoch=epoch)
            os.killpg(0, signal.SIGKILL)

    return on_step


def report_event(event: str, **fields: Any) -> None:
    """Write one event for the process that watches this one."""
    try:
        print(json.dumps({"event": event, **fields}), flush=True)  # noqa: T201
    except BrokenPipeError:
        os._exit(1)  # nobody watches any more


class TellEvents(logging.Handler):
    """Passes on what the pipeline logs about its start and its epochs."""

    def emit(self, record: logging.LogRecord) -> None:
        """Report a recovery or an epoch; other records are not for the screen."""
        fields = vars(record)
        if fields.get("event") == "recovery":
            report_event("recovery", report=fields["recovery"])
        elif fields.get("event") == "epoch":
            report_event("epoch", **{name: fields[name] for name in EPOCH_FIELDS})


def main(folder: Path, fatal_epoch: int | None) -> None:
    """Run until killed or asked to stop."""
    logging.basicConfig(level=logging.WARNING)
    log = logging.getLogger("seamark.pipeline")
    log.setLevel(logging.INFO)
    log.addHandler(TellEvents())
    spark = start_spark(folder)
    hook = kill_after_save(fatal_epoch) if fatal_epoch is not None else None
    declare(spark, folder, hook).run(available_now=False)
    spark.stop()


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else None)
