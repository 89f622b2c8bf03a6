"""The order in which sinks are declared decides what Spark calls its sources and its state."""

from __future__ import annotations

import json
import time
from collections import Counter
from pathlib import Path

import pyarrow.dataset as ds
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

import seamark
from seamark.errors import RefusedError
from seamark.sinks import FileSink

pytestmark = pytest.mark.spark


def put(folder: Path, name: str, first: int) -> None:
    folder.mkdir(exist_ok=True)
    rows = [{"v": number} for number in range(first, first + 5)]
    (folder / f"{name}.json").write_text("\n".join(map(json.dumps, rows)))
    time.sleep(0.01)


def read(spark: SparkSession, folder: Path) -> DataFrame:
    stream = spark.readStream.schema("v int").option("maxFilesPerTrigger", 1)
    return stream.json(str(folder))


def visible(folder: Path) -> Counter[int]:
    return Counter(ds.dataset(folder, format="parquet").to_table()["v"].to_pylist())


def test_sources_keep_their_positions_when_their_sinks_are_declared_the_other_way_round(
    spark: SparkSession, tmp_path: Path
) -> None:
    def run(*order: str) -> None:
        pipeline = seamark.Pipeline("two", tmp_path / "store")
        streams = {
            name: pipeline.source(name, read(spark, tmp_path / f"in_{name}")) for name in ("a", "b")
        }
        for name in order:
            pipeline.sink(f"out_{name}", streams[name], FileSink(tmp_path / f"out_{name}"))
        pipeline.run()

    expected: dict[str, Counter[int]] = {"a": Counter(), "b": Counter()}
    for turn, order in enumerate(["ab", "ba", "ba", "ab", "ab"]):
        for name, base in (("a", 1000), ("b", 2000)):
            for number in range(2):
                first = base + turn * 10 + number * 5
                put(tmp_path / f"in_{name}", f"{turn}-{number}", first)
                expected[name].update(range(first, first + 5))
        run(*order)
        for name in ("a", "b"):
            assert visible(tmp_path / f"out_{name}") == expected[name], (turn, order)


def test_two_aggregations_never_swap_their_state(spark: SparkSession, tmp_path: Path) -> None:
    def declared(*order: str) -> seamark.Pipeline:
        pipeline = seamark.Pipeline("sums", tmp_path / "store", output_mode="update")
        rows = pipeline.source("rows", read(spark, tmp_path / "in"))
        for name in order:
            part = rows.where("v < 100" if name == "small" else "v >= 100")
            total = part.groupBy().agg(f.sum("v").alias("s"))
            pipeline.sink(name, total, FileSink(tmp_path / name))
        return pipeline

    put(tmp_path / "in", "0", 1)
    put(tmp_path / "in", "1", 1000)
    declared("small", "large").run()
    with pytest.raises(RefusedError, match="declared"):
        declared("large", "small").run()
    put(tmp_path / "in", "2", 11)
    declared("small", "large").run()
    sums = ds.dataset(tmp_path / "small", format="parquet", partitioning="hive").to_table()
    newest = max(sums.to_pylist(), key=lambda row: row["epoch"])
    assert newest["s"] == sum(range(1, 6)) + sum(range(11, 16))
