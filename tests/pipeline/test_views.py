"""Live views in a pipeline: cut off anywhere, with the server restarted, they show the same."""

from __future__ import annotations

import json
import logging
import shutil
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from seamark import Pipeline, open_store
from seamark.errors import DamageError, RefusedError
from seamark.pipeline.declaration.settings import Step
from seamark.sinks import KeyValueSink
from seamark.testing.crashes import FailPoint, SimulatedCrash, When, crash_at
from tests.pipeline.support import views
from tests.pipeline.support.crashing import wipe
from tests.pipeline.support.views import run, shown, shown_in, url_of
from tests.pipeline.support.workloads import orders
from tests.support.databases import RedisServer
from tests.support.slow_cases import slow_except

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

POINTS = ("save:after:2", "commit:before:3", "commit:after:4", "record:after:5")


@pytest.fixture(scope="module")
def calm(
    spark: SparkSession, input_folder: Path, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, Any]:
    """What the sinks show when nothing happens."""
    root = tmp_path_factory.mktemp("calm")
    run(spark, input_folder, root)
    return shown(root)


def crash(spark: SparkSession, folder: Path, root: Path, point: str, **options: Any) -> None:
    """Run until the point is reached, and leave everything as a dead process would."""
    at = FailPoint.parse(point)
    with pytest.raises(SimulatedCrash, match=f"reached {point}"):
        run(spark, folder, root, on_step=crash_at(at.step, at.when, at.epoch), **options)


def fail(spark: SparkSession, folder: Path, root: Path, point: str, **options: Any) -> None:
    """Run until the point is reached, and end there in good order."""

    def end(step: Step, when: When, epoch: int) -> None:
        if str(FailPoint(step, when, epoch)) == point:
            raise RuntimeError("so far")

    with pytest.raises(RuntimeError, match="so far"):
        run(spark, folder, root, on_step=end, **options)


@pytest.mark.slow
@pytest.mark.warm
def test_the_views_hold_what_the_rows_make_of_them(calm: dict[str, Any]) -> None:
    counts = calm["counts"]
    key, row = next(iter(counts.items()))
    assert json.loads(key) == [row["window"]["start"], row["k"]]
    assert {*row} == {"window", "k", "n", "sum", "until"}
    assert len({row["window"]["start"] for row in counts.values()}) < 16, "half have expired"
    for slot, row in calm["slots"].items():
        assert (str(row["slot"]), row["id"] % 50) == (slot, row["slot"])
        assert row["v"] % 9 != 0
        assert "gone" not in row


@pytest.mark.warm
@pytest.mark.parametrize("server", slow_except(["rocksdb", "redis"]))
def test_I2_after_crashes_with_the_working_copy_gone_the_views_are_the_same(
    spark: SparkSession,
    input_folder: Path,
    tmp_path: Path,
    calm: dict[str, Any],
    server: str,
    request: pytest.FixtureRequest,
) -> None:
    redis: RedisServer | None = None
    if server == "redis":
        redis = request.getfixturevalue("redis")
        views.use_redis(tmp_path, redis)
    for number, point in enumerate(POINTS):
        crash(spark, input_folder, tmp_path, point)
        if number % 2 == 0:
            wipe(tmp_path)
        if redis is not None and number == 1:
            redis.kill()
            redis.start()
        elif redis is not None:
            redis.restart()
    finished = run(spark, input_folder, tmp_path)
    assert finished.report.epoch == 5
    assert shown(tmp_path) == calm


@pytest.mark.slow
@pytest.mark.warm
def test_a_redis_that_is_killed_and_started_again_in_the_middle_of_a_run_costs_nothing(
    spark: SparkSession,
    input_folder: Path,
    tmp_path: Path,
    calm: dict[str, Any],
    redis: RedisServer,
) -> None:
    views.use_redis(tmp_path, redis)
    done: list[str] = []

    def disturb(step: Step, when: str, epoch: int) -> None:
        if (step, when, epoch) in ((Step.PREPARE, "before", 2), (Step.COMMIT, "before", 3)):
            redis.kill()
            redis.start()
            done.append(f"{step.value}:{when}")
        elif (step, when, epoch) == (Step.COMMIT, "after", 4):
            redis.restart()
            done.append(f"{step.value}:{when}")

    run(spark, input_folder, tmp_path, on_step=disturb)
    assert len(done) == 3
    assert shown(tmp_path) == calm


@pytest.mark.slow
@pytest.mark.warm
def test_views_that_fell_behind_are_brought_up_by_the_next_start(
    spark: SparkSession,
    input_folder: Path,
    tmp_path: Path,
    calm: dict[str, Any],
    caplog: pytest.LogCaptureFixture,
) -> None:
    fail(spark, input_folder, tmp_path, "begin:before:3")
    for name in ("counts", "slots"):
        shutil.copytree(tmp_path / name, tmp_path / f"{name}-save", ignore=_only_the_database)
    fail(spark, input_folder, tmp_path, "commit:before:5")
    for name in ("counts", "slots"):
        for path in (tmp_path / name).iterdir():
            if path.is_file():
                path.unlink()
        shutil.copytree(tmp_path / f"{name}-save", tmp_path / name, dirs_exist_ok=True)
    with caplog.at_level(logging.WARNING, "seamark.sinks"):
        run(spark, input_folder, tmp_path)
    assert shown(tmp_path) == calm
    assert sum("fell behind" in record.message for record in caplog.records) == 4


@pytest.mark.spark
def test_a_view_that_lost_more_than_is_kept_says_what_can_be_done(
    spark: SparkSession, input_folder: Path, tmp_path: Path
) -> None:
    run(spark, input_folder, tmp_path)
    shutil.rmtree(tmp_path / "counts")
    with pytest.raises(DamageError, match="sink 'counts' cannot be brought to epoch 7") as refused:
        run(spark, input_folder, tmp_path)
    assert "the view shows nothing" in str(refused.value)


@pytest.mark.slow
@pytest.mark.warm
def test_late_rows_of_the_stream_are_left_out_of_a_view_that_expires(
    spark: SparkSession, input_folder: Path, tmp_path: Path
) -> None:
    p = Pipeline("late", tmp_path / "store", keep=20)
    source = p.source("orders", orders(spark, input_folder)).withWatermark("t", "20 seconds")
    sink = KeyValueSink(f"rocksdb://{tmp_path}/seen", key="slot", expire="t", order_by="v")
    p.sink("seen", source.selectExpr("id", "id % 200 AS slot", "v", "t"), sink)
    p.run()
    wanted: dict[str, Any] = {}
    late = 0
    with open_store(tmp_path / "store") as store:
        for number in range(1, 7):
            manifest = store.load_by_id(number)
            assert manifest is not None
            rows = _rows_of_file(input_folder, number - 1)
            in_time = [row for row in rows if _ms(row["t"]) > (manifest.watermark or 0)]
            late += len(rows) - len(in_time)
            wanted = {k: r for k, r in wanted.items() if _ms(r["t"]) > (manifest.watermark or 0)}
            best: dict[str, Any] = {}
            for row in sorted(in_time, key=lambda row: int(row["v"])):
                best[str(row["id"] % 200)] = row
            wanted |= best
    assert late > 20
    found = {
        key: (row["id"], row["v"]) for key, row in shown_in(f"rocksdb://{tmp_path}/seen").items()
    }
    assert found == {key: (row["id"], row["v"]) for key, row in wanted.items()}


# going back


@pytest.mark.spark
def test_a_rollback_that_a_view_cannot_follow_is_refused_and_changes_nothing(
    spark: SparkSession, input_folder: Path, tmp_path: Path, calm: dict[str, Any]
) -> None:
    crash(spark, input_folder, tmp_path, "begin:before:5")
    p = views.pipeline(spark, input_folder, tmp_path)
    with pytest.raises(RefusedError, match="undo=True"):
        p.rollback(3)
    finished = run(spark, input_folder, tmp_path)
    assert finished.report.epoch == 4
    assert shown(tmp_path) == calm


@pytest.mark.slow
@pytest.mark.parametrize(
    "server",
    [
        pytest.param("rocksdb", marks=pytest.mark.warm),
        pytest.param("redis", marks=pytest.mark.spark),
    ],
)
def test_views_that_keep_what_they_replace_follow_a_rollback(
    spark: SparkSession,
    input_folder: Path,
    tmp_path: Path,
    calm: dict[str, Any],
    server: str,
    request: pytest.FixtureRequest,
) -> None:
    if server == "redis":
        views.use_redis(tmp_path, request.getfixturevalue("redis"))
    at_three = tmp_path / "at-three"
    crash(spark, input_folder, at_three, "begin:before:4")
    run(spark, input_folder, tmp_path, undo=True, keep=20)
    views.pipeline(spark, input_folder, tmp_path, undo=True, keep=20).rollback(3)
    crash(spark, input_folder, tmp_path, "begin:before:4", undo=True, keep=20)
    for name in ("counts", "slots"):
        assert shown_in(url_of(tmp_path, name)) == shown_in(url_of(at_three, name))
        assert views.source_of(url_of(tmp_path, name)) == views.source_of(url_of(at_three, name))
    run(spark, input_folder, tmp_path, undo=True, keep=20)
    assert shown(tmp_path) == calm


@pytest.mark.spark
def test_a_reset_empties_the_views_and_fills_them_anew(
    spark: SparkSession, input_folder: Path, tmp_path: Path, calm: dict[str, Any]
) -> None:
    crash(spark, input_folder, tmp_path, "record:after:4")
    before = spark.conf.get("spark.sql.shuffle.partitions")
    spark.conf.set("spark.sql.shuffle.partitions", "3")
    try:
        finished = run(spark, input_folder, tmp_path, policy="auto_reset")
    finally:
        spark.conf.set("spark.sql.shuffle.partitions", before or "2")
    assert any("sink counts: 4 epochs taken back" in note for note in finished.report.notes)
    assert shown(tmp_path) == calm


def _only_the_database(folder: str, names: list[str]) -> set[str]:
    return {"_seamark", "LOCK"} & {*names}


def _rows_of_file(folder: Path, number: int) -> list[dict[str, Any]]:
    lines = (folder / "orders" / f"{number:03}.json").read_text().splitlines()
    return [json.loads(line) for line in lines]


def _ms(text: str) -> int:
    return int(datetime.fromisoformat(text).timestamp() * 1000)
