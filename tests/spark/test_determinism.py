"""What in a plan may come out different when it runs again is found and named."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from seamark.spark.plans.determinism import unrepeatable_parts
from seamark.spark.plans.plan import analyzed

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.warm


def parts(df: DataFrame) -> list[str]:
    return unrepeatable_parts(analyzed(df), df.sparkSession.sparkContext._jvm)


def numbers(spark: SparkSession) -> DataFrame:
    return spark.range(9).selectExpr("id", "id % 3 AS k", "CAST(id AS DOUBLE) AS d")


def test_plain_columns_filters_sums_and_the_time_come_out_the_same(spark: SparkSession) -> None:
    from pyspark.sql import functions as f

    plain = numbers(spark).where("id > 3").withColumn("t", f.current_timestamp())
    assert parts(plain) == []
    assert parts(numbers(spark).groupBy("k").agg(f.sum("id"), f.max("d"), f.count("*"))) == []
    assert parts(numbers(spark).select("k").dropDuplicates()) == []


@pytest.mark.parametrize(
    ("expression", "name"),
    [
        ("rand()", "rand()"),
        ("uuid()", "uuid()"),
        ("id + CAST(10 * randn(3) AS INT)", "randn()"),
        ("monotonically_increasing_id()", "monotonically_increasing_id()"),
    ],
)
def test_random_expressions_are_named(spark: SparkSession, expression: str, name: str) -> None:
    assert parts(numbers(spark).selectExpr(expression)) == [f"{name} is not deterministic"]


def test_results_that_depend_on_the_order_of_rows_are_named(spark: SparkSession) -> None:
    from pyspark.sql import functions as f

    grouped = numbers(spark).groupBy("k")
    (listed,) = parts(grouped.agg(f.collect_list("id")))
    assert listed == "collect_list() depends on the order of the rows"
    (summed,) = parts(grouped.agg(f.sum("d")))
    assert summed == "sum() of floating-point numbers depends on the order of the rows"
    (kept,) = parts(numbers(spark).dropDuplicates(["k"]))
    assert kept == "dropDuplicates keeps whichever of several rows comes first"


def test_python_functions_are_named_because_nobody_can_see_into_them(spark: SparkSession) -> None:
    from pyspark.sql import functions as f

    twice = f.udf(lambda value: value * 2, "long")
    (named,) = parts(numbers(spark).select(twice("id")))
    assert named == "what the Python function <lambda> does is not known"


def test_a_time_that_spark_does_not_take_from_the_batch_is_named(spark: SparkSession) -> None:
    assert parts(numbers(spark).selectExpr("now()", "localtimestamp()", "current_date()")) == [
        "now() is the time at which it runs, not that of the batch"
    ]
