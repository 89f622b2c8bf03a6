"""Going back to an earlier epoch begins a new history; nothing of the old one is taken for it."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pyarrow.dataset as ds
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as f

import seamark
from seamark.errors import CheckpointNotFoundError, DamageError
from seamark.sinks import FileSink
from seamark.sinks.publish import read_receipts
from seamark.store import open_store

pytestmark = pytest.mark.spark


class World:
    """Sums by key over a folder of files, one file an epoch."""

    def __init__(self, spark: SparkSession, base: Path) -> None:
        self._spark = spark
        self.base = base
        (base / "in").mkdir()
        self._files = 0

    def put(self, files: int, factor: int = 1) -> None:
        for _ in range(files):
            rows = [{"k": n % 3, "v": n * factor} for n in range(30)]
            path = self.base / "in" / f"{self._files:03}.json"
            path.write_text("\n".join(map(json.dumps, rows)))
            self._files += 1
            time.sleep(0.01)

    def pipeline(self) -> seamark.Pipeline:
        made = seamark.Pipeline("sums", self.base / "store", output_mode="update", full_every=4)
        rows = made.source(
            "rows",
            self._spark.readStream.schema("k int, v int")
            .option("maxFilesPerTrigger", 1)
            .json(str(self.base / "in")),
        )
        sums = rows.groupBy("k").agg(f.sum("v").alias("s"))
        made.sink("sums", sums, FileSink(self.base / "sums"))
        return made

    def visible(self) -> list[tuple[int, int, int]]:
        found = ds.dataset(self.base / "sums", format="parquet", partitioning="hive").to_table()
        return sorted((row["epoch"], row["k"], row["s"]) for row in found.to_pylist())


@pytest.fixture
def world(spark: SparkSession, tmp_path: Path) -> World:
    return World(spark, tmp_path)


def test_epochs_after_the_rollback_are_not_mistaken_for_those_before(world: World) -> None:
    world.put(7)
    assert world.pipeline().run().epoch == 7
    before = world.visible()
    old = read_receipts(world.base / "sums")[-1].timeline
    again = world.pipeline().rollback(4)
    assert (again.epoch, again.checkpoint_id) == (4, 8)
    run = world.pipeline().run()
    assert run.epoch == 7
    assert any("3 epochs taken back" in note for note in run.report.notes)
    assert world.visible() == before
    timelines = [receipt.timeline for receipt in read_receipts(world.base / "sums")]
    assert timelines[:4] == [old] * 4
    assert old not in timelines[4:]
    assert len(list((world.base / "sums/_seamark/unpublished").glob("*/epoch=*"))) == 3


def test_rolling_back_twice_works_also_with_the_working_copy_gone(world: World) -> None:
    world.put(5)
    world.pipeline().run()
    before = world.visible()
    world.pipeline().rollback(3)
    world.pipeline().run()
    newest = open_store(world.base / "store").load_latest()
    assert newest is not None
    world.pipeline().rollback(6)  # the repeated checkpoint 3
    import shutil

    shutil.rmtree(world.base / "store/working")
    run = world.pipeline().run()
    assert run.epoch == 5
    assert world.visible() == before


def test_a_rollback_to_what_is_not_there_or_not_whole_changes_nothing(world: World) -> None:
    world.put(3)
    world.pipeline().run()
    with pytest.raises(CheckpointNotFoundError):
        world.pipeline().rollback(17)
    manifest = world.base / "store/checkpoints/checkpoint_000002/manifest.json"
    whole = manifest.read_bytes()
    manifest.write_bytes(whole.replace(b'"epoch":2', b'"epoch":1', 1))
    with pytest.raises(DamageError):
        world.pipeline().rollback(2)
    manifest.write_bytes(whole)
    world.put(1)
    run = world.pipeline().run()
    assert run.epoch == 4
    assert run.report.notes == []
