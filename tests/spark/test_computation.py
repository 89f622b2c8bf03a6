"""What operators compute is told in the same words by every process and every Spark.

The words are written down here, so running this file on two versions of Spark compares them.
"""

from __future__ import annotations

import datetime
from typing import TYPE_CHECKING, Any

import pytest

from seamark.spark.plans.computation import operators_of, python_functions
from seamark.spark.plans.definitions import LONGEST
from seamark.spark.plans.executed_plan import PlanOperator, operators_to_run, optimized
from seamark.spark.plans.plan import analyzed, stateful_operators
from tests.pipeline.support.workloads import pandas_state, settings_of, transformed_state

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.warm

WINDOW = "struct<start:timestamp,end:timestamp>"
WATERMARK = {"operator": "watermark", "of": "t", "delay": "10 seconds"}


@pytest.fixture
def orders(spark: SparkSession, tmp_path: Path) -> DataFrame:
    return stream(spark, tmp_path, "id int, k int, v int, t timestamp")


def stream(spark: SparkSession, folder: Path, schema: str) -> DataFrame:
    return spark.readStream.schema(schema).json(str(folder))


def told(df: DataFrame) -> list[dict[str, Any]]:
    operators = operators_of(analyzed(df), lambda _: "orders")
    for operator in operators:  # another version of Spark has other digests
        assert ("computation" in operator) == (operator["operator"] not in ("watermark", "limit"))
    # by what it forgets, and the sides of a join, have tests of their own
    return [without(operator, "computation", "forgets by", "sides") for operator in operators]


def without(operator: dict[str, Any], *parts: str) -> dict[str, Any]:
    return {part: value for part, value in operator.items() if part not in parts}


def functions_of(df: DataFrame) -> list[str]:
    found: list[str] = told(df)[0]["functions"]
    return found


def test_a_windowed_aggregation_is_told_by_its_keys_functions_and_delay(orders: DataFrame) -> None:
    from pyspark.sql import functions as f

    late = orders.withWatermark("t", "10 seconds")
    grouped = late.groupBy(f.window("t", "20 seconds", "5 seconds"), "k")
    window = {"window": "time", "of": "t", "length": "20 seconds", "slide": "5 seconds"}
    assert told(grouped.agg(f.count("*").alias("n"), f.avg("v"))) == [
        {
            "operator": "aggregation",
            "keys": [window, "k"],
            "functions": ["count(1)", "avg(v)"],
            "state": {"keys": f"{WINDOW}, int", "values": "bigint, double, bigint"},
            "watermarks": ["of t, 10 seconds"],
        },
        WATERMARK,
    ]


def test_a_session_window_is_told_by_its_gap(orders: DataFrame) -> None:
    from pyspark.sql import functions as f

    late = orders.withWatermark("t", "10 seconds")
    counted = late.groupBy(f.session_window("t", "6 seconds"), "k").count()
    assert told(counted)[0]["keys"] == [{"window": "session", "of": "t", "gap": "6 seconds"}, "k"]


def test_a_gap_that_depends_on_the_row_is_still_compared(orders: DataFrame) -> None:
    from pyspark.sql import functions as f

    def counted(other: str) -> DataFrame:
        gap = f.when(f.col("k") > 1, "5 seconds").otherwise(other)
        return orders.groupBy(f.session_window("t", gap)).count()

    assert told(counted("6 seconds")) == told(counted("6 seconds"))
    assert told(counted("6 seconds")) != told(counted("7 seconds"))


def test_windows_over_windows_are_told_one_by_one(orders: DataFrame) -> None:
    from pyspark.sql import functions as f

    late = orders.withWatermark("t", "10 seconds")
    first = late.groupBy(f.window("t", "20 seconds")).agg(f.count("*").alias("n"))
    outer, inner, watermark = told(
        first.groupBy(f.window(f.window_time("window"), "1 minute")).agg(f.sum("n"))
    )
    assert outer["keys"][0]["length"] == "1 minute"
    assert "window(t, length 20 seconds, slide 20 seconds)" in outer["keys"][0]["of"]
    assert outer["functions"] == ["sum(n) [n: count(1)]"]
    assert inner["keys"][0]["length"] == "20 seconds"
    assert watermark == WATERMARK


def test_each_operator_has_the_watermarks_below_it_and_not_those_beside(
    spark: SparkSession, tmp_path: Path, orders: DataFrame
) -> None:
    paid = stream(spark, tmp_path, "order int, who int, sum int, pt timestamp")
    late = paid.withWatermark("pt", "1 minute")
    once = orders.dropDuplicates(["id"])
    for df in (once.union(late), late.union(once)):
        assert [one["watermarks"] for one in told(df) if "watermarks" in one] == [[]]
    both = orders.withWatermark("t", "10 seconds").dropDuplicates(["id"]).union(late)
    twice = told(both.dropDuplicates(["id"]))
    assert [one["watermarks"] for one in twice if "watermarks" in one] == [
        ["of pt, 1 minute", "of t, 10 seconds"],
        ["of t, 10 seconds"],
    ]


def test_joins_deduplication_and_limits_are_told(
    spark: SparkSession, tmp_path: Path, orders: DataFrame
) -> None:
    from pyspark.sql import functions as f

    late = orders.withWatermark("t", "10 seconds")
    paid = stream(spark, tmp_path, "order int, pt timestamp").withWatermark("pt", "1 minute")
    near = f.expr("id = order AND pt >= t AND pt <= t + INTERVAL 2 MINUTES")
    assert told(late.join(paid, near, "leftOuter")) == [
        {
            "operator": "stream-stream join",
            "type": "left outer",
            "condition": "(((id = order) AND (pt >= t)) AND "
            "(pt <= CAST(t + INTERVAL '02' MINUTE AS TIMESTAMP)))",
            "columns": "id, k, v, t | order, pt",
            "types": "id int, order int, pt timestamp, t timestamp",
            "filter": "none",
            "watermarks": ["of pt, 1 minute", "of t, 10 seconds"],
        },
        WATERMARK,
        {"operator": "watermark", "of": "pt", "delay": "1 minute"},
    ]
    assert told(late.dropDuplicatesWithinWatermark(["id"])) == [
        {
            "operator": "deduplication within the watermark",
            "keys": ["id"],
            "state": {"keys": "int"},
            "watermarks": ["of t, 10 seconds"],
        },
        WATERMARK,
    ]
    assert told(orders.distinct())[0]["keys"] == ["id", "k", "v", "t"]
    assert told(orders.limit(10)) == [{"operator": "limit", "rows": "10", "watermarks": []}]


def test_only_what_is_read_of_an_operator_is_told_because_only_that_is_in_its_state(
    orders: DataFrame,
) -> None:
    from pyspark.sql import functions as f

    sums = orders.groupBy("k").agg(f.sum("v").alias("x"), f.sum("id").alias("y"))
    assert functions_of(sums) == ["sum(v)", "sum(id)"]
    assert functions_of(sums.select("k", f.col("x").alias("v"))) == ["sum(v)"]
    assert functions_of(sums.select("k", f.col("y").alias("v"))) == ["sum(id)"]
    assert functions_of(sums.where("y > 3").select("k", "x")) == ["sum(v)", "sum(id)"]
    assert functions_of(sums.withColumn("z", f.col("y")).select("k", "z")) == ["sum(id)"]
    both = orders.alias("a").join(orders.alias("b"), f.expr("a.id = b.id"))
    read = {name: told(both.select(f"a.{name}"))[0]["columns"] for name in ("k", "v")}
    assert read == {"k": "k | ", "v": "v | "}


def test_a_filter_that_decides_what_a_join_is_is_told_with_it(
    spark: SparkSession, tmp_path: Path, orders: DataFrame
) -> None:
    paid = stream(spark, tmp_path, "order int, paid int")

    def filter_of(df: DataFrame) -> str:
        found: str = told(df)[0]["filter"]
        return found

    both = orders.crossJoin(paid)
    assert filter_of(both.where("id = order AND v > 3")) == "(id = order)"
    assert filter_of(both.where("id = order").where("k < paid")) == "(id = order) AND (k < paid)"
    renamed = both.selectExpr("id AS a", "order AS b", "v").where("a = b")
    assert filter_of(renamed) == "(a = b) [a: id, b: order]"
    above = both.groupBy("id", "order").count().where("id = order")
    assert told(above)[1]["filter"] == "none"
    for how, of_orders, of_paid in (
        ("leftOuter", "none", "(paid > 3)"),
        ("rightOuter", "(v > 3)", "none"),
        ("fullOuter", "(v > 3)", "(paid > 3)"),
        ("inner", "none", "none"),
    ):
        outer = orders.join(paid, orders["id"] == paid["order"], how)
        assert filter_of(outer.where("v > 3")) == of_orders
        assert filter_of(outer.where("paid > 3")) == of_paid


def test_operators_of_a_kind_are_told_apart_by_what_they_read(
    spark: SparkSession, tmp_path: Path, orders: DataFrame
) -> None:
    def once(df: DataFrame) -> DataFrame:
        return df.select("id").dropDuplicates(["id"])

    def reads(df: DataFrame) -> list[str]:
        more_id = str(analyzed(more).collectLeaves().head().output().head().exprId().id())

        def name(leaf: Any) -> str:
            is_more = str(leaf.output().head().exprId().id()) == more_id
            return "more" if is_more else "orders"

        return [operator["reads"] for operator in operators_of(analyzed(df), name)]

    more = stream(spark, tmp_path, "id int, k int")
    even, odd = orders.where("k % 2 = 0"), orders.where("k % 2 = 1")
    assert reads(once(orders).union(once(more))) == ["orders", "more"]
    assert reads(once(even).union(once(odd))) == [
        "orders where ((k % 2) = 0)",
        "orders where ((k % 2) = 1)",
    ]
    assert "reads" not in told(once(orders))[0]


def test_a_stream_joined_with_itself_keeps_its_two_sides_apart(orders: DataFrame) -> None:
    from pyspark.sql import functions as f

    def joined(condition: str, left: str = "a", right: str = "b") -> Any:
        both = orders.alias(left).join(orders.alias(right), f.expr(condition))
        return told(both)[0]["condition"]

    assert joined("a.id = b.id AND a.t > b.t") != joined("a.id = b.id AND b.t > a.t")
    assert joined("a.id = b.id") == joined("x.id = y.id", "x", "y")


INPUTS = {"id": "id, int", "k": "k, int", "t": "t, timestamp", "v": "v, int"}


def test_functions_with_state_are_told_by_what_surrounds_them(
    spark: SparkSession, orders: DataFrame
) -> None:
    counted, transformed = pandas_state(orders), transformed_state(orders)
    assert told(counted) == [
        {
            "operator": "applyInPandasWithState",
            "keys": ["k"],
            "function": "count",
            "mode": "Append",
            "timeout": "NoTimeout",
            "state": {"keys": "int", "values": "struct<rows:bigint,total:bigint>"},
            "inputs": INPUTS,
            "watermarks": [],
        }
    ]
    assert told(transformed) == [
        {
            "operator": "transformWithState",
            "keys": ["k"],
            "mode": "Append",
            "time": "NoTime",
            "state": {"keys": "int"},
            "inputs": INPUTS,
            "watermarks": [],
        }
    ]
    jvm = spark.sparkContext._jvm
    assert python_functions(analyzed(counted), jvm) == ["count"]
    assert python_functions(analyzed(orders), jvm) == []


def test_a_column_is_told_by_what_it_was_made_of(orders: DataFrame) -> None:
    from pyspark.sql import functions as f
    from pyspark.sql.functions import udf

    plus = udf(lambda v: v + 1, "int")
    made = orders.withColumn("w", f.col("v") + 1).withColumn("x", f.col("w") * 2)
    assert functions_of(made.groupBy("k").agg(f.sum("x"))) == ["sum(x) [x: (w * 2) [w: (v + 1)]]"]
    by_function = orders.withColumn("w", plus("v")).groupBy("w").count()
    assert told(by_function)[0]["keys"] == ["<lambda>(v)"]
    words = orders.select(f.explode(f.split(f.lit("a b"), " ")).alias("w"))
    assert told(words.groupBy("w").count())[0]["keys"] == ["explode(split('a b', ' ', -1)).w"]
    both = orders.select("id").union(orders.selectExpr("k + 1"))
    assert told(both.groupBy("id").count())[0]["keys"] == ["id | (k + 1)"]


def test_nothing_that_differs_between_processes_is_told(
    spark: SparkSession, orders: DataFrame
) -> None:
    """Ids of columns, names of lambda variables, seeds, the session's time zone and its limits."""
    from pyspark.sql import functions as f

    def made() -> Any:
        source = orders.withColumn("r", f.rand()).alias("a")
        changed = f.transform(f.array("v"), lambda x: x + 1)
        since = f.lit(datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC))
        many = f.struct(*(f.lit(number).alias(f"c{number}") for number in range(40)))
        grouped = source.withWatermark("t", "10 seconds").groupBy("a.k")
        return told(
            grouped.agg(f.max("r"), f.max(changed), f.max(since), f.max(many), f.max("a.v"))
        )

    first = made()
    orders.selectExpr("id + 1 AS x").where("x > 1")  # the session goes on counting
    with settings_of(
        spark,
        {"spark.sql.session.timeZone": "Asia/Tokyo", "spark.sql.debug.maxToStringFields": "3"},
    ):
        assert made() == first
    assert first[0]["functions"][0] == "max(r) [r: rand()]"
    assert first[0]["functions"][2] == "max(TIMESTAMP 1767225600000000)"
    assert all("#" not in text for text in first[0]["functions"])


def test_keys_and_passwords_in_expressions_are_not_told(orders: DataFrame) -> None:
    from pyspark.sql import functions as f

    secret = "0123456789abcdef"
    hidden = orders.selectExpr(f"aes_encrypt(CAST(v AS STRING), '{secret}') AS x", "k")
    words = str(told(hidden.groupBy("x").agg(f.max(f.lit(f"https://u:{secret}@host/")))))
    assert secret not in words
    assert "aes_encrypt" in words


@pytest.mark.slow
def test_a_description_stays_short_and_still_tells_differences(orders: DataFrame) -> None:
    from pyspark.sql import functions as f

    def summed(last: int) -> Any:
        column = f.col("v")
        for number in [*range(200), last]:
            column = column + number
        many = [f.sum(f.col("v") + number).alias(f"s{number}") for number in range(99)]
        return told(orders.groupBy("k").agg(f.sum(column), *many))[0]

    one, other = summed(1), summed(2)
    assert one != other
    assert len(one["functions"]) <= 41
    assert all(len(text) <= LONGEST for text in one["functions"])
    assert len(one["state"]["values"]) <= LONGEST
    deep = orders
    for _ in range(30):
        deep = deep.withColumn("v", f.col("v") + f.col("v"))
    assert len(functions_of(deep.groupBy("k").agg(f.sum("v")))[0]) <= LONGEST


def test_what_is_left_of_a_stream_without_the_rows_of_a_table_is_told_as_the_state_it_is(
    orders: DataFrame,
) -> None:
    ids = orders.select("k")
    table = ids.sparkSession.range(3).selectExpr("cast(id as int) as k")
    except_ = {
        "operator": "aggregation for except",
        "all": "no",
        "keys": ["k"],
        "state": {"keys": "int"},
        "watermarks": [],
    }
    assert told(ids.subtract(table)) == [except_]
    assert told(ids.exceptAll(table)) == [except_ | {"all": "yes"}]
    assert stateful_operators(analyzed(ids.union(ids).subtract(table))) == [
        "aggregation for except"
    ]
    assert told(table.subtract(table)) == []
    assert operators_to_run(optimized(ids.subtract(table)), "update") == [
        PlanOperator("aggregation", has_watermark=False)
    ]
