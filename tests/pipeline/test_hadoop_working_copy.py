"""A pipeline whose working copy is on a file system that only Hadoop knows."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.checkpoint_dir.support.mounts import mounted_folder
from tests.pipeline.support.crashing import crash
from tests.pipeline.support.workloads import Uninterrupted, run, shown

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


@pytest.mark.sampled(1)
@pytest.mark.parametrize("wiped", [False, True], ids=["kept", "wiped"])
@pytest.mark.parametrize("capture", ["driver", "executors"])
@pytest.mark.parametrize(
    ("kind", "provider"),
    [
        ("windowed", "hdfs"),
        ("outer-join", "rocksdb-changelog"),
        ("deduplicated", "format2"),
    ],
)
def test_a_killed_epoch_goes_on_from_a_copy_that_hadoop_holds(
    spark: SparkSession,
    uninterrupted: Uninterrupted,
    tmp_path: Path,
    kind: str,
    provider: str,
    capture: str,
    wiped: bool,
) -> None:
    folder = uninterrupted.folder
    copies = tmp_path / "copies"
    with mounted_folder(spark, copies) as uri:
        there = {"working_copy": f"{uri}/p", "capture": capture}
        crash(spark, kind, provider, folder, tmp_path, "write:after:3", **there)
        assert any(copies.rglob("offsets/2"))
        if wiped:
            shutil.rmtree(copies / "p")
        first = run(spark, kind, provider, folder, tmp_path, **there)
        kept = first.report.working_copy.startswith("kept")
        assert kept is not wiped, first.report.working_copy
    assert not (tmp_path / "store" / "working").exists()
    assert shown(tmp_path) == uninterrupted(kind)
