"""Rows of a table's history with the positions after them, cut where an epoch ends.

Tests: ``tests/sources/test_delta_positions.py``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Protocol, TypeVar

from seamark.sources.offsets import Position
from seamark.sources.sequence_reader import Placed, Row


class HistoryPosition(Protocol):
    """A place in the history of a table."""

    def as_json(self) -> Position:
        """What a checkpoint holds."""


P = TypeVar("P", bound=HistoryPosition)


def first_rows(placed: Iterable[tuple[Row | None, P, int]], limit: int) -> Iterator[Placed]:
    """At most so many rows. A position without a row does not count."""
    given = 0
    for row, at, _ in placed:
        yield row, at.as_json()
        given += row is not None
        if given == limit:
            return


def rows_until(
    placed: Iterable[tuple[Row | None, P, int]], end: Position, is_end: Callable[[P, int], bool]
) -> Iterator[Placed]:
    """The rows up to a position. ``is_end`` gets each one, and how many rows of its part it ends.

    The last row has the position as it was asked for, which may be of an older Seamark.
    """
    for row, at, counted in placed:
        if is_end(at, counted):
            yield row, end
            return
        yield row, at.as_json()
