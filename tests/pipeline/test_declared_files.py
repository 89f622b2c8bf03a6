"""A store never has a pipeline read files that it is not declared to read."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from seamark import Pipeline
from seamark.capture.planned_files import DeclaredInput
from seamark.errors import RefusedError
from seamark.sinks import FileSink
from tests.pipeline.support.workloads import put_file

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def by_pattern(spark: SparkSession, root: Path) -> Pipeline:
    p = Pipeline("rows", root / "store", progress=None, keep=10)
    stream = spark.readStream.schema("n int").json(f"{root}/in put/*.json")
    p.sink("rows", p.source("rows", stream), FileSink(root / "out"))
    return p


@pytest.mark.warm
def test_a_replay_reads_no_file_outside_of_the_folder_that_a_pattern_names(
    spark: SparkSession, tmp_path: Path
) -> None:
    a, b = tmp_path / "a", tmp_path / "b"
    for root, n in ((a, 1), (b, 2)):
        put_file(root / "in put", 0, [{"n": n}])
    mine = by_pattern(spark, a)
    mine.run(available_now=True)
    with mine.replay(1) as again:
        assert again.is_equal

    shutil.copytree(a / "store", b / "store")
    other = by_pattern(spark, b)
    assert other._declared().identity.inputs == [DeclaredInput("rows", f"file:{b}/in put")]
    with pytest.raises(RefusedError, match="source 'rows' was planned to read a file") as error:
        other.replay(1)
    assert f"is not below file:{b}/in put" in str(error.value)
