"""A pipeline that changes on a cluster, with a working copy that only Hadoop reaches."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.integration.support.hdfs import Hdfs
from tests.pipeline.support.changing import shown
from tests.pipeline.support.changing_cluster import (
    Drivers,
    require_as_if_unchanged,
    require_elsewhere,
    require_equal_replays,
    require_fork,
    run_unchanged,
)
from tests.pipeline.support.cluster import standalone_cluster
from tests.pipeline.support.workloads import write_input

pytestmark = [
    pytest.mark.integration,
    pytest.mark.slow,
    pytest.mark.chaos,
    pytest.mark.timeout(2400),
]

STEPS = ("begin", "rescale", "upgrade", "replay", "fork")


@pytest.mark.parametrize("provider", ["rocksdb-changelog", "hdfs"])
def test_I15_a_pipeline_changes_with_a_working_copy_on_hdfs(
    hdfs: Hdfs, tmp_path: Path, provider: str
) -> None:
    root, unchanged = tmp_path / "changing", tmp_path / "unchanged"
    for folder in (root, unchanged):
        write_input(folder / "all", 2)
    run_unchanged(unchanged)
    place = f"/{tmp_path.name}-{provider}"
    with standalone_cluster(tmp_path / "cluster") as cluster:
        said = Drivers(cluster, root, hdfs.url + place, provider).run(*STEPS)
    require_as_if_unchanged(root, shown(unchanged))
    require_elsewhere(root, said, *STEPS)
    require_equal_replays(said["replay"])
    require_fork(root, said["fork"]["origin"], unchanged)
    # the copies are there, and nothing else: no folder of a rescale, an upgrade or a replay
    for name in ("shop", "fork"):
        assert [each for each in hdfs.names(f"{place}/{name}") if "-" in each] == []
        assert hdfs.size(f"{place}/{name}") > 0
    assert not (root / "shop" / "store" / "working").exists()
