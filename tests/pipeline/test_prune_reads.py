"""No epoch waits for a prune that reads stored state."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import seamark
from seamark.sinks import FileSink
from tests.pipeline.test_costs import write_rows
from tests.store.support.counted_reads import CountedBytes

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.warm


def run_again(spark: SparkSession, folder: Path, scrub_every: float | None) -> None:
    """One more epoch, which prunes."""
    from pyspark.sql import functions as F

    (folder / "in").mkdir(exist_ok=True)
    number = len(list((folder / "in").iterdir()))
    write_rows(folder / "in" / f"{number}.parquet", 0, 20 if number else 2000)
    pipeline = seamark.Pipeline(
        "reads",
        folder / "store",
        working_copy=folder / "copy",
        output_mode="update",
        full_every=1,
        scrub_every=scrub_every,
    )
    rows = spark.readStream.schema("k bigint, payload binary").parquet(str(folder / "in"))
    last = pipeline.source("rows", rows).groupBy("k").agg(F.max("payload").alias("payload"))
    pipeline.sink("out", last.select("k", F.length("payload")), FileSink(folder / "out"))
    pipeline.run()


@pytest.mark.parametrize("scrub_every", [86_400.0, None])
def test_a_run_that_keeps_its_working_copy_reads_stored_state_only_if_no_scrub_does(
    spark: SparkSession,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    scrub_every: float | None,
) -> None:
    run_again(spark, tmp_path, scrub_every)
    read = CountedBytes(monkeypatch)
    run_again(spark, tmp_path, scrub_every)
    counted = read.since_last()
    assert counted > 1_000_000 if scrub_every is None else counted == 0
