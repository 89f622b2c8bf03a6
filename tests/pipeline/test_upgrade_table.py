"""Every row of the table in docs/upgrade.md, wherever state is kept."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from seamark import Pipeline
from seamark.errors import RefusedError
from seamark.sinks import FileSink
from tests.pipeline.support.upgrades import BEFORE, Counting, counts, rows_of, sums
from tests.pipeline.support.workloads import (
    PROVIDERS,
    orders,
    payments,
    provider_of,
    values_in,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]

Change = Callable[[Counting], Iterator[None]]
"""Runs the pipeline as it was up to its yield, and what it has become after it."""


def count_of(p: Pipeline, name: str, rows: DataFrame, root: Path, key: str = "k") -> None:
    p.sink(name, rows.groupBy(key).count(), FileSink(root / name))


def an_operator_leaves_an_output(counting: Counting) -> Iterator[None]:
    counting.declare("counts=of_new").run()
    yield
    counting.declare("counts", policy="evolve").run()
    folder = counting.world.folder
    once = {row["id"]: row for row in rows_of(folder, 0, BEFORE)}.values()
    expected = Counter(counts(list(once))) + Counter(counts(rows_of(folder, BEFORE)))
    assert counting.newest("counts") == dict(expected)


def a_filter_in_front_changes(counting: Counting) -> Iterator[None]:
    def filtered(condition: str, **options: Any) -> Pipeline:
        p, source = counting.pipeline(**options)
        count_of(p, "counts", source.where(condition), counting.root)
        return p

    filtered("k < 3").run()
    yield
    filtered("k < 4", policy="evolve").run()
    folder = counting.world.folder
    had = counts([row for row in rows_of(folder, 0, BEFORE) if row["k"] < 3])
    has = counts([row for row in rows_of(folder, BEFORE) if row["k"] < 4])
    assert counting.newest("counts") == dict(Counter(had) + Counter(has))


def a_stateless_output_has_other_columns_and_another_target(counting: Counting) -> Iterator[None]:
    def rows(target: str, *columns: str, **options: Any) -> Pipeline:
        p, source = counting.pipeline(**options)
        count_of(p, "counts", source, counting.root)
        p.sink("rows", source.select(*columns), FileSink(counting.root / target))
        return p

    rows("rows", "id").run()
    yield
    rows("moved", "id", "v", policy="evolve").run()
    folder = counting.world.folder
    assert counting.newest("counts") == counts(rows_of(folder))
    assert len(values_in(counting.root / "rows")) == len(rows_of(folder, 0, BEFORE))
    moved = values_in(counting.root / "moved")
    assert Counter((row["id"], row["v"]) for row in moved) == Counter(
        (row["id"], row["v"]) for row in rows_of(folder, BEFORE)
    )


def a_source_feeds_one_output_more_and_the_sources_change_places(
    counting: Counting,
) -> Iterator[None]:
    world = counting.world

    def both(*, more: bool, **options: Any) -> Pipeline:
        p = world.pipeline(output_mode="update", **options)
        ordered = p.source("orders", orders(world.spark, world.folder))
        paid = p.source("payments", payments(world.spark, world.folder))
        if not more:
            count_of(p, "counts", ordered, world.root)
        count_of(p, "paid", paid, world.root, "paid")
        if more:
            count_of(p, "counts", ordered, world.root)
            total = paid.groupBy("paid").sum("order").withColumnRenamed("sum(order)", "count")
            p.sink("ordered", total, FileSink(world.root / "ordered"))
        return p

    both(more=False).run()
    yield
    both(more=True, policy="evolve").run()
    assert counting.newest("counts") == counts(rows_of(world.folder))
    files = sorted((world.folder / "payments").iterdir())
    payments_of = [[json.loads(line) for line in path.read_text().splitlines()] for path in files]
    every = [row for rows in payments_of for row in rows]
    later = [row for rows in payments_of[BEFORE:] for row in rows]
    shows = sorted(values_in(world.root / "paid"), key=lambda row: row["epoch"])
    assert {row["paid"]: row["count"] for row in shows} == dict(
        Counter(row["paid"] for row in every)
    )
    added: Counter[int] = Counter()
    for row in later:
        added[row["paid"]] += row["order"]
    shows = sorted(values_in(world.root / "ordered"), key=lambda row: row["epoch"])
    assert {row["paid"]: row["count"] for row in shows} == dict(added)


def outputs_begin_to_share_state(counting: Counting) -> Iterator[None]:
    counting.declare("shared", "also_shared", share_state=False).run()
    yield
    counting.declare("shared", "also_shared", policy="evolve").run()
    expected = counts(rows_of(counting.world.folder))
    assert counting.newest("shared") == expected
    assert counting.newest("also_shared") == {k: n for k, n in expected.items() if k > 0}


def an_output_gets_a_new_key_when_asked_for(counting: Counting) -> Iterator[None]:
    counting.declare("counts", "sums").run()
    yield
    changed: dict[str, Any] = {"policy": "evolve", "begin_empty": ["counts"]}
    with pytest.raises(RefusedError, match="counts/aggregation: refused"):
        counting.declare("counts=by_id", "sums", policy="evolve").run()
    counting.declare("counts=by_id", "sums", **changed).run()
    folder = counting.world.folder
    assert counting.newest("sums") == sums(rows_of(folder))
    shows = [row for row in values_in(counting.root / "counts") if row["epoch"] > BEFORE]
    assert sum(row["count"] for row in shows if row["count"] == 1) > 0


def a_watermark_gets_another_delay(counting: Counting) -> Iterator[None]:
    from pyspark.sql import functions as f

    world = counting.world

    def bars(delay: str, **options: Any) -> Pipeline:
        p = world.pipeline(**options)
        source = p.source("orders", orders(world.spark, world.folder)).withWatermark("t", delay)
        grouped = source.groupBy(f.window("t", "20 seconds"), "k").count()
        p.sink("bars", grouped, FileSink(world.root / "bars"))
        return p

    bars("10 seconds").run()
    yield
    run = bars("20 seconds", policy="evolve").run()
    assert "it never moves back" in " ".join(run.report.notes)
    shows = values_in(world.root / "bars")
    once = Counter((row["window"]["start"], row["k"]) for row in shows)
    assert set(once.values()) == {1}
    # each row whose window was open is in it once: no other row comes more than 20 s late
    first = {row["id"]: row for row in rows_of(world.folder)}
    assert sum(row["count"] for row in shows) >= len(first) - 1


CHANGES: dict[str, Change] = {
    change.__name__: change
    for change in (
        an_operator_leaves_an_output,
        a_filter_in_front_changes,
        a_stateless_output_has_other_columns_and_another_target,
        a_source_feeds_one_output_more_and_the_sources_change_places,
        outputs_begin_to_share_state,
        an_output_gets_a_new_key_when_asked_for,
        a_watermark_gets_another_delay,
    )
}


@pytest.mark.slow
@pytest.mark.sampled(1)
@pytest.mark.parametrize("provider", PROVIDERS)
@pytest.mark.parametrize("name", CHANGES)
def test_I15_a_change_of_the_table_goes_on_as_it_says(
    counting: Counting, name: str, provider: str
) -> None:
    with provider_of(counting.world.spark, provider):
        change = CHANGES[name](counting)
        next(change)
        counting.world.deliver()
        with pytest.raises(StopIteration):
            next(change)


def test_another_output_mode_is_refused(counting: Counting) -> None:
    world = counting.world

    def pipeline(mode: Any, **options: Any) -> Pipeline:
        p = world.pipeline(output_mode=mode, **options)
        source = p.source("orders", orders(world.spark, world.folder))
        count_of(p, "counts", source, world.root)
        return p

    pipeline("update").run()
    with pytest.raises(RefusedError, match="the mode decides what the state holds"):
        pipeline("complete", policy="evolve").run()
