"""A DeltaSink whose rows are written here instead of by executors; all else is the real one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import pyarrow as pa
from deltalake import DeltaTable
from pyspark.sql.types import LongType, StringType, StructField, StructType

from seamark.sinks import DeltaSink
from seamark.sinks.tables.parquet_files import FileLayout, FileWriter, WrittenFile

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

NUMBERS = StructType([StructField("n", LongType()), StructField("word", StringType())])


class ArrowFrame:
    """Rows with a schema, in two batches."""

    def __init__(self, schema: StructType, rows: pa.Table, *, fails: bool = False) -> None:
        self.schema = schema
        self.rows = rows
        self.fails = fails

    def batches(self) -> Iterator[pa.RecordBatch]:
        yield from self.rows.to_batches(max_chunksize=max(self.rows.num_rows // 2, 1))
        if self.fails:
            raise ArithmeticError("died on the way")


def arrow_frame(schema: StructType, rows: Sequence[dict[str, Any]], **fails: bool) -> DataFrame:
    from pyspark.sql.pandas.types import to_arrow_schema

    table = pa.Table.from_pylist([*rows], schema=to_arrow_schema(schema, timezone="UTC"))
    return cast("DataFrame", ArrowFrame(schema, table, **fails))


def numbers(values: Sequence[int], **fails: bool) -> DataFrame:
    return arrow_frame(NUMBERS, [{"n": n, "word": str(n)} for n in values], **fails)


def failing_numbers(values: Sequence[int]) -> DataFrame:
    return numbers(values, fails=True)


class HandWrittenDelta(DeltaSink):
    """Writes its files in this process."""

    def _write(self, df: DataFrame, folder: str, layout: FileLayout) -> list[WrittenFile]:
        writer = FileWriter(self._epochs.staging.blobs, folder, layout)
        for batch in cast("ArrowFrame", df).batches():
            writer.add(batch)
        return writer.close()


def rows_in(table: str | Path, version: int | None = None) -> list[dict[str, Any]]:
    """What readers see."""
    rows: list[dict[str, Any]] = (
        DeltaTable(str(table), version=version).to_pyarrow_table().to_pylist()
    )
    return rows


def numbers_in(table: str | Path, version: int | None = None) -> list[int]:
    return sorted(row["n"] for row in rows_in(table, version))


def data_files(table: Path) -> set[str]:
    """Every Parquet file below the table that is not a part of the log."""
    found = (path.relative_to(table) for path in table.rglob("*.parquet"))
    return {str(path) for path in found if path.parts[0] != "_delta_log"}


def files_in_log(table: Path) -> set[str]:
    """The files that the newest version of the table names."""
    uris = DeltaTable(str(table)).file_uris()
    return {uri.removeprefix("file://").removeprefix(f"{table}/") for uri in uris}
