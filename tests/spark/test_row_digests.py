"""Equal rows have equal digests, however they are stored and read; other rows have others."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import functions as f

from seamark.errors import InvalidInputError
from seamark.spark.row_digests import (
    FORMULA,
    RowDigest,
    digest_of,
    digests_by,
    schema_text,
    why_undigestible,
)
from tests.pipeline.support.workloads import settings_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.warm

SCHEMA = (
    "n bigint, i int, s smallint, b tinyint, yes boolean, f float, d double, m decimal(10,2), "
    "big decimal(38,10), text string, bytes binary, day date, at timestamp, local timestamp_ntz, "
    "took interval day to second, list array<int>, "
    "lists array<array<string>>, pairs array<struct<a:int,b:string>>, map map<string,int>, "
    "maps map<string,map<int,string>>, inner struct<x:int,y:struct<z:string>>"
)
ROW: dict[str, Any] = {
    "n": 1,
    "i": 2,
    "s": 3,
    "b": 4,
    "yes": True,
    "f": 1.5,
    "d": 0.1,
    "m": Decimal("3.14"),
    "big": Decimal("12345678901234567890.0123456789"),
    "text": "Grüße",
    "bytes": b"\x00\xff",
    "day": date(2026, 3, 1),
    "at": datetime(2026, 3, 1, 12, 0, 0, 123456, UTC),
    "local": datetime.fromisoformat("2026-03-01T12:00:00.654321"),
    "took": timedelta(seconds=90),
    "list": [1, None, 2],
    "lists": [["a"], [], ["b", None]],
    "pairs": [(1, "a"), (None, "b")],
    "map": {"a": 1, "b": None},
    "maps": {"a": {1: "x"}},
    "inner": (1, ("z",)),
}
CHANGES: dict[str, Any] = {
    "n": 2,
    "i": 3,
    "s": None,
    "b": 5,
    "yes": None,
    "f": 1.25,
    "d": 0.30000000000000004,
    "m": Decimal("3.15"),
    "big": Decimal("12345678901234567890.0123456788"),
    "text": "Grüsse",
    "bytes": b"\x00\xfe",
    "day": date(2026, 3, 2),
    "at": datetime(2026, 3, 1, 12, 0, 0, 123457, UTC),
    "local": datetime.fromisoformat("2026-03-01T12:00:00.654322"),
    "took": timedelta(seconds=91),
    "list": [None, 1, 2],
    "lists": [["a"], ["b", None], []],
    "pairs": [(None, "a"), (1, "b")],
    "map": {"a": None, "b": 1},
    "maps": {"a": {1: None}},
    "inner": (1, (None,)),
}


def rows_of(spark: SparkSession, rows: list[dict[str, Any]]) -> DataFrame:
    return spark.createDataFrame([tuple(row.values()) for row in rows], SCHEMA)


def test_the_digest_of_a_union_is_the_sum_of_the_digests(spark: SparkSession) -> None:
    rows = spark.range(100).selectExpr("id", "cast(id as string) s")
    left, right = rows.where("id < 30"), rows.where("id >= 30")
    assert digest_of(left) + digest_of(right) == digest_of(rows)
    assert digest_of(rows) - digest_of(left) == digest_of(right)
    assert digest_of(rows.where("id < 0")) == RowDigest.empty()
    assert digest_of(rows).rows == 100


def test_no_partitioning_and_no_order_changes_a_digest(spark: SparkSession) -> None:
    rows = spark.range(1000).selectExpr("id", "id % 7 k")
    expected = digest_of(rows)
    for other in (
        rows.repartition(7),
        rows.orderBy("k"),
        rows.coalesce(1),
        rows.repartition(3, "k"),
    ):
        assert digest_of(other) == expected


def test_every_change_of_a_value_changes_the_digest(spark: SparkSession) -> None:
    others = [{**ROW, column: value} for column, value in CHANGES.items()]
    rows = [(number, *row.values()) for number, row in enumerate([ROW, *others])]
    digests = digests_by(spark.createDataFrame(rows, f"number int, {SCHEMA}"), "number")
    assert {each.rows for each in digests.values()} == {1}
    by_digest = {each.digest: number for number, each in digests.items()}
    assert len(by_digest) == len(CHANGES) + 1


def test_a_value_that_moves_to_the_next_column_changes_the_digest(spark: SparkSession) -> None:
    pairs = [(None, "a"), ("a", None), ("", "a"), ("a", ""), ("ab", "c"), ("a", "bc")]
    rows = [(number, *pair) for number, pair in enumerate(pairs)]
    digests = digests_by(spark.createDataFrame(rows, "number int, x string, y string"), "number")
    assert len({each.digest for each in digests.values()}) == len(pairs)


def test_values_that_change_places_between_rows_change_the_digest(spark: SparkSession) -> None:
    numbers = range(300)
    there = [(n, 1000 + n) for n in numbers]
    for swapped in ([(0, 1001), (1, 1000), *there[2:]], [(n, 1000 + n ^ 1) for n in numbers]):
        assert sorted(y for _, y in swapped) == sorted(y for _, y in there)
        frames = [spark.createDataFrame(rows, "x bigint, y bigint") for rows in (there, swapped)]
        assert digest_of(frames[0]) != digest_of(frames[1])


def test_equal_values_in_two_columns_do_not_cancel_each_other(spark: SparkSession) -> None:
    rows = spark.createDataFrame([(n, n, n) for n in range(50)], "k bigint, x bigint, y bigint")
    assert len({each.digest for each in digests_by(rows, "k").values()}) == 50


def test_a_digest_is_the_same_in_every_version_that_has_this_formula(spark: SparkSession) -> None:
    rows = spark.sql("SELECT 1L n, 'a' text UNION ALL SELECT 2L, NULL")
    assert (FORMULA, digest_of(rows)) == (2, RowDigest(2, "eee0b2728f279e7da0bdcb11d0653c71"))


@pytest.mark.slow
def test_a_row_of_very_many_columns_has_a_digest(spark: SparkSession) -> None:
    wide = spark.range(2).selectExpr(*(f"id + {n} AS c{n}" for n in range(700)))
    other = wide.withColumn("c699", f.lit(0).cast("bigint"))
    digest = digest_of(wide)
    assert digest != digest_of(other)
    assert digest.rows == 2


def test_names_and_types_are_part_of_the_digest(spark: SparkSession) -> None:
    rows = spark.range(3)
    others = [rows.selectExpr("id as n"), rows.selectExpr("cast(id as int) id")]
    assert len({digest_of(each).digest for each in (rows, *others)}) == 3


def test_zeros_and_numbers_that_are_none_are_the_same_whatever_their_bits(
    spark: SparkSession,
) -> None:
    zeros = [spark.sql(f"SELECT {text} d, float({text}) f") for text in ("0.0D", "-0.0D")]
    assert digest_of(zeros[0]) == digest_of(zeros[1])
    nans = [spark.sql(f"SELECT {text} d") for text in ("double('NaN')", "sqrt(-1.0D)")]
    assert digest_of(nans[0]) == digest_of(nans[1])


def test_intervals_are_told_apart(spark: SparkSession) -> None:
    texts = ("interval '1-2' year to month", "interval '1-3' year to month")
    months = [digest_of(spark.sql(f"SELECT {text} i")) for text in texts]
    assert months[0] != months[1]


def test_a_map_has_no_order(spark: SparkSession) -> None:
    there, back = "map('a', 1, 'b', 2)", "map('b', 2, 'a', 1)"
    assert digest_of(spark.sql(f"SELECT {there} m")) == digest_of(spark.sql(f"SELECT {back} m"))
    other = "map('a', 2, 'b', 1)"
    assert digest_of(spark.sql(f"SELECT {there} m")) != digest_of(spark.sql(f"SELECT {other} m"))


def test_no_setting_of_the_session_changes_a_digest(spark: SparkSession) -> None:
    rows = rows_of(spark, [ROW, ROW, dict.fromkeys(ROW)])
    expected = digest_of(rows)
    settings = {
        "spark.sql.session.timeZone": "Asia/Kathmandu",
        "spark.sql.ansi.enabled": "false",
        "spark.sql.legacy.sizeOfNull": "false",
        "spark.sql.codegen.wholeStage": "false",
        "spark.sql.adaptive.enabled": "false",
    }
    with settings_of(spark, settings):
        assert digest_of(rows) == expected


@pytest.mark.parametrize("file_format", ["parquet", "orc"])
def test_rows_that_are_read_back_have_the_digest_of_those_that_were_written(
    spark: SparkSession, tmp_path: Path, file_format: str
) -> None:
    rows = rows_of(spark, [ROW, {**ROW, "n": 2}, dict.fromkeys(ROW)])
    if file_format == "orc":
        rows = rows.drop("took")
    rows.write.format(file_format).save(str(tmp_path / "rows"))
    with settings_of(spark, {"spark.sql.session.timeZone": "America/Lima"}):
        assert digest_of(spark.read.format(file_format).load(str(tmp_path / "rows"))) == digest_of(
            rows
        )


def test_a_variant_and_a_collation_have_digests_of_their_own(spark: SparkSession) -> None:
    def variant(text: str) -> RowDigest:
        return digest_of(spark.sql(f"SELECT parse_json('{text}') v"))

    assert variant('{"a": 1, "b": [1, 2]}') == variant('{"b": [1, 2], "a": 1}')
    assert variant('{"a": 1}') != variant('{"a": 2}')
    texts = [spark.sql(f"SELECT '{text}' COLLATE UTF8_LCASE t") for text in ("a", "A")]
    assert digest_of(texts[0]) != digest_of(texts[1])


def test_a_variant_with_a_time_has_the_same_digest_in_every_time_zone(spark: SparkSession) -> None:
    rows = spark.sql("SELECT to_variant_object(named_struct('at', timestamp'2026-03-01 12:00')) v")
    rows = rows.localCheckpoint()
    expected = digest_of(rows)
    with settings_of(spark, {"spark.sql.session.timeZone": "Asia/Kathmandu"}):
        assert digest_of(rows) == expected


def test_what_cannot_be_digested_is_named(spark: SparkSession) -> None:
    twice = spark.sql("SELECT named_struct('a', 1, 'A', 2) s")
    assert "two fields named 'a'" in str(why_undigestible(twice.schema))
    with pytest.raises(InvalidInputError, match="have no digest"):
        digest_of(twice)
    assert why_undigestible(spark.range(1).schema) is None


def test_the_text_of_a_schema_says_nothing_about_null(spark: SparkSession) -> None:
    strict = spark.range(1).schema
    assert not strict.fields[0].nullable
    assert schema_text(strict) == '[["id","bigint"]]'


def test_digests_by_a_column_leave_that_column_out(spark: SparkSession) -> None:
    rows = spark.range(10).selectExpr("id", "id % 2 k")
    parts = digests_by(rows, "k")
    assert parts == {k: digest_of(rows.where(f"k = {k}").drop("k")) for k in (0, 1)}
