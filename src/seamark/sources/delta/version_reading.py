"""The new rows of one version of a Delta table, file by file, each with the position after it.

Tests: ``tests/sources/test_delta_positions.py``.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from pyspark.sql.types import StructType

from seamark.errors import DamageError, PositionUnavailable, RefusedError
from seamark.sources.delta.log import AddedFile, DeltaLog, LogEntry
from seamark.sources.delta.position import DeltaPosition
from seamark.sources.delta.rows import count_of_file, rows_of_file
from seamark.sources.sequence_reader import Row

_LOOKED_FOR: Final = 100


class VersionReading:
    """Reads one version. What was read of it before may have been vacuumed since."""

    def __init__(self, log: DeltaLog, entry: LogEntry, columns: StructType) -> None:
        self._log = log
        self._entry = entry
        self._columns = columns

    def rows_after(
        self, start: DeltaPosition | None
    ) -> Iterator[tuple[Row | None, DeltaPosition, int]]:
        """Each row, the position after it, and how many rows of the version that makes.

        After the last row, or without any, the position is that of a version read to its end.
        """
        files = self._entry.added(self._log.place)
        file, skip, counted = self._first_file(files, start)
        pending: tuple[Row, DeltaPosition, int] | None = None
        for number in range(file, len(files)):
            done = skip if number == file else 0
            for row in self._rows(files[number], done):
                if pending is not None:
                    yield pending
                done, counted = done + 1, counted + 1
                pending = row, self._position(file=number, rows=done), counted
        end = self._position(is_complete=True)
        yield (None, end, counted) if pending is None else (pending[0], end, counted)

    def _position(
        self, *, file: int = 0, rows: int = 0, is_complete: bool = False
    ) -> DeltaPosition:
        return DeltaPosition(
            table_id=self._log.table_id,
            version=self._entry.version,
            entry=self._entry.digest,
            file=file,
            rows=rows,
            is_complete=is_complete,
        )

    def _first_file(
        self, files: list[AddedFile], start: DeltaPosition | None
    ) -> tuple[int, int, int]:
        """The file to go on in, how many rows of it are done, and how many of the version."""
        if start is None:
            return 0, 0, 0
        if start.counted is None:
            return start.file, start.rows, 0
        before = 0
        for number, added in enumerate(files):
            count = self._count(added)
            if before + count > start.counted:
                return number, start.counted - before, start.counted
            before += count
        return len(files), 0, before

    def _count(self, added: AddedFile) -> int:
        try:
            return count_of_file(self._log, added)
        except FileNotFoundError:
            # statistics that deny any rows are not believed: the file may hold unread ones
            if added.rows:
                return added.rows
            raise self._gone(added) from None

    def _rows(self, added: AddedFile, done: int) -> Iterator[Row]:
        try:
            yield from rows_of_file(self._log, added, self._columns, done)
        except FileNotFoundError:
            raise self._gone(added) from None

    def _gone(self, added: AddedFile) -> PositionUnavailable:
        return _gone(self._log, self._entry.version, added)


def require_files(log: DeltaLog, entry: LogEntry, start: DeltaPosition | None) -> None:
    """:class:`PositionUnavailable` when a file of a version that is read next is gone.

    Only the first hundred are looked for: each is a request. A reader finds what is missing beyond.
    """
    begun = start is not None and start.version == entry.version
    if begun and start is not None and start.counted is not None:
        return  # only reading tells which files are done
    done = start.file if begun and start is not None else 0
    try:
        files = entry.added(log.place)[done : done + _LOOKED_FOR]
    except (RefusedError, DamageError):
        return  # nothing is gone; whoever reads the version says what is wrong with it
    if (gone := log.first_missing([added.path for added in files])) is not None:
        raise _gone(log, entry.version, files[gone])


def _gone(log: DeltaLog, version: int, added: AddedFile) -> PositionUnavailable:
    return log.gone(
        version,
        "a file that a version of the Delta table has added is gone",
        f"The table was vacuumed before {added.path} was read. Restore the file, or start over "
        "with a new store.",
    )
