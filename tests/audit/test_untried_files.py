"""A folder that only a store names does not keep Spark busy for as long as its files like."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from seamark import limits
from seamark.audit import files
from seamark.errors import StoreUnavailableError
from seamark.spark.row_digests import digests_by
from tests.audit.support.pipelines import audited, ten_epochs
from tests.support.slow_jobs import rest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.mark.spark
def test_only_folders_that_are_not_named_and_not_all_readable_have_a_limit(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = ten_epochs(spark, tmp_path)

    def slowly(*asked: Any) -> Any:
        rest(spark, 3)
        return digests_by(*asked)

    monkeypatch.setattr(limits, "UNTRIED_SECONDS", 1)
    monkeypatch.setattr(files, "digests_by", slowly)
    assert not audited(spark, store).is_damaged
    broken = next((tmp_path / "out" / "epoch=000003").glob("part-*"))
    broken.write_bytes(broken.read_bytes()[:-20])
    with pytest.raises(StoreUnavailableError, match="--target trades="):
        audited(spark, store)
    monkeypatch.setattr(files, "digests_by", digests_by)
    monkeypatch.setattr(limits, "UNTRIED_SECONDS", 60)
    assert audited(spark, store).is_damaged
