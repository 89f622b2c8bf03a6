"""An operator with state is recorded with the columns by which it forgets."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from seamark.pipeline.declaration.computed_changes import computed_changes
from seamark.spark.plans.computation import operators_of
from seamark.spark.plans.plan import analyzed

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.warm


@pytest.fixture
def orders(spark: SparkSession, tmp_path: Path) -> DataFrame:
    schema = "id int, k int, v int, t timestamp"
    return spark.readStream.schema(schema).json(str(tmp_path))


def late(df: DataFrame) -> DataFrame:
    return df.withWatermark("t", "10 seconds")


def told(df: DataFrame) -> list[dict[str, Any]]:
    return operators_of(analyzed(df), lambda _: "orders")


def forgets(df: DataFrame) -> list[str]:
    return [one["forgets by"] for one in told(df) if one["operator"] not in ("watermark", "limit")]


def changes(old: DataFrame, new: DataFrame) -> list[str]:
    found = computed_changes({"out": told(old)}, {"out": told(new)})
    return [change.text for change in found if not change.is_only_told]


def once(df: DataFrame) -> DataFrame:
    return df.dropDuplicates(["id", "t"])


def test_a_union_forgets_by_the_watermark_of_its_first_part(orders: DataFrame) -> None:
    watched, other = late(orders.where("k = 1")), orders.where("k <> 1")
    first, second = once(watched.union(other)), once(other.union(watched))
    assert (forgets(first), forgets(second)) == (["key 2"], ["nothing"])
    assert changes(first, second) == ["output 'out': deduplication forgets by key 2 → nothing"]
    both = watched.union(late(other))
    assert changes(once(both), once(late(other).union(watched))) == []
    assert changes(once(both), second) == changes(first, second)


def test_a_mark_that_is_taken_from_a_column_is_told(orders: DataFrame) -> None:
    from pyspark.sql import functions as f

    def counted(df: DataFrame) -> DataFrame:
        return df.groupBy(f.window("t", "20 seconds"), "k").count()

    unmarked = late(orders).withMetadata("t", {})
    is_marked = "spark.watermarkDelayMs" in unmarked.schema["t"].metadata  # in Spark 4.0
    for what, kind in ((once, "deduplication"), (counted, "aggregation")):
        texts = changes(what(late(orders)), what(unmarked))
        if is_marked:
            assert texts == []
            continue
        (text,) = texts
        assert text.startswith(f"output 'out': {kind} forgets by key ")
        assert text.endswith(" → nothing")


def test_joins_and_functions_forget_by_the_times_that_they_read(orders: DataFrame) -> None:
    from pyspark.sql import functions as f

    paid = late(orders).selectExpr("id AS order", "t AS pt", "v AS paid")
    near = f.expr("id = order AND pt >= t AND pt <= t + INTERVAL 2 MINUTES")
    assert forgets(late(orders).join(paid, near)) == ["t | t"]
    assert forgets(late(orders).join(paid, near).select("id")) == ["t | t"]
    assert forgets(orders.join(paid, near)) == ["nothing | t"]
    assert forgets(late(orders).dropDuplicatesWithinWatermark(["id"])) == ["t"]
    assert forgets(late(orders).dropDuplicates(["id"])) == ["nothing"]
    assert forgets(orders.groupBy("k").count()) == ["nothing"]
    assert forgets(late(orders).groupBy(f.session_window("t", "5 seconds")).count()) == ["key 1"]

    def as_it_is(key: Any, frames: Any, state: Any) -> Any:
        return frames

    def kept(timeout: str) -> DataFrame:
        grouped = late(orders).groupBy("k")
        return grouped.applyInPandasWithState(as_it_is, "k int", "n int", "update", timeout)

    assert forgets(kept("EventTimeTimeout")) == ["t"]
    assert forgets(kept("NoTimeout")) == ["nothing"]


def test_what_an_earlier_seamark_has_not_recorded_is_no_change(orders: DataFrame) -> None:
    new = told(once(late(orders)))
    old = [{part: what for part, what in one.items() if part != "forgets by"} for one in new]
    assert computed_changes({"out": old}, {"out": new}) == []
