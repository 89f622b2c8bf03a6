"""A KeyValueSink whose rows are written by hand instead of by Spark; all else is the real one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import pyarrow as pa
import pyarrow.parquet as pq

from seamark.progress import open_progress
from seamark.sinks import KeyValueSink
from seamark.sinks.keyvalue_columns import DELETED, KEY, TIME, VALUE

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType


class HandWrittenView(KeyValueSink):
    """Rows of a number ``n``, which is the key, and perhaps ``gone`` and ``time``, in two files."""

    def __init__(self, url: str, **options: Any) -> None:
        super().__init__(url, key="n", **options)

    def open(self, pipeline: str, sink: str, schema: StructType | None) -> None:
        from pyspark.sql.types import BooleanType, LongType
        from pyspark.sql.types import StructType as Columns

        columns = Columns().add("n", LongType()).add("gone", BooleanType()).add("time", LongType())
        super().open(pipeline, sink, columns)

    def _write(self, df: DataFrame, folder: str) -> None:
        rows: list[Any] = [row._asdict() for row in cast(Any, df).toLocalIterator()]
        Path(folder).mkdir(parents=True)
        for part in range(2):
            some = rows[part::2]
            table = {
                KEY: pa.array([str(row["n"]).encode() for row in some], pa.binary()),
                VALUE: pa.array([json.dumps(row).encode() for row in some], pa.binary()),
            }
            if self._shape.delete_where:
                table[DELETED] = pa.array([bool(row.get("gone")) for row in some], pa.bool_())
            if self._shape.expire:
                table[TIME] = pa.array([row.get("time") for row in some], pa.int64())
            pq.write_table(pa.table(table), f"{folder}/part-{part:05}.parquet")


def numbers_in(url: str) -> list[int]:
    """The numbers that a reader of a view sees, as another program reads it."""
    with open_progress(url, read_only=True) as store:
        return [json.loads(value)["n"] for _, value in store.items("view")]
