"""A computation that changes in what its SQL leaves out is another computation."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from seamark.pipeline.declaration.computed_changes import computed_changes
from seamark.spark.plans.computation import operators_of
from seamark.spark.plans.plan import analyzed
from seamark.spark.session import session_settings

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.warm

ZONE = "spark.sql.session.timeZone"


@pytest.fixture
def rows(spark: SparkSession, tmp_path: Path) -> DataFrame:
    schema = "k int, v int, t timestamp, text string"
    return spark.readStream.schema(schema).json(str(tmp_path))


def told(df: DataFrame) -> list[dict[str, Any]]:
    return operators_of(analyzed(df), lambda _: "rows")


def changes(before: DataFrame, after: DataFrame) -> list[str]:
    found = computed_changes({"out": told(before)}, {"out": told(after)})
    return [change.text for change in found]


def test_grouping_sets_are_told_apart(rows: DataFrame) -> None:
    rolled, cubed = rows.rollup("k", "v").count(), rows.cube("k", "v").count()
    assert changes(rolled, rows.rollup("k", "v").count()) == []
    (change,) = changes(rolled, cubed)
    assert "grouping sets 0" in change


@pytest.mark.parametrize("name", ["first", "last", "any_value"])
def test_a_function_that_ignores_nulls_is_another_one(rows: DataFrame, name: str) -> None:
    from pyspark.sql import functions as f

    def of(ignores: bool) -> DataFrame:
        function = getattr(f, name)
        given = f.lit(True) if name == "any_value" else True
        chosen = function("v", given) if ignores else function("v")
        return rows.groupBy("k").agg(chosen.alias("x"))

    assert changes(of(True), of(True)) == []
    assert changes(of(False), of(False)) == []
    assert "ignoreNulls=true" in " ".join(changes(of(False), of(True)))


def test_the_options_of_a_format_count_and_its_other_fields_do_not(rows: DataFrame) -> None:
    from pyspark.sql import functions as f

    def keyed(schema: str, **options: str) -> DataFrame:
        parsed = rows.select(f.from_json("text", schema, options).alias("j"))
        return parsed.groupBy("j.at").count()

    plain = keyed("at date")
    assert changes(plain, keyed("at date")) == []
    assert changes(plain, keyed("more int, at date")) == []
    assert "dd.MM.yyyy" in " ".join(changes(plain, keyed("at date", dateFormat="dd.MM.yyyy")))


@pytest.mark.parametrize("by_name", [False, True])
def test_a_field_of_csv_is_known_by_its_place(rows: DataFrame, by_name: bool) -> None:
    from pyspark.sql import functions as f

    def keyed(schema: str) -> DataFrame:
        parsed = f.from_csv("text", f.lit(schema))
        if by_name:
            return rows.select(parsed.alias("c")).groupBy("c.a").count()
        return rows.groupBy(parsed["a"].alias("a")).count()

    plain = keyed("a int, b int")
    assert changes(plain, keyed("a int, b int")) == []
    assert changes(plain, keyed("a int, b int, c int")) == []
    assert "column 2" in " ".join(changes(plain, keyed("b int, a int")))


@pytest.mark.parametrize(
    ("returned", "other", "key"),
    [
        ("struct<a:int,b:int>", "struct<b:int,a:int>", "made.a"),
        ("struct<s:struct<a:int,b:int>>", "struct<s:struct<b:int,a:int>>", "made.s.a"),
        ("array<struct<a:int,b:int>>", "array<struct<b:int,a:int>>", "made[0].a"),
    ],
)
def test_a_field_of_what_a_python_function_returns_is_known_by_its_place(
    rows: DataFrame, returned: str, other: str, key: str
) -> None:
    from pyspark.sql import functions as f

    def keyed(kind: str) -> DataFrame:
        made = rows.withColumn("made", f.udf(lambda v: v, kind)("v"))
        return made.groupBy(f.expr(key).alias("key")).count()

    assert changes(keyed(returned), keyed(returned)) == []
    assert changes(keyed(returned), keyed(other)) != []


def in_zone(spark: SparkSession, zone: str, make: Callable[[], DataFrame]) -> list[dict[str, Any]]:
    with session_settings(spark, {ZONE: zone}):
        return told(make())


def test_a_key_that_depends_on_the_time_zone_is_another_one_in_another_zone(
    spark: SparkSession, rows: DataFrame
) -> None:
    from pyspark.sql import functions as f

    def daily() -> DataFrame:
        return rows.withColumn("day", f.to_date("t")).groupBy("day").count()

    berlin, utc = in_zone(spark, "Europe/Berlin", daily), in_zone(spark, "UTC", daily)
    assert utc[0]["time zone"] == "UTC"
    assert utc == in_zone(spark, "Etc/UTC", daily), "one zone has several names"
    (change,) = computed_changes({"out": utc}, {"out": berlin})
    assert change.is_certain
    assert "time zone (spark.sql.session.timeZone) UTC → Europe/Berlin" in change.text


@pytest.mark.parametrize(
    "key", ["current_timezone()", "convert_timezone('UTC', DATE '2026-01-01')"]
)
def test_a_key_that_names_the_zone_of_the_session_depends_on_it(
    spark: SparkSession, rows: DataFrame, key: str
) -> None:
    def keyed() -> DataFrame:
        return rows.selectExpr(f"{key} AS key").groupBy("key").count()

    tokyo = in_zone(spark, "Asia/Tokyo", keyed)
    assert tokyo[0]["time zone"] == "Asia/Tokyo"
    assert computed_changes({"out": tokyo}, {"out": in_zone(spark, "Asia/Tokyo", keyed)}) == []
    assert computed_changes({"out": tokyo}, {"out": in_zone(spark, "UTC", keyed)}) != []


@pytest.mark.parametrize("value", ["array(t)", "struct(k, t)", "map(k, t)"])
def test_text_that_is_made_of_times_inside_a_value_depends_on_the_time_zone(
    spark: SparkSession, rows: DataFrame, value: str
) -> None:
    def keyed() -> DataFrame:
        return rows.selectExpr(f"CAST({value} AS STRING) AS key").groupBy("key").count()

    assert in_zone(spark, "UTC", keyed) != in_zone(spark, "Asia/Tokyo", keyed)


def test_what_needs_no_time_zone_is_the_same_in_every_zone(
    spark: SparkSession, rows: DataFrame
) -> None:
    from pyspark.sql import functions as f

    def windowed() -> DataFrame:
        late = rows.withWatermark("t", "10 seconds")
        return late.groupBy(f.window("t", "1 day"), f.col("k").cast("long")).agg(f.sum("v"))

    def joined() -> DataFrame:
        left = rows.withWatermark("t", "10 seconds")
        right = rows.select(f.col("k").alias("rk"), f.col("t").alias("rt"))
        near = f.expr("k = rk AND rt <= t + INTERVAL 2 MINUTES")
        return left.join(right.withWatermark("rt", "10 seconds"), near)

    for make in (windowed, joined):
        assert in_zone(spark, "UTC", make) == in_zone(spark, "Asia/Tokyo", make)


def test_a_checkpoint_of_before_says_nothing_about_them(rows: DataFrame) -> None:
    from pyspark.sql import functions as f

    parts_of_text = f.transform(f.split("text", ","), f.upper)
    df = rows.withColumn("day", f.to_date("t")).groupBy("day", parts_of_text).agg(f.first("v"))
    now = told(df)
    parts = ("time zone", "parameters", "grouping sets", "variables", "types", "details")
    before = [{k: v for k, v in operator.items() if k not in parts} for operator in now]
    assert computed_changes({"out": before}, {"out": now}) == []


def test_a_lambda_is_told_in_the_same_words_each_time(rows: DataFrame) -> None:
    from pyspark.sql import functions as f

    def keyed() -> DataFrame:
        values = f.transform(f.split("text", ","), lambda part: f.concat(part, f.lit("!")))
        return rows.groupBy(values.alias("parts")).count()

    assert told(keyed()) == told(keyed())


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("map_filter(map(k, v), (a, b) -> a > 1)", "map_filter(map(k, v), (a, b) -> b > 1)"),
        ("zip_with(x, y, (a, b) -> a - b)", "zip_with(x, y, (a, b) -> b - a)"),
        ("filter(x, (each, at) -> each > 2)", "filter(x, (each, at) -> at > 2)"),
        ("aggregate(x, 0, (sum, n) -> sum - n)", "aggregate(x, 0, (sum, n) -> n - sum)"),
        (
            "transform(x, a -> transform(y, b -> a - b))",
            "transform(x, a -> transform(y, b -> b - a))",
        ),
    ],
)
def test_a_lambda_that_uses_its_variables_in_another_way_is_another_one(
    rows: DataFrame, before: str, after: str
) -> None:
    from pyspark.sql import functions as f

    def summed(lambdas: str) -> DataFrame:
        lists = rows.selectExpr("k", "v", "array(k, v) AS x", "array(v, k, 7) AS y")
        return lists.groupBy("k").agg(f.max(f.to_json(f.array(f.expr(lambdas)))))

    assert changes(summed(before), summed(before)) == []
    (change,) = changes(summed(before), summed(after))
    assert "variables" in change


def test_a_value_of_another_type_that_is_taken_from_a_variant_is_another_one(
    rows: DataFrame,
) -> None:
    def keyed(kind: str) -> DataFrame:
        taken = f"CAST(variant_get(parse_json(text), '$.a', '{kind}') AS STRING) AS a"
        return rows.selectExpr(taken).groupBy("a").count()

    assert changes(keyed("int"), keyed("int")) == []
    assert "double" in " ".join(changes(keyed("int"), keyed("double")))


def test_a_key_that_is_looked_up_in_another_way_is_another_key(
    spark: SparkSession, rows: DataFrame
) -> None:
    names = spark.createDataFrame([(1, 2, "a")], "one int, other int, name string")

    def keyed(column: str, how: str = "inner") -> DataFrame:
        return rows.join(names, rows["k"] == names[column], how).groupBy("name").count()

    assert changes(keyed("one"), keyed("one")) == []
    assert "lookups inner join on (k = one)" in " ".join(changes(keyed("one"), keyed("other")))
    assert len(changes(keyed("one"), keyed("one", "left"))) == 1
    by_stream = rows.join(names, rows["k"] == names["one"]).groupBy("k").count()
    assert "lookups" not in told(by_stream)[0]


def test_another_function_with_state_is_another_computation(rows: DataFrame) -> None:
    from pyspark.sql.streaming.state import GroupStateTimeout

    def one(key: Any, pdfs: Any, state: Any) -> Any:
        yield from pdfs

    def another(key: Any, pdfs: Any, state: Any) -> Any:
        yield from pdfs

    def applied(function: Any) -> DataFrame:
        return rows.groupBy("k").applyInPandasWithState(
            function, "k int", "n long", "update", GroupStateTimeout.NoTimeout
        )

    assert changes(applied(one), applied(one)) == []
    assert "function one → another" in " ".join(changes(applied(one), applied(another)))


KEYS = [
    ("text LIKE ANY ('a%', 'b%')", "text LIKE ANY ('a%', 'c%')"),
    ("text NOT LIKE ALL ('a%', 'b%')", "text NOT LIKE ALL ('a%', 'c%')"),
    (
        "CASE WHEN text LIKE ANY ('a') THEN 1 WHEN text LIKE ANY ('b') THEN 2 END",
        "CASE WHEN text LIKE ANY ('b') THEN 1 WHEN text LIKE ANY ('a') THEN 2 END",
    ),
    ("v > (SELECT max(id) FROM range(3))", "v > (SELECT max(id) FROM range(4))"),
    ("v > (SELECT max(id) FROM range(3))", "v > (SELECT min(id) FROM range(3))"),
    ("v IN (SELECT id FROM range(3))", "v IN (SELECT id + 1 FROM range(3))"),
]


@pytest.mark.parametrize(("before", "after"), KEYS)
def test_a_key_with_other_patterns_or_another_query_inside_is_another_one(
    rows: DataFrame, before: str, after: str
) -> None:
    def keyed(key: str) -> DataFrame:
        return rows.selectExpr(f"{key} AS key").groupBy("key").count()

    assert changes(keyed(before), keyed(before)) == []
    assert len(changes(keyed(before), keyed(after))) == 1


def test_another_field_that_is_changed_in_a_struct_is_another_key(rows: DataFrame) -> None:
    from pyspark.sql import functions as f

    def keyed(*names: str, drops: bool = False) -> DataFrame:
        key = f.struct("k", "v", "t")
        for number, name in enumerate(names):
            key = key.dropFields(name) if drops else key.withField(name, f.lit(number))
        return rows.groupBy(f.to_json(key).alias("key")).count()

    for drops in (False, True):
        assert changes(keyed("k", "v", drops=drops), keyed("k", "v", drops=drops)) == []
        assert changes(keyed("k", "v", drops=drops), keyed("v", "t", drops=drops))
    assert changes(keyed("k", "v"), keyed("v", "k"))


def test_functions_of_one_text_are_told_apart_by_their_order(rows: DataFrame) -> None:
    from pyspark.sql import functions as f

    def firsts(*ignoring: bool) -> DataFrame:
        named = [f.first("v", ignores).alias(f"x{n}") for n, ignores in enumerate(ignoring)]
        return rows.groupBy("k").agg(*named)

    assert changes(firsts(True, False), firsts(True, False)) == []
    (change,) = changes(firsts(True, False), firsts(False, True))
    assert "details of first(v)" in change


def test_the_columns_of_a_generator_are_known_by_their_places(rows: DataFrame) -> None:
    def keyed(names: str) -> DataFrame:
        return rows.selectExpr(f"posexplode(array(k, v)) AS ({names})").groupBy("a").count()

    assert changes(keyed("a, b"), keyed("a, b")) == []
    assert "a is column 1" in changes(keyed("a, b"), keyed("b, a"))[0]


def test_a_lateral_query_is_told(rows: DataFrame, spark: SparkSession) -> None:
    def keyed(made: str) -> DataFrame:
        query = f"SELECT x, count(*) FROM {{rows}}, LATERAL (SELECT {made} AS x) GROUP BY x"
        return spark.sql(query, rows=rows)

    assert changes(keyed("v + 1"), keyed("v + 1")) == []
    assert len(changes(keyed("v + 1"), keyed("v + 2"))) == 1
    shifted = rows.withColumn("v", rows["v"] + 1)
    query = "SELECT x, count(*) FROM {rows}, LATERAL (SELECT v + 1 AS x) GROUP BY x"
    assert changes(keyed("v + 1"), spark.sql(query, rows=shifted))


def test_what_a_function_of_whole_rows_gets_counts_and_a_new_column_does_not(
    rows: DataFrame,
) -> None:
    def mapped(*columns: str) -> DataFrame:
        given = rows.selectExpr("k", *columns)
        return given.mapInPandas(lambda batches: batches, "k int, v int").groupBy("k").count()

    def kept(*columns: str) -> DataFrame:
        def update(key: Any, batches: Any, state: Any) -> Any:
            yield from batches

        grouped = rows.selectExpr("k", *columns).groupBy("k")
        return grouped.applyInPandasWithState(update, "k int", "n int", "append", "NoTimeout")

    for made in (mapped, kept):
        assert changes(made("v"), made("v")) == []
        assert changes(made("v"), made("v", "text")) == []
        assert "inputs of v" in changes(made("v"), made("v + 1 AS v"))[0]


def test_a_function_in_sql_with_another_body_is_another_key(
    rows: DataFrame, spark: SparkSession
) -> None:
    def keyed(body: str) -> DataFrame:
        made = f"made(x INT, y INT) RETURNS INT RETURN {body}"
        spark.sql(f"CREATE OR REPLACE TEMPORARY FUNCTION {made}")
        return rows.selectExpr("made(k, v) AS key").groupBy("key").count()

    assert changes(keyed("x + y"), keyed("x + y")) == []
    (change,) = changes(keyed("x + y"), keyed("x - y"))
    assert "aggregation SQL functions made: " in change


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("token = 'a'", "token = 'b'"),
        ("customer_key = 5", "customer_key = 6"),
        ("text = 'http://me:one@host'", "text = 'http://me:two@host'"),
        ("aes_decrypt(text, '0000111122223333')", "aes_decrypt(text, '0000111122224444')"),
    ],
)
def test_a_value_that_looks_like_a_secret_is_compared_and_not_recorded(
    rows: DataFrame, before: str, after: str
) -> None:
    def keyed(key: str) -> DataFrame:
        named = rows.selectExpr("text", "text AS token", "v AS customer_key")
        return named.selectExpr(f"{key} AS key").groupBy("key").count()

    assert changes(keyed(before), keyed(before)) == []
    (change,) = changes(keyed(before), keyed(after))
    assert "hidden texts" in change
    assert "***" in change
    assert not any(value in change for value in ("'b'", "two", "22224444"))


def test_every_row_that_is_made_of_one_counts(rows: DataFrame, spark: SparkSession) -> None:
    def unpivoted(second: str) -> DataFrame:
        chosen = rows.selectExpr("k AS a", f"{second} AS b")
        return chosen.unpivot([], ["a", "b"], "name", "value").groupBy("value").count()

    def in_sets(second: str) -> DataFrame:
        query = f"SELECT k, s, count(*) FROM (SELECT k, {second} AS s FROM {{rows}}) "
        return spark.sql(f"{query} GROUP BY GROUPING SETS ((k), (s))", rows=rows)

    for made in (unpivoted, in_sets):
        assert changes(made("v + 1"), made("v + 1")) == []
        (change,) = changes(made("v + 1"), made("v + 2"))
        assert "expanded" in change
    assert "expanded" not in told(rows.rollup("k", "v").count())[0]


def test_what_a_query_with_a_name_makes_of_a_table_is_told(
    rows: DataFrame, spark: SparkSession
) -> None:
    def keyed(made: str) -> DataFrame:
        named = f"WITH known AS (SELECT CAST(id AS INT) AS k, {made} AS y FROM range(9))"
        query = f"{named} SELECT y, count(*) FROM {{rows}} JOIN known USING (k) GROUP BY y"
        return spark.sql(query, rows=rows)

    assert changes(keyed("id + 1"), keyed("id + 1")) == []
    (change,) = changes(keyed("id + 1"), keyed("id + 2"))
    assert "named queries" in change


def test_what_the_sql_of_a_filter_leaves_out_counts_where_the_filter_decides_a_join(
    rows: DataFrame, spark: SparkSession
) -> None:
    def joined() -> DataFrame:
        left = rows.withWatermark("t", "1 minute")
        right = rows.selectExpr("k AS j", "t AS u").withWatermark("u", "1 minute")
        return left.join(right, left["k"] == right["j"]).where("to_date(t) = to_date(u)")

    before = joined()
    assert changes(before, joined()) == []
    with session_settings(spark, {ZONE: "America/Los_Angeles"}):
        (change,) = changes(before, joined())
    assert "time zone America/Los_Angeles" in change


def test_what_is_united_first_is_told_as_well(rows: DataFrame) -> None:
    from pyspark.sql import functions as f

    def united(made: str) -> DataFrame:
        first = rows.selectExpr(f"{made} AS x", "t")
        return first.union(rows.selectExpr("k AS x", "t"))

    def keyed(made: str) -> DataFrame:
        return united(made).groupBy("x").count()

    def summed(made: str) -> DataFrame:
        return united(made).union(rows.selectExpr("k", "t")).groupBy().agg(f.sum("x"))

    def deduplicated(made: str) -> DataFrame:
        return united(made).dropDuplicates(["x"])

    for of in (keyed, summed, deduplicated):
        assert changes(of("v + 1"), of("v + 1")) == []
        (change,) = changes(of("v + 1"), of("v + 2"))
        assert "united x: (v + 1)" in change
        assert len(changes(of("v"), of("v + 1"))) == 1


def test_a_time_that_is_united_first_is_told_as_well(rows: DataFrame) -> None:
    from pyspark.sql import functions as f

    def windowed(hours: int) -> DataFrame:
        first = rows.selectExpr(f"t + INTERVAL {hours} HOURS AS e").withWatermark("e", "1 minute")
        both = first.union(rows.withWatermark("t", "1 minute").select("t"))
        return both.groupBy(f.window("e", "1 minute")).count()

    assert changes(windowed(1), windowed(1)) == []
    found = changes(windowed(1), windowed(2))
    assert [change.split()[2] for change in found] == ["aggregation", "watermark"]


def test_a_new_column_for_a_function_of_whole_rows_does_no_harm_in_a_union(rows: DataFrame) -> None:
    def united(*columns: str) -> DataFrame:
        first = rows.selectExpr(*columns).mapInPandas(lambda batches: batches, "k int")
        return first.union(rows.select("k")).groupBy("k").count()

    assert changes(united("k"), united("k", "v")) == []
    assert "inputs of k" in changes(united("k"), united("k + 1 AS k"))[0]


def test_other_values_of_a_pivot_are_another_function(rows: DataFrame) -> None:
    from pyspark.sql import functions as f

    def pivoted(*values: str) -> DataFrame:
        return rows.groupBy("k").pivot("text", list(values)).agg(f.sum("v"))

    assert changes(pivoted("a", "b"), pivoted("a", "b")) == []
    (change,) = changes(pivoted("a", "b"), pivoted("a", "c"))
    assert '["a", "c"]' in change
