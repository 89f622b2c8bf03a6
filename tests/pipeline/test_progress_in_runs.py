"""The record of a real pipeline: with every epoch, behind after a crash, right after a start."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from seamark import open_store
from seamark.pipeline.declaration.settings import Step
from seamark.pipeline.telemetry.progress_record import positions_in
from seamark.progress import SourceCheckpoint, open_progress
from tests.pipeline.support.crashing import crash
from tests.pipeline.support.workloads import Uninterrupted, run, shown

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.warm
KIND = "stateless-one-sink"


def recorded(root: Path) -> tuple[dict[str, SourceCheckpoint], int | None]:
    with open_progress(f"rocksdb://{root}/store/progress", read_only=True) as store:
        return store.read_all_checkpoints(), store.read_config_hash()


def in_the_manifest(root: Path) -> tuple[dict[str, SourceCheckpoint], int | None]:
    with open_store(root / "store") as store:
        newest = store.load_latest()
    assert newest is not None
    positions = positions_in(newest)
    found = {name: SourceCheckpoint(newest.epoch, each) for name, each in positions.items()}
    return found, newest.pipeline_hash


def test_every_epoch_is_recorded_and_can_be_read_beside_the_run(
    spark: SparkSession, input_folder: Path, tmp_path: Path
) -> None:
    seen = []

    def read(step: Step, when: str, epoch: int) -> None:
        if (step, when) == (Step.RECORD, "after"):
            checkpoints, config_hash = recorded(tmp_path)
            seen.append((epoch, checkpoints["orders"].sequence, config_hash is not None))
            assert (checkpoints, config_hash) == in_the_manifest(tmp_path)

    run(spark, KIND, "hdfs", input_folder, tmp_path, on_step=read)
    assert seen == [(epoch, epoch, True) for epoch in range(1, 7)]


@pytest.mark.slow
def test_what_a_crash_has_left_behind_is_put_right_by_the_next_start(
    spark: SparkSession, uninterrupted: Uninterrupted, tmp_path: Path
) -> None:
    folder = uninterrupted.folder
    crash(spark, KIND, "hdfs", folder, tmp_path, "save:after:3")
    assert recorded(tmp_path)[0]["orders"].sequence == 2
    assert in_the_manifest(tmp_path)[0]["orders"].sequence == 3
    checked: list[int] = []

    def check(step: Step, when: str, epoch: int) -> None:
        if not checked:
            assert recorded(tmp_path) == in_the_manifest(tmp_path)
            checked.append(epoch)

    finished = run(spark, KIND, "hdfs", folder, tmp_path, on_step=check)
    assert checked == [4]
    assert "the progress record was brought to epoch 3" in finished.report.notes
    assert recorded(tmp_path) == in_the_manifest(tmp_path)
    assert shown(tmp_path) == uninterrupted(KIND)


@pytest.mark.slow
def test_a_record_that_is_gone_or_in_the_way_costs_no_epoch(
    spark: SparkSession,
    uninterrupted: Uninterrupted,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    def end(step: Step, when: str, epoch: int) -> None:
        if (step, when, epoch) == (Step.BEGIN, "before", 3):
            raise RuntimeError("so far")

    folder = uninterrupted.folder
    with pytest.raises(RuntimeError, match="so far"):
        run(spark, KIND, "hdfs", folder, tmp_path, on_step=end)
    shutil.rmtree(tmp_path / "store/progress")
    (tmp_path / "store/progress").write_text("in the way")
    finished = run(spark, KIND, "hdfs", folder, tmp_path)
    assert finished.epoch == 6
    assert "progress of the sources was not recorded" in caplog.text
    (tmp_path / "store/progress").unlink()
    run(spark, KIND, "hdfs", folder, tmp_path)
    assert recorded(tmp_path) == in_the_manifest(tmp_path)
    assert shown(tmp_path) == uninterrupted(KIND)


def test_a_pipeline_that_wants_no_record_writes_none(
    spark: SparkSession, input_folder: Path, tmp_path: Path
) -> None:
    run(spark, KIND, "hdfs", input_folder, tmp_path, progress=None)
    assert not (tmp_path / "store/progress").exists()
