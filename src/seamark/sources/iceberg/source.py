"""An Iceberg table as a stream: each snapshot's new rows, in order. Without Iceberg's jars.

Tests: ``tests/sources/test_iceberg.py``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, MutableMapping
from typing import Any, Final

from pyspark.sql.types import StructType

from seamark.errors import InvalidInputError
from seamark.sources.iceberg.anchors import anchored
from seamark.sources.iceberg.position import IcebergPosition, parsed
from seamark.sources.iceberg.snapshots import IcebergHistory
from seamark.sources.offsets import Position
from seamark.sources.placed_rows import first_rows, rows_until
from seamark.sources.sequence_reader import Anchored, Placed, PositionRange, Row
from seamark.sources.sequenced import SequencedSource
from seamark.spark.source_gaps import TableAnchor

_CATALOG: Final = "catalog."


class IcebergSource(SequencedSource):
    """The rows that are appended to an Iceberg table, snapshot by snapshot::

        spark.dataSource.register(IcebergSource)
        spark.readStream.format("seamark_iceberg").option("table", "shop.orders").load()

    Options: ``table``; ``catalog`` (default), a name in pyiceberg's own configuration; each
    ``catalog.NAME`` is the property NAME of that catalog; ``starting_snapshot``, the first one
    whose rows are read. A position is the table's UUID, a snapshot, and how far it was read.
    """

    def __init__(self, options: MutableMapping[str, str]) -> None:
        super().__init__(options)
        self._table = options.get("table", "")
        if not self._table:
            raise InvalidInputError("an Iceberg table is read by its name", hint="Set 'table'.")
        first = options.get("starting_snapshot")
        if first is not None and (not first.isdecimal() or len(first) > 19):
            raise InvalidInputError(f"starting_snapshot must be a number, not {first[:40]!r}")
        self._first = None if first is None else int(first)
        self._catalog = options.get("catalog", "default")
        self._properties = {
            key[len(_CATALOG) :]: value
            for key, value in options.items()
            if key.startswith(_CATALOG)
        }
        self._columns: StructType | None = None
        self._last: int | None = None

    @classmethod
    def name(cls) -> str:
        """The format."""
        return "seamark_iceberg"

    def schema(self) -> StructType:
        """The columns of the table."""
        from pyspark.sql.pandas.types import from_arrow_schema

        return from_arrow_schema(self._history().arrow_schema)

    def use_schema(self, schema: StructType) -> None:
        """Remember the columns that rows must have."""
        self._columns = schema

    def _history(self) -> IcebergHistory:
        return IcebergHistory(self._catalog, self._properties, self._table)

    def stop_at_present(self) -> None:
        """Go no further than the current snapshot."""
        snapshots = self._history().snapshots()
        self._last = snapshots[-1].snapshot_id if snapshots else -1

    def read_from(self, position: Position | None, limit: int) -> Iterable[Placed]:
        """Rows from a position on; see :class:`SequencedSource`."""
        yield from first_rows(self._placed_rows(position), limit)

    def read_between(self, start: Position | None, end: Position, limit: int) -> Iterable[Placed]:
        """The same rows again, up to a position of this Seamark or an older one."""
        last = parsed(end)

        def is_end(at: IcebergPosition, counted: int) -> bool:
            return at == last or (at.snapshot, counted) == (last.snapshot, last.rows)

        yield from rows_until(self._placed_rows(start), end, is_end)

    def check(self, position: Position | None) -> PositionRange:
        """Whether the table still has what comes after a position; see :class:`SequencedSource`."""
        history = self._history()
        snapshots = history.snapshots()
        start = None if position is None else parsed(position)
        left = self._left_to_read(history, snapshots, start)
        return PositionRange(
            wanted=str(left[0].snapshot_id) if left else "the next one",
            oldest=str(snapshots[0].snapshot_id) if snapshots else "none",
            newest=str(snapshots[-1].snapshot_id) if snapshots else "none",
        )

    def anchored(self, position: Position | None, anchor: TableAnchor) -> Anchored:
        """The first snapshot that can be read, the end, or a snapshot; see the base class."""
        return anchored(self._history(), None if position is None else parsed(position), anchor)

    def _left_to_read(
        self, history: IcebergHistory, snapshots: list[Any], start: IcebergPosition | None
    ) -> list[Any]:
        """The snapshots that have, or may have, rows that were not read."""
        if start is not None:
            return history.after(snapshots, start)
        if self._first is not None:
            return history.from_snapshot(snapshots, self._first)
        return history.from_the_first(snapshots)

    def _placed_rows(
        self, position: Position | None
    ) -> Iterator[tuple[Row | None, IcebergPosition, int]]:
        """Each row, the position after it, and how many rows of its snapshot that makes.

        A snapshot without new rows is a position without a row.
        """
        history = self._history()
        start = None if position is None else parsed(position)
        names = (self._columns or self.schema()).fieldNames()
        snapshots = history.snapshots()
        if self._last == -1:
            return
        for snapshot in self._left_to_read(history, snapshots, start):
            is_begun = start is not None and start.snapshot == snapshot.snapshot_id
            skip = start.rows if start is not None and is_begun else 0
            yield from _rows_of(history, snapshot, names, skip)
            if snapshot.snapshot_id == self._last:
                return


def _rows_of(
    history: IcebergHistory, snapshot: Any, names: list[str], skip: int
) -> Iterator[tuple[Row | None, IcebergPosition, int]]:
    """The rows of a snapshot after the first few; the last one ends it."""
    number, count = snapshot.snapshot_id, 0
    pending: tuple[Row, IcebergPosition, int] | None = None
    for data_file in history.added_by(snapshot):
        if count + data_file.record_count <= skip:
            count += data_file.record_count
            continue
        for batch in history.batches(data_file):
            for row in _values(batch, names):
                count += 1
                if count <= skip:
                    continue
                if pending is not None:
                    yield pending
                at = IcebergPosition(table_id=history.table_id, snapshot=number, rows=count)
                pending = row, at, count
    end = IcebergPosition(
        table_id=history.table_id,
        snapshot=number,
        is_complete=True,
        sequence=snapshot.sequence_number,
    )
    yield (None if pending is None else pending[0]), end, count


def _values(batch: Any, names: list[str]) -> list[tuple[Any, ...]]:
    columns = [batch.column(name).to_pylist(maps_as_pydicts="strict") for name in names]
    return list(zip(*columns, strict=True))
