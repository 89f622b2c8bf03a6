"""Real ``kill -9`` of the process that runs a pipeline; its JVM dies too, and nothing is lost."""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from seamark._common.file_lock import is_locked
from seamark.capture.checkpoint_contents import Chain
from seamark.store import open_store
from tests.conftest import SEED
from tests.pipeline.support.child import WAIT_FOR_MOVES, has_base
from tests.pipeline.support.crashing import POINTS, wipe
from tests.pipeline.support.killing import child, killed_at
from tests.pipeline.support.workloads import Uninterrupted, run, shown, write_input

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

REALLY = ("write:before", "save:before", "save:after", "commit:after")
"""Before and after the decision, and before and after the sinks show it."""

LONG = 40
"""Epochs of an input that is long enough to be killed in the middle several times."""


@pytest.mark.sampled(1)
@pytest.mark.slow
@pytest.mark.warm
@pytest.mark.parametrize(
    ("kind", "provider", "point"),
    [
        ("windowed", "hdfs", "save:after:3"),
        ("outer-join", "rocksdb-changelog", "commit:between:3"),
        ("deduplicated", "rocksdb", "record:after:3"),
    ],
)
def test_a_killed_pipeline_goes_on_and_shows_every_row_once(
    spark: SparkSession,
    uninterrupted: Uninterrupted,
    tmp_path: Path,
    kind: str,
    provider: str,
    point: str,
) -> None:
    killed_at(kind, provider, uninterrupted.folder, tmp_path, point)
    finished = run(spark, kind, provider, uninterrupted.folder, tmp_path)
    assert finished.report.epoch == 3
    assert shown(tmp_path) == uninterrupted(kind)


@pytest.mark.sampled(1)
@pytest.mark.slow
@pytest.mark.warm
@pytest.mark.timeout(1200)
@pytest.mark.parametrize(
    ("kind", "provider"),
    [
        ("windowed", "hdfs"),
        ("outer-join", "rocksdb-changelog"),
        ("deduplicated", "format2-changelog"),
        ("transformed-state", "rocksdb-changelog"),
    ],
)
def test_I11_a_store_whose_base_followed_sparks_snapshots_restores_the_same_state(
    spark: SparkSession,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    kind: str,
    provider: str,
) -> None:
    folder = write_input(tmp_path / "input", 12)
    monkeypatch.setenv(WAIT_FOR_MOVES, "1")
    killed_at(kind, provider, folder, tmp_path / "killed", "record:after:11")
    with open_store(tmp_path / "killed" / "store") as store:
        newest = store.load_latest()
        assert newest is not None
        index = Chain.load(store, newest).index
    assert index is not None
    assert has_base(index)
    wipe(tmp_path / "killed")
    run(spark, kind, provider, folder, tmp_path / "killed")
    run(spark, kind, provider, folder, tmp_path / "calm")
    assert shown(tmp_path / "killed") == shown(tmp_path / "calm")


@pytest.mark.slow
@pytest.mark.warm
@pytest.mark.timeout(1200)
def test_I11_a_short_run_ends_with_a_checkpoint_that_begins_with_sparks_newest_snapshot(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kind, provider = "deduplicated", "rocksdb-changelog"
    folder = write_input(tmp_path / "input", 4)
    monkeypatch.setenv(WAIT_FOR_MOVES, "1")
    with child(kind, provider, folder, tmp_path / "short") as process:
        assert process.process.wait(600) == 0, process.said()
    with open_store(tmp_path / "short" / "store") as store:
        newest = store.load_latest()
        assert newest is not None
        assert store.validate_checkpoint(newest.checkpoint_id).valid
        index = Chain.load(store, newest).index
    assert index is not None
    assert has_base(index)
    wipe(tmp_path / "short")
    run(spark, kind, provider, folder, tmp_path / "short")
    run(spark, kind, provider, folder, tmp_path / "calm")
    assert shown(tmp_path / "short") == shown(tmp_path / "calm")


@pytest.mark.spark
@pytest.mark.parametrize(
    "point",
    # the same points are met by crashes within a process; here it is the real kill that counts
    [p if p in REALLY else pytest.param(p, marks=pytest.mark.chaos) for p in POINTS],
)
def test_a_kill_at_any_point_of_an_epoch_loses_nothing(
    spark: SparkSession, uninterrupted: Uninterrupted, tmp_path: Path, point: str
) -> None:
    killed_at("outer-join", "rocksdb-changelog", uninterrupted.folder, tmp_path, f"{point}:4")
    if point.endswith("after"):
        wipe(tmp_path)
    run(spark, "outer-join", "rocksdb-changelog", uninterrupted.folder, tmp_path)
    assert shown(tmp_path) == uninterrupted("outer-join")


@pytest.mark.spark
@pytest.mark.chaos
@pytest.mark.timeout(1200)
def test_three_kills_at_any_time_lose_nothing(spark: SparkSession, tmp_path: Path) -> None:
    kill_often(spark, tmp_path, "windowed", "rocksdb-changelog", 3, seeded())


@pytest.mark.spark
def test_a_writer_that_was_paused_while_another_took_over_is_told_and_shows_nothing_more(
    spark: SparkSession, uninterrupted: Uninterrupted, tmp_path: Path
) -> None:
    with child("windowed", "hdfs", uninterrupted.folder, tmp_path) as paused:
        paused.wait_until_running()
        jvm = int((tmp_path / "jvm.pid").read_text(encoding="utf-8"))
        while not (tmp_path / "main" / "epoch=000002").exists():
            assert paused.process.poll() is None, paused.said()
            time.sleep(0.005)
        pause((paused.process.pid, jvm), tmp_path / "store")
        run(spark, "windowed", "hdfs", uninterrupted.folder, tmp_path)
        before = shown(tmp_path)
        for pid in (jvm, paused.process.pid):
            os.kill(pid, signal.SIGCONT)
        assert paused.process.wait(280) == 1
        assert "FencedError" in paused.said()
    assert before == shown(tmp_path) == uninterrupted("windowed")


def pause(pids: Sequence[int], store: Path) -> None:
    """Stop processes, but not while they hold the store's lock: nobody could take over then."""
    while True:
        for pid in pids:
            os.kill(pid, signal.SIGSTOP)
        time.sleep(0.05)  # a thread on another core may go on for a moment
        if not is_locked(str(store / "locks" / "writers.lock")):
            return
        for pid in pids:
            os.kill(pid, signal.SIGCONT)
        time.sleep(0.001)


def seeded() -> random.Random:
    return random.Random(os.environ[SEED])


def kill_often(
    spark: SparkSession, root: Path, kind: str, provider: str, kills: int, dice: random.Random
) -> int:
    """Kill a long run so many times, or until it is at its end; how often it was killed."""
    folder = write_input(root / "input", LONG)
    done = 0
    for number in range(kills):
        with child(kind, provider, folder, root / "killed") as dying:
            dying.wait_until_running()
            time.sleep(dice.uniform(0.5, 8.0))
            if (root / "killed" / "done").exists():
                break
            dying.process.send_signal(signal.SIGKILL)
            dying.wait_until_killed()
        done += 1
        if dice.random() < 0.5:
            wipe(root / "killed")
        print(f"kill {number + 1} of {kind} on {provider}")  # noqa: T201 - shown by -rP
    run(spark, kind, provider, folder, root / "killed")
    run(spark, kind, provider, folder, root / "calm")
    assert shown(root / "killed") == shown(root / "calm")
    return done
