"""Executors write the files of a table; the driver gets their names and what is known of them.

Each task opens the place by its URL and options, with credentials of its own environment, and needs
this package. A task that is lost, tried again or run twice leaves files whose names nobody got.

Tests: ``tests/sinks/test_parquet_files.py``.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from seamark.blobs.contract import Blobs
from seamark.sinks.staged_epochs import Coalesce, coalesced
from seamark.sinks.tables.parquet_files import FileLayout, FileWriter, WrittenFile
from seamark.sinks.tables.row_transfer import RowTransfer

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame


def write_by_executors(
    df: DataFrame,
    blobs: Blobs,
    folder: str,
    layout: FileLayout,
    coalesce: Coalesce = "auto",
    transfer: RowTransfer | None = None,
) -> list[WrittenFile]:
    """Write all rows below a folder, in one job that reads each of them once.

    A job that meets a row which is too large is run again, and leaves files as a lost task does.
    """

    def write(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa
        from pyspark import TaskContext

        task = TaskContext.get()
        writer = FileWriter(blobs, folder, layout, task.partitionId() if task else 0)
        for batch in batches:
            writer.add(batch)
        receipts = [pickle.dumps(file) for file in writer.close()]
        yield pa.RecordBatch.from_arrays([pa.array(receipts, pa.binary())], ["receipt"])

    transfer = transfer or RowTransfer()
    rows = transfer.collect(coalesced(df, coalesce), write, "receipt binary")
    written: list[WrittenFile] = [pickle.loads(row.receipt) for row in rows]
    return sorted(written, key=lambda file: file.path)
