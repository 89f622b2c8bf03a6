"""Functions in Python run in the Python that the program runs in."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pyspark.sql import functions as f

from seamark import Pipeline
from seamark.sinks import FileSink
from tests.pipeline.support.workloads import orders, put_file, rows_in

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.mark.warm
def test_a_function_that_is_used_before_the_start_runs_in_the_python_of_the_program(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PYSPARK_PYTHON")
    monkeypatch.setattr(spark.sparkContext, "pythonExec", str(tmp_path / "another" / "python3"))
    put_file(tmp_path / "orders", 0, [{"id": 1, "k": 1, "v": 1}])
    p = Pipeline("functions", tmp_path / "store", progress=None)
    doubled = p.source("orders", orders(spark, tmp_path)).select(f.udf(lambda v: v * 2, "int")("v"))
    p.sink("doubled", doubled.toDF("twice"), FileSink(tmp_path / "doubled"))
    p.run()
    assert list(rows_in(tmp_path / "doubled")) == ['{"twice": 2}']
