"""A pipeline whose executors are other processes, one of which is lost on the way."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pyarrow.dataset as ds
import pytest

from tests.pipeline.support.cluster import standalone_cluster
from tests.pipeline.support.pauses import release, wait_for_pause

pytestmark = [pytest.mark.spark, pytest.mark.timeout(1200)]

_FILES = 6
_ROWS = 40


def _write_input(folder: Path) -> None:
    folder.mkdir(parents=True)
    for number in range(_FILES):
        rows = [
            {"k": row % 5, "v": number * _ROWS + row, "t": f"2026-01-01 00:{number:02}:{row:02}"}
            for row in range(_ROWS)
        ]
        (folder / f"{number}.json").write_text("\n".join(json.dumps(row) for row in rows))
        time.sleep(0.02)


def _rows(folder: Path) -> Counter[tuple[object, ...]]:
    table = ds.dataset(folder, format="parquet", partitioning="hive").to_table()
    names = [name for name in table.column_names if name != "epoch"]
    return Counter(tuple(row[name] for name in names) for row in table.to_pylist())


@pytest.mark.chaos  # make integration has a cluster with HDFS and S3
def test_executors_read_the_state_and_a_lost_worker_loses_and_repeats_no_row(
    tmp_path: Path,
) -> None:
    base = tmp_path / "pipeline"
    _write_input(base / "in")
    with standalone_cluster(tmp_path / "cluster") as cluster:
        driver = subprocess.Popen(
            [
                sys.executable,
                "-m",
                "tests.pipeline.support.cluster_child",
                cluster.url,
                str(base),
                "write:before:3",
            ]
        )
        try:
            wait_for_pause(base, "write:before:3", driver)
            cluster.workers[0].kill()
            release(base, "write:before:3")
            assert driver.wait(280) == 0
        finally:
            driver.kill()
            driver.wait()
    result = json.loads((base / "result.json").read_text())
    readers = {pid for _, pid in result["read_by"]}
    assert readers, "no task has read a state file"
    assert result["driver"] not in readers
    assert not result["fell_back"]
    assert result["epoch"] == _FILES + 1
    expected = Counter(
        (row % 5, number * _ROWS + row) for number in range(_FILES) for row in range(_ROWS)
    )
    assert _rows(base / "all") == expected
    # windows of 10 s, five keys, four windows a file; the last window of all is still open
    closed = sum(_rows(base / "sums").values())
    assert closed == (_FILES * 4 - 1) * 5


def test_a_local_default_for_the_working_copy_is_refused_with_executors_elsewhere() -> None:
    from seamark.errors import RefusedError
    from seamark.pipeline.recovery.working_dirs import shared_place

    with pytest.raises(RefusedError, match="share"):
        shared_place(None)
