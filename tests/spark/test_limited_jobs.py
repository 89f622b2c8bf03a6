"""Spark gives up a job that takes too long, and only that one."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest

from seamark.errors import RefusedError
from seamark.spark.limited_jobs import limited_jobs
from tests.support.slow_jobs import rest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def late() -> RefusedError:
    return RefusedError("it takes too long")


def read_slowly() -> None:
    """Whoever reads the rows takes long, and then no more."""
    time.sleep(0.1)
    raise BrokenPipeError


@pytest.mark.warm
def test_a_job_that_takes_too_long_is_given_up_and_the_next_one_is_not(
    spark: SparkSession,
) -> None:
    with pytest.raises(RefusedError, match="too long"), limited_jobs(spark, 0.5, late):
        rest(spark, 60)
    with limited_jobs(spark, 60, late):
        assert spark.range(3).count() == 3
    with pytest.raises(BrokenPipeError), limited_jobs(spark, 0.01, late):
        read_slowly()
