"""A query that was not a pipeline becomes one output of several, and keeps its state."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from seamark import Pipeline, open_store
from seamark.errors import InvalidInputError, LineageError, RefusedError
from seamark.pipeline.declaration.settings import Step
from seamark.pipeline.recovery.upgrade import Upgrade
from seamark.sinks import FileSink
from seamark.testing.crashes import SimulatedCrash, crash_at
from tests.pipeline.support.upgrades import BEFORE, World, new_pairs, pairs
from tests.pipeline.support.workloads import (
    orders,
    provider_of,
    rows_in,
    windowed,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]


class Adopting:
    """A query written by hand, and pipelines that it becomes a part of."""

    def __init__(self, spark: SparkSession, files: Path, root: Path) -> None:
        self.world = World(spark, files, root, "windowed")
        self.spark = spark
        self.root = root

    def run_by_hand(self) -> None:
        def write(df: Any, batch: int) -> None:
            df.write.parquet(str(self.root / "by-hand" / f"epoch={batch}"))

        query = (
            windowed(orders(self.spark, self.world.folder))
            .writeStream.option("checkpointLocation", str(self.root / "old"))
            .trigger(availableNow=True)
            .foreachBatch(write)
            .start()
        )
        query.awaitTermination()

    def pipeline(self, *, alone: bool = False, **options: Any) -> Pipeline:
        p = self.world.pipeline(adopt=self.root / "old", **options)
        source = p.source("orders", orders(self.spark, self.world.folder))
        if not alone:
            p.sink("pairs", pairs(source), FileSink(self.root / "pairs"))
        p.sink("bars", windowed(source), FileSink(self.root / "bars"))
        return p

    def shown(self) -> Counter[str]:
        """The rows of the query and of the output that it has become."""
        return rows_in(self.root / "by-hand") + rows_in(self.root / "bars")


@pytest.fixture(scope="module")
def in_two_goes(
    spark: SparkSession, input_folder: Path, tmp_path_factory: pytest.TempPathFactory
) -> Counter[str]:
    """What a pipeline shows that is nothing but the query, stopped where that was."""
    root = tmp_path_factory.mktemp("two-goes")
    world = World(spark, input_folder, root, "windowed-one-sink")
    world.before().run()
    world.deliver()
    world.before().run()
    return rows_in(root / "main")


@pytest.fixture
def adopting(spark: SparkSession, input_folder: Path, tmp_path: Path) -> Adopting:
    return Adopting(spark, input_folder, tmp_path)


EVOLVE: dict[str, Any] = {"policy": "evolve", "adopt_as": "bars"}


@pytest.mark.sampled(1)
@pytest.mark.parametrize(
    "provider", ["hdfs", "rocksdb", "rocksdb-changelog", "format2", "format2-changelog"]
)
def test_a_query_becomes_one_of_several_outputs_in_one_start(
    adopting: Adopting, in_two_goes: Counter[str], provider: str
) -> None:
    with provider_of(adopting.spark, provider):
        adopting.run_by_hand()
        before = set((adopting.root / "old").rglob("*"))
        adopting.world.deliver()
        run = adopting.pipeline(**EVOLVE).run()
    assert set((adopting.root / "old").rglob("*")) == before
    assert "operator pairs/deduplication: begins empty" in " ".join(run.report.notes)
    assert adopting.shown() == in_two_goes
    assert rows_in(adopting.root / "pairs") == new_pairs(adopting.world.folder, BEFORE)
    with open_store(adopting.root / "store") as store:
        assert all(store.validate_checkpoint(i).valid for i in store.list_ids())


def test_a_query_is_adopted_unchanged_and_the_next_start_changes_it(
    adopting: Adopting, in_two_goes: Counter[str]
) -> None:
    adopting.run_by_hand()
    adopting.pipeline(alone=True).run()  # nothing is new, so the next start has nothing to change
    hook = crash_at(Step.RECORD, "after", BEFORE + 2)
    adopting.world.deliver()
    with pytest.raises(SimulatedCrash):
        adopting.pipeline(alone=True, on_step=hook).run()
    adopting.pipeline(policy="evolve").run()
    assert adopting.shown() == in_two_goes
    assert rows_in(adopting.root / "pairs").total() > 0


def test_an_adoption_that_dies_before_its_upgrade_is_made_again_by_the_next_start(
    adopting: Adopting, in_two_goes: Counter[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def dying(*_: Any) -> None:
        raise SimulatedCrash("the query is adopted, and nothing more")

    adopting.run_by_hand()
    adopting.world.deliver()
    with monkeypatch.context() as patched:
        patched.setattr(Upgrade, "save", dying)
        with pytest.raises(SimulatedCrash):
            adopting.pipeline(**EVOLVE).run()
    adopting.pipeline(**EVOLVE).run()
    assert adopting.shown() == in_two_goes
    assert rows_in(adopting.root / "pairs") == new_pairs(adopting.world.folder, BEFORE)


def test_what_cannot_be_adopted_so_is_refused_before_the_store_is_claimed(
    adopting: Adopting,
) -> None:
    adopting.run_by_hand()
    with pytest.raises(InvalidInputError, match="goes with adopt= and policy='evolve'"):
        adopting.pipeline(adopt_as="bars").run()
    with pytest.raises(InvalidInputError, match="no such output"):
        adopting.pipeline(policy="evolve", adopt_as="candles").run()
    with pytest.raises(RefusedError, match="this pipeline reads 2") as refused:
        adopting.pipeline(policy="evolve").run()
    assert "adopt_as= names that one" in str(refused.value)
    with pytest.raises(RefusedError, match="which state belongs to which operator"):
        adopting.pipeline(policy="evolve", adopt_as="pairs").run()
    with open_store(adopting.root / "store") as store:
        assert store.list_ids() == []
    adopting.world.deliver()
    adopting.pipeline(**EVOLVE).run()
    # a second store for targets that show rows already
    other = Pipeline("shop", adopting.root / "other", adopt=adopting.root / "old", **EVOLVE)
    source = other.source("orders", orders(adopting.spark, adopting.world.folder))
    other.sink("pairs", pairs(source), FileSink(adopting.root / "pairs"))
    other.sink("bars", windowed(source), FileSink(adopting.root / "bars"))
    with pytest.raises(LineageError, match="sinks show epochs already"):
        other.run()
