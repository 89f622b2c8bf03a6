"""Writing the rows of an epoch as data files, by the tasks of a Spark job.

Each try of a task writes files of its own names, and reports them at its end. A try that is lost,
repeated or run twice leaves files that nobody was told of; its journal leads to them.

Tests: ``tests/sinks/test_iceberg_pipeline.py``.
"""

from __future__ import annotations

import errno
import pickle
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from io import BytesIO
from typing import TYPE_CHECKING, Final

from seamark.errors import RefusedError
from seamark.sinks.iceberg.data_files import FLUSH_BYTES, FileWriter
from seamark.sinks.iceberg.marks import Output
from seamark.sinks.iceberg.partition_values import require_partition_values
from seamark.sinks.iceberg.staging import Staging
from seamark.sinks.iceberg.upserts import REMOVED
from seamark.sinks.staged_epochs import coalesced
from seamark.sinks.tables.row_transfer import RowTransfer

if TYPE_CHECKING:
    import pyarrow as pa
    from pyiceberg.io import FileIO
    from pyiceberg.manifest import DataFile
    from pyiceberg.table.metadata import TableMetadata
    from pyspark.sql import DataFrame

_REPORT: Final = "report binary"


@dataclass(frozen=True)
class Job:
    """What a task needs to know. It is sent to executors only, and nowhere written."""

    metadata: TableMetadata
    io: FileIO
    output: Output
    attempt: str
    keys: tuple[str, ...] = ()
    flush_bytes: int = FLUSH_BYTES


@dataclass
class Written:
    """What a task, or all of them, have written."""

    files: list[DataFile] = field(default_factory=list)
    keys: list[bytes] = field(default_factory=list)
    rows: int = 0
    problem: str | None = None


def write_rows(df: DataFrame, job: Job, where: str, transfer: RowTransfer) -> Written:
    """Write all rows. A column ``REMOVED`` tells which of them only say that their key goes.

    :class:`RefusedError` for rows that the table cannot hold.
    """
    together = Written()
    for row in transfer.collect(coalesced(df, "auto"), _task(job), _REPORT):
        one: Written = pickle.loads(row.report)
        if one.problem is not None:
            raise RefusedError(one.problem, where=where)
        together.files += one.files
        together.keys += one.keys
        together.rows += one.rows
    return together


def _task(job: Job) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def write(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        written = write_batches(job, batches)
        if written.rows or written.problem:
            yield pa.RecordBatch.from_pydict({"report": [pickle.dumps(written)]})

    return write


def write_batches(job: Job, batches: Iterable[pa.RecordBatch]) -> Written:
    """Write batches of rows as data files, holding back a bounded number of bytes."""
    staging = Staging(job.io, job.metadata.location, job.metadata.properties, job.output)
    writer = FileWriter(job.metadata, staging, job.attempt)
    written = Written()
    try:
        for rows in _gathered(batches, job.flush_bytes):
            if job.keys:
                written.keys.append(_keys_of(rows, job.keys))
            written.rows += rows.num_rows
            kept = _to_keep(rows)
            require_partition_values(kept, job.metadata)
            written.files += writer.write(kept)
    except RefusedError as error:
        # not worth another try of the task, unlike a connection that is lost
        written.problem = " ".join(part for part in (error.what, error.hint) if part)
    except OSError as error:
        if error.errno != errno.ENAMETOOLONG:
            raise
        written.problem = (
            "a value that the table is partitioned by is too long for the name of a folder. "
            "Partition the table by another column, or by bucket or truncate of it."
        )
    return written


def _gathered(batches: Iterable[pa.RecordBatch], most: int) -> Iterator[pa.Table]:
    import pyarrow as pa

    waiting: list[pa.RecordBatch] = []
    size = 0
    for batch in batches:
        if batch.num_rows:
            waiting.append(batch)
            size += batch.nbytes
        if size >= most:
            yield pa.Table.from_batches(waiting)
            waiting, size = [], 0
    if waiting:
        yield pa.Table.from_batches(waiting)


def _to_keep(rows: pa.Table) -> pa.Table:
    if REMOVED not in rows.column_names:
        return rows
    import pyarrow.compute as pc

    return rows.filter(pc.invert(rows.column(REMOVED))).drop_columns([REMOVED])


def _keys_of(rows: pa.Table, keys: Sequence[str]) -> bytes:
    """The keys of rows as a Parquet file, each as often as it is there."""
    import pyarrow.parquet as pq

    from seamark.sinks.iceberg.data_files import in_utc

    data = BytesIO()
    pq.write_table(in_utc(rows.select(list(keys))), data)
    return data.getvalue()
