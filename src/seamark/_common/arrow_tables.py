"""Columns and tables of Arrow: a bounded size, texts that can be read.

Tests: ``tests/audit/test_costs.py``, ``tests/sinks/test_kafka_records.py``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pyarrow as pa


def sized_tables(
    batches: Iterable[pa.RecordBatch], rows_at_once: int = 100_000, bytes_at_once: int = 64 << 20
) -> Iterator[pa.Table]:
    """The same rows in tables that end with the batch which reaches one of the two sizes."""
    import pyarrow as pa

    waiting: list[pa.RecordBatch] = []
    rows = size = 0
    for batch in batches:
        waiting.append(batch)
        rows, size = rows + batch.num_rows, size + batch.nbytes
        if rows >= rows_at_once or size >= bytes_at_once:
            yield pa.Table.from_batches(waiting)
            waiting, rows, size = [], 0, 0
    if waiting:
        yield pa.Table.from_batches(waiting)


def is_readable(column: pa.Array | pa.ChunkedArray) -> bool:
    """Whether all texts of a column are UTF-8. Arrow does not look when it reads them."""
    import pyarrow as pa

    try:
        column.validate(full=True)
    except pa.ArrowInvalid:
        return False
    return True
