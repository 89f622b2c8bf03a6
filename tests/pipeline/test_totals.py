"""Aggregations without a key: each has a state of its own, however many there are of the same rows.

Spark's optimizer makes one subquery of several of them, which begins anew in every batch.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from seamark import Pipeline
from seamark.sinks import FileSink
from tests.pipeline.support.workloads import values_in

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark


def united(rows: DataFrame, *functions: str) -> DataFrame:
    first, *others = (rows.groupBy().agg({"v": each}).toDF("x") for each in functions)
    for other in others:
        first = first.union(other)
    return first


def one_output(rows: DataFrame) -> list[DataFrame]:
    return [united(rows, "count", "count")]


def one_output_of_different_ones(rows: DataFrame) -> list[DataFrame]:
    return [united(rows, "count", "sum")]


def two_outputs(rows: DataFrame) -> list[DataFrame]:
    return [united(rows, "count"), united(rows, "count")]


@pytest.mark.parametrize("outputs", [one_output, one_output_of_different_ones, two_outputs])
def test_several_totals_of_the_same_rows_go_on_from_epoch_to_epoch(
    spark: SparkSession, tmp_path: Path, outputs: Callable[[DataFrame], list[DataFrame]]
) -> None:
    (tmp_path / "in").mkdir()
    for number in range(2):
        rows = "\n".join(json.dumps({"v": 1}) for _ in range(10))
        (tmp_path / f"in/{number}.json").write_text(rows)
    p = Pipeline("totals", tmp_path / "store", output_mode="update", progress=None)
    files = spark.readStream.schema("v long").option("maxFilesPerTrigger", 1)
    made = outputs(p.source("rows", files.json(str(tmp_path / "in"))))
    for number, df in enumerate(made):
        p.sink(f"o{number}", df, FileSink(tmp_path / f"o{number}"))
    assert p.run().epoch == 2
    shown = [values_in(tmp_path / f"o{number}") for number in range(len(made))]
    last = [row["x"] for rows in shown for row in rows if row["epoch"] == 2]
    assert last == [20, 20]
