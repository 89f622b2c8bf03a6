"""Files hold every value as it was, or the epoch is refused before it is decided."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from seamark.errors import RefusedError
from seamark.sinks import FileSink
from seamark.sinks.file_values import writing_options
from seamark.sinks.merged_files import merge_files
from seamark.testing.conformance.sink_examples import PIPELINE, SINK, epoch

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def show(sink: FileSink, df: DataFrame) -> None:
    sink.open(PIPELINE, SINK, df.schema)
    sink.stage(df, epoch(1), "a1")
    sink.commit(sink.prepare())


def refusal(sink: FileSink, df: DataFrame) -> str:
    with pytest.raises(RefusedError) as caught:
        show(sink, df)
    assert sink.newest() is None
    return str(caught.value)


def test_what_the_user_says_about_times_and_blanks_stays() -> None:
    assert writing_options("parquet", {"x": 1}) == writing_options("orc", {"x": 1}) == {"x": 1}
    given = {"TIMESTAMPFORMAT": "yyyy", "ignoreleadingwhitespace": "true"}
    made = writing_options("csv", given)
    assert given.items() <= made.items()
    assert {*made} - {*given} == {"timestampNTZFormat", "ignoreTrailingWhiteSpace"}
    assert {*writing_options("json", {})} == {"timestampFormat", "timestampNTZFormat"}
    assert {*writing_options("json", {}, new_patterns=False)} == {"timestampNTZFormat"}


@pytest.mark.warm
@pytest.mark.parametrize("zone", ["UTC", "America/Los_Angeles"])
@pytest.mark.parametrize("file_format", ["json", "csv"])
def test_text_keeps_times_to_the_microsecond(
    spark: SparkSession, tmp_path: Path, file_format: Any, zone: str
) -> None:
    # before 1883 the clocks of Los Angeles are behind by seconds, too
    micros = [-2_717_668_562_999_999, -1, 1_730_611_800_123_456, 1_730_615_400_123_456]
    session = spark.newSession()
    session.conf.set("spark.sql.session.timeZone", zone)
    df = session.createDataFrame([(n,) for n in micros], "n long").selectExpr(
        "n", "timestamp_micros(n) AS t", "CAST(date_from_unix_date(0) AS timestamp_ntz) + "
        "make_dt_interval(0, 0, 0, n / 1000000) AS local"
    )  # fmt: skip
    expected = {row.n: row.local for row in df.collect()}
    show(FileSink(tmp_path, format=file_format), df)
    found = spark.read.schema("n long, t timestamp, local timestamp_ntz").format(file_format)
    rows = found.load(str(tmp_path)).selectExpr("n", "unix_micros(t) AS t", "local").collect()
    assert sorted(row.t for row in rows) == micros
    assert {row.n: row.local for row in rows} == expected


@pytest.mark.warm
def test_a_session_with_the_old_patterns_still_writes_text(
    spark: SparkSession, tmp_path: Path
) -> None:
    session = spark.newSession()
    session.conf.set("spark.sql.legacy.timeParserPolicy", "legacy")
    show(
        FileSink(tmp_path, format="json"),
        session.sql("SELECT timestamp'2020-01-01 00:00:00Z' AS t"),
    )
    assert "2020-01-01T00:00:00.000Z" in next(tmp_path.glob("epoch=*/part-*")).read_text()


@pytest.mark.warm
@pytest.mark.parametrize("file_format", ["json", "csv"])
def test_bytes_that_are_no_text_are_not_replaced_by_another_letter(
    spark: SparkSession, tmp_path: Path, file_format: Any
) -> None:
    sink = FileSink(tmp_path, format=file_format)
    broken = spark.sql("SELECT 1 AS n, CAST(X'61C328' AS string) AS `a.b`")
    assert "column 'a.b' has a text that is not UTF-8" in refusal(sink, broken)
    show(sink, spark.sql("SELECT 1 AS n, 'é😀' AS `a.b`"))


@pytest.mark.warm
def test_json_looks_for_such_bytes_inside_of_values_too(
    spark: SparkSession, tmp_path: Path
) -> None:
    inside = "map('k', array(named_struct('s', CAST(X'FF' AS string)), null))"
    broken = spark.sql(f"SELECT {inside} AS m")
    assert "column 'm' has a text" in refusal(FileSink(tmp_path, format="json"), broken)
    assert "column 'm' has a text" in refusal(
        FileSink(tmp_path, format="json"), spark.sql("SELECT map(CAST(X'FF' AS string), 1) AS m")
    )


@pytest.mark.warm
def test_orc_moves_no_time_without_a_word(spark: SparkSession, tmp_path: Path) -> None:
    moved = [
        "date'1582-10-05'",
        "date'1582-10-14'",
        "array(date'1582-10-10')",
        "timestamp'1582-10-05 00:00:00Z'",
        "timestamp'1582-10-14 23:59:59.999999Z'",
        "named_struct('t', timestamp'1969-12-31 23:59:59.999999Z')",
        "timestamp'1969-12-31 23:59:59.001Z'",
    ]
    for value in moved:
        said = refusal(FileSink(tmp_path, format="orc"), spark.sql(f"SELECT {value} AS x"))
        assert "column 'x' has a time that orc would move" in said, value
    kept = [
        "timestamp'1582-10-04 07:59:59Z'",
        "timestamp'1582-10-15 16:00:00.000001Z'",
        "timestamp'1969-12-31 23:59:59.000999Z'",
        "timestamp'1969-12-31 23:59:58.999999Z'",
        "timestamp'1970-01-01 00:00:00Z'",
    ]
    days = "date'1582-10-04' AS a, date'1582-10-15' AS b"
    df = spark.sql(f"SELECT explode(array({', '.join(kept)}, null)) AS x, {days}")
    show(FileSink(tmp_path, format="orc"), df)
    found = spark.read.orc(str(tmp_path)).drop("epoch")
    assert found.count() == df.count()
    assert found.exceptAll(df).count() == 0


_CALENDARS = ("datetimeRebaseModeInWrite", "int96RebaseModeInWrite")


@pytest.mark.warm
def test_parquet_cuts_no_time_off_without_a_word(spark: SparkSession, tmp_path: Path) -> None:
    session = spark.newSession()
    session.conf.set("spark.sql.parquet.outputTimestampType", "TIMESTAMP_MILLIS")
    for value in ("timestamp'2020-01-01 00:00:00.000001Z'", "array(timestamp_micros(-1))"):
        said = refusal(FileSink(tmp_path), session.sql(f"SELECT {value} AS x"))
        assert "column 'x' has a time with microseconds" in said
    local = "timestamp_ntz'2020-01-01 00:00:00.000001'"
    whole = f"SELECT timestamp'2020-01-01 00:00:00.001Z' AS x, {local} AS y"
    show(FileSink(tmp_path), session.sql(whole))
    assert spark.read.parquet(str(tmp_path)).drop("epoch").exceptAll(spark.sql(whole)).isEmpty()


@pytest.mark.warm
@pytest.mark.parametrize("stored", ["INT96", "TIMESTAMP_MICROS"])
def test_parquet_moves_no_time_to_another_day_of_the_old_calendar_without_a_word(
    spark: SparkSession, tmp_path: Path, stored: str
) -> None:
    session = spark.newSession()
    session.conf.set("spark.sql.parquet.outputTimestampType", stored)
    gap = "SELECT date'1582-10-10' AS x, timestamp'1582-10-10 12:00:00Z' AS y"
    show(FileSink(tmp_path / "new"), session.sql(gap))
    found = spark.read.parquet(str(tmp_path / "new")).drop("epoch")
    assert found.exceptAll(spark.sql(gap)).isEmpty()
    for setting in _CALENDARS:
        session.conf.set(f"spark.sql.parquet.{setting}", "legacy")
    for value in ("date'1582-10-10'", "map(1, timestamp'1582-10-10 12:00:00Z')"):
        said = refusal(FileSink(tmp_path / "old"), session.sql(f"SELECT {value} AS x"))
        assert "column 'x' has a date or time of 5 to 14 October 1582" in said
    kept = "SELECT date'1582-10-04' AS x, timestamp'0011-10-04 07:59:59.000001Z' AS y"
    show(FileSink(tmp_path / "old"), session.sql(kept))
    found = spark.read.parquet(str(tmp_path / "old")).drop("epoch")
    assert found.exceptAll(spark.sql(kept)).isEmpty()


@pytest.mark.warm
def test_merging_files_cuts_no_time_off_either(spark: SparkSession, tmp_path: Path) -> None:
    rows = spark.sql("SELECT timestamp'2020-01-01 00:00:00.000001Z' AS x")
    rows.write.parquet(str(tmp_path / "upto=000002" / "epoch=000001"))
    session = spark.newSession()
    session.conf.set("spark.sql.parquet.outputTimestampType", "TIMESTAMP_MILLIS")
    given: Any = SimpleNamespace(newSession=lambda: session)
    folder = str(tmp_path / "upto=000002")
    with pytest.raises(RefusedError, match="'x' has a time with microseconds"):
        merge_files(
            given, folder, [f"{folder}/epoch=000001"], f"{tmp_path}/merged/epoch=000001",
            file_format="parquet", partition_by=(), options={}, size=1,
        )  # fmt: skip
