"""What Spark makes of columns: keys that stay apart, and rows whose every value comes through."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from seamark.progress import open_progress
from seamark.sinks import KeyValueSink
from seamark.spark.session import session_settings
from seamark.testing.conformance.sink_examples import PIPELINE, SINK
from tests.sinks.support.views import told

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.warm


def view_of(df: DataFrame, folder: Path, key: str | list[str], **options: Any) -> dict[bytes, Any]:
    """What readers of a view of these rows see."""
    url = f"rocksdb://{folder}/view-{len(list(folder.iterdir()))}"
    sink = KeyValueSink(url, key=key, **options)
    sink.open(PIPELINE, SINK, df.schema)
    sink.stage(df, told(1, watermark=(options and 1_000_000) or None), "a1")
    sink.commit(sink.prepare())
    sink.close()
    with open_progress(url, read_only=True) as store:
        return {key: json.loads(value) for key, value in store.items("view")}


@pytest.fixture
def rows(spark: SparkSession) -> DataFrame:
    return spark.sql(
        r"""SELECT * FROM VALUES
        (1, 'a', X'00FF', TIMESTAMP '2026-01-01 00:00:00.000001Z', 1.5D, 2.50BD, true),
        (2, 'b"\',]{}', X'', TIMESTAMP '2026-01-01 00:00:00.000002Z', double('NaN'), 3.10BD, false),
        (-3, 'ü \n ☃ 𝄞', X'0A', TIMESTAMP '1969-12-31 23:59:59.999999Z', double('-0'), 0BD, null),
        (4, '', X'22', TIMESTAMP '9999-12-31 23:59:59Z', 1e300D, -1BD, true)
        AS t(i, s, b, at, d, m, flag)"""
    ).selectExpr(
        "*",
        "named_struct('x', i, 'y', s) AS pair",
        "array(i, null) AS list",
        "map(s, i) AS map",
        "CAST(at AS date) AS day",
        "CAST(NULL AS string) AS nothing",
        "i AS `odd.na me`",
        "CAST(at AS timestamp_ntz) AS local",
        "INTERVAL '1 02' DAY TO HOUR AS span",
    )


@pytest.mark.parametrize(
    ("key", "wanted"),
    [
        ("i", [b"1", b"2", b"-3", b"4"]),
        ("s", [b"a", b"b\"',]{}", "ü \n ☃ 𝄞".encode(), b""]),
        ("b", [b"\x00\xff", b"", b"\n", b'"']),
        (
            "at",
            [
                b"2026-01-01T00:00:00.000001Z",
                b"2026-01-01T00:00:00.000002Z",
                b"1969-12-31T23:59:59.999999Z",
                b"9999-12-31T23:59:59.000000Z",
            ],
        ),
        ("d", [b"1.5", b"NaN", b"-0.0", b"1.0E300"]),
        ("m", [b"2.50", b"3.10", b"0.00", b"-1.00"]),
        ("pair.x", [b"1", b"2", b"-3", b"4"]),
        ("odd.na me", [b"1", b"2", b"-3", b"4"]),
        (
            ["i", "s"],
            [b'[1,"a"]', b'[2,"b\\"\',]{}"]', '[-3,"ü \\n ☃ 𝄞"]'.encode(), b'[4,""]'],
        ),
        (["b", "i"], [b'["AP8=",1]', b'["",2]', b'["Cg==",-3]', b'["Ig==",4]']),
    ],
    ids=str,
)
def test_keys_are_plain_text_and_stay_apart(
    rows: DataFrame, tmp_path: Path, key: str | list[str], wanted: list[bytes]
) -> None:
    found = view_of(rows, tmp_path, key)
    numbers = {row["i"]: found_key for found_key, row in found.items()}
    assert numbers == dict(zip((1, 2, -3, 4), wanted, strict=True))


def test_every_value_comes_through_as_json(rows: DataFrame, tmp_path: Path) -> None:
    row = view_of(rows, tmp_path, "i")[b"1"]
    assert row == {
        "i": 1,
        "s": "a",
        "b": "AP8=",
        "at": "2026-01-01T00:00:00.000001Z",
        "d": 1.5,
        "m": 2.5,
        "flag": True,
        "pair": {"x": 1, "y": "a"},
        "list": [1, None],
        "map": {"a": 1},
        "day": "2026-01-01",
        "nothing": None,
        "odd.na me": 1,
        "local": "2026-01-01T00:00:00.000001",
        "span": "INTERVAL '1 02' DAY TO HOUR",
    }


def test_times_mean_the_same_whatever_the_session_says(
    spark: SparkSession, rows: DataFrame, tmp_path: Path
) -> None:
    wanted = view_of(rows.drop("local", "day"), tmp_path, "at")
    before = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", "Asia/Kathmandu")
    try:
        assert view_of(rows.drop("local", "day"), tmp_path, "at") == wanted
    finally:
        spark.conf.set("spark.sql.session.timeZone", before or "UTC")


@pytest.mark.parametrize("zone", ["UTC", "America/New_York"])
@pytest.mark.parametrize(
    "time",
    [
        "timestamp_millis(ms)",
        "named_struct('start', timestamp_millis(0L), 'end', timestamp_millis(ms))",
        "ms",
        "CAST(timestamp_millis(ms) AS timestamp_ntz)",
    ],
    ids=["timestamp", "window", "milliseconds", "without zone"],
)
def test_rows_expire_by_any_kind_of_time(
    spark: SparkSession, tmp_path: Path, time: str, zone: str
) -> None:
    before = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", zone)
    try:
        df = spark.range(3).selectExpr("id", "1000000L - 1 + id AS ms")
        found = view_of(df.selectExpr("id", f"{time} AS until"), tmp_path, "id", expire="until")
        assert found.keys() == {b"2"}, "at the watermark a row is late already"
    finally:
        spark.conf.set("spark.sql.session.timeZone", before or "UTC")


@pytest.mark.parametrize("time", ["at", "named_struct('start', at, 'end', at)"])
def test_rows_expire_at_their_time_also_where_a_timestamp_has_no_zone_by_default(
    spark: SparkSession, tmp_path: Path, time: str
) -> None:
    settings = {
        "spark.sql.session.timeZone": "America/Los_Angeles",
        "spark.sql.timestampType": "TIMESTAMP_NTZ",
    }
    with session_settings(spark, settings):
        df = spark.range(3).selectExpr("id", "timestamp_millis(1000000L - 1 + id) AS at")
        found = view_of(df.selectExpr("id", f"{time} AS until"), tmp_path, "id", expire="until")
    assert found.keys() == {b"2"}


@pytest.mark.parametrize(
    ("years", "greatest"), [((2026, 9999), 9999), ((1500, 2026), 2026), ((1500, 9999), 9999)]
)
def test_order_by_a_time_of_the_far_past_or_future_takes_the_later_row(
    spark: SparkSession, tmp_path: Path, years: tuple[int, int], greatest: int
) -> None:
    df = spark.createDataFrame([(1, year) for year in years], "k INT, year INT")
    df = df.selectExpr("*", "make_timestamp(year, 12, 31, 23, 59, 59.000001) AS at")
    for kind in ("timestamp", "timestamp_ntz"):
        rows = df.withColumn("at", df["at"].cast(kind))
        assert view_of(rows, tmp_path, "k", order_by="at")[b"1"]["year"] == greatest
