"""Records of topics that only a store names do not keep Spark busy. Without Kafka."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from seamark import limits
from seamark.audit import kafka
from seamark.audit.expectations import SinkHistory
from seamark.errors import StoreUnavailableError
from seamark.spark.row_digests import digests_by
from tests.audit.test_logins import of_table
from tests.support.slow_jobs import rest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def topic_of(kind: str) -> SinkHistory:
    return replace(of_table("kafka", "trades"), columns=(("n", kind),))


def record(value: bytes) -> dict[str, Any]:
    parts = {"topic": "t", "partition": 0, "headers": None}
    return {kafka._EPOCH: 2, "key": None, "value": value, **parts}


@pytest.mark.warm
def test_only_decimals_of_topics_that_are_not_named_have_a_limit(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spark computes all digits of ``1e50000000``."""

    def slowly(*asked: Any) -> Any:
        rest(spark, 2)
        return digests_by(*asked)

    monkeypatch.setattr(kafka, "digests_by", slowly)
    monkeypatch.setattr(limits, "UNTRIED_SECONDS", 0.5)
    several = [record(b'{"n": 1}')]
    for kind, is_named in (("decimal(38,18)", True), ("int", False)):
        shape = kafka._Records(spark, topic_of(kind), is_named=is_named)
        assert shape.digests(several)[2].rows == 1
    shape = kafka._Records(spark, topic_of("array<decimal(9,2)>"), is_named=False)
    with pytest.raises(StoreUnavailableError, match="--target "):
        shape.digests(several)
