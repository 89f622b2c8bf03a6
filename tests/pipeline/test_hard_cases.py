"""What is hard to get right after a crash: rows that differ with every try, damage, leftovers."""

from __future__ import annotations

import shutil
import threading
import time
from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import pytest

from seamark import FencedError, Pipeline, open_store
from seamark.capture.checkpoint_contents import Sizes
from seamark.errors import RefusedError
from seamark.pipeline.declaration.settings import Step
from seamark.sinks import FileSink, ForeachBatchSink
from seamark.testing.crashes import SimulatedCrash, crash_at
from tests.pipeline.support.crashing import crash, wipe
from tests.pipeline.support.workloads import (
    Uninterrupted,
    orders,
    payments,
    pipeline,
    provider_of,
    run,
    shown,
    values_in,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark


# rows that come out different whenever a batch runs again


def chance(source: DataFrame) -> DataFrame:
    """A column that no second try can repeat."""
    from pyspark.sql import functions as f

    return source.withColumn("r", (f.rand() * 1_000_000).cast("long"))


def totals_of_chance(p: Pipeline, spark: SparkSession, folder: Path, root: Path) -> None:
    """What each epoch adds to a key, beside the key's total so far, which comes from state."""
    from pyspark.sql.streaming.state import GroupStateTimeout

    def add(key: Any, frames: Any, state: Any) -> Any:
        import pandas as pd

        added = sum(int(frame["r"].sum()) for frame in frames)
        total = added + (state.get[0] if state.exists else 0)
        state.update((total,))
        yield pd.DataFrame({"k": [key[0]], "added": [added], "total": [total]})

    grouped = chance(p.source("orders", orders(spark, folder))).groupBy("k")
    columns = "k int, added long, total long"
    totals = grouped.applyInPandasWithState(
        add, columns, "total long", "append", GroupStateTimeout.NoTimeout
    )
    p.sink("main", totals, FileSink(root / "main"))


def joins_with_chance(p: Pipeline, spark: SparkSession, folder: Path, root: Path) -> None:
    """Orders with a payment of their epoch and with one of the next, which comes from state."""
    from pyspark.sql import functions as f

    ordered = chance(p.source("orders", orders(spark, folder)).where("id % 60 < 10"))
    paid = p.source("payments", payments(spark, folder)).selectExpr(
        "pt", "explode(array(order, order + 1, order - 60, order - 59)) AS order"
    )
    near = f.expr("id = order AND pt >= t - INTERVAL 3 MINUTES AND pt <= t + INTERVAL 3 MINUTES")
    both = ordered.withWatermark("t", "1 minute").join(
        paid.withWatermark("pt", "1 minute"), near, "inner"
    )
    p.sink("main", both.select("id", "t", "r", "pt"), FileSink(root / "main"))


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    ("provider", "point"),
    [
        ("hdfs", "write:after:3"),
        ("hdfs", "save:after:3"),
        ("hdfs", "record:after:3"),
        ("rocksdb", "write:after:3"),
        ("format2-changelog", "write:after:3"),
        ("format2-changelog", "save:after:3"),
    ],
)
def test_state_and_sink_agree_on_rows_that_a_second_try_does_not_repeat(
    spark: SparkSession, input_folder: Path, tmp_path: Path, provider: str, point: str
) -> None:
    tried = _crash_and_finish(spark, totals_of_chance, input_folder, tmp_path, provider, point)
    rows = values_in(tmp_path / "main")
    totals: dict[int, int] = defaultdict(int)
    for row in sorted(rows, key=lambda row: row["epoch"]):
        totals[row["k"]] += row["added"]
        assert row["total"] == totals[row["k"]], f"epoch {row['epoch']}: state of another try"
    if point.startswith("write"):
        kept = [row["added"] for row in rows if row["epoch"] == 3]
        assert tried
        assert set(kept).isdisjoint(tried), "the second try repeated the first"


@pytest.mark.parametrize(
    ("provider", "point"),
    [
        ("hdfs", "write:after:3"),
        ("hdfs", "save:after:3"),
        ("rocksdb-changelog", "write:after:3"),
        ("format2", "save:after:3"),
    ],
)
def test_a_join_shows_the_same_chance_in_the_epoch_that_drew_it_and_from_state(
    spark: SparkSession, input_folder: Path, tmp_path: Path, provider: str, point: str
) -> None:
    _crash_and_finish(spark, joins_with_chance, input_folder, tmp_path, provider, point)
    drawn: dict[tuple[Any, ...], set[int]] = defaultdict(set)
    epochs: dict[tuple[Any, ...], set[int]] = defaultdict(set)
    for row in values_in(tmp_path / "main"):
        # an order that is repeated in the next epoch draws a second number of its own
        drawn[row["id"], row["t"]].add(row["r"])
        epochs[row["id"], row["t"]].add(row["epoch"])
    from_epoch_3 = [order for order in drawn if 120 <= order[0] < 180 and order[0] % 4]
    assert any(len(epochs[order]) > 1 for order in from_epoch_3), "no row came from state"
    assert all(len(drawn[order]) == 1 for order in from_epoch_3)


@pytest.mark.sampled(1)
@pytest.mark.parametrize("beside", [False, True], ids=["alone", "sharing"])
@pytest.mark.parametrize("provider", ["hdfs", "rocksdb-changelog"])
def test_a_function_that_unpersists_its_rows_has_those_of_the_state_and_of_other_sinks(
    spark: SparkSession, input_folder: Path, tmp_path: Path, provider: str, beside: bool
) -> None:
    from pyspark.sql.streaming.state import GroupStateTimeout

    def name(key: Any, _: Any, state: Any) -> Any:
        """A name that is drawn for a new key, and kept."""
        import uuid

        import pandas as pd

        drawn = state.get[0] if state.exists else uuid.uuid4().hex
        state.update((drawn,))
        yield pd.DataFrame({"k": [key[0]], "name": [drawn]})

    told: set[tuple[int, str]] = set()

    def tell(rows: DataFrame, _: int) -> None:
        rows.persist()
        told.update((row["k"], row["name"]) for row in rows.collect())
        rows.unpersist(blocking=True)

    p = Pipeline("names", tmp_path / "store")
    names = (
        p.source("orders", orders(spark, input_folder))
        .groupBy("k")
        .applyInPandasWithState(
            name, "k int, name string", "name string", "append", GroupStateTimeout.NoTimeout
        )
    )
    p.sink("called", names, ForeachBatchSink(tell))
    if beside:
        p.sink("main", names, FileSink(tmp_path / "main"))
    with provider_of(spark, provider):
        p.run()
    assert len(told) == len({key for key, _ in told}), "state has names that nobody was told"
    if beside:
        assert {(row["k"], row["name"]) for row in values_in(tmp_path / "main")} == told


def _crash_and_finish(
    spark: SparkSession, declare: Any, folder: Path, root: Path, provider: str, point: str
) -> list[int]:
    """Returns what the try that crashed had staged."""
    step, when, epoch = point.split(":")

    def build(**options: Any) -> Pipeline:
        p = Pipeline("chance", root / "store", full_every=3, **options)
        declare(p, spark, folder, root)
        return p

    assert when == "after"
    with provider_of(spark, provider):
        with pytest.raises(SimulatedCrash):
            build(on_step=crash_at(step, "after", int(epoch))).run()
        staged = (root / "main" / "_seamark" / "staging").glob("*")
        tried = [row.get("added", 0) for attempt in staged for row in values_in(attempt)]
        build().run()
    return tried


# damage


def flip(path: Path) -> None:
    """Change one bit in the middle of a file."""
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


def damage_newest(root: Path, name: Literal["manifest.json", "state.bin"], count: int) -> list[int]:
    """Spoil the newest checkpoints; their ids."""
    with open_store(root / "store") as store:
        ids = sorted(store.list_ids())[-count:]
    for number in ids:
        flip(root / "store" / "checkpoints" / f"checkpoint_{number:06}" / name)
    return ids


@pytest.mark.sampled(3)
@pytest.mark.parametrize("wiped", [False, True], ids=["kept", "wiped"])
@pytest.mark.parametrize(
    ("kind", "provider", "name", "count"),
    [
        ("windowed", "hdfs", "manifest.json", 1),
        ("windowed", "hdfs", "state.bin", 1),
        ("windowed", "hdfs", "manifest.json", 2),
        ("outer-join", "rocksdb", "state.bin", 2),
        ("deduplicated", "format2-changelog", "manifest.json", 2),
    ],
)
def test_epochs_whose_checkpoints_are_damaged_run_again_on_the_same_rows(
    spark: SparkSession,
    uninterrupted: Uninterrupted,
    tmp_path: Path,
    kind: str,
    provider: str,
    name: Literal["manifest.json", "state.bin"],
    count: int,
    wiped: bool,
) -> None:
    options: dict[str, Any] = {"keep": 20, "sizes": Sizes(inline_operator=0)}
    folder = uninterrupted.folder
    crash(spark, kind, provider, folder, tmp_path, "record:after:4", **options)
    damaged = damage_newest(tmp_path, name, count)
    if wiped:
        wipe(tmp_path)
    finished = run(spark, kind, provider, folder, tmp_path, **options)
    assert sorted(number for number, _ in finished.report.skipped) == damaged
    assert finished.report.epoch == 4 - count
    assert shown(tmp_path) == uninterrupted(kind)


def test_a_damaged_link_of_the_chain_takes_what_builds_on_it_out_as_well(
    spark: SparkSession, uninterrupted: Uninterrupted, tmp_path: Path
) -> None:
    folder = uninterrupted.folder
    crash(spark, "windowed", "hdfs", folder, tmp_path, "record:after:5", keep=20, full_every=10)
    second = sorted((tmp_path / "store" / "checkpoints").glob("checkpoint_*"))[1]
    flip(second / "manifest.json")
    finished = run(spark, "windowed", "hdfs", folder, tmp_path, keep=20, full_every=10)
    assert finished.report.epoch is not None
    assert finished.report.epoch < 5
    assert shown(tmp_path) == uninterrupted("windowed")


def test_a_swapped_state_file_that_spark_would_not_notice_is_noticed(
    spark: SparkSession, uninterrupted: Uninterrupted, tmp_path: Path
) -> None:
    folder = uninterrupted.folder
    crash(spark, "windowed", "hdfs", folder, tmp_path, "retain:after:5")
    state = _working_copy(tmp_path) / "state" / "0" / "0"
    for name in ("{}.delta", ".{}.delta.crc"):
        shutil.copy(state / name.format(4), state / name.format(5))
    finished = run(spark, "windowed", "hdfs", folder, tmp_path)
    assert finished.report.working_copy.startswith("rebuilt from checkpoint")
    assert shown(tmp_path) == uninterrupted("windowed")


@pytest.mark.parametrize(
    ("provider", "stale"),
    [
        ("hdfs", ["4.delta", "4.snapshot", "9.snapshot", "2.snapshot"]),
        ("rocksdb-changelog", ["4.changelog", "4.zip", "9.zip", "2.zip"]),
    ],
)
def test_state_that_no_checkpoint_vouches_for_does_no_harm(
    spark: SparkSession,
    uninterrupted: Uninterrupted,
    tmp_path: Path,
    provider: str,
    stale: list[str],
) -> None:
    folder = uninterrupted.folder
    crash(spark, "windowed", provider, folder, tmp_path, "retain:after:3")
    for partition in ("0", "1"):
        state = _working_copy(tmp_path) / "state" / "0" / partition
        first = next(state.glob("1.*"))
        for name in stale:
            shutil.copy(first, state / name)
    finished = run(spark, "windowed", provider, folder, tmp_path)
    assert finished.report.working_copy.startswith("kept")
    assert shown(tmp_path) == uninterrupted("windowed")


def _working_copy(root: Path) -> Path:
    (copy,) = (path for path in (root / "store" / "working").iterdir() if path.is_dir())
    return copy


# the first epoch


@pytest.mark.parametrize("point", ["begin:before:1", "write:after:1", "save:before:1"])
def test_a_crash_before_the_first_decision_leaves_nothing_behind(
    spark: SparkSession, uninterrupted: Uninterrupted, tmp_path: Path, point: str
) -> None:
    crash(spark, "windowed", "hdfs", uninterrupted.folder, tmp_path, point)
    finished = run(spark, "windowed", "hdfs", uninterrupted.folder, tmp_path)
    assert finished.report.fresh_start
    assert shown(tmp_path) == uninterrupted("windowed")
    assert not any((tmp_path / "main" / "_seamark" / "staging").iterdir())


def test_a_store_that_was_claimed_and_never_written_is_a_fresh_start(
    spark: SparkSession, uninterrupted: Uninterrupted, tmp_path: Path
) -> None:
    with open_store(tmp_path / "store") as store:
        store.claim(pipeline="windowed")
    finished = run(spark, "windowed", "hdfs", uninterrupted.folder, tmp_path)
    assert finished.report.fresh_start
    assert shown(tmp_path) == uninterrupted("windowed")


# more than one


def test_the_store_of_another_pipeline_is_refused(
    spark: SparkSession, uninterrupted: Uninterrupted, tmp_path: Path
) -> None:
    with open_store(tmp_path / "store") as store:
        store.claim(pipeline="bookings")
    with pytest.raises(RefusedError, match="belongs to the pipeline 'bookings', not 'windowed'"):
        run(spark, "windowed", "hdfs", uninterrupted.folder, tmp_path)


@pytest.mark.parametrize(
    ("step", "when"), [("write", "after"), ("save", "before"), ("commit", "before")]
)
def test_of_two_runs_on_one_store_the_first_is_fenced_and_the_sinks_stay_exact(
    spark: SparkSession,
    uninterrupted: Uninterrupted,
    tmp_path: Path,
    step: str,
    when: Literal["before", "after"],
) -> None:
    paused, go_on = threading.Event(), threading.Event()

    def pause(at: Step, at_when: str, epoch: int) -> None:
        if (at, at_when, epoch) == (step, when, 3):
            paused.set()
            go_on.wait(280)

    def go_on_when_taken_over() -> None:
        # not later: in one JVM, Spark stops the old query before it starts the new one
        deadline = time.monotonic() + 280
        while (tmp_path / "store" / "working" / "g1").exists() and time.monotonic() < deadline:
            time.sleep(0.01)
        go_on.set()

    folder = uninterrupted.folder
    loser = pipeline(spark, "windowed", "hdfs", folder, tmp_path, on_step=pause).start()
    assert paused.wait(280)
    waker = threading.Thread(target=go_on_when_taken_over)
    waker.start()
    run(spark.newSession(), "windowed", "hdfs", folder, tmp_path)
    waker.join()
    with pytest.raises(FencedError):
        loser.await_termination(60)
    assert shown(tmp_path) == uninterrupted("windowed")
