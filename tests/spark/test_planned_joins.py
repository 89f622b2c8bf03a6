"""A join is told by the keys that its state really has, and by which side is which."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from seamark.spark.plans.executed_plan import optimized
from seamark.spark.plans.plan import analyzed, leaves
from seamark.spark.plans.planned_joins import (
    CONDITIONS,
    PLANNED,
    SIDES,
    are_exchanged,
    planned_joins,
    sides_of,
)
from seamark.spark.plans.trees import each

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession


def planned(df: DataFrame, part: str = PLANNED) -> list[str]:
    joins = planned_joins(analyzed(df), optimized(df), lambda _: "orders")
    return [join.get(part, "not told").partition(";")[0] for join in joins]


@pytest.fixture
def both(spark: SparkSession, tmp_path: Path) -> DataFrame:
    left = spark.readStream.schema("id int, k int").json(str(tmp_path))
    right = spark.readStream.schema("order int, paid int").json(str(tmp_path))
    return left.join(right)


@pytest.mark.warm
def test_the_order_of_the_keys_is_that_of_the_state(both: DataFrame) -> None:
    one = planned(both.where("id = order").where("k = paid"))
    other = planned(both.where("k = paid").where("id = order"))
    assert one == ["inner by id = order, k = paid"]
    assert other == ["inner by k = paid, id = order"]


@pytest.mark.warm
def test_what_spark_makes_of_a_join_is_told_wherever_it_comes_from(
    spark: SparkSession, both: DataFrame
) -> None:
    from pyspark.sql import functions as f

    table = spark.range(3).selectExpr("int(id) AS n")
    by_id = ["inner by id = order"]
    assert planned(both.repartition(3).where("id = order AND k > 1")) == by_id
    assert planned(both.groupBy("id", "order").count().where("id = order")) == by_id
    assert planned(both.union(both).where("id = order")) == by_id * 2
    equal_to_one = both.where("k = paid").join(table, f.expr("id = n AND order = n"))
    assert planned(equal_to_one) == ["inner by k = paid, id = order"]
    assert planned(both.select("id")) == ["inner"]
    less = both.repartition(3).where("id = order AND k < paid")
    assert planned(less) == by_id
    assert planned(less, CONDITIONS) == ["(k < paid)"]
    assert planned(both.where("id = order"), CONDITIONS) == ["none"]
    assert planned(both.where("k < paid"), CONDITIONS) == ["(k < paid)"]


@pytest.mark.warm
def test_beside_the_current_time_the_keys_of_a_join_are_told_and_not_its_other_conditions(
    both: DataFrame,
) -> None:
    """Every start has another one, and Spark has put it into the plan."""
    late = "timestamp_seconds(k + paid) < current_timestamp()"
    timed = both.repartition(3).where(f"id = order AND {late}")
    assert planned(timed) == ["inner by id = order"]
    assert planned(timed, CONDITIONS) == ["not told"]


@pytest.mark.warm
def test_the_sides_are_told_where_only_their_rows_distinguish_them(
    spark: SparkSession, tmp_path: Path
) -> None:
    orders = spark.readStream.schema("id int, k int").json(str(tmp_path))
    more = spark.readStream.schema("id int, k long").json(str(tmp_path))

    def sides(left: DataFrame, right: DataFrame) -> list[str]:
        plan = analyzed(left.join(right))
        names = {_column_of(leaf): "orders" for leaf in leaves(orders)}
        found = sides_of(plan, lambda leaf: names.get(_column_of(leaf), "more"), lambda _: "")
        return [side.partition(";")[0] for side in found.get(SIDES, [])]

    one, two = orders.where("k = 1"), orders.where("k = 2")
    assert sides(one, two) == ["filter (k = 1) of orders", "filter (k = 2) of orders"]
    assert sides(two, one) == ["filter (k = 2) of orders", "filter (k = 1) of orders"]
    assert sides(orders, orders) == []
    assert sides(orders, more) == []  # their columns have the names of their sources


def _column_of(leaf: Any) -> str:
    return ", ".join(str(column.dataType().sql()) for column in each(leaf.output()))


def test_sides_are_exchanged_when_one_would_go_on_from_the_state_of_the_other() -> None:
    assert are_exchanged(["a", "b"], ["b", "a"])
    assert are_exchanged(["a", "b"], ["b", "c"])
    assert are_exchanged(["a", "b"], ["c", "a"])
    assert not are_exchanged(["a", "b"], ["a", "b"])
    assert not are_exchanged(["a", "b"], ["a", "c"])
    assert not are_exchanged(["a", "b"], ["c", "d"])
    assert not are_exchanged(["a", "b"], ["b", "b"][:1])
    for strange in (None, "ab", {"a": "b"}, ["a"], 3):
        assert not are_exchanged(strange, ["b", "a"])
        assert not are_exchanged(["b", "a"], strange)
