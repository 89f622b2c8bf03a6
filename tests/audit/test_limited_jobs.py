"""A folder that only a store names does not keep Spark busy for as long as its files like."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from seamark import limits
from seamark.audit import files
from seamark.audit.limited_jobs import limited_jobs
from seamark.errors import StoreUnavailableError
from tests.audit.support.pipelines import audited, ten_epochs

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def rest(spark: SparkSession, seconds: int) -> None:
    """Have Spark do nothing for so long, in short pieces as when it reads rows."""
    slept = "java_method('java.lang.Thread', 'sleep', 100L + id % 1)"
    spark.range(10 * seconds).selectExpr(slept).repartition(1).collect()


@pytest.mark.warm
def test_a_job_that_takes_too_long_is_given_up_and_the_next_one_is_not(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "UNTRIED_SECONDS", 1)
    with (
        pytest.raises(StoreUnavailableError, match="within 1 s") as caught,
        limited_jobs(spark, [str(tmp_path)], "folder", "--target a=…"),
    ):
        rest(spark, 60)
    assert "--target a=…" in str(caught.value)
    monkeypatch.setattr(limits, "UNTRIED_SECONDS", 30)
    with limited_jobs(spark, [str(tmp_path), str(tmp_path / "gone")], "folder", "--target a=…"):
        assert spark.range(3).count() == 3
    with pytest.raises(ZeroDivisionError), limited_jobs(spark, [], "folder", "--target a=…"):
        raise ZeroDivisionError


@pytest.mark.spark
def test_only_folders_that_are_not_named_and_not_all_readable_have_a_limit(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, digests = ten_epochs(spark, tmp_path), files.digests_by

    def slowly(*asked: Any) -> Any:
        rest(spark, 3)
        return digests(*asked)

    monkeypatch.setattr(limits, "UNTRIED_SECONDS", 1)
    monkeypatch.setattr(files, "digests_by", slowly)
    assert not audited(spark, store).is_damaged
    broken = next((tmp_path / "out" / "epoch=000003").glob("part-*"))
    broken.write_bytes(broken.read_bytes()[:-20])
    with pytest.raises(StoreUnavailableError, match="--target trades="):
        audited(spark, store)
    monkeypatch.setattr(files, "digests_by", digests)
    monkeypatch.setattr(limits, "UNTRIED_SECONDS", 60)
    assert audited(spark, store).is_damaged
