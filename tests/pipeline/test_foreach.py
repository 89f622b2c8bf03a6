"""A function as a sink: every try of an epoch gets the same rows, whoever makes it."""

from __future__ import annotations

import json
import pickle
import threading
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from seamark import FencedError, Pipeline, open_store
from seamark.errors import LineageError, RefusedError, SeamarkError
from seamark.pipeline.declaration.settings import Step
from seamark.pipeline.recovery.rollback import roll_back
from seamark.sinks import FileSink, ForeachBatchSink
from seamark.sinks.foreach import EpochNumber
from seamark.testing.crashes import SimulatedCrash, crash_at
from tests.pipeline.support.crashing import wipe
from tests.pipeline.support.tables import (
    Function,
    Table,
    as_delta,
    by_key,
    by_number_alone,
    values_of,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

ROWS = 10


@pytest.fixture
def table(tmp_path: Path) -> Table:
    return Table(tmp_path / "target.db")


def add_file(base: Path, number: int) -> None:
    """One more file of input, with the rows number * 10 to number * 10 + 9."""
    folder = base / "in"
    folder.mkdir(exist_ok=True)
    rows = [json.dumps({"v": number * ROWS + row}) for row in range(ROWS)]
    temporary = base / f"{number}.tmp"
    temporary.write_text("\n".join(rows))
    temporary.rename(folder / f"{number}.json")


def rows_of(*numbers: int) -> Counter[int]:
    return Counter(number * ROWS + row for number in numbers for row in range(ROWS))


def pipeline(
    spark: SparkSession, base: Path, fn: Function, *, output: str = "rows", **options: Any
) -> Pipeline:
    """All files that are there go to the function, in one epoch."""
    p = Pipeline("orders", base / "store", **options)
    source = p.source("in", spark.readStream.schema("v long").json(str(base / "in")))
    p.sink(output, source, ForeachBatchSink(fn, idempotent=True))
    return p


# killed after the target's commit and before the save


@pytest.mark.warm
@pytest.mark.parametrize("recipe", [as_delta, pytest.param(by_key, marks=pytest.mark.spark)])
def test_no_row_is_lost_when_the_target_has_committed_and_the_checkpoint_was_never_saved(
    spark: SparkSession, tmp_path: Path, table: Table, recipe: Any
) -> None:
    function = recipe(table)
    for done, epoch in ((0, 1), (2, 3)):
        add_file(tmp_path, done)
        with pytest.raises(SimulatedCrash):
            pipeline(spark, tmp_path, function, on_step=crash_at("write", "after", epoch)).run()
        assert table.values() == rows_of(*range(done + 1))
        wipe(tmp_path)
        add_file(tmp_path, done + 1)  # planned anew, the epoch would take this one in
        finished = pipeline(spark, tmp_path, function).run()
        assert table.values() == rows_of(*range(done + 2))
        assert finished.epoch == epoch + 1


@pytest.mark.spark
def test_a_driver_on_another_machine_runs_the_epoch_that_the_first_one_began(
    spark: SparkSession, tmp_path: Path, table: Table
) -> None:
    add_file(tmp_path, 0)
    hook = crash_at("begin", "after", 1)  # planned and stored, and nothing written yet
    with pytest.raises(SimulatedCrash):
        pipeline(spark, tmp_path, as_delta(table), on_step=hook, working_copy=tmp_path / "a").run()
    add_file(tmp_path, 1)
    hook = crash_at("write", "after", 1)
    with pytest.raises(SimulatedCrash):
        pipeline(spark, tmp_path, as_delta(table), on_step=hook, working_copy=tmp_path / "b").run()
    assert table.values() == rows_of(0)
    add_file(tmp_path, 2)
    pipeline(spark, tmp_path, as_delta(table), working_copy=tmp_path / "a").run()
    assert table.values() == rows_of(0, 1, 2)


@pytest.mark.spark
def test_an_epoch_whose_checkpoint_was_damaged_runs_on_its_plan_or_not_at_all(
    spark: SparkSession, tmp_path: Path, table: Table
) -> None:
    run_three_epochs(spark, tmp_path, as_delta(table))
    newest = sorted((tmp_path / "store" / "checkpoints").glob("checkpoint_*"))[-1]
    (newest / "manifest.json").write_bytes(b"{")
    wipe(tmp_path)
    add_file(tmp_path, 3)
    plans = tmp_path / "store" / "plans"
    plans.rename(tmp_path / "lost")
    with pytest.raises(LineageError, match="epoch 3 may have been decided before"):
        pipeline(spark, tmp_path, as_delta(table)).run()
    (tmp_path / "lost").rename(plans)
    pipeline(spark, tmp_path, as_delta(table)).run()
    assert table.values() == rows_of(0, 1, 2, 3)


@pytest.mark.spark
def test_an_epoch_after_one_that_has_its_plan_is_not_planned_anew_when_both_checkpoints_are_lost(
    spark: SparkSession, tmp_path: Path, table: Table
) -> None:
    run_three_epochs(spark, tmp_path, as_delta(table))
    for newest in sorted((tmp_path / "store" / "checkpoints").glob("checkpoint_*"))[-2:]:
        (newest / "manifest.json").write_bytes(b"{")
    wipe(tmp_path)
    add_file(tmp_path, 3)
    [last] = (tmp_path / "store" / "plans").glob("*-000003.json")
    last.rename(tmp_path / "lost.json")
    with pytest.raises(LineageError, match="epoch 3 may have been decided before"):
        pipeline(spark, tmp_path, as_delta(table)).run()
    (tmp_path / "lost.json").rename(last)
    pipeline(spark, tmp_path, as_delta(table)).run()
    assert table.values() == rows_of(0, 1, 2, 3)


@pytest.mark.spark
@pytest.mark.parametrize("epoch", [1, 2])
def test_an_output_that_was_renamed_does_not_get_a_begun_epoch_under_another_key(
    spark: SparkSession, tmp_path: Path, table: Table, epoch: int
) -> None:
    for number in range(epoch - 1):
        add_file(tmp_path, number)
        pipeline(spark, tmp_path, by_key(table)).run()
    add_file(tmp_path, epoch - 1)
    with pytest.raises(SimulatedCrash):
        pipeline(spark, tmp_path, by_key(table), on_step=crash_at("write", "after", epoch)).run()
    with pytest.raises(RefusedError, match=f"epoch {epoch} was started before the pipeline was"):
        pipeline(spark, tmp_path, by_key(table), output="lines", policy="warn").run()
    pipeline(spark, tmp_path, by_key(table)).run()
    assert table.values() == rows_of(*range(epoch))


# two drivers


@pytest.mark.warm
def test_a_fenced_driver_whose_function_wakes_late_writes_the_same_rows_as_the_new_one(
    spark: SparkSession, tmp_path: Path, table: Table
) -> None:
    sleeping, wake, written = threading.Event(), threading.Event(), threading.Event()

    def sleepy(df: DataFrame, epoch: EpochNumber) -> None:
        rows = values_of(df)
        sleeping.set()
        assert wake.wait(280)
        table.append(rows, f"orders/rows/{epoch.timeline}", epoch)
        written.set()

    def wake_the_other(step: Any, when: str, epoch: int) -> None:
        if (step.value, when, epoch) == ("write", "before", 1):
            wake.set()
            assert written.wait(280)

    add_file(tmp_path, 0)
    loser = pipeline(spark, tmp_path, sleepy, working_copy=tmp_path / "a").start()
    assert sleeping.wait(280)
    add_file(tmp_path, 1)
    other = spark.newSession()
    options: dict[str, Any] = {"working_copy": tmp_path / "b", "on_step": wake_the_other}
    pipeline(other, tmp_path, as_delta(table), **options).run()
    with pytest.raises(FencedError):
        loser.await_termination(60)
    assert table.values() == rows_of(0, 1)


@pytest.mark.warm
def test_the_function_of_a_driver_that_was_fenced_before_is_not_called(
    spark: SparkSession, tmp_path: Path, table: Table
) -> None:
    paused, go_on = threading.Event(), threading.Event()
    called: list[int] = []

    def pause(step: Any, when: str, epoch: int) -> None:
        if (step.value, when) == ("write", "before"):
            paused.set()
            assert go_on.wait(280)

    add_file(tmp_path, 0)
    loser = pipeline(
        spark, tmp_path, lambda _, n: called.append(n), on_step=pause, working_copy=tmp_path / "a"
    ).start()
    assert paused.wait(280)
    pipeline(spark.newSession(), tmp_path, as_delta(table), working_copy=tmp_path / "b").run()
    go_on.set()
    with pytest.raises(FencedError):
        loser.await_termination(60)
    assert called == []
    assert table.values() == rows_of(0)


# going back


def run_three_epochs(spark: SparkSession, base: Path, fn: Function) -> None:
    for number in range(3):
        add_file(base, number)
        pipeline(spark, base, fn).run()


def go_back_to(base: Path, epoch: int) -> None:
    with open_store(base / "store") as store:
        ids = {epoch: checkpoint_id for checkpoint_id, epoch in store.list()}
        roll_back(store, ids[epoch], "orders")


@pytest.mark.spark
@pytest.mark.parametrize("recipe", [as_delta, by_key])
def test_after_a_rollback_every_row_is_there_once_when_the_table_was_brought_back_too(
    spark: SparkSession, tmp_path: Path, table: Table, recipe: Any
) -> None:
    run_three_epochs(spark, tmp_path, recipe(table))
    go_back_to(tmp_path, 1)
    table.remove_after(1)
    add_file(tmp_path, 3)
    pipeline(spark, tmp_path, recipe(table)).run()
    assert table.values() == rows_of(0, 1, 2, 3)


@pytest.mark.spark
def test_after_a_rollback_rows_are_doubled_when_the_table_stayed_as_it_was(
    spark: SparkSession, tmp_path: Path, table: Table
) -> None:
    run_three_epochs(spark, tmp_path, as_delta(table))
    go_back_to(tmp_path, 1)
    pipeline(spark, tmp_path, as_delta(table)).run()
    assert table.values() == rows_of(0, 1, 2) + rows_of(1, 2)


@pytest.mark.spark
@pytest.mark.parametrize("brought_back", [True, False])
def test_after_a_rollback_rows_are_missing_when_the_timeline_is_not_part_of_the_name(
    spark: SparkSession, tmp_path: Path, table: Table, brought_back: bool
) -> None:
    run_three_epochs(spark, tmp_path, by_number_alone(table))
    go_back_to(tmp_path, 1)
    if brought_back:
        table.remove_after(1)
    add_file(tmp_path, 3)
    pipeline(spark, tmp_path, by_number_alone(table)).run()
    # it drops epoch 2, which it has seen
    assert table.values() == (rows_of(0) if brought_back else rows_of(0, 1, 2))


# other sinks, and what is stored


@pytest.mark.spark
def test_plans_are_stored_only_for_sinks_that_show_rows_before_the_decision(
    spark: SparkSession, tmp_path: Path
) -> None:
    seen: list[str] = []

    def look(df: DataFrame, epoch: EpochNumber) -> None:
        seen.extend(path.name for path in (tmp_path / "store" / "plans").iterdir())

    add_file(tmp_path, 0)
    p = Pipeline("files", tmp_path / "files")
    source = p.source("in", spark.readStream.schema("v long").json(str(tmp_path / "in")))
    p.sink("rows", source, FileSink(tmp_path / "rows"))
    p.run()
    assert not (tmp_path / "files" / "plans").exists()
    pipeline(spark, tmp_path, look).run()
    assert [name[32:] for name in seen] == ["-000001.json"]


def test_the_number_that_a_function_gets_can_be_sent_to_executors() -> None:
    sent = pickle.loads(pickle.dumps(EpochNumber(7, "t", "key")))
    assert (sent, sent.timeline, sent.key) == (7, "t", "key")


# jobs that are cancelled while a function writes


class Careless:
    """Has a job write its rows, and goes on when that fails."""

    def __init__(self, marks: Path) -> None:
        self._marks = marks
        self.caught: list[str] = []

    @property
    def is_writing(self) -> bool:
        return (self._marks / "writing").exists()

    def __call__(self, df: DataFrame, epoch: EpochNumber) -> None:
        marks = self._marks

        def write(_: Any) -> None:
            (marks / "writing").touch()
            deadline = time.monotonic() + 600
            while time.monotonic() < deadline:
                time.sleep(0.1)

        try:
            df.foreachPartition(write)
        except Exception as error:  # noqa: BLE001 - as programs do that must not stop
            self.caught.append(type(error).__name__)


def nothing_is_decided(base: Path) -> bool:
    with open_store(base / "store") as store:
        return store.list_ids() == []


@pytest.mark.warm
def test_an_epoch_that_a_stop_has_cut_off_is_not_decided_though_its_function_hides_it(
    spark: SparkSession, tmp_path: Path, table: Table
) -> None:
    add_file(tmp_path, 0)
    careless = Careless(tmp_path)
    run = pipeline(spark, tmp_path, careless).start()
    while not careless.is_writing:
        time.sleep(0.05)
    run.stop(timeout=0.1)
    assert run.await_termination()
    assert careless.caught
    assert nothing_is_decided(tmp_path)
    pipeline(spark, tmp_path, by_key(table)).run()
    assert table.values() == rows_of(0)


@pytest.mark.warm
@pytest.mark.slow
def test_an_epoch_that_writes_for_too_long_is_not_decided_though_its_function_hides_it(
    spark: SparkSession, tmp_path: Path, table: Table
) -> None:
    add_file(tmp_path, 0)
    careless = Careless(tmp_path)
    limits = {Step.WRITE: 5}
    with pytest.raises(SeamarkError, match="the step 'write' did not finish in 5 s"):
        pipeline(spark, tmp_path, careless, step_timeouts=limits).run()
    assert careless.caught
    assert nothing_is_decided(tmp_path)
    pipeline(spark, tmp_path, by_key(table)).run()
    assert table.values() == rows_of(0)
