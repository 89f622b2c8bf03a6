"""A Delta table as the source of a pipeline, read by Spark without Delta's jars."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from seamark import Pipeline, open_store
from seamark.errors import InvalidInputError, PositionUnavailable
from seamark.pipeline.run import Run
from seamark.sinks import FileSink
from seamark.sources import DeltaSource
from tests.pipeline.support.workloads import values_in
from tests.sources.test_delta import append

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

deltalake = pytest.importorskip("deltalake")
AddAction = pytest.importorskip("deltalake.transaction").AddAction

pytestmark = pytest.mark.spark


@pytest.fixture
def run(spark: SparkSession, tmp_path: Path) -> Callable[..., Run]:
    """Runs the pipeline on a machine until it has read what is there."""
    if tuple(map(int, spark.version.split(".")[:2])) < (4, 2):
        pytest.skip("available_now is refused for Python sources before Spark 4.2")
    spark.dataSource.register(DeltaSource)

    def run(machine: str, **settings: Any) -> Run:
        p = Pipeline("delta", tmp_path / "store", working_copy=tmp_path / machine, **settings)
        reader = spark.readStream.format("seamark_delta").option("path", str(tmp_path / "t"))
        rows = p.source("t", reader.option("max_rows_per_epoch", 3))
        p.sink("out", rows, FileSink(tmp_path / "out"))
        return p.run()

    return run


def test_appended_rows_come_once_across_restarts_maintenance_and_a_lost_working_copy(
    run: Callable[..., Run], tmp_path: Path
) -> None:
    append(tmp_path / "t", *range(3))
    append(tmp_path / "t", *range(3, 5))
    run("one")
    deltalake.DeltaTable(tmp_path / "t").optimize.compact()
    epoch = run("one").epoch
    assert run("another").epoch == epoch, "a compaction is passed once"
    append(tmp_path / "t", *range(5, 9))
    deltalake.DeltaTable(tmp_path / "t").create_checkpoint()
    for version in (0, 1, 2):
        (tmp_path / "t/_delta_log" / f"{version:020}.json").unlink()
    run("another")
    found = values_in(tmp_path / "out")
    assert sorted(row["id"] for row in found) == list(range(9))


def test_a_start_after_unread_history_has_expired_is_refused_before_the_store_is_claimed(
    run: Callable[..., Run], tmp_path: Path
) -> None:
    append(tmp_path / "t", *range(3))
    run("one")
    append(tmp_path / "t", 3)
    append(tmp_path / "t", 4)
    deltalake.DeltaTable(tmp_path / "t").create_checkpoint()
    for version in (0, 1):
        (tmp_path / "t/_delta_log" / f"{version:020}.json").unlink()
    before = (tmp_path / "store/owner.json").read_bytes()
    with pytest.raises(PositionUnavailable, match="version 1 is wanted, the oldest") as gone:
        run("one")
    assert (gone.value.source, gone.value.earliest) == ("t", b"2")
    assert (tmp_path / "store/owner.json").read_bytes() == before


def test_timestamps_that_spark_has_written_are_the_same_moments_again(
    spark: SparkSession, run: Callable[..., Run], tmp_path: Path
) -> None:
    """By default Spark writes them as INT96."""
    written = spark.sql(
        "SELECT timestamp'2026-07-01 12:00:00.000007' AS at, timestamp_ntz'9999-12-31 23:59:59' "
        "AS local, timestamp'9999-12-30 23:59:59Z' AS latest"
    )
    schema = deltalake.Schema.from_json(written.schema.json())
    table = deltalake.DeltaTable.create(str(tmp_path / "t"), schema)
    written.coalesce(1).write.parquet(str(tmp_path / "t/b"))
    [file] = (tmp_path / "t/b").glob("*.parquet")
    added = AddAction(f"b/{file.name}", file.stat().st_size, {}, 0, True, "{}")
    table.create_write_transaction([added], "append", schema, [])
    run("one")
    assert spark.read.parquet(str(tmp_path / "out")).select(*written.columns).collect() == (
        written.collect()
    )


@pytest.mark.parametrize("machine", ["one", "another"])
def test_with_an_anchor_it_goes_on_at_what_is_left_and_every_later_checkpoint_tells_the_gap(
    run: Callable[..., Run], tmp_path: Path, machine: str
) -> None:
    append(tmp_path / "t", *range(3))
    run("one")
    for number in range(3, 6):
        append(tmp_path / "t", number)
    deltalake.DeltaTable(tmp_path / "t").create_checkpoint()
    for version in (0, 1, 2):
        (tmp_path / "t/_delta_log" / f"{version:020}.json").unlink()
    with pytest.raises(PositionUnavailable, match=r"reanchor=\{'t': 'earliest'\}"):
        run("one")
    told = run(machine, reanchor={"t": "earliest"}).report.notes
    append(tmp_path / "t", 6)
    later = run("one" if machine == "another" else "another").report.notes
    found = values_in(tmp_path / "out")
    assert sorted(row["id"] for row in found) == [0, 1, 2, 5, 6]
    for notes in (told, later):
        assert "the table went on at version 3 instead of version 1" in " ".join(notes)
    with open_store(tmp_path / "store") as store:
        newest = store.load_latest()
    assert newest is not None
    [gap] = newest.gaps
    assert gap["source"] == "t"
    assert [(move["from"], move["to"]) for move in gap["moves"]] == [("version 1", "version 3")]


def test_an_anchor_does_nothing_for_a_table_that_can_be_read(
    run: Callable[..., Run], tmp_path: Path
) -> None:
    append(tmp_path / "t", 1)
    run("one", reanchor={"t": "latest"})
    append(tmp_path / "t", 2)
    run("one", reanchor={"t": "latest"})
    assert sorted(row["id"] for row in values_in(tmp_path / "out")) == [1, 2]
    with pytest.raises(InvalidInputError, match="'t' names offsets, and it does not read from"):
        run("one", reanchor={"t": {"topic": {0: 1}}})
