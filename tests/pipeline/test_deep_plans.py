"""An output whose columns are computed from one another in many steps is an output like others."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest
from pyspark.sql import functions as f

from seamark.errors import RefusedError
from seamark.pipeline.declaration.compile import Output, compile_outputs
from seamark.sinks import MemorySink
from seamark.spark.plans.plan import PlanSources
from seamark.spark.plans.trees import room_for_deep_plans

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession


@contextmanager
def few_calls(count: int) -> Iterator[None]:
    """Leave Python room for so many calls inside each other, so that few steps are too many."""
    before = sys.getrecursionlimit()
    sys.setrecursionlimit(len(inspect.stack(0)) + count)
    try:
        yield
    finally:
        sys.setrecursionlimit(before)


@pytest.mark.warm
def test_a_column_may_be_computed_in_more_steps_than_python_has_calls(
    spark: SparkSession, tmp_path: Path
) -> None:
    rows = spark.readStream.schema("k int, v int").json(str(tmp_path))
    sources = PlanSources()
    sources.add("orders", rows)
    for _ in range(25):
        rows = rows.withColumn("v", f.col("v") + f.col("k"))
    made = [Output("sums", rows.groupBy("v").count(), MemorySink())]
    with few_calls(100):
        compiled = compile_outputs(made, sources, output_mode="complete")
    assert compiled.computes["sums"][0]["computation"]


def endless(depth: int) -> int:
    return endless(depth + 1) + 1


def test_a_plan_that_is_deeper_still_is_refused_and_the_room_is_taken_back() -> None:
    before = sys.getrecursionlimit()
    with pytest.raises(RefusedError, match="too many steps"), room_for_deep_plans():
        endless(0)
    assert sys.getrecursionlimit() == before
