"""Parquet files below a folder, written batch by batch, with what a table needs to know of each.

A file gets a name that nobody else uses, is written once, whole and durable, and never changed.
Rows with different partition values go to different files.

Tests: ``tests/sinks/test_parquet_files.py``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from uuid_utils import uuid7

from seamark.blobs.contract import Blobs, Buffer

if TYPE_CHECKING:
    import pyarrow as pa

_ROW_GROUP: Final = 32 << 20
"""Bytes of Arrow data that make a row group."""
_MOST_HELD: Final = 256 << 20
"""Bytes that the open files of one task may hold together."""
_PIECE: Final = 8 << 20

Values = tuple[Any, ...]


@dataclass(frozen=True)
class FileLayout:
    """How rows become files. It travels to executors."""

    partition_by: tuple[str, ...] = ()
    leave_out: frozenset[str] = frozenset()
    """Columns that are not written into the files."""
    schema: pa.Schema | None = None
    """What the columns are turned into before they are written; as they come without it."""
    target_size: int = 128 << 20
    """A file is closed when its compressed bytes reach this."""
    compression: str = "snappy"


@dataclass(frozen=True)
class ColumnFacts:
    """What a file holds of one column. The bounds are None where they are not known."""

    nulls: int
    minimum: Any = None
    maximum: Any = None


@dataclass(frozen=True)
class WrittenFile:
    """One file that is there, whole and durable."""

    path: str
    """Its key in the blobs that it was written to."""
    size: int
    rows: int
    partition: Mapping[str, Any] = field(default_factory=dict)
    columns: Mapping[str, ColumnFacts] = field(default_factory=dict)
    """By name, for the columns of the first level that are not nested."""


class FileWriter:
    """Takes batches of rows and writes them as files into a folder, in one process."""

    def __init__(self, blobs: Blobs, folder: str, layout: FileLayout, number: int = 0) -> None:
        self._blobs = blobs
        self._folder = folder
        self._layout = layout
        self._number = number
        self._open: dict[Values, _OpenFile] = {}
        self._written: list[WrittenFile] = []

    def add(self, batch: pa.RecordBatch) -> None:
        """Put these rows into their files."""
        for values, rows in split(batch, self._layout.partition_by):
            key = tuple(map(_as_key, values))
            if key not in self._open:
                self._open[key] = _OpenFile(values, rows, self._layout)
            file = self._open[key]
            file.add(rows)
            if file.is_full:
                self._close(key)
        while sum(file.held for file in self._open.values()) > _MOST_HELD:
            self._close(max(self._open, key=lambda key: self._open[key].held))

    def close(self) -> list[WrittenFile]:
        """Finish all files; what was written."""
        for key in [*self._open]:
            self._close(key)
        return self._written

    def _close(self, key: Values) -> None:
        name = f"{self._folder}/{self._number:05}-{uuid7().hex}.parquet"
        file = self._open.pop(key)
        data, columns = file.finish()
        view = memoryview(data)
        self._blobs.create_stream(name, _pieces(view))
        partition = dict(zip(self._layout.partition_by, file.values, strict=True))
        self._written.append(WrittenFile(name, view.nbytes, file.rows, partition, columns))


class _OpenFile:
    """A file that is still being written, in memory: compressed, but for its last rows."""

    def __init__(self, values: Values, first: pa.RecordBatch, layout: FileLayout) -> None:
        import pyarrow as pa
        import pyarrow.parquet as pq

        self.values = values
        self.rows = 0
        self._layout = layout
        self._names = [name for name in first.schema.names if name not in layout.leave_out]
        schema = first.select(self._names).schema if layout.schema is None else layout.schema
        # its own description of the schema would keep names of time zones and Arrow's types
        self._schema = schema.remove_metadata()
        self._out = pa.BufferOutputStream()
        self._footers: list[pq.FileMetaData] = []
        self._writer = pq.ParquetWriter(
            self._out,
            self._schema,
            compression=layout.compression,
            store_schema=False,
            coerce_timestamps="us",
            metadata_collector=self._footers,
        )
        self._floats = [f.name for f in self._schema if pa.types.is_floating(f.type)]
        self._not_numbers: set[str] = set()
        self._waiting: list[pa.RecordBatch] = []
        self._waiting_bytes = 0

    @property
    def held(self) -> int:
        """Bytes in memory."""
        return self._waiting_bytes + int(self._out.tell())

    @property
    def is_full(self) -> bool:
        """Whether it is as large as a file should be."""
        return int(self._out.tell()) >= self._layout.target_size

    def add(self, batch: pa.RecordBatch) -> None:
        self._waiting.append(batch)
        self._waiting_bytes += batch.nbytes
        self.rows += batch.num_rows
        if self._waiting_bytes >= _ROW_GROUP:
            self._flush()

    def _flush(self) -> None:
        import pyarrow as pa
        import pyarrow.compute as pc

        if not self._waiting:
            return
        table = pa.Table.from_batches(self._waiting).select(self._names)
        if table.schema != self._schema:
            table = table.select(self._schema.names).cast(self._schema)
        for name in self._floats:
            if name not in self._not_numbers and pc.any(pc.is_nan(table[name])).as_py():
                self._not_numbers.add(name)
        self._writer.write_table(table, row_group_size=table.num_rows)
        self._waiting, self._waiting_bytes = [], 0

    def finish(self) -> tuple[pa.Buffer, dict[str, ColumnFacts]]:
        self._flush()
        self._writer.close()
        columns = _facts(self._schema, self._footers[0])
        for name in self._not_numbers:
            # Parquet's bounds leave NaN out, and readers take NaN for the greatest number
            columns[name] = ColumnFacts(columns[name].nulls)
        return self._out.getvalue(), columns


def split(batch: pa.RecordBatch, names: Sequence[str]) -> Iterator[tuple[Values, pa.RecordBatch]]:
    """The rows of a batch by the values of some columns, each in the order they came."""
    import numpy as np

    if not names or not batch.num_rows:
        if batch.num_rows:
            yield (), batch
        return
    codes = np.zeros(batch.num_rows, dtype=np.int64)
    for name in names:
        encoded = batch.column(name).dictionary_encode(null_encoding="encode")
        kinds = max(len(encoded.dictionary), 1)
        codes = codes * kinds + encoded.indices.to_numpy(zero_copy_only=False)
        _, codes = np.unique(codes, return_inverse=True)  # or many columns would overflow
    order = np.argsort(codes, kind="stable")
    edges = np.flatnonzero(np.diff(codes[order])) + 1
    for rows in np.split(order, edges):
        part = batch if len(rows) == batch.num_rows else batch.take(rows)
        yield tuple(_value(part.column(name)[0]) for name in names), part


def _value(scalar: pa.Scalar) -> Any:
    """A value as Python has it, times in UTC.

    Of two hours that a clock shows twice in autumn, Python makes one; and the first day of year 1
    is in no year of Python where clocks are behind UTC.
    """
    import pyarrow as pa

    kind = scalar.type
    if pa.types.is_timestamp(kind) and kind.tz is not None:
        return scalar.cast(pa.timestamp(kind.unit, "UTC")).as_py()
    return scalar.as_py()


def _as_key(value: Any) -> Any:
    """What is equal for the values of one partition: NaN is one, and 0.0 is not -0.0."""
    return repr(value) if isinstance(value, float) else (type(value), value)


def _facts(schema: pa.Schema, footer: Any) -> dict[str, ColumnFacts]:
    facts: dict[str, ColumnFacts] = {}
    leaf = 0
    for column in schema:
        leaves = _leaves(column.type)
        if leaves == 1 and not column.type.num_fields:
            chunks = (footer.row_group(i).column(leaf) for i in range(footer.num_row_groups))
            facts[column.name] = _together([chunk.statistics for chunk in chunks])
        leaf += leaves
    return facts


def _leaves(kind: pa.DataType) -> int:
    if not kind.num_fields:
        return 1
    return sum(_leaves(kind.field(i).type) for i in range(kind.num_fields))


def _together(chunks: Sequence[Any]) -> ColumnFacts:
    """The facts of a column from those of its row groups."""
    nulls = sum(chunk.null_count for chunk in chunks if chunk is not None)
    # a row group of nulls alone has no bounds, and needs none
    bounded = [chunk for chunk in chunks if chunk is None or chunk.num_values]
    if not bounded or not all(chunk is not None and chunk.has_min_max for chunk in bounded):
        return ColumnFacts(nulls)
    try:
        low, high = min(c.min for c in bounded), max(c.max for c in bounded)
    except (OverflowError, ValueError):
        return ColumnFacts(nulls)  # a date that Python cannot hold
    return ColumnFacts(nulls, low, high)


def _pieces(view: memoryview) -> Iterator[Buffer]:
    for start in range(0, view.nbytes, _PIECE):
        yield view[start : start + _PIECE]
