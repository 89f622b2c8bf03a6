"""An epoch that is run again gives the rows that it gave, and leaves no trace."""

from __future__ import annotations

import json
import shutil
import tempfile
import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from seamark import Pipeline, open_store
from seamark.capture import state_comparison
from seamark.capture.checkpoint_contents import Sizes
from seamark.capture.state_comparison import StateComparison, compare_changes
from seamark.errors import (
    CheckpointNotFoundError,
    DamageError,
    InvalidInputError,
    RefusedError,
    SeamarkError,
)
from seamark.pipeline import run_builder
from seamark.pipeline.replay import one_batch, replayer
from seamark.pipeline.replay import scratch as scratch_module
from seamark.pipeline.replay.recorded_epochs import epochs_of
from seamark.pipeline.replay.result import Agreement, Replay
from seamark.sinks import FileSink
from seamark.spark.kept_rows import drop_rows, in_session
from tests.pipeline.support.trees import tree_of
from tests.pipeline.support.workloads import (
    KINDS,
    orders,
    pipeline,
    provider_of,
    providers_for,
    settings_of,
    values_in,
    windowed,
    write_input,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

KEEP = 100
"""More checkpoints than there are: each epoch can be run again."""
Ran = Callable[[str, str], Path]


@pytest.fixture(scope="module")
def ran(spark: SparkSession, input_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Ran:
    """The folder with store and sinks of a kind that has run to its end."""
    known: dict[tuple[str, str], Path] = {}

    def of(kind: str, provider: str) -> Path:
        if (kind, provider) not in known:
            root = tmp_path_factory.mktemp(f"{kind}-{provider}")
            with provider_of(spark, provider):
                pipeline(spark, kind, provider, input_folder, root, keep=KEEP).run()
            known[kind, provider] = root
        return known[kind, provider]

    return of


@pytest.fixture
def scratch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where temporary files go."""
    folder = tmp_path / "scratch"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    return folder


def epochs_in(root: Path) -> list[int]:
    with open_store(root / "store") as store:
        return list(epochs_of(store))


def rows_of(frame: DataFrame) -> Counter[str]:
    return Counter(json.dumps(row.asDict(recursive=True), default=str) for row in frame.collect())


def written(spark: SparkSession, folder: Path, epoch: int, columns: list[str]) -> Counter[str]:
    """The rows that a file sink shows of one epoch, as Spark reads them."""
    if not any(folder.glob("epoch=*/part-*")):
        return Counter()
    return rows_of(spark.read.parquet(str(folder)).where(f"epoch = {epoch}").select(*columns))


# every epoch of every kind

QUICK = ("windowed", "rocksdb-changelog")
CASES = [(kind, provider) for kind in KINDS for provider in providers_for(kind)]


@pytest.mark.slow
@pytest.mark.sampled(1)
@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    ("kind", "provider"),
    [
        pytest.param(*case, marks=pytest.mark.warm if case == QUICK else pytest.mark.spark)
        for case in CASES
    ],
)
def test_every_epoch_comes_out_as_it_was(
    spark: SparkSession, input_folder: Path, ran: Ran, scratch: Path, kind: str, provider: str
) -> None:
    root = ran(kind, provider)
    before = tree_of(root, input_folder)
    # the session has other settings by now: those of the epoch count
    p = pipeline(spark, kind, "hdfs", input_folder, root)
    epochs = epochs_in(root)
    assert epochs == list(range(1, len(epochs) + 1))
    assert len(epochs) >= 6
    found: Counter[str] = Counter()
    for epoch in epochs:
        with p.replay(epoch) as again:
            assert again.is_equal, str(again)
            assert not again.changes
            assert not again.notes
            assert again.state.is_equal in _comparable(provider, kind), again.state
            for name, frame in again.outputs.items():
                rows = rows_of(frame)
                assert rows == written(spark, root / name, epoch, frame.columns)
                found[name] += rows.total()
    assert all(found[name] for name in found)
    assert tree_of(root, input_folder) == before
    assert list(scratch.iterdir()) == []
    assert not [query for query in spark.streams.active if "replay" in query.name]


def _comparable(provider: str, kind: str) -> tuple[bool | None, ...]:
    if kind.startswith("stateless"):
        return (None,)
    if kind == "transformed-state" and provider.endswith("changelog"):
        return (True, None)  # the batch that makes the column families writes a snapshot
    # RocksDB without changelogs writes snapshots, whose bytes differ with every run
    return (True,) if provider in ("hdfs", "rocksdb-changelog", "format2-changelog") else (None,)


# a small pipeline


class World:
    """Windows and large orders of files that arrive one an epoch."""

    def __init__(self, spark: SparkSession, root: Path) -> None:
        self.spark = spark
        self.root = root
        self.folder = write_input(root / "input", 3)

    def pipeline(
        self,
        bars: Callable[[DataFrame], DataFrame] = windowed,
        large: str = "v > 50",
        **options: Any,
    ) -> Pipeline:
        p = Pipeline("shop", self.root / "store", **{"keep": KEEP, **options})
        source = p.source("orders", orders(self.spark, self.folder))
        p.sink("bars", bars(source), FileSink(self.root / "bars"))
        p.sink("large", source.where(large), FileSink(self.root / "large"))
        return p


@pytest.fixture(scope="module")
def shop(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> World:
    """One that has run to its end, and that nobody changes."""
    world = World(spark, tmp_path_factory.mktemp("shop"))
    world.pipeline().run()
    return world


@pytest.fixture
def own_shop(shop: World, tmp_path: Path) -> World:
    """The same in a folder of its own: sinks and store know it by its path there."""
    world = World(shop.spark, tmp_path / "shop")
    world.pipeline().run()
    return world


STEPS: list[tuple[Any, str]] = [
    (replayer, "recorded_plan"),
    (scratch_module, "restore_checkpoint"),
    (scratch_module, "install_plan"),
    (run_builder.QueryStarter, "start"),
    (one_batch, "keep_rows"),
    (one_batch.OneBatch, "rows"),
    (replayer, "compare_changes"),
    (replayer, "digest_of"),
]
"""Where a replay may end early."""
SOME = ("restore_checkpoint", "keep_rows", "compare_changes")


def reasons(again: Replay, name: str) -> str:
    return "; ".join(again.comparisons[name].reasons)


@pytest.mark.warm
def test_rows_stay_until_they_are_dropped_and_belong_to_the_session(shop: World) -> None:
    again = shop.pipeline().replay(2, outputs=["large"])
    assert list(again.outputs) == list(again.comparisons) == ["large"]
    rows = again.outputs["large"]
    assert rows.sparkSession is shop.spark
    assert rows.count() == rows.where("v > 50").count() > 0
    beside = orders_of(shop)
    assert rows.join(beside, "id").count() >= rows.count()
    assert again.comparisons["large"].agreement is Agreement.EQUAL
    assert "large" in str(again)
    again.close()
    with pytest.raises(Exception, match=r"(?i)checkpoint|block"):
        rows.count()


def orders_of(world: World) -> DataFrame:
    return world.spark.read.schema("id int, k int").json(str(world.folder / "orders"))


@pytest.mark.warm
def test_a_changed_pipeline_shows_what_it_would_have_written(shop: World, scratch: Path) -> None:
    before = tree_of(shop.root)
    again = shop.pipeline(large="v > 90").replay(2)
    assert again.is_equal is False
    assert again.comparisons["bars"].agreement is Agreement.EQUAL
    assert again.outputs["large"].where("v <= 90").count() == 0
    assert again.comparisons["large"].agreement is Agreement.DIFFERS
    assert "filters and plain columns are not recorded" in reasons(again, "large")
    assert "differs" in str(again)

    def longer(source: DataFrame) -> DataFrame:
        from pyspark.sql import functions as f

        marked = source.withWatermark("t", "10 seconds")
        grouped = marked.groupBy(f.window("t", "40 seconds"), "k")
        return grouped.agg(f.count("*").alias("n"), f.sum("v").alias("sum"))

    other = shop.pipeline(bars=longer).replay(3)
    assert "window length 20 seconds → 40 seconds" in " ".join(other.changes)
    assert "the pipeline has changed" in reasons(other, "bars")
    assert other.comparisons["large"].agreement is Agreement.EQUAL
    assert tree_of(shop.root) == before
    assert list(scratch.iterdir()) == []


@pytest.mark.warm
def test_an_output_that_the_epoch_had_not_is_shown_without_comparison(shop: World) -> None:
    p = shop.pipeline()
    source = p._outputs["large"].df
    p.sink("ids", source.select("id"), FileSink(shop.root / "ids"))
    again = p.replay(2)
    assert again.is_equal
    assert again.comparisons["ids"].agreement is Agreement.NOT_COMPARED
    assert reasons(again, "ids") == "the pipeline had no such output then"
    assert again.outputs["ids"].count() == again.outputs["large"].count()


@pytest.mark.warm
def test_a_pipeline_that_does_not_fit_the_state_is_refused(shop: World, scratch: Path) -> None:
    def deduplicated_first(source: DataFrame) -> DataFrame:
        return windowed(source.dropDuplicates(["id", "t"]))

    with pytest.raises(RefusedError, match="does not fit the state") as refused:
        shop.pipeline(bars=deduplicated_first).replay(2)
    assert "with the pipeline as it was then" in str(refused.value)
    other = Pipeline("other", shop.root / "store")
    other.sink("a", other.source("s", orders(shop.spark, shop.folder)), FileSink(shop.root / "a"))
    with pytest.raises(RefusedError, match="belongs to the pipeline 'shop'"):
        other.replay(2)
    with pytest.raises(InvalidInputError, match="no output 'none'"):
        shop.pipeline().replay(2, outputs=["none"])
    with pytest.raises(CheckpointNotFoundError, match=r"(?s)epoch 77 .*Epochs that can be: 1 to"):
        shop.pipeline().replay(77)
    assert list(scratch.iterdir()) == []


@pytest.mark.warm
def test_a_plan_that_is_not_deterministic_is_the_reason_that_is_given(
    spark: SparkSession, tmp_path: Path
) -> None:
    world = World(spark, tmp_path)
    p = Pipeline("shop", tmp_path / "store")
    source = p.source("orders", orders(spark, world.folder))
    p.sink("random", source.selectExpr("id", "rand() AS r"), FileSink(tmp_path / "random"))
    p.sink(
        "plain", source.selectExpr("id", "current_timestamp() AS t"), FileSink(tmp_path / "plain")
    )
    p.run()
    again = p.replay(1)
    assert again.comparisons["random"].agreement is Agreement.DIFFERS
    assert reasons(again, "random") == "rand() is not deterministic"
    # the time of a batch is part of its plan
    assert again.comparisons["plain"].agreement is Agreement.EQUAL


@pytest.mark.warm
@pytest.mark.slow
def test_rows_that_a_source_has_lost_or_changed_are_the_reason_that_is_given(
    own_shop: World, scratch: Path
) -> None:
    gone, edited = (own_shop.folder / "orders" / f"{n:03}.json" for n in (0, 1))
    gone.unlink()
    edited.write_text("\n".join(edited.read_text().splitlines()[:-9]))
    first = own_shop.pipeline().replay(1)
    assert first.is_equal is False
    assert first.comparisons["large"].replayed is not None
    assert first.comparisons["large"].replayed.rows == 0
    assert f"{gone.name}) is gone" in reasons(first, "large")
    assert first.notes
    second = own_shop.pipeline().replay(2)
    assert f"{edited.name}) is modified since" in reasons(second, "large")
    assert own_shop.pipeline().replay(3).is_equal
    assert list(scratch.iterdir()) == []


@pytest.mark.warm
@pytest.mark.slow
def test_an_epoch_that_fails_leaves_nothing_behind(shop: World, scratch: Path) -> None:
    from pyspark.sql import functions as f

    failing = f.udf(lambda value: value // 0, "int")

    def broken(source: DataFrame) -> DataFrame:
        return windowed(source.withColumn("v", failing("v")))

    before = tree_of(shop.root)
    with pytest.raises(SeamarkError, match="epoch 2 could not be run again") as failed:
        shop.pipeline(bars=broken).replay(2)
    assert "ZeroDivisionError" in str(failed.value)
    assert tree_of(shop.root) == before
    assert list(scratch.iterdir()) == []
    assert shop.pipeline().replay(2).is_equal


@pytest.mark.warm
@pytest.mark.slow
def test_rows_that_go_with_a_lost_executor_are_said_to_be_lost(
    shop: World, scratch: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def lost(kept: DataFrame, spark: SparkSession) -> DataFrame:
        drop_rows(kept)  # so are the blocks of an executor that is gone
        return in_session(kept, spark)

    with monkeypatch.context() as patched:
        patched.setattr(replayer, "in_session", lost)
        with pytest.raises(SeamarkError, match="an executor that held rows was lost") as failed:
            shop.pipeline().replay(2)
    assert "epoch 2 could not be run again" in str(failed.value)
    assert "do it again" in str(failed.value)
    assert list(scratch.iterdir()) == []
    assert shop.pipeline().replay(2).is_equal


@pytest.mark.slow
@pytest.mark.sampled(1)
@pytest.mark.parametrize(
    ("module", "step"),
    [
        pytest.param(module, step, marks=pytest.mark.warm if step in SOME else pytest.mark.spark)
        for module, step in STEPS
    ],
    ids=[step for _, step in STEPS],
)
def test_whatever_ends_a_replay_it_leaves_nothing_behind(
    shop: World, scratch: Path, monkeypatch: pytest.MonkeyPatch, module: Any, step: str
) -> None:
    p, before = shop.pipeline(), tree_of(shop.root)
    rows_kept = persisted(shop.spark)

    def ended(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt(step)

    with monkeypatch.context() as patched:
        patched.setattr(module, step, ended)
        with pytest.raises(BaseException, match=step):
            p.replay(2)
    assert tree_of(shop.root) == before
    assert list(scratch.iterdir()) == []
    assert not [query for query in shop.spark.streams.active if "replay" in query.name]
    assert persisted(shop.spark) <= rows_kept
    assert p.replay(2).is_equal


def persisted(spark: SparkSession) -> set[int]:
    """The rows that Spark keeps."""
    context: Any = spark.sparkContext._jsc
    return set(context.getPersistentRDDs().keySet().toArray())


@pytest.mark.spark
def test_a_store_that_cannot_give_the_state_is_said_and_left_alone(
    spark: SparkSession, tmp_path: Path, scratch: Path
) -> None:
    world = World(spark, tmp_path)
    world.pipeline(full_every=1).run()
    path = next((tmp_path / "store").rglob("*0002*/manifest.json"))
    whole = path.read_bytes()
    path.write_bytes(whole[:-3])
    with pytest.raises(CheckpointNotFoundError, match="is damaged"):
        world.pipeline().replay(3)
    assert world.pipeline().replay(1).is_equal
    path.write_bytes(whole)
    assert world.pipeline().replay(3).is_equal
    with open_store(tmp_path / "store") as opened:
        opened.claim()
        opened.prune(1)
    newest = epochs_in(tmp_path)[-1]
    with pytest.raises(CheckpointNotFoundError, match=r"(?s)was pruned.*None of its epochs"):
        world.pipeline().replay(newest)
    assert list(scratch.iterdir()) == []


@pytest.mark.warm
@pytest.mark.slow
def test_damaged_state_is_an_error_and_never_another_result(
    spark: SparkSession, input_folder: Path, ran: Ran, tmp_path: Path, scratch: Path
) -> None:
    root = Path(shutil.copytree(ran(*QUICK), tmp_path / "copy"))
    objects = (file for file in (root / "store" / "shared").rglob("*") if file.is_file())
    first = min(objects, key=lambda file: file.stat().st_mtime)
    data = bytearray(first.read_bytes())
    data[len(data) // 2] ^= 1
    first.write_bytes(data)
    with pytest.raises(DamageError):
        pipeline(spark, QUICK[0], "hdfs", input_folder, root).replay(2)
    assert list(scratch.iterdir()) == []


@pytest.mark.warm
@pytest.mark.slow
def test_rows_of_an_epoch_that_is_pruned_meanwhile_are_given_without_its_state(
    spark: SparkSession, tmp_path: Path, scratch: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World(spark, tmp_path)
    world.pipeline(full_every=1, sizes=Sizes(inline_operator=0)).run()
    # as with state files that have ids: their bytes differ, so the stored ones are read
    monkeypatch.setattr(state_comparison, "_sha256", lambda *_: b"")

    def beside_a_prune(*args: Any) -> StateComparison:
        with open_store(tmp_path / "store") as beside:
            beside.claim()
            assert beside.prune(1)
        # Spark has no snapshot yet, with which the prune would have removed these itself
        shutil.rmtree(tmp_path / "store" / "shared")
        return compare_changes(*args)

    monkeypatch.setattr(replayer, "compare_changes", beside_a_prune)
    again = world.pipeline().replay(3)
    assert again.is_equal
    assert again.state.is_equal is None
    assert any("was pruned meanwhile" in note for note in again.notes)
    assert list(scratch.iterdir()) == []


@pytest.mark.spark
def test_without_digests_there_is_nothing_to_compare_with(
    spark: SparkSession, tmp_path: Path
) -> None:
    world = World(spark, tmp_path)
    world.pipeline(digests=False).run()
    again = world.pipeline().replay(2)
    assert again.is_equal is None
    assert "nothing to compare with" in reasons(again, "bars")
    assert again.outputs["large"].count() > 0
    assert again.state.is_equal


# other histories


@pytest.mark.chaos
@pytest.mark.spark
def test_after_a_rollback_the_epochs_of_the_new_history_are_run_again(
    spark: SparkSession, tmp_path: Path
) -> None:
    world = World(spark, tmp_path)
    world.pipeline().run()
    with open_store(tmp_path / "store") as store:
        chosen = store.load_by_id(2)
    assert chosen is not None
    world.pipeline().rollback(2)
    given_up = tree_of(tmp_path / "store")
    assert world.pipeline().replay(2).is_equal
    with pytest.raises(CheckpointNotFoundError, match="not in the store"):
        world.pipeline().replay(3)
    assert tree_of(tmp_path / "store") == given_up
    (world.folder / "orders" / "002.json").unlink()
    world.pipeline().run()
    for epoch in epochs_in(tmp_path):
        assert world.pipeline().replay(epoch).is_equal, epoch


@pytest.mark.spark
@pytest.mark.parametrize("provider", ["hdfs", "format2-changelog"])
def test_epochs_before_and_after_an_upgrade_are_run_by_the_pipeline_of_then(
    spark: SparkSession, tmp_path: Path, provider: str
) -> None:
    world = World(spark, tmp_path)
    last = world.folder / "orders" / "003.json"
    shutil.move(last, tmp_path / "later.json")
    with provider_of(spark, provider):
        world.pipeline().run()
        done = epochs_in(tmp_path)[-1]

        def upgraded() -> Pipeline:
            p = Pipeline("shop", tmp_path / "store", policy="evolve", keep=KEEP)
            source = p.source("orders", orders(spark, world.folder))
            pairs = source.select("k", "v").dropDuplicates(["k", "v"])
            p.sink("pairs", pairs, FileSink(tmp_path / "pairs"))
            p.sink("bars", windowed(source), FileSink(tmp_path / "bars"))
            p.sink("large", source.where("v > 50"), FileSink(tmp_path / "large"))
            return p

        shutil.move(tmp_path / "later.json", last)
        upgraded().run()
    newest = epochs_in(tmp_path)[-1]
    assert newest > done
    for epoch in range(1, newest + 1):
        pipelines = [world.pipeline(), upgraded()]
        of_then, other = pipelines if epoch <= done else reversed(pipelines)
        assert of_then.replay(epoch).is_equal, epoch
        with pytest.raises(RefusedError, match="does not fit the state"):
            other.replay(epoch)


@pytest.mark.chaos
@pytest.mark.spark
def test_a_sink_that_was_added_moves_the_sources_and_every_epoch_still_fits(
    spark: SparkSession, tmp_path: Path
) -> None:
    folder = write_input(tmp_path / "input", 2)
    from tests.pipeline.support.workloads import payments

    def made(*, more: bool) -> Pipeline:
        p = Pipeline("shop", tmp_path / "store", keep=KEEP)
        paid = p.source("payments", payments(spark, folder))
        ordered = p.source("orders", orders(spark, folder))
        if more:
            p.sink("early", ordered.select("id"), FileSink(tmp_path / "early"))
        p.sink("paid", paid.select("paid"), FileSink(tmp_path / "paid"))
        p.sink("large", ordered.where("v > 50"), FileSink(tmp_path / "large"))
        return p

    made(more=False).run()
    done = epochs_in(tmp_path)[-1]
    later = write_input(tmp_path / "later", 4)
    for name in ("orders", "payments"):
        shutil.copy2(later / name / "003.json", folder / name / "003.json")
    made(more=True).run()
    assert epochs_in(tmp_path)[-1] > done
    for epoch in epochs_in(tmp_path):
        for more in (False, True):
            if not more and epoch > done:
                continue  # it cannot run without a sink that the store has
            again = made(more=more).replay(epoch)
            assert again.is_equal, (epoch, more, str(again))


@pytest.mark.chaos
@pytest.mark.spark
def test_the_first_epoch_after_an_adoption_is_refused_and_the_others_run(
    spark: SparkSession, tmp_path: Path
) -> None:
    folder = write_input(tmp_path / "input", 2)
    counted = windowed(orders(spark, folder))
    query = (
        counted.writeStream.option("checkpointLocation", str(tmp_path / "old"))
        .format("noop")
        .outputMode("append")
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    later = write_input(tmp_path / "later", 5)
    for number in (3, 4, 5):
        name = f"{number:03}.json"
        shutil.copy2(later / "orders" / name, folder / "orders" / name)
    p = Pipeline("shop", tmp_path / "store", adopt=tmp_path / "old", keep=KEEP)
    p.sink("bars", windowed(p.source("orders", orders(spark, folder))), FileSink(tmp_path / "bars"))
    p.run()
    first, *others = epochs_in(tmp_path)
    assert first > 1
    with pytest.raises(CheckpointNotFoundError, match="the state before it was never in it"):
        p.replay(first)
    for epoch in others:
        assert p.replay(epoch).is_equal


# beside others


@pytest.mark.spark
def test_a_replay_beside_a_running_pipeline_disturbs_nothing(
    spark: SparkSession, tmp_path: Path
) -> None:
    world = World(spark, tmp_path)
    run = world.pipeline().start()
    try:
        wait_for(lambda: run.epoch >= 4)
        found = [world.pipeline().replay(epoch) for epoch in (1, 3)]
        assert all(again.is_equal for again in found)
        results: list[Replay] = []
        both = [
            threading.Thread(target=lambda e=epoch: results.append(world.pipeline().replay(e)))
            for epoch in (2, 3)
        ]
        for thread in both:
            thread.start()
        for thread in both:
            thread.join()
        assert [again.is_equal for again in results] == [True, True]
        assert run.is_active
        later = write_input(tmp_path / "later", 6)
        before = run.epoch
        shutil.copy2(later / "orders" / "005.json", world.folder / "orders" / "005.json")
        wait_for(lambda: run.epoch > before)
        assert run.is_active
        newest = run.epoch
    finally:
        run.stop()
    assert run.exception() is None
    assert world.pipeline().replay(newest).is_equal


def wait_for(is_so: Callable[[], bool]) -> None:
    waiting = threading.Event()
    for _ in range(6000):
        if is_so():
            return
        waiting.wait(0.05)
    raise AssertionError("it never came")


@pytest.mark.spark
@pytest.mark.parametrize("mode", ["update", "complete"])
def test_shared_state_in_other_output_modes_is_run_again(
    spark: SparkSession, tmp_path: Path, mode: Any
) -> None:
    folder = write_input(tmp_path / "input", 3)
    p = Pipeline("sums", tmp_path / "store", output_mode=mode, keep=KEEP)
    source = p.source("orders", orders(spark, folder))
    sums = source.groupBy("k").count()
    p.sink("sums", sums, FileSink(tmp_path / "sums"))
    p.sink("busy", sums.where("count > 20").select("k"), FileSink(tmp_path / "busy"))
    p.run()
    for epoch in epochs_in(tmp_path):
        again = p.replay(epoch)
        assert again.is_equal, str(again)
        assert again.state.is_equal


@pytest.mark.spark
def test_the_number_of_partitions_is_that_of_the_epoch(shop: World) -> None:
    with settings_of(shop.spark, {"spark.sql.shuffle.partitions": "7"}):
        again = shop.pipeline().replay(3)
        assert again.is_equal
        assert again.state.is_equal
        assert not again.changes


@pytest.mark.spark
def test_a_source_with_positions_of_its_own_is_read_at_those(
    spark: SparkSession, tmp_path: Path
) -> None:
    from tests.sources.test_on_spark import from_the_page, write

    source_class = from_the_page()
    spark.dataSource.register(source_class)
    log = tmp_path / "app.log"
    write(log, 0, 25)
    p = Pipeline("lines", tmp_path / "store", keep=KEEP)
    stream = spark.readStream.format(source_class.name()).options(path=str(log)).load()
    p.sink("lines", p.source("log", stream), FileSink(tmp_path / "lines"))
    run = p.start()
    try:
        wait_for(lambda: run.epoch >= 1)
        write(log, 25, 40)
        wait_for(lambda: sum(1 for _ in values_in(tmp_path / "lines")) >= 40)
    finally:
        run.stop()
    epochs = epochs_in(tmp_path)
    assert len(epochs) >= 2
    for epoch in epochs:
        assert p.replay(epoch).is_equal
