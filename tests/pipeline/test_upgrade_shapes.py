"""Plans in which operators are hard to number keep the state of each: limits, several joins."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from seamark import Pipeline, open_store
from seamark.errors import RefusedError
from seamark.pipeline.declaration.settings import Step
from seamark.sinks import FileSink
from seamark.testing.crashes import SimulatedCrash, crash_at
from tests.pipeline.support.upgrades import (
    BEFORE,
    Counting,
    World,
    counts,
    new_pairs,
    pairs,
    rows_of,
    sums,
)
from tests.pipeline.support.workloads import (
    orders,
    payments,
    provider_of,
    read_json,
    rows_in,
    values_in,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]

Shape = Callable[[World, Pipeline, "DataFrame"], "DataFrame"]


def limited(_: World, __: Pipeline, source: DataFrame) -> DataFrame:
    return source.select("id", "k").limit(200)


def limited_after_deduplication(_: World, __: Pipeline, source: DataFrame) -> DataFrame:
    return source.select("id").dropDuplicates(["id"]).limit(200)


def three_way_join(world: World, p: Pipeline, source: DataFrame) -> DataFrame:
    paid = p.source("payments", payments(world.spark, world.folder))
    columns = "order int, paid int, pt timestamp"
    read = read_json(world.spark, world.folder / "payments", columns)
    receipts = p.source("receipts", read).selectExpr("order AS receipt", "paid AS amount")
    both = source.join(paid, source["id"] == paid["order"])
    return both.join(receipts, both["id"] == receipts["receipt"]).select("id", "paid", "amount")


def join_of_deduplicated(world: World, p: Pipeline, source: DataFrame) -> DataFrame:
    paid = p.source("payments", payments(world.spark, world.folder))
    once = source.select("id", "v").dropDuplicates(["id"])
    others = paid.select("order", "paid").dropDuplicates(["order"])
    return once.join(others, once["id"] == others["order"])


SHAPES: dict[str, Shape] = {
    shape.__name__: shape
    for shape in (limited, limited_after_deduplication, three_way_join, join_of_deduplicated)
}


def declared(world: World, shape: Shape, *, moved: bool, **options: Any) -> Pipeline:
    p = world.pipeline(**options)
    source = p.source("orders", orders(world.spark, world.folder))
    if moved:
        p.sink("pairs", pairs(source), FileSink(world.root / "pairs"))
    p.sink("main", shape(world, p, source), FileSink(world.root / "main"))
    return p


@pytest.mark.sampled(1)
@pytest.mark.parametrize("provider", ["hdfs", "rocksdb-changelog"])
@pytest.mark.parametrize("name", SHAPES)
def test_I15_a_plan_of_any_shape_goes_on_under_other_numbers(
    spark: SparkSession, input_folder: Path, tmp_path: Path, name: str, provider: str
) -> None:
    shape = SHAPES[name]
    shows = []
    for moved in (False, True):
        world = World(spark, input_folder, tmp_path / str(moved), "windowed")
        with provider_of(spark, provider):
            declared(world, shape, moved=False).run()
            world.deliver()
            declared(world, shape, moved=moved, policy="evolve").run()
        shows.append(rows_in(world.root / "main"))
    # which rows a limit takes is Spark's choice; how many is not
    assert shows[0].total() == shows[1].total() > 0
    assert "limited" in name or shows[0] == shows[1]
    assert rows_in(world.root / "pairs") == new_pairs(world.folder, BEFORE)


@pytest.mark.sampled(1)
@pytest.mark.parametrize("step", [Step.WRITE, Step.COMMIT, Step.RECORD])
def test_the_first_epoch_after_an_upgrade_is_finished_or_run_again_when_it_was_cut_off(
    counting: Counting, step: Step
) -> None:
    counting.declare("counts").run()
    counting.world.deliver()
    hook = crash_at(step, "before", BEFORE + 1)
    with pytest.raises(SimulatedCrash):
        counting.declare("sums", "counts", policy="evolve", on_step=hook).run()
    counting.world.wipe()
    counting.declare("sums", "counts").run()
    assert counting.newest("counts") == counts(rows_of(counting.world.folder))
    assert counting.newest("sums") == sums(rows_of(counting.world.folder, BEFORE))
    for output in ("counts", "sums"):
        shows = Counter((row["epoch"], row["k"]) for row in values_in(counting.root / output))
        assert set(shows.values()) == {1}


def test_a_pipeline_that_joins_a_source_with_itself_is_refused_before_the_store_is_claimed(
    counting: Counting,
) -> None:
    from pyspark.sql import functions as f

    world = counting.world

    def twice(*, joined: bool = True, **options: Any) -> Pipeline:
        p = world.pipeline(**options)
        source = p.source("orders", orders(world.spark, world.folder))
        p.sink("ids", source.select("id").dropDuplicates(["id"]), FileSink(world.root / "ids"))
        if joined:
            both = source.alias("a").join(source.alias("b"), f.expr("a.id = b.id AND a.v > b.k"))
            p.sink("twice", both.select("a.id"), FileSink(world.root / "twice"))
        return p

    twice().run()
    with open_store(world.root / "store") as store:
        owner = store.owner()
    with pytest.raises(RefusedError, match="joins a source with itself"):
        twice(joined=False, policy="evolve").run()
    with open_store(world.root / "store") as store:
        assert store.owner() == owner
    world.deliver()
    twice(policy="evolve").run()
    ids = {row["id"] for row in rows_of(world.folder)}
    assert rows_in(world.root / "ids") == Counter(json.dumps({"id": i}) for i in ids)
