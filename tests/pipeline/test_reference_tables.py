"""A stream joined with a Delta table: a restart reads the version that the checkpoint has."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from seamark import Pipeline, open_store
from seamark.errors import InvalidInputError
from seamark.sinks import DeltaSink, FileSink
from seamark.testing.conformance.sink_examples import epoch
from tests.pipeline.support.workloads import values_in

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

deltalake = pytest.importorskip("deltalake")

pytestmark = pytest.mark.spark

PART = "p [1] %"


def write_version(root: Path, name: str) -> None:
    rows = pa.table({"k": [1], "name": [name], "part": [PART]})
    deltalake.write_deltalake(root / "names", rows, mode="overwrite", partition_by=["part"])


def run(spark: SparkSession, root: Path, rows: str, version: str = "recorded") -> list[str]:
    """One epoch on a file of rows; the notes of its start."""
    (root / "in").mkdir(exist_ok=True)
    (root / "in" / f"{len(list((root / 'in').iterdir()))}.json").write_text(rows)
    p = Pipeline("joined", root / "store")
    names = p.table("names", root / "names", version=version)  # type: ignore[arg-type]
    stream = p.source("in", spark.readStream.schema("k int, v string").json(str(root / "in")))
    p.sink("out", stream.join(names, "k").select("v", "name", "part"), FileSink(root / "out"))
    return p.run().report.notes


def test_a_restart_joins_with_the_version_of_its_checkpoint_until_told_otherwise(
    spark: SparkSession, tmp_path: Path
) -> None:
    write_version(tmp_path, "old")
    run(spark, tmp_path, '{"k": 1, "v": "a"}')
    write_version(tmp_path, "new")
    run(spark, tmp_path, '{"k": 1, "v": "b"}')
    with open_store(tmp_path / "store") as store:
        newest = store.load_latest()
    assert newest is not None
    assert newest.table_offsets["names"].offsets["version"] == "0"
    assert Pipeline("joined", tmp_path / "store").recorded_version("names") == "0"
    assert Pipeline("joined", tmp_path / "store").recorded_version("others") is None
    notes = run(spark, tmp_path, '{"k": 1, "v": "c"}', version="latest")
    assert "table 'names' is not what it was: version 0 → version 1" in notes
    rows = sorted((row["v"], row["name"], row["part"]) for row in values_in(tmp_path / "out"))
    assert rows == [("a", "old", PART), ("b", "old", PART), ("c", "new", PART)]


def test_partition_columns_that_only_the_log_has_are_read_with_their_types(
    spark: SparkSession, tmp_path: Path
) -> None:
    """As ``DeltaSink`` lays out its files: the names of their folders say nothing."""
    chosen = "CAST(price AS DECIMAL(10, 2)) price, local, day, n, at, word"
    rows = spark.sql(
        f"""SELECT {chosen} FROM VALUES
        (1, date'2026-01-02', timestamp'2026-01-02 03:04:05Z', -1.5, 'a b%/c',
            timestamp_ntz'2026-01-02 03:04:05'),
        (2, date'1969-12-31', timestamp'1960-01-01 00:00:00.000001Z', 0.5, 'x',
            timestamp_ntz'1960-01-01 00:00:00'),
        (3, null, null, null, null, null)
        AS t(n, day, at, price, word, local)"""
    )
    columns = ["word", "at", "local", "day", "price"]
    sink = DeltaSink(tmp_path / "names", partition_by=columns)
    sink.open("trades", "bars", rows.schema)
    sink.stage(rows, epoch(1), "a1")
    sink.commit(sink.prepare())
    sink.close()
    table = Pipeline("read", tmp_path / "store").table("names", tmp_path / "names")
    assert table.schema.simpleString() == rows.schema.simpleString()
    assert sorted(map(str, table.collect())) == sorted(map(str, rows.collect()))
    assert [row.n for row in table.where("day = date'2026-01-02'").collect()] == [1]
    assert table.select("n").count() == 3


def test_a_dataframe_is_recorded_by_its_name_and_its_change_is_told(
    spark: SparkSession, tmp_path: Path
) -> None:
    spark.range(3).write.parquet(str(tmp_path / "ids"))
    p = Pipeline("named", tmp_path / "store")
    ids = p.table("allowed", spark.read.parquet(str(tmp_path / "ids")))
    with pytest.raises(InvalidInputError, match="there is a table 'allowed' already"):
        p.table("allowed", ids)
    with pytest.raises(InvalidInputError, match="'stream' is a stream"):
        p.table("stream", spark.readStream.format("rate").load())
    rate = p.source("rate", spark.readStream.format("rate").load())
    p.sink("out", rate.join(ids, rate.value == ids.id), FileSink(tmp_path / "out"))
    assert list(p._declared().identity.tables) == ["allowed"]
