"""Equal operators of one output are described by what distinguishes them, and never by order."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest

from seamark.spark.plans.computation import operators_of
from seamark.spark.plans.plan import PlanSources, analyzed

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.warm

Made = Callable[["DataFrame", str], "DataFrame"]
SCHEMA = "id int, g string, a array<int>, b array<int>, t timestamp"


@pytest.fixture
def rows(spark: SparkSession, tmp_path: Path) -> DataFrame:
    df = spark.readStream.schema(SCHEMA).json(str(tmp_path))
    for which in ("a", "b"):
        (tmp_path / f"table_{which}").mkdir()
        table = spark.read.schema("id int, name string").json(str(tmp_path / f"table_{which}"))
        table.createOrReplaceTempView(f"table_{which}")
    df.createOrReplaceTempView("rows")
    return df


def counted(df: DataFrame) -> DataFrame:
    return df.groupBy("g").count()


def once(df: DataFrame) -> DataFrame:
    return df.dropDuplicates(["g"]).select("g")


def paired(df: DataFrame) -> DataFrame:
    from pyspark.sql import functions as f

    left, right = df.select("g").alias("l"), df.sparkSession.table("rows").alias("r")
    return left.join(right, f.expr("l.g = r.g")).select("l.g")


def described(df: DataFrame, sources: PlanSources | None = None) -> list[dict[str, Any]]:
    table_of = sources.table_of if sources else lambda _: ""
    found = operators_of(
        analyzed(df), lambda leaf: "in" if leaf.isStreaming() else "table", table_of
    )
    return [operator for operator in found if operator["operator"] != "watermark"]


def table(df: DataFrame, which: str) -> DataFrame:
    return df.sparkSession.table(f"table_{which}")


def mapped(df: DataFrame, which: str) -> DataFrame:
    def a(batches: Any) -> Any:
        yield from batches

    def b(batches: Any) -> Any:
        yield from batches

    ids = table(df, "a").mapInPandas(a if which == "a" else b, "id int")
    return df.join(ids, "id", "left_semi")


def lateral(df: DataFrame, which: str) -> DataFrame:
    query = f"SELECT g FROM rows, LATERAL (SELECT explode({which}) AS e)"
    return df.sparkSession.sql(query)


def sub(df: DataFrame, which: str, how: str) -> DataFrame:
    return df.sparkSession.sql(f"SELECT g FROM rows WHERE {how.format(f'table_{which}')}")


DIFFERENT: dict[str, Made] = {
    "semi join": lambda df, which: df.join(table(df, which), "id", "left_semi"),
    "inner join": lambda df, which: df.join(table(df, which), "id"),
    "left join": lambda df, which: df.join(table(df, which), "id", "left"),
    "kind of join": lambda df, which: df.join(
        table(df, "a"), "id", "left_semi" if which == "a" else "left_anti"
    ),
    "limit of a table": lambda df, which: df.join(
        table(df, "a").limit(1 + (which == "a")), "id", "left_semi"
    ),
    "cross join": lambda df, which: df.crossJoin(df.sparkSession.range(2 + (which == "a"))),
    "generator": lambda df, which: df.selectExpr("g", f"explode({which})"),
    "outer generator": lambda df, which: df.selectExpr(
        "g", f"explode{'_outer' if which == 'a' else ''}(a)"
    ),
    "lateral": lateral,
    "fraction": lambda df, which: df.sample(fraction=0.5 if which == "a" else 0.25, seed=1),
    "seed": lambda df, which: df.sample(fraction=0.5, seed=1 if which == "a" else 2),
    "python map": mapped,
    "union": lambda df, which: df.select("g", "id").union(df.selectExpr("g", f"explode({which})")),
    "in": lambda df, which: sub(df, which, "id IN (SELECT id FROM {})"),
    "exists": lambda df, which: sub(df, which, "EXISTS (SELECT 1 FROM {0} WHERE id = rows.id)"),
    "with": lambda df, which: df.sparkSession.sql(
        f"WITH c AS (SELECT id FROM table_{which}) SELECT g FROM rows JOIN c USING (id)"
    ),
    "delay": lambda df, which: df.withWatermark("t", f"{1 + (which == 'a')} hours"),
}


@pytest.mark.sampled(4)
@pytest.mark.parametrize(
    "operator",
    [counted, *(pytest.param(other, marks=pytest.mark.slow) for other in (once, paired))],
)
@pytest.mark.parametrize("case", DIFFERENT)
def test_equal_operators_are_described_by_the_rows_that_reach_them_in_any_order(
    rows: DataFrame, case: str, operator: Callable[[DataFrame], DataFrame]
) -> None:
    a, b = (operator(DIFFERENT[case](rows, which)) for which in "ab")
    written, turned = described(a.union(b)), described(b.union(a))
    first, second = (one["input"] for one in written)
    assert first != second
    assert [one["input"] for one in turned] == [second, first]
    assert "#" not in first + second
    assert not any("told apart" in one or "output" in one for one in written)


def test_the_words_are_the_same_in_every_process_and_on_every_spark(rows: DataFrame) -> None:
    a, b = (counted(rows.selectExpr("g", f"explode({which})")) for which in "ab")
    assert [one["input"] for one in described(a.union(b))] == [
        "generate explode(a) explode(a).col of in",
        "generate explode(b) explode(b).col of in",
    ]
    a, b = (counted(rows.sample(fraction=0.5, seed=seed)) for seed in (1, 2))
    assert [one["input"] for one in described(a.union(b))] == [
        "sample 0.0 to 0.5 seed 1 of in",
        "sample 0.0 to 0.5 seed 2 of in",
    ]
    a, b = (counted(rows.crossJoin(rows.sparkSession.range(n))) for n in (2, 3))
    assert [one["input"] for one in described(a.union(b))] == [
        "cross join of (in, range(0, 2, 1))",
        "cross join of (in, range(0, 3, 1))",
    ]


def test_a_key_that_a_table_gives_is_not_told_apart_by_the_order_of_the_tables(
    rows: DataFrame,
) -> None:
    a, b = (
        rows.join(table(rows, which).hint("broadcast"), "id").groupBy("name").count()
        for which in "ab"
    )
    first, second = (one["input"] for one in described(a.union(b)))
    assert first != second
    assert [one["input"] for one in described(b.union(a))] == [second, first]


def test_a_function_with_state_is_told_apart_by_the_columns_that_it_gets(rows: DataFrame) -> None:
    def kept(df: DataFrame) -> DataFrame:
        def update(key: Any, batches: Any, state: Any) -> Any:
            yield from batches

        return df.groupBy("g").applyInPandasWithState(
            update, "g string", "n int", "append", "NoTimeout"
        )

    a, b = (kept(rows.selectExpr("g", f"{column} AS v")) for column in ("id", "id + 1"))
    first, second = (one["input"] for one in described(a.union(b)))
    assert first != second
    assert [one["input"] for one in described(b.union(a))] == [second, first]


def test_operators_that_are_the_same_or_differ_elsewhere_keep_their_description(
    rows: DataFrame,
) -> None:
    exploded = counted(rows.selectExpr("g", "explode(a)"))
    alike = rows.select("g", "id").dropDuplicates(["g"])
    other = rows.selectExpr("g", "id + 1").dropDuplicates(["g"])
    even, odd = (rows.where(f"id % 2 = {n}").selectExpr("g", "explode(a)") for n in (0, 1))
    for df in (
        exploded,
        exploded.union(exploded),
        exploded.union(rows.groupBy("id").count()),
        alike.union(other),
        counted(even).union(counted(odd)),
    ):
        assert not any("input" in one for one in described(df))
    repartitioned = counted(rows.repartition(3).selectExpr("g", "explode(a)"))
    first, second = (one["input"] for one in described(exploded.union(repartitioned)))
    assert first == second


def in_memory(df: DataFrame, which: str) -> DataFrame:
    made = df.sparkSession.createDataFrame([(1 if which == "a" else 2,)], "id int")
    return df.join(made, "id", "left_semi")


def lambdas(df: DataFrame, which: str) -> DataFrame:
    from pyspark.sql import functions as f

    chosen = [f.udf(lambda n: n == 1, "boolean"), f.udf(lambda n: n == 2, "boolean")]
    return df.where(chosen[which == "a"]("id"))


UNSEEN: dict[str, Made] = {
    "table in memory": in_memory,
    "functions of one name": lambdas,
    "seeds that are drawn": lambda df, _: df.sample(fraction=0.5),
}


@pytest.mark.parametrize("case", UNSEEN)
def test_what_is_not_seen_below_is_told_apart_by_what_is_made_above(
    rows: DataFrame, case: str
) -> None:
    from pyspark.sql import functions as f

    a, b = (counted(UNSEEN[case](rows, which)) for which in "ab")
    named_a, named_b = a.withColumn("w", f.lit("A")), b.withColumn("w", f.lit("B"))
    outputs = [one["output"] for one in described(named_a.union(named_b))]
    assert outputs == ["w: 'A'", "w: 'B'"]
    assert [one["output"] for one in described(named_b.unionByName(named_a))] == outputs[::-1]
    above = named_a.union(named_b).selectExpr("count + 1 AS n", "w")
    assert [one["output"] for one in described(above)] == outputs
    for unnamed in (a.union(b), b.union(a)):
        assert [one["told apart"] for one in described(unnamed)] == ["no", "no"]


def test_tables_in_memory_are_told_apart_by_their_declared_names(
    spark: SparkSession, rows: DataFrame
) -> None:
    sources = PlanSources()
    tables = []
    for name, number in (("ones", 1), ("twos", 2)):
        tables.append(spark.createDataFrame([(number,)], "id int"))
        sources.add_table(name, tables[-1], None)
    a, b = (counted(rows.join(of, "id", "left_semi")) for of in tables)
    first, second = described(a.union(b), sources)
    assert "table ones" in first["input"]
    assert "table twos" in second["input"]
    assert "told apart" not in first
    empty = spark.createDataFrame([], "id int")
    assert sources.table_of(analyzed(empty).collectLeaves().head()) == ""
