"""A digest notices what the SQL of an operator leaves out, and is the same in every process."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest

from seamark.pipeline.declaration.computed_changes import computed_changes
from seamark.spark.plans.computation import operators_of
from seamark.spark.plans.plan import analyzed
from seamark.spark.session import session_settings
from tests.support.spark import local_spark

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.warm

SCHEMA = "id int, k int, v int, t timestamp, a array<int>, j string, s struct<x: int, y: int>"
ANSI = "spark.sql.ansi.enabled"


@pytest.fixture
def orders(spark: SparkSession, tmp_path: Path) -> DataFrame:
    return spark.readStream.schema(SCHEMA).json(str(tmp_path))


def told(df: DataFrame) -> dict[str, list[dict[str, Any]]]:
    return {"out": operators_of(analyzed(df), lambda _: "orders")}


def digests(df: DataFrame) -> list[str]:
    found = [one["computation"] for one in told(df)["out"] if one["operator"] != "watermark"]
    assert all(found)
    return found


def counted(df: DataFrame) -> DataFrame:
    return df.groupBy("key").count()


@pytest.mark.parametrize("made", ["v + 1", "cast(j as int)", "a[1]", "transform(a, x -> x + k)[0]"])
def test_another_mode_of_arithmetic_is_told_though_its_sql_is_the_same(
    orders: DataFrame, made: str
) -> None:
    def keyed(ansi: str) -> dict[str, list[dict[str, Any]]]:
        with session_settings(orders.sparkSession, {ANSI: ansi}):
            return told(counted(orders.selectExpr(f"{made} AS key")))

    assert computed_changes(keyed("true"), keyed("true")) == []
    (change,) = computed_changes(keyed("true"), keyed("false"))
    assert "in a way that their SQL does not show" in change.text
    assert change.is_only_told


def rewritten(orders: DataFrame) -> dict[str, tuple[DataFrame, DataFrame]]:
    """By name: two ways to write down what is the same to the state."""
    from pyspark.sql import functions as f

    plus = f.udf(lambda v: v + 1, "int")
    also = f.udf(lambda v: v + 1, "int")
    one, other = orders.where("k > 1"), orders.where("k < 1")
    late = orders.withWatermark("t", "10 seconds")

    def windowed(df: DataFrame, **more: Any) -> DataFrame:
        return df.groupBy(f.window("t", "20 seconds", "5 seconds"), "k").agg(f.sum("v"), **more)

    return {
        "filters": (
            counted(orders.withColumn("key", f.col("k"))),
            counted(one.selectExpr("k key")),
        ),
        "names on the way": (
            counted(orders.selectExpr("v + 1 AS w").selectExpr("w * 2 AS key")),
            counted(orders.selectExpr("v + 1 AS u", "id").selectExpr("id", "u * 2 AS key")),
        ),
        "parts of a union": (
            counted(one.selectExpr("k AS key").union(other.selectExpr("v AS key"))),
            counted(other.selectExpr("v AS key").union(one.selectExpr("k AS key"))),
        ),
        "seeds": (
            counted(orders.select(f.rand().alias("key"))),
            counted(orders.select(f.rand().alias("key"))),
        ),
        "functions": (
            counted(orders.select(plus("v").alias("key"))),
            counted(orders.select(also("v").alias("key"))),
        ),
        "variables": (
            counted(orders.selectExpr("filter(a, x -> x > 1)[0] AS key")),
            counted(orders.selectExpr("filter(a, y -> y > 1)[0] AS key")),
        ),
        "what is used twice": (
            counted(orders.selectExpr("(v + 1) BETWEEN k AND nullif(id, v) AS key")),
            counted(orders.selectExpr("(v + 1) BETWEEN k AND nullif(id, v) AS key")),
        ),
        "columns that nobody reads": (windowed(late), windowed(late.withColumn("w", f.lit(1)))),
    }


REWRITTEN = (
    "filters",
    "names on the way",
    "parts of a union",
    "seeds",
    "functions",
    "variables",
    "what is used twice",
    "columns that nobody reads",
)


@pytest.mark.parametrize("what", REWRITTEN)
def test_what_is_the_same_to_the_state_has_the_same_digest(orders: DataFrame, what: str) -> None:
    before, after = rewritten(orders)[what]
    assert digests(before) == digests(after)
    assert digests(before) != digests(counted(orders.selectExpr("v - 1 AS key")))


def workloads(orders: DataFrame) -> dict[str, Callable[[], DataFrame]]:
    from pyspark.sql import functions as f

    late = orders.withWatermark("t", "10 seconds")
    paid = late.selectExpr("id AS order", "t AS pt", "v AS paid")
    near = f.expr("id = order AND pt >= t AND pt <= t + INTERVAL 2 MINUTES")
    table = orders.sparkSession.range(3).selectExpr("cast(id AS int) AS k", "uuid() AS name")
    texts = {
        "json": "from_json(j, 'x int, y string').y",
        "regular expression": "regexp_extract(j, '(a+)', 1)",
        "query": "(SELECT max(id) FROM range(3))",
        "times": "date_trunc('hour', t + INTERVAL 1 DAY)",
        "now": "cast(current_timestamp() > t AS string)",
        "lambda": "aggregate(a, 0, (total, x) -> total + x * k)",
        "struct": "named_struct('x', s.x, 'y', s.y + 1)",
        "between": "v + 1 BETWEEN k AND nullif(id, v)",
        "between others": "v + 1 BETWEEN k AND nullif(v, id)",
        "case": "CASE WHEN k > 1 THEN upper(j) ELSE concat(j, 'b', rand()) END",
    }
    return {
        name: lambda text=text: counted(orders.selectExpr(f"{text} AS key"))
        for name, text in texts.items()
    } | {
        "window": lambda: late.groupBy(f.window("t", "1 minute")).agg(
            f.avg("v"), f.first("j", True)
        ),
        "session": lambda: late.groupBy(f.session_window("t", "1 minute")).count(),
        "join": lambda: late.join(paid, near, "leftOuter"),
        "once": lambda: late.dropDuplicatesWithinWatermark(["id"]),
        "distinct": lambda: orders.select("k", "j").distinct(),
        "lookup": lambda: counted(orders.join(table, "k", "left").selectExpr("name AS key")),
        "exploded": lambda: counted(orders.select(f.explode("a").alias("key"))),
        "cube": lambda: orders.cube("k", "id").agg(f.sum("v")),
        "several": lambda: orders.groupBy("k").agg(
            f.approx_count_distinct("v"), f.collect_set("j"), f.percentile_approx("v", 0.5)
        ),
    }


def all_digests(spark: SparkSession, folder: str) -> dict[str, list[str]]:
    orders = spark.readStream.schema(SCHEMA).json(folder)
    return {name: digests(made()) for name, made in workloads(orders).items()}


@pytest.mark.slow
def test_another_process_makes_the_same_digests(spark: SparkSession, tmp_path: Path) -> None:
    here = all_digests(spark, str(tmp_path))
    command = [sys.executable, "-m", __name__, str(tmp_path)]
    there = subprocess.run(command, capture_output=True, text=True, timeout=600, check=True)
    assert json.loads(there.stdout.splitlines()[-1]) == here
    assert len({str(each) for each in here.values()}) == len(here)


if __name__ == "__main__":
    import pathlib

    FOLDER = sys.argv[1]
    with local_spark(pathlib.Path(FOLDER) / "warehouse") as session:
        sys.stdout.write(json.dumps(all_digests(session, FOLDER)) + "\n")
