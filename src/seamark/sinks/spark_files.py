"""Has Spark write the rows of an epoch into a local folder.

Tests: ``tests/sinks/test_files_on_spark.py``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, Literal

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

Coalesce = Literal["auto"] | int | None
_WITHOUT_RETRIES: Final = re.compile(r"local(\[[^,\]]*\])?")


def write_files(
    df: DataFrame,
    folder: str,
    file_format: str,
    *,
    partition_by: Sequence[str] = (),
    options: Mapping[str, Any] | None = None,
    coalesce: Coalesce = "auto",
) -> None:
    """Write the rows into a folder that is not there yet, by one job that reads each of them."""
    spark = df.sparkSession.sparkContext
    master = spark.master or ""
    if coalesce == "auto":
        df = df.coalesce(spark.defaultParallelism) if master.startswith("local") else df
    elif coalesce is not None:
        df = df.coalesce(coalesce)
    settings = {"mapreduce.fileoutputcommitter.marksuccessfuljobs": "false"}
    if _WITHOUT_RETRIES.fullmatch(master):
        # version 2 saves a rename per file, but where tasks are tried again it can leave files
        # of a try that failed half-way
        settings["mapreduce.fileoutputcommitter.algorithm.version"] = "2"
    writer = df.write.format(file_format).options(**settings).options(**(options or {}))
    if partition_by:
        writer = writer.partitionBy(*partition_by)
    writer.save(f"file://{folder}")
