"""Spark merges the files of closed ranges: same rows, same types, same folders, fewer files."""

from __future__ import annotations

import json
import os
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import pyarrow.dataset as ds
import pytest

import seamark
from seamark.sinks import FileSink
from seamark.store import open_store
from seamark.testing.conformance.sink_examples import PIPELINE, SINK, epoch
from tests.sinks.test_compaction import checkpoint

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark
SCHEMA = "n long, at timestamp, amount decimal(12,2), tags array<string>, day string, kind string"


def rows(spark: SparkSession, number: int) -> DataFrame:
    """Rows whose partitions look like numbers, are missing, or need quoting."""
    if number == 4:
        return spark.createDataFrame([], SCHEMA)
    days = ["01", "1", None, "a/b=c d"]
    made = [
        (number * 10 + at, f"1850-01-0{at + 1} 00:00:00.000001", days[at], "it's" if at else "x")
        for at in range(4)
    ]
    df = spark.createDataFrame(made, "n long, at string, day string, kind string")
    return df.selectExpr(
        "n", "to_timestamp(at) AS at", "CAST(n / 3 AS decimal(12,2)) AS amount",
        "array(kind, NULL) AS tags", "day", "kind",
    )  # fmt: skip


def read(spark: SparkSession, path: Path, file_format: str) -> Counter[str]:
    with_types = spark.newSession()
    with_types.conf.set("spark.sql.sources.partitionColumnTypeInference.enabled", "false")
    place = str(path).replace("[", "\\[").replace("]", "\\]")  # Spark takes patterns
    df = with_types.read.format(file_format).load(f"file://{place}").drop("epoch", "upto")
    columns = sorted(df.columns)
    return Counter(str(row) for row in df.select(*columns).collect())


@pytest.mark.parametrize("file_format", ["parquet", "json"])
@pytest.mark.parametrize("partition_by", [(), ("day", "kind")], ids=["flat", "partitioned"])
def test_merged_ranges_hold_the_same_rows_in_the_same_folders(
    spark: SparkSession,
    tmp_path: Path,
    file_format: Literal["parquet", "json"],
    partition_by: tuple[str, ...],
) -> None:
    path = tmp_path / "it's [rows]"
    sink = FileSink(path, file_format, partition_by, coalesce=2, epochs_per_folder=4)
    sink.open(PIPELINE, SINK, rows(spark, 1).schema)
    with open_store(tmp_path / "store") as store:
        store.claim()
        for number in range(1, 6):
            sink.stage(rows(spark, number), epoch(number), f"a{number}")
            sink.commit(sink.prepare())
        checkpoint(store, 5, str(path))
        before, parts, places = read(spark, path, file_format), part_files(path), folders(path)
        assert sink.compact(store, spark=spark) == [4]
    assert read(spark, path, file_format) == before
    assert len(part_files(path)) < len(parts)
    assert folders(path) == places
    assert sink.compact(tmp_path / "store", spark=spark) == []


def part_files(path: Path) -> list[Path]:
    return [*path.glob("upto=*/**/part-*")]


def folders(path: Path) -> set[tuple[str, ...]]:
    """The folders below epochs, which partitions are read from."""
    return {each.relative_to(path).parts[2:-1] for each in part_files(path)}


def test_a_pipeline_whose_old_epochs_are_merged_goes_on_and_is_read_at_one_epoch(
    spark: SparkSession, tmp_path: Path
) -> None:
    (tmp_path / "in").mkdir()
    expected: dict[int, Counter[Any]] = {0: Counter()}

    def put(number: int) -> None:
        file = tmp_path / f"in/{number}.json"
        lines = [{"n": number * 10 + at} for at in range(3)]
        file.write_text("\n".join(map(json.dumps, lines)))
        os.utime(file, (1_700_000_000 + number, 1_700_000_000 + number))
        expected[number] = expected[number - 1] + Counter(line["n"] for line in lines)

    def run() -> None:
        p = seamark.Pipeline("year", tmp_path / "store", keep=2, full_every=1)
        stream = spark.readStream.schema("n long").option("maxFilesPerTrigger", 1)
        rows = p.source("rows", stream.json(str(tmp_path / "in")))
        p.sink("rows", rows, FileSink(tmp_path / "out", epochs_per_folder=3))
        p.run()

    for number in range(1, 6):
        put(number)
    run()
    assert FileSink(tmp_path / "out", epochs_per_folder=3).compact(tmp_path / "store") == [3]
    put(6)
    run()
    table = ds.dataset(tmp_path / "out", format="parquet", partitioning="hive").to_table()
    assert Counter(table["n"].to_pylist()) == expected[6]
    for number in (5, 6):
        call = seamark.read_epoch(tmp_path / "store", number)["rows"].calls["spark"]
        found = eval(call, {"spark": spark})
        assert Counter(row.n for row in found.collect()) == expected[number]
