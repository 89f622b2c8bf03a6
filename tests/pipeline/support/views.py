"""Pipelines whose results are live views, and what readers see in them."""

from __future__ import annotations

import json
import uuid
from multiprocessing.connection import Connection
from pathlib import Path
from typing import TYPE_CHECKING, Any

from seamark import Pipeline
from seamark.errors import StoreUnavailableError
from seamark.progress import SourceCheckpoint, SourceCheckpointStore, open_progress
from seamark.sinks import FileSink, KeyValueSink
from tests.pipeline.support.workloads import ROWS, orders, rows_in
from tests.support.databases import RedisServer

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from seamark.pipeline.run import Run

SERVER = "server"
"""A file below the root that says which views are in Redis, and where."""


def use_redis(root: Path, server: RedisServer, *names: str) -> None:
    """Have these views below ``root`` be in Redis, or all, also those of other processes."""
    root.mkdir(parents=True, exist_ok=True)
    url = f"{server.url}?namespace={uuid.uuid4().hex}"
    (root / SERVER).write_text(json.dumps({"url": url, "names": names}), encoding="utf-8")


def url_of(root: Path, name: str) -> str:
    """Where a view below ``root`` is."""
    if (root / SERVER).exists():
        told = json.loads((root / SERVER).read_text(encoding="utf-8"))
        if not told["names"] or name in told["names"]:
            return f"{told['url']}-{name}"
    return f"rocksdb://{root}/{name}"


def view(root: Path, name: str, **options: Any) -> KeyValueSink:
    url = url_of(root, name)
    staging = root / "staging" if url.startswith("redis") else None
    return KeyValueSink(url, staging=staging, **options)


def counted(source: DataFrame) -> DataFrame:
    """Windows with their counts; half of them expire when the watermark jumps at the end."""
    from pyspark.sql import functions as f

    grouped = source.withWatermark("t", "10 seconds").groupBy(f.window("t", "20 seconds"), "k")
    counts = grouped.agg(f.count("*").alias("n"), f.sum("v").alias("sum"))
    return counts.withColumn("until", f.expr("window.end + INTERVAL 6120 SECONDS"))


def newest(source: DataFrame) -> DataFrame:
    """Orders by what they are modulo 50; some take their key away again."""
    return source.selectExpr("id % 50 AS slot", "id", "v", "t", "v % 9 = 0 AS gone")


def declare_views(
    p: Pipeline, spark: SparkSession, folder: Path, root: Path, **options: Any
) -> None:
    """Counts that expire, rows with deletes, and beside them a file sink, in update mode."""
    source = p.source("orders", orders(spark, folder))
    expiring = view(root, "counts", key=["window.start", "k"], expire="until", **options)
    p.sink("counts", counted(source), expiring)
    slots = view(root, "slots", key="slot", delete_where="gone", order_by="id", **options)
    p.sink("slots", newest(source), slots)
    p.sink("large", source.where("v > 50"), FileSink(root / "large"))


def declare_whole(p: Pipeline, spark: SparkSession, folder: Path, root: Path) -> None:
    """Every file has an order for each slot, so that all rows of a view are of one epoch."""
    source = p.source("orders", orders(spark, folder))
    slots = source.selectExpr(f"id % {ROWS} AS slot", "id")
    for name in ("whole", "again"):
        p.sink(name, slots, view(root, name, key="slot", order_by="id"))


def watch(reports: Connection, url: str) -> None:
    """Read such a view again and again until told to stop; what was seen, or what was wrong."""
    while True:
        try:
            with open_progress(url, read_only=True) as store:
                reports.send(_watched(reports, store))
            return
        except StoreUnavailableError:
            if reports.poll(0.05):  # nobody has begun to write yet
                raise


def _watched(reports: Connection, store: SourceCheckpointStore) -> str | tuple[int, int]:
    seen, looks = {0}, 0
    while not reports.poll(0.001):
        rows = [json.loads(value) for _, value in store.items("view")]
        # the last file, which moves the watermark, has one order alone
        found = {row["id"] // ROWS + 1 for row in rows if row["slot"] != 0}
        if len(found) > 1 or len(rows) not in (0, ROWS):
            return f"half an epoch: {sorted(found)}, {len(rows)} rows"
        epoch = found.pop() if found else 0
        source = store.read_checkpoint("orders")
        if epoch < max(seen) or epoch > (source.sequence if source else 0):
            return f"epoch {epoch} after {max(seen)}, and the source is at {source}"
        seen.add(epoch)
        looks += 1
    return looks, len(seen) - 1


def pipeline(
    spark: SparkSession,
    folder: Path,
    root: Path,
    *,
    kind: str = "views",
    undo: bool = False,
    **options: Any,
) -> Pipeline:
    """The pipeline ``views``, or ``whole-view``."""
    defaults = {"full_every": 3, "keep": 4}
    p = Pipeline(kind, root / "store", output_mode="update", **{**defaults, **options})
    if kind == "views":
        declare_views(p, spark, folder, root, undo=undo)
    else:
        declare_whole(p, spark, folder, root)
    return p


def run(spark: SparkSession, folder: Path, root: Path, **options: Any) -> Run:
    """Run such a pipeline until everything is read."""
    return pipeline(spark, folder, root, **options).run()


def shown_in(url: str) -> dict[str, Any]:
    """Every row of a view by its key, as another program reads it."""
    with open_progress(url, read_only=True) as store:
        return {key.decode(): json.loads(value) for key, value in store.items("view")}


def source_of(url: str) -> SourceCheckpoint | None:
    """How far the view says that its source has been read."""
    with open_progress(url, read_only=True) as store:
        return store.read_checkpoint("orders")


def shown(root: Path) -> dict[str, Any]:
    """What readers see in all sinks, and how far the views say that they have come."""
    urls = {name: url_of(root, name) for name in ("counts", "slots")}
    sequences = {source.sequence for url in urls.values() if (source := source_of(url))}
    assert len(sequences) == 1, "both views are at one epoch"
    views = {name: shown_in(url) for name, url in urls.items()}
    assert len(views["counts"]) > 5
    assert 10 < len(views["slots"]) < 50
    return {**views, "large": rows_in(root / "large"), "epoch": sequences.pop()}
