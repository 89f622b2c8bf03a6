"""Stands in for a DataFrame where a test needs rows and no Spark."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, cast

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


class Line(NamedTuple):
    n: int
    word: str


class Frame:
    """Rows with the few methods of a DataFrame that sinks use."""

    schema: Any = None
    columns = ("n", "word")

    def __init__(self, values: Sequence[int], *, fails: bool = False) -> None:
        self._values = values
        self._fails = fails

    def toLocalIterator(self) -> Iterator[Line]:
        for value in self._values:
            yield Line(value, str(value))
        if self._fails:
            raise ArithmeticError("died on the way")

    def collect(self) -> list[Line]:
        return [*self.toLocalIterator()]

    def take(self, count: int) -> list[Line]:
        return self.collect()[:count]


def frame(values: Sequence[int]) -> DataFrame:
    return cast("DataFrame", Frame(values))


def failing_frame(values: Sequence[int]) -> DataFrame:
    return cast("DataFrame", Frame(values, fails=True))
