"""Epochs out of a source that knows positions: read ahead once, and exactly the same rows again.

Pure Python, without Spark: :mod:`seamark.sources.spark_reader` is the shell around it.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

from seamark.errors import InvalidInputError, PositionUnavailable, RefusedError
from seamark.sources.offsets import Offset, Position, checked_position, digest_after

Row = tuple[Any, ...]
Placed = tuple[Row | None, Position]
"""A row and the position after it. Without a row: there is nothing in front of that position."""


@dataclass(frozen=True, kw_only=True)
class PositionRange:
    """What comes next and what an origin has, as its users call these places."""

    wanted: str
    oldest: str
    newest: str


@dataclass(frozen=True, kw_only=True)
class Anchored:
    """Where reading goes on when what comes next is gone."""

    position: Position
    wanted: str
    """The place that is gone, as the users of the origin call it."""
    goes_on: str
    """The place that the position stands for."""


class Readable(Protocol):
    """What the author of a source writes."""

    def read_from(self, position: Position | None, limit: int) -> Iterable[Placed]:
        """Rows from a position on, each with the position after it."""

    def read_between(
        self, start: Position | None, end: Position, limit: int
    ) -> Iterable[Placed] | None:
        """Rows that were read before, or None to have them read by ``read_from``."""

    def stop_at_present(self) -> None:
        """Behave from now on as if nothing were added any more."""


@dataclass(frozen=True)
class PlannedRows:
    """Rows between two offsets."""

    start: Offset
    end: Offset
    rows: list[Row]


class SequenceReader:
    """Cuts a source into epochs and holds the rows of the newest one, never of more.

    After a read without rows the source is left in peace for ``pause`` seconds.
    """

    def __init__(
        self,
        source: Readable,
        name: str,
        columns: Sequence[str],
        max_rows: int,
        pause: float = 0.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._source = source
        self._name = name
        self._columns = columns
        self._max_rows = max_rows
        self._pause = pause
        self._clock = clock
        self._ahead: PlannedRows | None = None
        self._ends = False
        self._quiet_until = float("-inf")

    def stop_at_present(self) -> None:
        """Come to an end: from the first read without rows on, there are no more."""
        self._ends = True
        self._quiet_until = float("-inf")
        self._source.stop_at_present()

    def end_after(self, start: Offset, limit: int | None) -> Offset:
        """Where the next epoch ends: ``start`` itself when there is nothing to read.

        ``limit`` None reads on until there is nothing more.
        """
        if self._ahead is not None and self._ahead.start == start:
            return self._ahead.end  # Spark asks again when an epoch was not begun
        if self._clock() < self._quiet_until:
            return start
        most = None if limit is None else min(limit, self._max_rows)
        epoch = self._read(start, most)
        if epoch.end == start:
            self._quiet_until = float("inf") if self._ends else self._clock() + self._pause
            return start
        self._ahead = epoch
        return epoch.end

    def rows_between(self, start: Offset, end: Offset) -> list[Row]:
        """The rows of an epoch, read ahead or once more.

        Raises :class:`PositionUnavailable` when some are gone, and :class:`RefusedError` when
        they are not the rows that made the digest: never fewer rows, never others.
        """
        if start == end:
            return []
        ahead = self._ahead
        if ahead is not None and (ahead.start, ahead.end) == (start, end):
            return ahead.rows
        if (end.sequence, end.digest) == (start.sequence, start.digest):
            return []  # the position has moved over something that has no rows
        if end.sequence <= start.sequence or end.position is None:
            raise RefusedError(
                f"source {self._name!r} cannot be read backwards",
                where=f"from row {start.sequence} to row {end.sequence}",
                hint="The checkpoint's offsets are not those of one stream.",
            )
        self._ahead = None  # one epoch in memory, not two
        return self._read_again(start, end, end.position)

    def _read(self, start: Offset, limit: int | None) -> PlannedRows:
        growing = _Growing(self._name, self._columns, start)
        while True:
            most = self._max_rows if limit is None else limit
            before = len(growing.rows)
            growing.take(self._source.read_from(growing.position, most), most)
            if limit is not None or len(growing.rows) == before:
                return growing.epoch()

    def _read_again(self, start: Offset, end: Offset, last: Position) -> list[Row]:
        count = end.sequence - start.sequence
        growing = _Growing(self._name, self._columns, start, last)
        between = self._source.read_between(start.position, last, count + 1)
        if between is not None:
            growing.take(between, count + 1)
        else:
            while len(growing.rows) < count and not growing.has_ended:
                before = len(growing.rows)
                most = count - before
                growing.take(self._source.read_from(growing.position, most), most)
                if len(growing.rows) == before:
                    break
        rows_read = growing.epoch()
        self._compare(rows_read, end, count)
        return rows_read.rows

    def _compare(self, rows_read: PlannedRows, end: Offset, count: int) -> None:
        start, got = rows_read.start, len(rows_read.rows)
        span = f"rows {start.sequence + 1} to {end.sequence}, up to position {end.position!r}"
        if got < count:
            raise PositionUnavailable(
                f"source {self._name!r} no longer has {count - got} of {count} rows that an "
                "epoch was made of",
                where=span,
                hint=_HINT,
                source=self._name,
                requested=_bytes(start.position),
            )
        hint = _HINT
        if got > count:
            differs = "there are more rows now than there were when they were read first"
        elif rows_read.end.position != end.position:
            differs = f"the last of them is now followed by position {rows_read.end.position!r}"
        elif rows_read.end.digest != end.digest and not self._has_only_new_columns(rows_read, end):
            differs = (
                f"their SHA-256 was {end.digest[:12]}… and is {rows_read.end.digest[:12]}… now, "
                f"with the columns {', '.join(self._columns)}"
            )
            hint = f"{_HINT} {_COLUMNS_HINT}"
        else:
            return
        raise RefusedError(
            f"source {self._name!r} returns other rows than the epoch was made of: {differs}",
            where=span,
            hint=hint,
        )

    def _has_only_new_columns(self, rows_read: PlannedRows, end: Offset) -> bool:
        """Whether the rows are the same but for columns that were added behind the others."""
        for width in range(len(self._columns) - 1, 0, -1):
            digest = bytes.fromhex(rows_read.start.digest)
            for row in rows_read.rows:
                digest = digest_after(digest, row[:width])
            if digest.hex() == end.digest:
                return True
        return False


class _Growing:
    """Rows as they come, numbered, placed and hashed."""

    def __init__(
        self, name: str, columns: Sequence[str], start: Offset, last: Position | None = None
    ) -> None:
        self._name = name
        self._columns = columns
        self._start = start
        self._last = last
        self.rows: list[Row] = []
        self.position = start.position
        self._digest = bytes.fromhex(start.digest)

    @property
    def has_ended(self) -> bool:
        """Whether the position has come up at which the rows ended the first time."""
        return self._last is not None and self.position == self._last

    def take(self, placed: Iterable[Placed], limit: int) -> None:
        """Take at most so many rows."""
        rows = iter(placed)
        most = len(self.rows) + limit
        try:
            for row, position in self._pairs(rows):
                if row is None:
                    if self._start.sequence or self.rows:  # the beginning has no position
                        self.position = checked_position(position)
                    if self.has_ended:
                        break
                    continue
                if len(row) != len(self._columns):
                    raise InvalidInputError(
                        f"source {self._name!r} returned a row of {len(row)} values for "
                        f"{len(self._columns)} columns"
                    )
                after = checked_position(position)
                if after == self.position:
                    raise InvalidInputError(
                        f"source {self._name!r} returned two rows with the position {after!r} "
                        "after them",
                        hint="The position after a row must be a different one for each row.",
                    )
                self._digest = digest_after(self._digest, row)
                self.rows.append(row)
                self.position = after
                if self.has_ended or len(self.rows) == most:
                    break
        finally:
            close = getattr(rows, "close", None)  # a generator may hold a file or a cursor
            if close is not None:
                close()

    def _pairs(self, items: Iterator[Any]) -> Iterator[Placed]:
        for item in items:
            is_pair = isinstance(item, tuple) and len(item) == _PAIR
            if is_pair and isinstance(item[0], tuple | list):
                row, position = item
                # a Row with names is assigned by name, as Spark does
                named = hasattr(row, "__fields__")
                yield tuple(row[name] for name in self._columns) if named else tuple(row), position
            elif is_pair and item[0] is None:
                yield item
            else:
                raise InvalidInputError(
                    f"read_from() of source {self._name!r} must return pairs of a row (a tuple) "
                    f"and the position after it, not {item!r:.100}"
                )

    def epoch(self) -> PlannedRows:
        """What has come so far."""
        start = self._start
        if not self.rows and self.position == start.position:
            return PlannedRows(start, start, [])
        end = Offset(start.sequence + len(self.rows), self.position, self._digest.hex())
        return PlannedRows(start, end, self.rows)


def _bytes(position: Position | None) -> bytes:
    return json.dumps(position).encode()


_PAIR: Final = 2
_HINT: Final = (
    "Bring the rows back as they were: the epoch runs again on exactly those. If they are gone for "
    "good, start over: a new store, and new targets of the sinks."
)
_COLUMNS_HINT: Final = (
    "If a column was added between others, removed or changed: have the table as it was until the "
    "epoch has run."
)
