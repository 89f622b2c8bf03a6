"""An Iceberg table as the source of a pipeline, read by Spark without Iceberg's jars."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from seamark import Pipeline
from seamark.errors import PositionUnavailable
from seamark.pipeline.run import Run
from seamark.sinks import FileSink
from seamark.sources import IcebergSource
from tests.pipeline.support.workloads import values_in
from tests.sources.test_iceberg import World

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytest.importorskip("pyiceberg")
pytest.importorskip("sqlalchemy")
pytestmark = pytest.mark.spark


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


@pytest.fixture
def run(spark: SparkSession, world: World, tmp_path: Path) -> Callable[..., Run]:
    """Runs the pipeline on a machine until it has read what is there."""
    if tuple(map(int, spark.version.split(".")[:2])) < (4, 2):
        pytest.skip("available_now is refused for Python sources before Spark 4.2")
    spark.dataSource.register(IcebergSource)

    def run(machine: str, **settings: Any) -> Run:
        p = Pipeline("iceberg", tmp_path / "store", working_copy=tmp_path / machine, **settings)
        reader = spark.readStream.format("seamark_iceberg").option("table", "shop.orders")
        for name, value in world.properties.items():
            reader = reader.option(f"catalog.{name}", value)
        rows = p.source("t", reader.option("catalog", "lake").option("max_rows_per_epoch", 3))
        p.sink("out", rows, FileSink(tmp_path / "out"))
        return p.run()

    return run


def expire_all_but_the_newest(world: World) -> None:
    ids = [snapshot.snapshot_id for snapshot in world.table.metadata.snapshots]
    world.table.maintenance.expire_snapshots().by_ids(ids[:-1]).commit()


def test_appended_rows_come_once_across_restarts_maintenance_and_a_lost_working_copy(
    run: Callable[..., Run], world: World, tmp_path: Path
) -> None:
    world.append(*range(5))
    run("one")
    world.append(*range(5, 9))
    expire_all_but_the_newest(world)
    run("another")
    found = values_in(tmp_path / "out")
    assert sorted((row["id"], row["name"]) for row in found) == [(n, f"n{n}") for n in range(9)]


def test_a_start_after_unread_history_has_expired_is_refused_before_the_store_is_claimed(
    run: Callable[..., Run], world: World, tmp_path: Path
) -> None:
    world.append(*range(3))
    run("one")
    world.append(3)
    world.append(4)
    expire_all_but_the_newest(world)
    before = (tmp_path / "store/owner.json").read_bytes()
    with pytest.raises(PositionUnavailable, match="no longer has snapshot") as gone:
        run("one")
    assert gone.value.source == "t"
    assert (tmp_path / "store/owner.json").read_bytes() == before


def test_with_an_anchor_it_goes_on_at_what_is_left_and_every_later_checkpoint_tells_the_gap(
    run: Callable[..., Run], world: World, tmp_path: Path
) -> None:
    world.append(*range(3))
    run("one")
    world.append(3)
    world.append(4)
    left = world.table.metadata.current_snapshot_id
    expire_all_but_the_newest(world)
    told = run("one", reanchor={"t": "earliest"}).report.notes
    world.append(5)
    later = run("another").report.notes
    assert sorted(row["id"] for row in values_in(tmp_path / "out")) == [0, 1, 2, 4, 5]
    for notes in (told, later):
        assert f"the table went on at snapshot {left} instead of the end of" in " ".join(notes)
