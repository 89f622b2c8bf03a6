"""All sinks of a pipeline that are read at one epoch agree, whatever became of the pipeline."""

from __future__ import annotations

import json
import os
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb
import pandas
import pyarrow as pa
import pyarrow.dataset
import pytest

import seamark
import seamark.progress
from seamark.errors import CheckpointNotFoundError, StoreUnavailableError
from seamark.pipeline.declaration.settings import OnStep
from seamark.sinks import FileSink, KeyValueSink
from seamark.store import CheckpointStore
from seamark.testing.crashes import FailPoint, SimulatedCrash, crash_at
from tests.pipeline.support.crashing import wipe

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark
EPOCHS = 5


def write_files(folder: Path) -> dict[int, Counter[int]]:
    """A file for each epoch; by epoch, all values that were read until then."""
    folder.mkdir()
    until: dict[int, Counter[int]] = {0: Counter()}
    for epoch in range(1, EPOCHS + 1):
        rows = [{"n": epoch * 10 + at % 3, "day": at % 2} for at in range(5)]
        path = folder / f"{epoch}.json"
        path.write_text("\n".join(map(json.dumps, rows)))
        os.utime(path, (1_700_000_000 + epoch, 1_700_000_000 + epoch))
        until[epoch] = until[epoch - 1] + Counter(row["n"] for row in rows)
    return until


def pipeline(spark: SparkSession, root: Path, on_step: OnStep | None = None) -> seamark.Pipeline:
    p = seamark.Pipeline("cut", root / "store", keep=50, on_step=on_step)
    stream = spark.readStream.schema("n int, day int").option("maxFilesPerTrigger", 1)
    rows = p.source("rows", stream.json(str(root / "in")))
    p.sink("flat", rows, FileSink(root / "it's [flat]"))
    p.sink("days", rows, FileSink(root / "days", partition_by="day"))
    p.sink("text", rows, FileSink(root / "text", format="csv", options={"header": "true"}))
    p.sink("view", rows, KeyValueSink(f"rocksdb://{root}/view", key="n", order_by="day", undo=True))
    return p


def seen(call: str, reader: str, spark: SparkSession) -> Counter[int]:
    """The values that a ready-made call gives."""
    if reader == "duckdb":
        return Counter(row[0] for row in duckdb.sql(f"SELECT n FROM ({call})").fetchall())
    names: dict[str, Any] = {"pandas": pandas, "pyarrow": pa, "seamark": seamark, "json": json}
    if "view =" in call:
        exec(call, names)
        names["view"].close()
        return Counter(names["rows"]["n"].tolist())
    found = eval(call, {**names, "spark": spark})
    if reader == "spark":
        return Counter(int(row.n) for row in found.select("n").collect())
    return Counter(found["n"].tolist())


def agree(spark: SparkSession, root: Path, until: dict[int, Counter[int]], newest: int) -> None:
    for epoch in range(1, newest + 1):
        cut = seamark.read_epoch(root / "store", epoch)
        for sink in cut.sinks:
            if sink.sink == "view":
                assert sink.readable is (epoch == newest), (epoch, sink.note)
                expected = Counter(set(until[epoch]))
            else:
                assert sink.readable, (epoch, sink)
                expected = until[epoch]
            for reader, call in sink.calls.items():
                if reader == "spark" and epoch != 2:
                    continue
                assert seen(call, reader, spark) == expected, (epoch, sink.sink, reader)


def test_I14_all_sinks_read_at_one_epoch_agree_after_crashes_at_any_step(
    spark: SparkSession, tmp_path: Path
) -> None:
    until = write_files(tmp_path / "in")
    points = ["save:after:2", "commit:after:3", "record:before:4"]
    for number, point in enumerate(points):
        at = FailPoint.parse(point)
        with pytest.raises(SimulatedCrash, match=f"reached {point}"):
            pipeline(spark, tmp_path, crash_at(at.step, at.when, at.epoch)).run()
        cut = seamark.read_epoch(tmp_path / "store")
        assert cut.epoch == at.epoch - 1, "what was decided last is not complete as far as is known"
        agree_on_files(spark, cut, until)
        if number % 2:
            wipe(tmp_path)
    pipeline(spark, tmp_path).run()
    agree(spark, tmp_path, until, EPOCHS)


def agree_on_files(
    spark: SparkSession, cut: seamark.sinks.Cut, until: dict[int, Counter[int]]
) -> None:
    for name in ("flat", "days", "text"):
        reader = "spark" if name == "text" else "pandas"
        assert seen(cut[name].calls[reader], reader, spark) == until[cut.epoch]
    assert not cut["view"].readable, "it may have gone on"


def test_I14_what_could_not_be_recorded_is_found_all_the_same(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    until = write_files(tmp_path / "in")
    update = CheckpointStore.update_manifest

    def unavailable(self: CheckpointStore, manifest: seamark.CheckpointManifest) -> Any:
        if manifest.epoch in (2, 3):
            raise StoreUnavailableError("the store does not answer")
        return update(self, manifest)

    monkeypatch.setattr(CheckpointStore, "update_manifest", unavailable)
    pipeline(spark, tmp_path).run()
    agree(spark, tmp_path, until, EPOCHS)


def test_I14_after_a_rollback_the_epochs_that_were_given_up_are_not_seen(
    spark: SparkSession, tmp_path: Path
) -> None:
    until = write_files(tmp_path / "in")
    pipeline(spark, tmp_path).run()
    with seamark.open_store(tmp_path / "store") as store:
        third = next(number for number, epoch in store.list() if epoch == 3)
    pipeline(spark, tmp_path).rollback(third)
    cut = seamark.read_epoch(tmp_path / "store")
    assert cut.epoch == 3
    agree_on_files(spark, cut, until)
    with pytest.raises(CheckpointNotFoundError):
        seamark.read_epoch(tmp_path / "store", 4)
    pipeline(spark, tmp_path).run()
    agree(spark, tmp_path, until, EPOCHS)
