"""Which column of the state belongs to which function: certain, or refused. Pure."""

from __future__ import annotations

import pytest

from seamark.errors import RefusedError
from seamark.pipeline.declaration.aggregate_columns import (
    Column,
    FunctionsChange,
    column_origins,
)

COUNT = [Column("count", "long")]
SUM = [Column("sum", "double")]
AVERAGE = [Column("sum", "double"), Column("count", "long")]
MAX = [Column("max", "integer")]


def change(before: str, after: str) -> FunctionsChange:
    return FunctionsChange(0, tuple(before.split()), tuple(after.split()))


def test_a_new_function_gets_no_column_of_another_one() -> None:
    assert column_origins(change("n", "m n"), COUNT, [MAX, COUNT]) == [None, 0]
    assert column_origins(change("a n", "n m a"), [*AVERAGE, *COUNT], [COUNT, MAX, AVERAGE]) == [
        2,
        None,
        0,
        1,
    ]


def test_what_a_removed_function_kept_is_left_out_however_many_columns_that_are() -> None:
    had = [*COUNT, *AVERAGE, *MAX]
    assert column_origins(change("n a m", "n m"), had, [COUNT, MAX]) == [0, 3]
    assert column_origins(change("a n m", "m"), [*AVERAGE, *COUNT, *MAX], [MAX]) == [3]


@pytest.mark.parametrize(
    ("before", "after", "had", "has"),
    [
        # of two that go, nobody knows how many columns each had
        ("n x m y", "n m", [*COUNT, *AVERAGE, *MAX, *SUM], [COUNT, MAX]),
        # a column has another type or name than the function would keep
        ("n m", "n x", [*COUNT, *SUM], [SUM, MAX]),
        # there are too many or too few columns
        ("n", "n m", [*COUNT, *SUM], [COUNT, MAX]),
        ("n m", "n", COUNT, [COUNT]),
        # Spark computes another number of functions
        ("n", "n m", COUNT, [COUNT]),
    ],
)
def test_what_is_not_certain_is_refused(
    before: str, after: str, had: list[Column], has: list[list[Column]]
) -> None:
    with pytest.raises(RefusedError, match="it is not certain which columns"):
        column_origins(change(before, after), had, has)
