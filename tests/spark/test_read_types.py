"""Another type of what is read is another computation, although its SQL is the same."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from seamark.pipeline.declaration.computed_changes import computed_changes, shape_change
from seamark.spark.plans.computation import operators_of
from seamark.spark.plans.plan import analyzed
from seamark.spark.session import session_settings

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.warm


@pytest.fixture
def source(spark: SparkSession, tmp_path: Path) -> Callable[[str], DataFrame]:
    def rows(kind: str) -> DataFrame:
        return spark.readStream.schema(f"k int, text string, v {kind}").json(str(tmp_path))

    return rows


def told(df: DataFrame) -> dict[str, list[dict[str, Any]]]:
    return {"out": operators_of(analyzed(df), lambda _: "rows")}


def changes(before: DataFrame, after: DataFrame) -> list[str]:
    return [change.text for change in computed_changes(told(before), told(after))]


def counted(df: DataFrame, key: str) -> DataFrame:
    return df.selectExpr(f"{key} AS key").groupBy("key").count()


def collected(df: DataFrame, function: str) -> DataFrame:
    return df.groupBy("k").agg({"v": function})


@pytest.mark.parametrize("key", ["CAST(v AS STRING)", "hash(v)"])
def test_a_key_that_is_made_of_another_type_is_another_one(
    source: Callable[[str], DataFrame], key: str
) -> None:
    before = counted(source("int"), key)
    assert changes(before, counted(source("int"), key)) == []
    (change,) = changes(before, counted(source("double"), key))
    assert change == "output 'out': aggregation types v int → v double"


def test_a_function_that_keeps_more_than_columns_is_another_one_for_another_type(
    source: Callable[[str], DataFrame],
) -> None:
    before, after = (collected(source(kind), "approx_count_distinct") for kind in ("int", "bigint"))
    assert "v int → v bigint" in changes(before, after)[0]
    assert not shape_change(told(before), told(after))


def test_bytes_that_a_function_of_another_type_would_misread_are_state_of_another_shape(
    source: Callable[[str], DataFrame],
) -> None:
    before, after = (told(collected(source(kind), "collect_set")) for kind in ("int", "bigint"))
    assert "collect_set(v) of bigint" in shape_change(before, after)
    del before["out"][0]["state"]["objects"]  # as an earlier Seamark has recorded it
    assert not shape_change(before, after)


def test_a_sum_goes_on_when_its_column_becomes_wider(source: Callable[[str], DataFrame]) -> None:
    assert changes(collected(source("int"), "sum"), collected(source("bigint"), "sum")) == []


@pytest.mark.parametrize(
    "key",
    [
        "CAST(v.a AS STRING)",
        "CAST(from_json(text, 'a int').a AS STRING)",
    ],
)
def test_another_field_of_a_struct_does_no_harm(
    source: Callable[[str], DataFrame], key: str
) -> None:
    before = counted(source("struct<a:int>"), key)
    wider = key.replace("'a int'", "'b int, a int'")
    assert changes(before, counted(source("struct<a:int>"), key)) == []
    assert changes(before, counted(source("struct<b:int,a:int>"), wider)) == []
    other = key.replace("'a int'", "'a double'")
    assert changes(before, counted(source("struct<a:double>"), other))


@pytest.mark.parametrize(
    "key",
    ["exists(v, x -> x.a > 1)", "CAST(v[0].a AS STRING)", "CAST(v.a[0] AS STRING)", "size(v) > 1"],
)
def test_another_field_of_the_structs_in_an_array_does_no_harm(
    source: Callable[[str], DataFrame], key: str
) -> None:
    before, after = (source(f"array<struct<{fields}>>") for fields in ("a:int", "a:int,b:int"))
    assert changes(counted(before, key), counted(after, key)) == []


def test_a_struct_that_is_read_as_a_whole_has_all_of_its_fields(
    source: Callable[[str], DataFrame],
) -> None:
    before, after = (source(f"struct<{fields}>") for fields in ("a:int", "a:int,b:int"))
    assert changes(counted(before, "to_json(v)"), counted(after, "to_json(v)"))


def test_exploded_elements_are_told_where_they_are_read(
    source: Callable[[str], DataFrame],
) -> None:
    def keyed(fields: str) -> DataFrame:
        elements = source(f"array<struct<{fields}>>").selectExpr("explode(v) AS e")
        return counted(elements, "CAST(e.a AS STRING)")

    assert changes(keyed("a:int"), keyed("a:int,b:int")) == []
    assert "e.a int → e.a double" in changes(keyed("a:int"), keyed("a:double"))[0]


def test_a_function_that_returns_another_type_is_another_one(
    source: Callable[[str], DataFrame],
) -> None:
    from pyspark.sql import functions as f

    def counted_results(kind: str) -> DataFrame:
        made = f.udf(lambda value: value, kind)
        return source("int").groupBy("k").agg(f.count(made("v")))

    def mapped(kind: str) -> DataFrame:
        made = source("int").select("v").mapInPandas(lambda batches: batches, f"v {kind}")
        return made.groupBy().agg(f.count("v"))

    for made in (counted_results, mapped):
        assert changes(made("int"), made("int")) == []
        (change,) = changes(made("int"), made("string"))
        assert "returned types <lambda>" in change
    assert (
        changes(counted_results("struct<a: int>"), counted_results("struct<a: int, b: int>")) == []
    )


def test_a_time_that_the_session_makes_of_another_type_is_another_one(
    source: Callable[[str], DataFrame], spark: SparkSession
) -> None:
    before = counted(source("int"), "hour(to_timestamp(text))")
    with session_settings(spark, {"spark.sql.timestampType": "TIMESTAMP_NTZ"}):
        (change,) = changes(before, counted(source("int"), "hour(to_timestamp(text))"))
    assert "to_timestamp timestamp → to_timestamp timestamp_ntz" in change
