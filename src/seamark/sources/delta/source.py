"""A Delta table as a stream: each version's new rows, in order. Without Delta's jars.

Tests: ``tests/sources/test_delta.py``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, MutableMapping
from typing import Final

from pyspark.sql.types import StructType

from seamark.errors import InvalidInputError
from seamark.sources.delta.anchors import anchored
from seamark.sources.delta.log import DeltaLog
from seamark.sources.delta.position import DeltaPosition, parsed, require_readable
from seamark.sources.delta.version_reading import VersionReading, require_files
from seamark.sources.offsets import Position
from seamark.sources.placed_rows import first_rows, rows_until
from seamark.sources.sequence_reader import Anchored, Placed, PositionRange, Row
from seamark.sources.sequenced import SequencedSource
from seamark.spark.source_gaps import TableAnchor
from seamark.table_formats.delta_addresses import is_known_address, unknown_address

_STORAGE: Final = "storage."


class DeltaSource(SequencedSource):
    """The rows that are appended to a Delta table, version by version::

        spark.dataSource.register(DeltaSource)
        spark.readStream.format("seamark_delta").option("path", "s3://lake/orders").load()

    Options: ``path``; ``starting_version`` (0), the first version whose rows are read; each
    ``storage.NAME`` goes to ``deltalake`` as the storage option NAME. A position is the table's id,
    a version, a digest of its log entry, and how far that version was read.
    """

    def __init__(self, options: MutableMapping[str, str]) -> None:
        super().__init__(options)
        self._path = options.get("path", "")
        if not self._path:
            raise InvalidInputError("a Delta table is read by its path", hint="Set option 'path'.")
        if not is_known_address(self._path):
            raise unknown_address(self._path)
        first = options.get("starting_version", "0")
        if not first.isdecimal() or len(first) > 18:
            raise InvalidInputError(f"starting_version must be a number, not {first[:40]!r}")
        self._first = int(first)
        self._storage = {
            key[len(_STORAGE) :]: value
            for key, value in options.items()
            if key.startswith(_STORAGE)
        }
        self._columns: StructType | None = None
        self._last: int | None = None

    @classmethod
    def name(cls) -> str:
        """The format."""
        return "seamark_delta"

    def schema(self) -> StructType:
        """The columns of the table's newest version."""
        return StructType.fromJson(self._log().schema)

    def use_schema(self, schema: StructType) -> None:
        """Remember the columns that rows must have."""
        self._columns = schema

    def _log(self) -> DeltaLog:
        return DeltaLog(self._path, self._storage)

    def stop_at_present(self) -> None:
        """Go no further than the newest version of now."""
        self._last = self._log().newest

    def read_from(self, position: Position | None, limit: int) -> Iterable[Placed]:
        """Rows from a position on; see :class:`SequencedSource`."""
        yield from first_rows(self._placed_rows(position), limit)

    def read_between(self, start: Position | None, end: Position, limit: int) -> Iterable[Placed]:
        """The same rows again, up to a position of this Seamark or an older one."""
        last = parsed(end)

        def is_end(at: DeltaPosition, counted: int) -> bool:
            return at == last or (at.version, counted) == (last.version, last.counted)

        yield from rows_until(self._placed_rows(start), end, is_end)

    def check(self, position: Position | None) -> PositionRange:
        """Whether the table still has what comes after a position; see :class:`SequencedSource`."""
        log = self._log()
        version, start = self._first, None
        if position is not None:
            start = parsed(position)
            require_readable(start, log)
            version = start.next_version
        if version <= log.newest:
            require_files(log, log.entry_to_read(version), start)
        oldest = log.oldest
        return PositionRange(
            wanted=str(version),
            oldest="none" if oldest is None else str(oldest),
            newest=str(log.newest),
        )

    def anchored(self, position: Position | None, anchor: TableAnchor) -> Anchored:
        """The first version that can be read, the end, or a version; see the base class."""
        return anchored(self._log(), None if position is None else parsed(position), anchor)

    def _placed_rows(
        self, position: Position | None
    ) -> Iterator[tuple[Row | None, DeltaPosition, int]]:
        """Each row, the position after it, and how many rows of its version that makes.

        A version without rows is a position without a row.
        """
        log = self._log()
        start = None if position is None else parsed(position)
        if start is not None:
            require_readable(start, log)
        version = self._first if start is None else start.next_version
        newest = log.newest if self._last is None else min(log.newest, self._last)
        columns = self._columns or self.schema()
        for number in range(version, newest + 1):
            before = start if start is not None and start.version == number else None
            reading = VersionReading(log, log.entry_to_read(number), columns)
            yield from reading.rows_after(before)
