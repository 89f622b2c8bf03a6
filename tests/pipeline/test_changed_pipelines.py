"""A pipeline that is not what it was: what is refused, what goes on, and in which words."""

from __future__ import annotations

import shutil
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from seamark import Pipeline, SeamarkError, open_store
from seamark.errors import LineageError, RefusedError
from seamark.pipeline.run import Run
from seamark.sinks import FileSink
from tests.pipeline.support.crashing import crash
from tests.pipeline.support.workloads import (
    EPOCHS,
    Shown,
    Uninterrupted,
    clock,
    orders,
    payments,
    provider_of,
    put_file,
    rows_in,
    run,
    shown,
    values_in,
    windowed,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


class Shop:
    """A pipeline that can be declared a little differently with every start."""

    def __init__(self, spark: SparkSession, folder: Path, root: Path) -> None:
        self.spark = spark
        self._root = root
        self.folder = root / "input"
        self._all = folder
        for name in ("orders", "payments"):
            (self.folder / name).mkdir(parents=True)
        self.deliver(3)

    def deliver(self, files: int) -> None:
        """Let the sources have so many files."""
        for name in ("orders", "payments"):
            for path in sorted((self._all / name).iterdir())[:files]:
                shutil.copy2(path, self.folder / name / path.name)

    def declare(
        self, *, without: str = "", large: str = "v > 50", path: str = "large", **options: Any
    ) -> Pipeline:
        p = Pipeline("shop", self._root / "store", **options)
        source = self._source = p.source("orders", orders(self.spark, self.folder))
        p.sink("main", windowed(source), FileSink(self._root / "main"))
        if without != "large":
            p.sink("large", source.where(large), FileSink(self._root / path))
        return p

    def with_small(self, **options: Any) -> Pipeline:
        p = Pipeline("shop", self._root / "store", **options)
        source = p.source("orders", orders(self.spark, self.folder))
        p.sink("small", source.where("v < 20"), FileSink(self._root / "small"))
        p.sink("main", windowed(source), FileSink(self._root / "main"))
        p.sink("large", source.where("v > 50"), FileSink(self._root / "large"))
        return p

    def with_payments(self, **options: Any) -> Pipeline:
        p = self.declare(**options)
        paid = p.source("payments", payments(self.spark, self.folder))
        both = self._source.select("id").union(paid.select("order"))
        p.sink("paid", both, FileSink(self._root / "paid"))
        return p


@pytest.fixture
def shop(spark: SparkSession, input_folder: Path, tmp_path: Path) -> Shop:
    return Shop(spark, input_folder, tmp_path)


@pytest.fixture(scope="module")
def in_two_goes(
    spark: SparkSession, input_folder: Path, tmp_path_factory: pytest.TempPathFactory
) -> Shown:
    """What the sinks show when nothing changes between two starts."""
    root = tmp_path_factory.mktemp("unchanged")
    unchanged = Shop(spark, input_folder, root)
    unchanged.declare().run()
    unchanged.deliver(EPOCHS + 1)
    unchanged.declare().run()
    return shown(root)


def epochs_of(folder: Path) -> set[int]:
    return {row["epoch"] for row in values_in(folder)}


def test_a_sink_that_is_gone_is_refused_by_name_and_warn_goes_on_without_it(
    shop: Shop, in_two_goes: Shown, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    shop.declare().run()
    shop.deliver(EPOCHS + 1)
    before = rows_in(tmp_path / "large")
    with pytest.raises(RefusedError, match="sink 'large' was removed") as refused:
        shop.declare(without="large").run()
    assert "policy='warn'" in str(refused.value)
    finished = shop.declare(without="large", policy="warn").run()
    assert "sink 'large' was removed" in " ".join(finished.report.notes)
    warned = [record.message for record in caplog.records if record.levelname == "WARNING"]
    assert "the pipeline was changed: sink 'large' was removed" in warned
    assert rows_in(tmp_path / "main") == in_two_goes["main"]
    assert rows_in(tmp_path / "large") == before


def test_a_sink_that_comes_starts_at_the_next_epoch_and_the_report_says_so(
    shop: Shop, in_two_goes: Shown, tmp_path: Path
) -> None:
    shop.declare().run()
    shop.deliver(EPOCHS + 1)
    finished = shop.with_small().run()
    assert finished.report.finished["small"] == "is new, starts at epoch 5"
    assert "sink 'small' was added" in " ".join(finished.report.notes)
    assert shown(tmp_path) == in_two_goes
    assert min(epochs_of(tmp_path / "small")) == 5
    assert all(row["v"] < 20 for row in values_in(tmp_path / "small"))


def test_a_sink_that_comes_back_after_a_rollback_says_what_it_shows_of_the_other_history(
    shop: Shop, tmp_path: Path
) -> None:
    shop.declare().run()
    shop.declare().rollback(2)
    shop.deliver(EPOCHS + 1)
    shop.declare(without="large", policy="warn").run()
    finished = shop.declare(policy="warn").run()
    said = finished.report.finished["large"]
    assert "beside epochs up to 4 of timeline" in said
    assert "unpublish_after()" in said


def test_a_target_that_comes_back_after_a_rollback_says_what_it_shows_of_the_other_history(
    shop: Shop,
) -> None:
    shop.declare().run()
    shop.declare().rollback(2)
    shop.deliver(EPOCHS + 1)
    moved = shop.declare(path="elsewhere", policy="warn").run()
    assert moved.report.finished["large"] == "has a new target, starts at epoch 3"
    back = shop.declare(policy="warn").run()
    said = back.report.finished["large"]
    assert "has a new target" in said
    assert "beside epochs up to 4 of timeline" in said
    assert "unpublish_after()" in said


def test_an_added_sink_survives_a_crash_in_its_first_epoch(
    spark: SparkSession, shop: Shop, in_two_goes: Shown, tmp_path: Path
) -> None:
    from seamark.testing.crashes import SimulatedCrash, crash_at

    shop.declare().run()
    shop.deliver(EPOCHS + 1)
    with pytest.raises(SimulatedCrash):
        shop.with_small(on_step=crash_at("save", "after", 5)).run()
    shutil.rmtree(tmp_path / "store" / "working")
    shop.with_small().run()
    assert shown(tmp_path) == in_two_goes
    assert min(epochs_of(tmp_path / "small")) == 5


def test_lost_epochs_run_again_with_the_outputs_that_they_were_planned_for(
    shop: Shop, in_two_goes: Shown, tmp_path: Path
) -> None:
    shop.declare().run()
    shop.deliver(EPOCHS + 1)
    shop.with_small().run()
    small = rows_in(tmp_path / "small")
    damage_after(tmp_path / "store", epoch=4)
    with pytest.raises(RefusedError, match="epoch 5 has to run again") as refused:
        shop.declare().run()
    assert "have read orders, orders, orders and now read orders, orders" in str(refused.value)
    shop.with_small().run()
    assert shown(tmp_path) == in_two_goes
    assert rows_in(tmp_path / "small") == small


def test_lost_epochs_of_before_and_after_an_added_sink_run_again_in_two_starts(
    shop: Shop, in_two_goes: Shown, tmp_path: Path
) -> None:
    shop.declare().run()
    shop.deliver(EPOCHS + 1)
    shop.with_small().run()
    small = rows_in(tmp_path / "small")
    damage_after(tmp_path / "store", epoch=2)
    with pytest.raises(RefusedError, match="epoch 3 has to run again"):
        shop.with_small().run()
    with pytest.raises(RefusedError, match="epoch 5 has to run again"):
        shop.declare().run()
    shop.with_small().run()
    assert shown(tmp_path) == in_two_goes
    assert rows_in(tmp_path / "small") == small


def test_a_target_with_epochs_after_another_one_does_not_say_what_is_read(
    spark: SparkSession, shop: Shop, tmp_path: Path
) -> None:
    from seamark.testing.crashes import SimulatedCrash, crash_at

    def into(folder: str, **options: Any) -> Pipeline:
        p = Pipeline("shop", tmp_path / "store", **options)
        p.sink("rows", p.source("orders", orders(spark, shop.folder)), FileSink(tmp_path / folder))
        return p

    into("old").run()
    damage_after(tmp_path / "store", epoch=1)
    shutil.rmtree(tmp_path / "store/working")
    read_first = {"id": 1, "k": 1, "v": 1, "t": clock(0)}
    put_file(shop.folder / "orders", -1, [read_first])
    with pytest.raises(SimulatedCrash):
        into("new", policy="warn", on_step=crash_at("retain", "after", 2)).run()
    with pytest.raises(LineageError, match="epoch 3 was planned before, after a different epoch 2"):
        into("old", policy="warn").run()
    assert FileSink(tmp_path / "old").unpublish_after(2) == [3]
    into("old", policy="warn").run()
    assert epochs_of(tmp_path / "old") == {1, 2, 3, 4}


def damage_after(folder: Path, epoch: int) -> None:
    with open_store(folder) as store:
        later = [number for number, its_epoch in store.list() if its_epoch > epoch]
    assert later
    for number in later:
        (folder / f"checkpoints/checkpoint_{number:06}/manifest.json").write_text("{")


def test_an_added_source_is_refused_even_when_changes_are_accepted(shop: Shop) -> None:
    shop.declare().run()
    with pytest.raises(RefusedError, match="source 'payments' was added") as refused:
        shop.with_payments(policy="warn").run()
    assert "cannot add or remove a source" in str(refused.value)


def test_a_changed_target_is_refused_with_the_old_and_the_new_one(shop: Shop) -> None:
    shop.declare().run()
    with pytest.raises(RefusedError, match=r"sink 'large': target was '.*large', is '.*elsewhere'"):
        shop.declare(path="elsewhere").run()


def test_other_shuffle_partitions_are_refused_by_the_name_of_the_setting(
    spark: SparkSession, shop: Shop, in_two_goes: Shown, tmp_path: Path
) -> None:
    shop.declare().run()
    shop.deliver(EPOCHS + 1)
    spark.conf.set("spark.sql.shuffle.partitions", 3)
    try:
        with pytest.raises(RefusedError, match=r"spark\.sql\.shuffle\.partitions") as refused:
            shop.declare(policy="warn").run()
    finally:
        spark.conf.set("spark.sql.shuffle.partitions", 2)
    assert "state_partitions was 2, is 3" in str(refused.value)
    shop.declare().run()
    assert shown(tmp_path) == in_two_goes


def test_a_refused_start_does_not_fence_the_run_that_goes_on(shop: Shop) -> None:
    shop.declare().run()
    running = shop.declare().start()
    try:
        with pytest.raises(RefusedError, match="a query named 'shop' is running"):
            shop.declare().start()
        shop.spark = shop.spark.newSession()
        with pytest.raises(RefusedError, match="was removed"):
            shop.declare(without="large").start()
        assert running.is_active
        assert running.exception() is None
    finally:
        running.stop()
    assert running.exception() is None


def test_auto_reset_takes_everything_back_and_reads_it_again(
    shop: Shop, uninterrupted: Uninterrupted, tmp_path: Path
) -> None:
    shop.declare(large="v > 90", path="large").run()
    shop.deliver(EPOCHS + 1)
    finished = shop.with_payments(policy="auto_reset").run()
    assert finished.report.fresh_start
    assert "source 'payments' was added" in " ".join(finished.report.notes)
    assert "sink main: 4 epochs taken back and kept aside" in finished.report.notes
    assert shown(tmp_path) == uninterrupted("windowed")
    again = shop.with_payments().run()
    assert not again.report.fresh_start
    assert shown(tmp_path) == uninterrupted("windowed")


def test_a_planned_file_that_is_gone_stops_the_epoch_until_it_is_back(
    spark: SparkSession, shop: Shop, uninterrupted: Uninterrupted, tmp_path: Path
) -> None:
    shop.deliver(EPOCHS + 1)
    crash(spark, "windowed", "hdfs", shop.folder, tmp_path, "write:before:3")
    third = sorted((shop.folder / "orders").iterdir())[2]
    third.rename(tmp_path / "aside")
    with pytest.raises(SeamarkError, match="gone") as missing:
        run(spark, "windowed", "hdfs", shop.folder, tmp_path)
    assert third.name in str(missing.value)
    assert "Put it back" in str(missing.value)
    (tmp_path / "aside").rename(third)
    run(spark, "windowed", "hdfs", shop.folder, tmp_path)
    assert shown(tmp_path) == uninterrupted("windowed")


# going on from a query that was no pipeline


def by_hand(spark: SparkSession, folder: Path, root: Path) -> Counter[str]:
    """A query as people write it, with its own checkpoint directory; what it has written."""

    def write(df: Any, batch: int) -> None:
        df.write.parquet(str(root / "by-hand" / f"epoch={batch}"))

    query = (
        windowed(orders(spark, folder))
        .writeStream.option("checkpointLocation", str(root / "old"))
        .trigger(availableNow=True)
        .foreachBatch(write)
        .start()
    )
    query.awaitTermination()
    return rows_in(root / "by-hand")


def adopting(shop: Shop, spark: SparkSession, root: Path, **options: Any) -> Pipeline:
    p = Pipeline("shop", root / "store", adopt=root / "old", **options)
    p.sink(
        "main", windowed(p.source("orders", orders(spark, shop.folder))), FileSink(root / "main")
    )
    return p


@pytest.mark.parametrize("provider", ["hdfs", "rocksdb", "rocksdb-changelog", "format2"])
def test_an_adopted_query_goes_on_where_it_stood(
    spark: SparkSession, shop: Shop, in_two_goes: Shown, tmp_path: Path, provider: str
) -> None:
    with provider_of(spark, provider):
        written = by_hand(spark, shop.folder, tmp_path)
        shop.deliver(EPOCHS + 1)
        finished = _finish_after_wiping(adopting, shop, spark, tmp_path)
    assert finished.report.working_copy.startswith("rebuilt")
    assert written + rows_in(tmp_path / "main") == in_two_goes["main"]


def _finish_after_wiping(declare: Any, shop: Shop, spark: SparkSession, root: Path) -> Run:
    """Adopt, crash one epoch later, and go on from the store alone."""
    from seamark.testing.crashes import SimulatedCrash, crash_at

    with pytest.raises(SimulatedCrash):
        declare(shop, spark, root, on_step=crash_at("record", "after", 5)).run()
    shutil.rmtree(root / "store" / "working")
    finished: Run = declare(shop, spark, root).run()
    return finished


def test_what_cannot_be_adopted_is_refused_with_the_reason_and_left_alone(
    spark: SparkSession, shop: Shop, tmp_path: Path
) -> None:
    with pytest.raises(RefusedError, match="no query that has committed a batch"):
        adopting(shop, spark, tmp_path).run()
    by_hand(spark, shop.folder, tmp_path)
    before = sorted(path for path in (tmp_path / "old").rglob("*"))
    p = Pipeline("shop", tmp_path / "store", adopt=tmp_path / "old")
    source = p.source("orders", orders(spark, shop.folder))
    p.sink("main", windowed(source), FileSink(tmp_path / "main"))
    p.sink("large", source.where("v > 50"), FileSink(tmp_path / "large"))
    with pytest.raises(RefusedError, match="has 1 sources, and this pipeline reads 2"):
        p.run()
    q = Pipeline("shop", tmp_path / "store", adopt=tmp_path / "old")
    q.sink("main", q.source("orders", orders(spark, shop.folder)), FileSink(tmp_path / "plain"))
    with pytest.raises(RefusedError, match="its query has stateful operators"):
        q.run()
    assert sorted(path for path in (tmp_path / "old").rglob("*")) == before


def test_files_that_would_be_parsed_in_another_way_are_refused(
    spark: SparkSession, tmp_path: Path
) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "0.csv").write_text("a;1\n")

    def declared(schema: str = "k string, n int", **options: str) -> Pipeline:
        p = Pipeline("parsed", tmp_path / "store", progress=None)
        reader = spark.readStream.schema(schema).options(**{"sep": ";", **options})
        rows = p.source("in", reader.csv(str(tmp_path / "in")))
        p.sink("out", rows.select("k"), FileSink(tmp_path / "out"))
        return p

    declared().run(available_now=True)
    assert declared().check().changes == []
    assert declared("k string, n int, more string").check().changes == []
    with pytest.raises(RefusedError, match=r"option sep ';' → ','"):
        declared(sep=",").run(available_now=True)
    with pytest.raises(RefusedError, match="column 'k' is column 2 of its files"):
        declared("n int, k string").run(available_now=True)
