"""An aggregation keeps what is selected of it, in the order of the selection."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest

from seamark.pipeline.declaration.aggregate_columns import functions_change
from seamark.pipeline.declaration.computed_changes import operator_changes
from seamark.spark.plans.computation import operators_of
from seamark.spark.plans.executed_plan import optimized
from seamark.spark.plans.function_order import function_places, join_columns, kept_functions
from seamark.spark.plans.plan import analyzed

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

A, B = "sum(a)", "sum(b)"


@pytest.fixture
def sums(spark: SparkSession, tmp_path: Path) -> DataFrame:
    from pyspark.sql import functions as f

    rows = spark.readStream.schema("k int, a int, b int").json(str(tmp_path))
    return rows.groupBy("k").agg(f.sum("a").alias("x"), f.sum("b").alias("y"))


@pytest.mark.warm
@pytest.mark.parametrize(
    ("made", "kept"),
    [
        (lambda df: df.orderBy("k").selectExpr("k", "y AS v"), [B]),
        (lambda df: df.orderBy("k").limit(3).selectExpr("k", "x AS v"), [A]),
        (lambda df: df.union(df).selectExpr("k", "y AS v"), [B]),
        (lambda df: df, [A, B]),
        (lambda df: df.select("k", "y", "x"), [B, A]),
        (lambda df: df.select("k", "y", "x").select("x", "y"), [A, B]),
        (lambda df: df.selectExpr("k", "- y + x AS z"), [B, A]),
        (lambda df: df.where("y > 0").select("k", "y", "x"), [A, B]),
        (lambda df: df.selectExpr("k", "y AS p", "y + x AS q"), [A, B]),  # not merged
    ],
)
def test_the_state_has_what_is_selected_in_the_order_of_the_selection(
    sums: DataFrame, made: Callable[[DataFrame], DataFrame], kept: list[str]
) -> None:
    df = made(sums)
    (found, *_) = (one for one in told(df) if one["operator"] == "aggregation")
    assert kept_functions(found) == kept


def told(df: DataFrame) -> list[dict[str, Any]]:
    places = function_places(analyzed(df), optimized(df))
    return operators_of(analyzed(df), lambda _: "rows", function_places=places)


@pytest.mark.warm
def test_functions_of_one_text_are_told_apart_by_their_order(
    spark: SparkSession, tmp_path: Path
) -> None:
    rows = spark.readStream.schema("k int, a int").json(str(tmp_path)).groupBy("k")
    from pyspark.sql import functions as f

    def orders(*made: Any) -> list[Any]:
        df = rows.agg(*(one.alias(name) for name, one in zip("xy", made, strict=True)))
        return [told(df.select("k", *names))[0].get("order") for names in ("xy", "yx")]

    assert orders(f.first("a"), f.first("a", ignorenulls=True)) == [[0, 1], [1, 0]]
    assert orders(f.sum("a"), f.sum("a")) == [None, None]  # these are one function


def described(*functions: str, order: list[int] | None = None) -> dict[str, Any]:
    told = {"operator": "aggregation", "functions": list(functions)}
    return told if order is None else {**told, "order": order}


def test_another_order_in_the_state_is_another_computation() -> None:
    (change,) = operator_changes(described(A, B, order=[0, 1]), described(A, B, order=[1, 0]))
    assert change.text == "functions (sum(a), sum(b)) → (sum(b), sum(a))"


def test_functions_that_are_declared_in_another_order_and_kept_in_the_same_have_not_changed() -> (
    None
):
    old, new = described(A, B, order=[0, 1]), described(B, A, order=[1, 0])
    assert operator_changes(old, new) == []
    assert functions_change(0, old, new) is None


def test_another_one_of_the_functions_in_the_state_is_another_computation() -> None:
    (change,) = operator_changes(described(A, B, order=[0]), described(A, B, order=[1]))
    assert change.text == "sum(a) → sum(b)"


def test_state_is_rewritten_from_the_order_that_it_has_to_the_order_that_it_gets() -> None:
    change = functions_change(0, described(A, B, order=[0, 1]), described(A, B, order=[1, 0]))
    assert change is not None
    assert (change.before, change.after) == ((A, B), (B, A))


def test_a_checkpoint_that_does_not_tell_the_order_is_no_reason_to_rewrite_anything() -> None:
    assert operator_changes(described(A, B), described(A, B, order=[1, 0])) == []
    assert functions_change(0, described(A, B), described(A, B, order=[1, 0])) is None


def test_what_joins_functions_of_an_unknown_order_is_rewritten_only_if_they_are_as_declared() -> (
    None
):
    old, top = described(A, B), "max(a)"
    assert functions_change(0, old, described(A, B, top, order=[0, 2, 1])) is None
    change = functions_change(0, old, described(A, B, top, order=[0, 1, 2]))
    assert change is not None
    assert change.new == [top]


def test_one_function_has_no_order() -> None:
    change = functions_change(0, described(A), described(A, B, order=[1, 0]))
    assert change is not None
    assert (change.before, change.after) == ((A,), (B, A))


def test_an_order_that_does_not_fit_the_functions_is_only_compared() -> None:
    old, new = described(A, B, order=[0, 7]), described(A, B, order=[0, 1])
    assert kept_functions(old) == [A, B, "in the order [0, 7]"]
    assert operator_changes(old, new)


@pytest.mark.warm
def test_a_join_keeps_what_is_read_of_it_through_a_deduplication_or_a_union(
    spark: SparkSession, tmp_path: Path
) -> None:
    left, right = (
        spark.readStream.schema(schema).json(str(tmp_path))
        for schema in ("k int, a int, b int", "q int")
    )
    joined = left.join(right, left.k == right.q).select("k", "a", "b")

    def join(df: DataFrame) -> dict[str, Any]:
        kept = join_columns(optimized(df))
        operators = operators_of(analyzed(df), lambda _: "rows", join_columns=kept)
        (found,) = (one for one in operators if one["operator"] == "stream-stream join")
        return found

    for made in (joined.dropDuplicates(["k"]), joined.union(left)):
        a, b = (join(made.selectExpr("k", f"{name} AS v")) for name in "ab")
        assert [change.part for change in operator_changes(a, b)] == ["state columns"]
