"""A start is cut off as well as an epoch: in every step of a recovery, again and again."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest

from seamark import open_store
from seamark.errors import LineageError
from seamark.pipeline.recovery import copy_maker, recovery
from seamark.pipeline.recovery.working_dirs import WorkingDirs
from seamark.testing.crashes import SimulatedCrash, When
from tests.pipeline.support.crashing import WHEN, crash, wipe
from tests.pipeline.support.workloads import Uninterrupted, run, shown, write_input
from tests.pipeline.test_hard_cases import damage_newest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

STEPS: Final = (
    (recovery, "finish_sinks"),
    (WorkingDirs, "take_over"),
    (copy_maker, "keep"),
    (WorkingDirs, "mark_unfinished"),
    (copy_maker, "restore_index"),
    (recovery, "reorder_sources"),
    (recovery, "install_plan"),
    (WorkingDirs, "mark_ready"),
    (WorkingDirs, "remove_others"),
)
"""What a start does: functions that recovery calls, and methods of its working directories."""


def dying(step: Callable[..., Any], when: When, reached: list[str]) -> Callable[..., Any]:
    """A step that dies before or after its work."""

    def die(*args: Any, **kwargs: Any) -> Any:
        if when == "after":
            step(*args, **kwargs)
        reached.append(f"{step.__name__}:{when}")
        raise SimulatedCrash(reached[-1])

    return die


@pytest.mark.sampled(1)
@pytest.mark.parametrize("wiped", [False, True], ids=["kept", "wiped"])
@pytest.mark.parametrize(
    ("kind", "provider", "point"),
    [
        ("windowed", "hdfs", "save:after:3"),
        ("outer-join", "rocksdb-changelog", "write:after:4"),
        ("deduplicated", "format2", "record:after:4"),
    ],
)
def test_a_start_that_dies_in_any_of_its_steps_is_simply_started_again(
    spark: SparkSession,
    uninterrupted: Uninterrupted,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    kind: str,
    provider: str,
    point: str,
    wiped: bool,
) -> None:
    folder = uninterrupted.folder
    crash(spark, kind, provider, folder, tmp_path, point)
    reached: list[str] = []
    for owner, name in STEPS:
        for when in WHEN:
            if wiped:
                wipe(tmp_path)
            with monkeypatch.context() as patch:
                patch.setattr(owner, name, dying(getattr(owner, name), when, reached))
                try:
                    run(spark, kind, provider, folder, tmp_path, on_step=crash_in_epoch_5)
                except SimulatedCrash:
                    continue
    used = {step.partition(":")[0] for step in reached}
    assert {"finish_sinks", "mark_ready", "remove_others", "restore_index"} <= used
    run(spark, kind, provider, folder, tmp_path)
    assert shown(tmp_path) == uninterrupted(kind)


def crash_in_epoch_5(step: str, when: str, epoch: int) -> None:
    """For starts that did not need the step in which they were to die."""
    if epoch == 5:
        raise SimulatedCrash("in epoch 5")


@pytest.mark.sampled(1)
@pytest.mark.parametrize("wiped", [False, True], ids=["kept", "wiped"])
@pytest.mark.parametrize("decided", [9, 10, 11])
def test_damage_around_a_compaction_of_the_sources_log_runs_the_same_files_again(
    spark: SparkSession, tmp_path: Path, decided: int, wiped: bool
) -> None:
    folder = write_input(tmp_path / "input", 13)
    kind, provider, damaged = "stateless-one-sink", "hdfs", tmp_path / "damaged"
    options: dict[str, Any] = {"keep": 20, "full_every": 4}
    crash(spark, kind, provider, folder, damaged, f"record:after:{decided}", **options)
    damage_newest(damaged, "manifest.json", 2)
    if wiped:
        wipe(damaged)
    finished = run(spark, kind, provider, folder, damaged, **options)
    assert finished.report.epoch == decided - 2
    run(spark, kind, provider, folder, tmp_path / "calm", **options)
    assert shown(damaged) == shown(tmp_path / "calm")


def test_starts_on_a_wrong_store_remove_nothing_that_the_right_one_still_has_to_show(
    spark: SparkSession, uninterrupted: Uninterrupted, tmp_path: Path
) -> None:
    kind, provider, store = "stateless-one-sink", "hdfs", tmp_path / "store"
    crash(spark, kind, provider, uninterrupted.folder, tmp_path, "save:after:3")
    store.rename(tmp_path / "right")
    for _ in range(2):  # each claims its store, so the second is of a later generation
        with pytest.raises(LineageError, match="no checkpoint, and sinks show epochs already"):
            run(spark, kind, provider, uninterrupted.folder, tmp_path)
    store.rename(tmp_path / "wrong")
    (tmp_path / "right").rename(store)
    finished = run(spark, kind, provider, uninterrupted.folder, tmp_path).report.finished
    assert finished == {"main": "committed from its committable"}
    assert shown(tmp_path) == uninterrupted(kind)


def test_a_first_epoch_that_is_decided_and_not_shown_survives_runs_on_a_wrong_store(
    spark: SparkSession, uninterrupted: Uninterrupted, tmp_path: Path
) -> None:
    kind, provider, store = "stateless-one-sink", "hdfs", tmp_path / "store"
    crash(spark, kind, provider, uninterrupted.folder, tmp_path, "save:after:1")
    store.rename(tmp_path / "right")
    for _ in range(2):  # nothing is shown yet, so nothing tells that the store is the wrong one
        crash(spark, kind, provider, uninterrupted.folder, tmp_path, "write:after:1")
    store.rename(tmp_path / "wrong")
    (tmp_path / "right").rename(store)
    report = run(spark, kind, provider, uninterrupted.folder, tmp_path).report
    assert report.finished == {"main": "committed from its committable"}
    assert any("Is this the right store?" in note for note in report.notes)
    assert shown(tmp_path) == uninterrupted(kind)


def test_the_working_copy_of_every_start_but_the_last_is_gone(
    spark: SparkSession, uninterrupted: Uninterrupted, tmp_path: Path
) -> None:
    for point in ("write:after:2", "save:after:3", "record:after:4"):
        crash(spark, "windowed", "rocksdb", uninterrupted.folder, tmp_path, point)
    run(spark, "windowed", "rocksdb", uninterrupted.folder, tmp_path)
    with open_store(tmp_path / "store") as store:
        generation = store.owner().generation
    copies = [path.name for path in (tmp_path / "store" / "working").iterdir() if path.is_dir()]
    assert copies == [f"g{generation}"]
