"""Values become JSON whole, wherever a map has them as keys."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import functions as f

from seamark.errors import RefusedError
from seamark.sinks import KeyValueSink
from seamark.sinks.json_texts import can_be_read_back, json_texts
from seamark.sinks.kafka.columns import RecordColumns
from seamark.sinks.keyvalue.view_columns import VALUE, Shape
from seamark.sinks.postgres.values import as_text, rewritten_columns
from seamark.sinks.target_checks import check_schema
from seamark.sinks.unfit_values import refusing_broken_texts
from seamark.testing.conformance.sink_examples import PIPELINE, SINK, epoch
from tests.pipeline.support.workloads import settings_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.warm


def written(spark: SparkSession, value: str) -> Any:
    df = spark.sql(f"SELECT {value} AS v").repartition(2)  # keys in memory as after a shuffle
    row = df.select(json_texts(df).text(df["v"], df.schema["v"].dataType)).first()
    assert row is not None
    return json.loads(row[0])


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("struct(map(X'ff00', 1, X'', 2) AS m)", {"m": {"/wA=": 1, "": 2}}),
        ("struct(map(timestamp_seconds(0), 1) AS m)", {"m": {"1970-01-01T00:00:00.000000Z": 1}}),
        (
            "struct(map(timestamp_ntz'2026-01-05 09:30:00.000001', 1) AS m)",
            {"m": {"2026-01-05T09:30:00.000001": 1}},
        ),
        ("array(struct(map(date'0001-01-01', 1) AS m))", [{"m": {"0001-01-01": 1}}]),
        (
            "struct(map(struct('a,b' AS x, 'c' AS y), 1, struct('a' AS x, 'b,c' AS y), 2) AS m)",
            {"m": {'{"x":"a,b","y":"c"}': 1, '{"x":"a","y":"b,c"}': 2}},
        ),
        ("struct(map('\"a\"', map(X'01', null)) AS `m.n`)", {"m.n": {'"a"': {"AQ==": None}}}),
        ("struct(map(1.5D, 1, CAST('NaN' AS DOUBLE), 2) AS m)", {"m": {"1.5": 1, "NaN": 2}}),
        ("struct(CAST(null AS map<binary, int>) AS m)", {"m": None}),
        ("struct(CAST(null AS struct<m: map<date, int>>) AS s)", {"s": None}),
    ],
)
def test_keys_of_a_map_are_written_as_values_are(
    spark: SparkSession, value: str, expected: object
) -> None:
    assert written(spark, value) == expected


@pytest.mark.parametrize("zone", ["UTC", "America/New_York"])
def test_times_are_written_alike_whatever_the_parser_policy_is(
    spark: SparkSession, zone: str
) -> None:
    """With LEGACY Spark takes the days before 1583 for others, and two of them have one name."""
    times: tuple[int, ...] = (
        -62_135_596_800_000_000,
        -12_219_900_000_000_001,
        -1,
        0,
        1_700_000_000_120_000,
    )
    times += (253_402_300_799_999_999, 2**63 - 1, 999_999 - 2**63)
    days = (-719_162, -141_437, -141_428, -141_427, -1, 2_932_896)
    df = spark.createDataFrame([(list(times), list(days))], "t array<long>, d array<int>")
    df = df.selectExpr(
        "struct(transform(t, x -> timestamp_micros(x)) AS t, transform(d, x -> "
        "date_from_unix_date(x)) AS d, map(date_from_unix_date(d[1]), timestamp_micros(t[1])) AS m,"
        " CAST(null AS date) AS n, CAST(null AS timestamp) AS u, array(null, current_date()) AS c) "
        "AS v"
    )
    seen = []
    for policy, ansi in (("CORRECTED", "true"), ("LEGACY", "true"), ("LEGACY", "false")):
        settings = {"spark.sql.legacy.timeParserPolicy": policy, "spark.sql.ansi.enabled": ansi}
        with settings_of(spark, {**settings, "spark.sql.session.timeZone": zone}):
            seen.append(df.select(json_texts(df).text(df["v"], df.schema["v"].dataType)).first())
    assert seen[0] == seen[1] == seen[2]
    assert seen[0] is not None
    assert json.loads(seen[0][0])["m"] == {"1582-10-05": "1582-10-07T23:19:59.999999Z"}


def test_two_old_dates_are_two_keys_of_a_view_whatever_the_parser_policy_is(
    spark: SparkSession,
) -> None:
    df = spark.sql("SELECT explode(array(date'1582-10-10', date'1582-10-11')) AS d, 1 AS n")
    with settings_of(spark, {"spark.sql.legacy.timeParserPolicy": "LEGACY"}):
        for key, keys in (
            ("d", [b"1582-10-10", b"1582-10-11"]),
            (("d", "n"), [b'["1582-10-10",1]', b'["1582-10-11",1]']),
        ):
            rows = Shape.of(key, None, None, None).staged(df).collect()
            assert [bytes(row["key"]) for row in rows] == keys


def test_every_sink_that_writes_json_has_the_keys_of_a_map(spark: SparkSession) -> None:
    df = spark.sql("SELECT 'a' AS k, map(X'ff00', 1) AS m").repartition(2)
    record = RecordColumns.of("k", None, None, None, None).staged(df).first()
    alone = RecordColumns.of("k", "m", None, None, None).staged(df).first()
    view = Shape.of("k", None, None, None).staged(df).first()
    column = df.select(*as_text(df, ["m"])).first()
    assert record is not None
    assert alone is not None
    assert view is not None
    assert column is not None
    assert json.loads(record["value"])["m"] == {"/wA=": 1}
    assert json.loads(alone["value"]) == {"/wA=": 1}
    assert json.loads(view[VALUE])["m"] == {"/wA=": 1}
    assert json.loads(column["m"]) == {"/wA=": 1}


@pytest.mark.parametrize("kind", ["map<binary,int>", "array<struct<m:map<struct<a:int>,int>>>"])
def test_a_file_of_json_is_refused_where_spark_would_lose_keys(
    spark: SparkSession, kind: str
) -> None:
    schema = spark.sql(f"SELECT CAST(null AS {kind}) AS m").schema
    with pytest.raises(RefusedError, match="json has no way to hold the column 'm'"):
        check_schema(schema, "json", ())
    check_schema(schema, "parquet", ())


@pytest.mark.parametrize(
    ("kind", "can_be"),
    [
        ("map<string,int>", True),
        ("map<int,int>", False),
        ("struct<a:array<map<string,map<date,int>>>>", False),
    ],
)
def test_what_spark_cannot_read_from_json_is_known(
    spark: SparkSession, kind: str, *, can_be: bool
) -> None:
    schema = spark.sql(f"SELECT CAST(null AS {kind}) AS m").schema
    assert can_be_read_back(schema) == can_be
    try:
        spark.range(1).select(f.from_json(f.lit("{}"), schema)).collect()
    except AnalysisException:
        assert not can_be
    else:
        assert can_be


BROKEN = "CAST(X'61FF' AS string)"


def test_a_view_refuses_bytes_that_are_no_text(spark: SparkSession, tmp_path: Path) -> None:
    sink = KeyValueSink(f"rocksdb://{tmp_path}/view", key=["k", "n"], staging=tmp_path / "staging")
    df = spark.sql(f"SELECT {BROKEN} AS k, 1 AS n")
    sink.open(PIPELINE, SINK, df.schema)
    with pytest.raises(RefusedError, match="column 'k' has a text that is not UTF-8"):
        sink.stage(df, epoch(1), "a1")
    sink.stage(df.selectExpr("make_valid_utf8(k) AS k", "n"), epoch(1), "a2")
    sink.close()


def test_a_record_of_json_refuses_them_and_one_of_bytes_does_not(spark: SparkSession) -> None:
    df = spark.sql(f"SELECT {BROKEN} AS k, struct(map('x', {BROKEN}) AS m) AS s")
    for broken in (
        RecordColumns.of("k", None, None, None, None),
        RecordColumns.of("k", "s", None, None, None),
    ):
        with pytest.raises(RefusedError, match="not UTF-8"), refusing_broken_texts("here"):
            broken.staged(df).collect()
    whole = RecordColumns.of("k", "k", None, None, None).staged(df).first()
    assert whole is not None
    assert bytes(whole.value) == b"a\xff"


def test_postgres_looks_at_the_columns_whose_texts_are_written_again(spark: SparkSession) -> None:
    df = spark.sql("SELECT 'x' AS a, array('x') AS b, array(struct(1 AS n)) AS c, map(1, 'x') AS d")
    assert rewritten_columns(df.schema) == ["b", "c", "d"]
