"""Rows are digested by the action that reads them; what was read twice is noticed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from seamark.spark import observed_digests
from seamark.spark.observed_digests import DigestObserver, ObservedDigest
from seamark.spark.row_digests import RowDigest, digest_of
from tests.pipeline.support.workloads import settings_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.warm

ACTIONS: dict[str, Callable[[DataFrame, Path], object]] = {
    "parquet": lambda rows, path: rows.write.parquet(str(path / "rows")),
    "coalesced": lambda rows, path: rows.coalesce(1).write.parquet(str(path / "rows")),
    "partitioned": lambda rows, path: rows.write.partitionBy("k").parquet(str(path / "rows")),
    "noop": lambda rows, _: rows.write.format("noop").mode("overwrite").save(),
    "collect": lambda rows, _: rows.collect(),
    "by arrow": lambda rows, _: rows.mapInArrow(lambda batches: batches, rows.schema).collect(),
    "shuffled": lambda rows, _: rows.repartition(3).write.format("noop").mode("overwrite").save(),
}


def observed(rows: DataFrame) -> tuple[DataFrame, ObservedDigest]:
    return DigestObserver(rows.sparkSession, rows.schema).observe(rows)


@pytest.mark.parametrize("action", ACTIONS)
def test_rows_are_digested_on_their_way_to_a_sink(
    spark: SparkSession, tmp_path: Path, action: str
) -> None:
    rows = spark.range(0, 1000, 1, 4).selectExpr("id", "id % 7 k", "uuid() u")
    rows = rows.persist()
    seen, digest = observed(rows)
    ACTIONS[action](seen, tmp_path)
    assert digest.result() == digest_of(rows)
    rows.unpersist()


@pytest.mark.parametrize(
    "settings",
    [
        {"spark.sql.adaptive.enabled": "false"},
        {"spark.sql.adaptive.enabled": "true"},
        {"spark.sql.codegen.wholeStage": "false"},
        {"spark.sql.codegen.factoryMode": "NO_CODEGEN", "spark.sql.codegen.wholeStage": "false"},
    ],
    ids=["as it is", "adaptive", "no stages", "no code"],
)
def test_rows_of_a_join_and_an_aggregation_are_digested_once(
    spark: SparkSession, settings: dict[str, str]
) -> None:
    left, right = (spark.range(200).selectExpr("id", f"id % 5 {name}") for name in "ab")
    rows = left.join(right, "id").groupBy("a").count()
    with settings_of(spark, settings):
        seen, digest = observed(rows)
        seen.collect()
        assert digest.result() == digest_of(rows)


def test_rows_of_many_columns_are_digested(spark: SparkSession) -> None:
    rows = spark.range(50).selectExpr(*(f"id + {number} c{number}" for number in range(150)))
    seen, digest = observed(rows)
    seen.write.format("noop").mode("overwrite").save()
    assert digest.result() == digest_of(rows)


def test_no_rows_are_digested_too(spark: SparkSession) -> None:
    for rows in (
        spark.range(0),
        spark.range(10).where("id > 99"),
        spark.createDataFrame([], "n int"),
    ):
        seen, digest = observed(rows)
        seen.write.format("noop").mode("overwrite").save()
        assert digest.result() == RowDigest.empty()


def test_filters_columns_and_order_after_it_change_nothing(spark: SparkSession) -> None:
    rows = spark.range(0, 100, 1, 3).selectExpr("id", "id * 2 twice")
    for using in ("id < 5", "id < 5 AND twice > 2", "false AND id = 1"):
        seen, digest = observed(rows)
        seen.where(using).select("twice").write.format("noop").mode("overwrite").save()
        found = digest.result()
        assert found is not None
        assert found in {digest_of(rows), RowDigest.empty()}, "all of them, or no action at all"


def test_rows_that_were_read_twice_have_no_digest(spark: SparkSession) -> None:
    seen, digest = observed(spark.range(0, 30, 1, 3))
    seen.collect()
    seen.limit(1).collect()
    assert digest.was_read_twice()
    assert digest.result() is None


def test_what_an_action_has_read_before_it_failed_is_noticed_by_the_next(
    spark: SparkSession,
) -> None:
    rows = spark.range(0, 9, 1, 3).selectExpr("id")
    seen, digest = observed(rows)
    with pytest.raises(Exception, match="too large"):
        seen.selectExpr("assert_true(id < 8, 'too large')").collect()
    seen.collect()
    assert digest.result() in {None, digest_of(rows)}


def test_a_partition_that_is_computed_again_is_noticed(spark: SparkSession) -> None:
    """As when the output of a shuffle is lost with its executor: the same stage, other attempt."""
    seen, digest = observed(spark.range(0, 30, 1, 3))
    seen.collect()
    stages, again, *_ = digest._sums.result().split()
    assert (stages, again) == ("1", "0")
    readers = digest._sums.getClass().getDeclaredField("readers")
    readers.setAccessible(True)
    accumulator = readers.get(digest._sums)
    accumulator.add(accumulator.value()[0])
    assert digest.result() is None
    assert not digest.was_read_twice()


def test_rows_that_lie_in_the_plan_are_digested_or_nothing_is_said(spark: SparkSession) -> None:
    rows = spark.sql("SELECT * FROM VALUES (1, 'a'), (2, 'b') AS t(n, s)")
    seen, digest = observed(rows)
    seen.collect()
    assert digest.result() in {None, digest_of(rows)}


def test_a_spark_that_takes_no_classes_observes_nothing(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise TypeError("'JavaPackage' object is not callable")

    monkeypatch.setattr(observed_digests, "executor_object", refuse)
    assert not DigestObserver(spark, spark.range(1).schema).is_possible
