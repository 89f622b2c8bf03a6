"""Small sources, good and broken, and a way to drive them as Spark does."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from seamark.sources.offsets import BEGINNING, Offset, Position
from seamark.sources.sequence_reader import Placed, Row, SequenceReader


class Numbers:
    """The rows 0, 1, 2 … of a list that grows; the position is the index of the next one."""

    def __init__(self, rows: Iterable[Any]) -> None:
        self.rows = list(rows)
        self.asked: list[tuple[Position | None, int]] = []
        self.present: int | None = None

    def read_from(self, position: Position | None, limit: int) -> Iterator[Placed]:
        self.asked.append((position, limit))
        first = position or 0
        assert isinstance(first, int)
        upto = len(self.rows) if self.present is None else self.present
        for number in range(first, min(first + limit, upto)):
            yield (number, self.rows[number]), number + 1

    def read_between(
        self, start: Position | None, end: Position, limit: int
    ) -> Iterable[Placed] | None:
        return None

    def stop_at_present(self) -> None:
        self.present = len(self.rows)


class Pages(Numbers):
    """Returns fewer rows than were asked for, as an HTTP feed does."""

    def read_from(self, position: Position | None, limit: int) -> Iterator[Placed]:
        return super().read_from(position, min(limit, 3))


def reader_of(source: Any, max_rows: int = 10) -> SequenceReader:
    """A reader as a new process has it."""
    return SequenceReader(source, "numbers", ["number", "value"], max_rows)


def drained(
    reader: SequenceReader, start: Offset = BEGINNING, limit: int = 1_000
) -> tuple[list[Offset], list[Row]]:
    """Epoch after epoch until there is nothing more: all offsets, and all rows."""
    offsets, rows = [start], list[Row]()
    while (end := reader.end_after(offsets[-1], limit)) != offsets[-1]:
        rows += reader.rows_between(offsets[-1], end)
        offsets.append(end)
    return offsets, rows
