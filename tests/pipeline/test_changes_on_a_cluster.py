"""A pipeline that changes where tasks run in other processes than the driver."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.pipeline.support.changing import Changing, checkpoints, shown
from tests.pipeline.support.changing_cluster import (
    Drivers,
    require_as_if_unchanged,
    require_elsewhere,
    require_equal_replays,
    require_fork,
)
from tests.pipeline.support.cluster import standalone_cluster
from tests.pipeline.support.pauses import release
from tests.pipeline.support.workloads import write_input

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.timeout(2400)]


@pytest.mark.parametrize(
    ("provider", "files"),
    [("hdfs", 3), ("hdfs", 6), ("rocksdb-changelog", 6), ("format2-changelog", 6)],
)
def test_I15_a_pipeline_changes_on_a_cluster_as_if_it_had_always_been_so(
    spark: SparkSession, tmp_path: Path, provider: str, files: int
) -> None:
    root, unchanged = tmp_path / "changing", tmp_path / "unchanged"
    for folder in (root, unchanged):
        write_input(folder / "all", files - 1)
    Changing(spark, unchanged).run_unchanged()
    steps = ["begin", "rescale", "upgrade", "replay", *(["fork"] if files > 3 else [])]
    with standalone_cluster(tmp_path / "cluster") as cluster:
        said = Drivers(cluster, root, str(root / "shared"), provider).run(*steps)
    require_as_if_unchanged(root, shown(unchanged))
    require_elsewhere(root, said, *steps)
    require_equal_replays(said["replay"])
    if "fork" in steps:
        require_fork(root, said["fork"]["origin"], unchanged)


@pytest.mark.chaos
@pytest.mark.parametrize("provider", ["hdfs", "rocksdb-changelog"])
def test_I15_lost_workers_and_a_killed_driver_leave_the_old_pipeline_or_the_new_one(
    spark: SparkSession, tmp_path: Path, provider: str
) -> None:
    root, unchanged = tmp_path / "changing", tmp_path / "unchanged"
    for folder in (root, unchanged):
        write_input(folder / "all", 2)
    Changing(spark, unchanged).run_unchanged()
    with standalone_cluster(tmp_path / "cluster") as cluster:
        drivers = Drivers(cluster, root, str(root / "shared"), provider)
        with drivers.started("begin", "rescale@restored") as driver:
            drivers.lose_a_worker(driver, "restored")
            release(root, "restored")
            said = drivers.finished(driver)
        require_elsewhere(root, said, "begin", "rescale")
        with drivers.started("upgrade@rewritten") as driver:
            drivers.lose_a_worker(driver, "rewritten")
            drivers.kill(driver)
        newest = checkpoints(root)[-1]
        assert (newest.state_partitions, newest.upgrade) == (7, None)
        with drivers.started("upgrade", "replay@computed") as driver:
            drivers.lose_a_worker(driver, "computed")
            release(root, "computed")
            said = drivers.finished(driver)
            lost = said["replay"]["epochs"].pop("1")
        again = drivers.run("replay")
    assert "an executor that held rows was lost" in lost["error"], lost
    require_equal_replays(said["replay"])
    require_as_if_unchanged(root, shown(unchanged))
    require_elsewhere(root, said, "upgrade", "replay")
    require_equal_replays(again["replay"])
