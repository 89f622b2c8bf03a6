"""A row of values whose changed copies share what is the same in both.

Tests: ``tests/state/test_shared_rows.py``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final, Generic, TypeVar

T = TypeVar("T")

WIDTH: Final = 64
"""Values in one chunk. A change of one value copies its chunk and the list of all chunks."""


class Chunk(Generic[T]):
    """Values next to each other. Two are equal only if they are the same object."""

    __slots__ = ("values",)

    def __init__(self, values: tuple[T | None, ...]) -> None:
        self.values = values


class SharedRow(Generic[T]):
    """Values by number, None where there is none. It never changes.

    >>> row = SharedRow[str]().changed({0: "a", 200: "b"})
    >>> other = row.changed({0: None})
    >>> row[0], other[0], other[200], other.chunks[3] is row.chunks[3]
    ('a', None, 'b', True)
    """

    __slots__ = ("chunks",)

    def __init__(self, chunks: tuple[Chunk[T], ...] = ()) -> None:
        self.chunks = chunks

    def __getitem__(self, number: int) -> T | None:
        place, offset = divmod(number, WIDTH)
        return self.chunks[place].values[offset] if place < len(self.chunks) else None

    def changed(self, changes: Mapping[int, T | None]) -> SharedRow[T]:
        """A row with these values instead of those it has."""
        by_chunk: dict[int, dict[int, T | None]] = {}
        for number, value in changes.items():
            place, offset = divmod(number, WIDTH)
            by_chunk.setdefault(place, {})[offset] = value
        chunks = [*self.chunks]
        missing = max(by_chunk, default=-1) + 1 - len(chunks)
        chunks += [Chunk((None,) * WIDTH)] * missing
        for place, inside in by_chunk.items():
            values = [*chunks[place].values]
            for offset, value in inside.items():
                values[offset] = value
            chunks[place] = Chunk(tuple(values))
        return SharedRow(tuple(chunks))

    def items(self) -> Iterator[tuple[int, T]]:
        """Every value with its number, in order."""
        for place, chunk in enumerate(self.chunks):
            for offset, value in enumerate(chunk.values):
                if value is not None:
                    yield place * WIDTH + offset, value
