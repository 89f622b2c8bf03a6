"""A text that readers of a partition see as another one, or not at all, is refused in time."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import types as t

from seamark.errors import RefusedError
from seamark.sinks import DeltaSink, FileSink
from seamark.sinks.partition_texts import NULL_FOLDER, guards
from seamark.testing.conformance.sink_examples import PIPELINE, SINK, epoch
from tests.sinks.support.deltas import NUMBERS, HandWrittenDelta, arrow_frame

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_only_texts_that_are_partitions_are_looked_at() -> None:
    schema = (
        t.StructType().add("a.b", "string").add("n", "long").add("B", "binary").add("s", "string")
    )
    assert set(guards(schema, ["A.b", "n", "b"])) == {"a.b", "B"}
    assert guards(schema, ["n"]) == guards(schema, []) == {}


@pytest.mark.warm
@pytest.mark.parametrize(
    ("by", "kind", "odd"),
    [
        (["a.p"], "string", ""),
        (["n", "A.P"], "string", NULL_FOLDER),
        (["n", "A.P"], "binary", ""),
    ],
)
def test_a_text_that_would_be_read_as_null_is_refused_while_staging(
    spark: SparkSession, tmp_path: Path, odd: str, kind: str, by: Sequence[str]
) -> None:
    sink = FileSink(tmp_path, partition_by=by)
    rows = [(1, "x", 1), (2, None, 2), (3, odd, 3)]
    df = spark.createDataFrame(rows, "n int, p string, v int")
    df = df.selectExpr("n", f"CAST(p AS {kind}) AS `a.p`", "v")
    sink.open(PIPELINE, SINK, df.schema)
    with pytest.raises(RefusedError, match=r"an empty text or .*a\.p|an empty text or .*A\.P"):
        sink.stage(df, epoch(1), "a1")
    sink.stage(df.where("n < 3"), epoch(1), "a2")
    sink.commit(sink.prepare())
    found = spark.read.parquet(str(tmp_path)).selectExpr(
        "n", "v", "`a.p`" if by == ["a.p"] else "`A.P`"
    )
    assert sorted((row[0], row[1], row[2]) for row in found.collect()) == [
        (1, 1, "x"),
        (2, 2, None),
    ]


@pytest.mark.warm
@pytest.mark.parametrize("kind", ["string", "binary"])
@pytest.mark.parametrize("odd", [b"a\xff", b"x._COPYING_"])
def test_a_text_that_no_folder_keeps_is_refused_while_staging(
    spark: SparkSession, tmp_path: Path, odd: bytes, kind: str
) -> None:
    sink = FileSink(tmp_path, partition_by="p")
    rows = [(1, b"_COPYING_"), (2, "ä._COPYING_.".encode()), (3, odd)]
    df = spark.createDataFrame(rows, "n int, p binary")
    df = df.selectExpr("n", f"CAST(p AS {kind}) AS p")
    sink.open(PIPELINE, SINK, df.schema)
    with pytest.raises(RefusedError, match=r"not UTF-8, or .* in a column .*: p"):
        sink.stage(df, epoch(1), "a1")
    sink.stage(df.where("n < 3"), epoch(1), "a2")
    sink.commit(sink.prepare())
    found = spark.read.parquet(str(tmp_path)).select("n", "p").collect()
    assert sorted((row[0], row[1].encode()) for row in found) == rows[:2]


@pytest.mark.warm
def test_other_failures_of_the_rows_stay_what_they_are(spark: SparkSession, tmp_path: Path) -> None:
    df = spark.range(3).selectExpr("id", "CAST(raise_error('mine') AS string) AS p")
    sink = FileSink(tmp_path, partition_by="p")
    sink.open(PIPELINE, SINK, df.schema)
    with pytest.raises(Exception, match="mine") as error:
        sink.stage(df, epoch(1), "a1")
    assert not isinstance(error.value, RefusedError)


@pytest.mark.parametrize("options", [{}, {"mode": "upsert", "keys": "n"}])
def test_a_delta_table_is_not_given_a_partition_that_a_compaction_makes_null(
    tmp_path: Path, options: dict[str, Any]
) -> None:
    sink: DeltaSink = HandWrittenDelta(tmp_path / "rows", partition_by="word", **options)
    sink.open(PIPELINE, SINK, NUMBERS)
    rows = [{"n": 1, "word": "a"}, {"n": 2, "word": NULL_FOLDER}]

    def stage_and_prepare() -> None:
        sink.stage(arrow_frame(NUMBERS, rows), epoch(1), "a1")
        sink.prepare()

    with pytest.raises(RefusedError, match="'word', which the table is partitioned by"):
        stage_and_prepare()
