"""A setting of the session by which Spark computes or reads other values is told by a start."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from seamark import Pipeline
from seamark.pipeline.declaration.compatibility import Compatibility, CompatibilityCheck
from seamark.sinks import ForeachBatchSink
from seamark.spark.plans.value_settings import settings_changed, value_settings
from tests.pipeline.support.workloads import settings_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

PARSER = "spark.sql.legacy.timeParserPolicy"
CASES = "spark.sql.caseSensitive"
OF_SPARK = {"spark.sql.ansi.enabled": "false", PARSER: "CORRECTED", CASES: "false"}


@pytest.mark.warm
@pytest.mark.parametrize(
    ("name", "value"),
    [
        (PARSER, "legacy"),
        (CASES, "true"),
        ("spark.sql.mapKeyDedupPolicy", "LAST_WIN"),
        ("spark.sql.json.enablePartialResults", "false"),
        ("spark.sql.parquet.binaryAsString", "true"),
        ("spark.sql.legacy.json.allowEmptyString.enabled", "true"),
    ],
)
def test_settings_that_are_not_those_of_spark_are_known(
    spark: SparkSession, name: str, value: str
) -> None:
    own = value_settings(spark)
    assert name not in own
    with settings_of(spark, {name: value}):
        assert value_settings(spark) == {**own, name: value.lower()}
    default = {PARSER: "Corrected", CASES: "FALSE", "spark.sql.shuffle.partitions": "3"}
    with settings_of(spark, default):
        assert value_settings(spark) == own


@pytest.mark.warm
def test_state_that_goes_on_under_another_parser_of_times_is_told(
    spark: SparkSession, tmp_path: Path
) -> None:
    rows: list[Any] = []

    def run(number: int, parser: str) -> CompatibilityCheck:
        (tmp_path / "in").mkdir(exist_ok=True)
        (tmp_path / "in" / f"{number}.json").write_text('{"s": "2024-1-5"}\n')
        p = Pipeline("days", tmp_path / "store", output_mode="update", progress=None)
        with settings_of(spark, {**OF_SPARK, PARSER: parser}):
            texts = p.source(
                "texts", spark.readStream.schema("s string").json(str(tmp_path / "in"))
            )
            days = texts.groupBy(day(texts)).count()
            p.sink("days", days, ForeachBatchSink(lambda df, _: rows.extend(df.collect())))
            check = p.check()
            p.run()
        return check

    assert run(0, "CORRECTED").fit is Compatibility.SAME
    assert run(1, "corrected").fit is Compatibility.SAME
    check = run(2, "LEGACY")
    assert check.fit is Compatibility.GOES_ON
    assert check.changes == [
        f"setting {PARSER}: Spark's own → legacy: values may be computed or "
        "read in another way than before"
    ]
    assert run(3, "LEGACY").fit is Compatibility.SAME
    assert Counter(row[0] is None for row in rows) == {True: 2, False: 2}  # one text, two days


def day(texts: DataFrame) -> Any:
    from pyspark.sql import functions as f

    return f.to_date(texts.s, "yyyy-MM-dd").alias("day")


def test_what_one_of_both_has_not_recorded_is_no_change() -> None:
    assert settings_changed(None, {CASES: "true"}) == []
    assert settings_changed({CASES: "true"}, {CASES: "true"}) == []
    (text,) = settings_changed({CASES: "true"}, {})
    assert text.startswith(f"setting {CASES}: true → Spark's own")
    (text,) = settings_changed({}, {CASES: "x" * 100_000})
    assert len(text) < 500
