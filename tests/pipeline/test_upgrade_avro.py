"""State of transformWithState gets other columns where Spark's own schema evolution takes them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from seamark import Pipeline
from seamark.errors import SeamarkError
from seamark.sinks import FileSink
from tests.pipeline.support.upgrades import BEFORE, World, rows_of
from tests.pipeline.support.workloads import (
    orders,
    provider_of,
    settings_of,
    values_in,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]

ENCODING = "spark.sql.streaming.stateStore.encodingFormat"


def totals(columns: str) -> Any:
    """Counts rows by key; with a column ``total`` in its state it also adds up what comes."""
    from pyspark.sql.streaming.stateful_processor import StatefulProcessor

    class Totals(StatefulProcessor):
        def init(self, handle: Any) -> None:
            self._state = handle.getValueState("state", columns)

        def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Any:
            import pandas as pd

            had = self._state.get() if self._state.exists() else (0, 0)
            count, total = had[0], (had[1] if len(had) > 1 else 0) or 0
            for frame in rows:
                count, total = count + len(frame), total + int(frame["v"].sum())
            self._state.update((count, total) if "total" in columns else (count,))
            yield pd.DataFrame({"k": [key[0]], "rows": [count], "total": [total]})

        def close(self) -> None:
            pass

    return Totals()


@pytest.fixture
def world(spark: SparkSession, input_folder: Path, tmp_path: Path) -> Iterator[World]:
    with provider_of(spark, "rocksdb-changelog"):
        yield World(spark, input_folder, tmp_path, "windowed")


def pipeline(world: World, columns: str, *, new: bool = False, **options: Any) -> Pipeline:
    p = world.pipeline(**options)
    source = p.source("orders", orders(world.spark, world.folder))
    # with Avro, Spark takes no other stateful operator into the query
    for name, key in [("ids", "id"), ("totals", "k")] if new else [("totals", "k")]:
        shown = source.groupBy(key).transformWithStateInPandas(
            totals(columns), "k int, rows long, total long", "append", "None"
        )
        p.sink(name, shown, FileSink(world.root / name))
    return p


def newest(world: World, column: str) -> dict[int, int]:
    rows = sorted(values_in(world.root / "totals"), key=lambda row: row["epoch"])
    return {row["k"]: row[column] for row in rows}


@pytest.mark.sampled(1)
@pytest.mark.parametrize("new", [False, True])
def test_a_column_more_in_avro_state_goes_on(world: World, new: bool) -> None:
    with settings_of(world.spark, {ENCODING: "avro"}):
        pipeline(world, "rows long").run()
        world.deliver()
        pipeline(world, "rows long, total long", new=new, policy="evolve").run()
    rows, later = rows_of(world.folder), rows_of(world.folder, BEFORE)
    assert newest(world, "rows") == dict(Counter(row["k"] for row in rows))
    added: Counter[int] = Counter()
    for row in later:
        added[row["k"]] += row["v"]
    assert newest(world, "total") == dict(added)
    if new:
        shown = [row["rows"] for row in values_in(world.root / "ids")]
        assert shown.count(1) == len({row["id"] for row in later})


def test_a_column_more_in_other_state_is_refused_in_spark_s_words_and_the_old_one_goes_on(
    world: World,
) -> None:
    pipeline(world, "rows long").run()
    world.deliver()
    with pytest.raises(SeamarkError, match=r"(?i)schema"):
        pipeline(world, "rows long, total long", policy="evolve").run()
    pipeline(world, "rows long").run()
    rows = rows_of(world.folder)
    assert newest(world, "rows") == dict(Counter(row["k"] for row in rows))
