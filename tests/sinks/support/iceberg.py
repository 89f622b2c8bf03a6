"""Tables of a real SQL catalog in SQLite, and a sink to them that needs no Spark."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, cast

import pyarrow as pa
from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.table import Table
from pyspark.sql import DataFrame
from pyspark.sql.types import LongType, StringType, StructField, StructType

from seamark.errors import RefusedError
from seamark.sinks.iceberg.marks import Output
from seamark.sinks.iceberg.sink import IcebergSink
from seamark.sinks.iceberg.spark_job import Job, Written, write_batches
from seamark.table_formats.iceberg_lineage import lineage
from seamark.testing.conformance.sink_examples import PIPELINE, SINK

TABLE = "db.rows"
COLUMNS = pa.schema([("n", pa.int64()), ("word", pa.string())])
SCHEMA = StructType([StructField("n", LongType()), StructField("word", StringType())])
OUTPUT = Output(PIPELINE, SINK)


def properties(folder: Path) -> dict[str, str]:
    """A catalog of its own below a folder."""
    return {
        "name": "test",
        "type": "sql",
        "uri": f"sqlite:///{folder}/catalog.db",
        "warehouse": f"file://{folder}/warehouse",
    }


def catalog_at(folder: Path) -> Catalog:
    given = properties(folder)
    return load_catalog(given.pop("name"), **given)


def make_table(folder: Path, schema: Any = COLUMNS, **options: Any) -> Table:
    """Create the table of most tests."""
    catalog = catalog_at(folder)
    catalog.create_namespace_if_not_exists("db")
    return catalog.create_table(TABLE, schema=schema, **options)


def table_at(folder: Path) -> Table:
    return catalog_at(folder).load_table(TABLE)


def numbers(folder: Path) -> list[int]:
    """What a reader of the table sees."""
    values: list[int] = table_at(folder).scan().to_arrow().column("n").to_pylist()
    return sorted(values)


def numbers_of_all_epochs(folder: Path) -> list[int]:
    """What readers of an overwritten table see, had they looked at each epoch."""
    table = table_at(folder)
    newest: dict[int, int] = {}
    for snapshot in lineage(table.metadata):
        shown = OUTPUT.shown_by(snapshot)
        if shown is not None and shown.mark is not None:
            newest.setdefault(shown.epoch, snapshot.snapshot_id)
    return [
        number
        for snapshot_id in newest.values()
        for number in table.scan(snapshot_id=snapshot_id).to_arrow().column("n").to_pylist()
    ]


class Rows:
    """Stands in for a DataFrame of these batches."""

    def __init__(self, rows: pa.Table, schema: StructType = SCHEMA, *, fails: bool = False) -> None:
        self.rows = rows
        self.schema = schema
        self._fails = fails

    def batches(self, *, distinct: bool) -> Iterator[pa.RecordBatch]:
        rows = self.rows
        if distinct:
            rows = rows.group_by(rows.column_names).aggregate([])
        yield from rows.to_batches()
        if self._fails:
            raise ArithmeticError("died on the way")


def as_frame(rows: pa.Table, schema: StructType = SCHEMA) -> DataFrame:
    return cast("DataFrame", Rows(rows, schema))


def lines(values: Sequence[int]) -> pa.Table:
    words = [str(value) for value in values]
    return pa.table({"n": pa.array(values, pa.int64()), "word": pa.array(words, pa.string())})


def frame(values: Sequence[int]) -> DataFrame:
    return as_frame(lines(values))


def failing_frame(values: Sequence[int]) -> DataFrame:
    return cast("DataFrame", Rows(lines(values), fails=True))


class HandWritten(IcebergSink):
    """The sink as it is, but the driver itself does what a task would."""

    def _write(self, df: DataFrame, job: Job) -> Written:
        written = write_batches(job, cast("Rows", df).batches(distinct=bool(self._keys)))
        if written.problem is not None:
            raise RefusedError(written.problem)
        return written


def data_files(folder: Path) -> set[str]:
    """All Parquet files below the table's data folder, whoever needs them."""
    return {str(path) for path in Path(folder, "warehouse").rglob("*.parquet")}


def referenced_files(folder: Path) -> set[str]:
    """Data files that some snapshot of the table needs."""
    table = table_at(folder)
    paths = table.inspect.all_files().column("file_path").to_pylist()
    return {path.removeprefix("file://") for path in paths}
