"""Rows of one key with the same order_by: only those that are greatest contradict each other."""

from __future__ import annotations

import itertools
import subprocess
import sys

import pytest

from seamark.errors import RefusedError
from tests.sinks.support.views import Row, World, told

BELOW: list[Row] = [
    {"n": 1, "rank": 1, "v": "a"},
    {"n": 1, "rank": 1, "v": "b"},
    {"n": 1, "rank": 2, "v": "c"},
]


def test_a_tie_below_the_greatest_is_of_no_matter(world: World) -> None:
    sink = world.handle(order_by="rank")
    for number, rows in enumerate(itertools.permutations(BELOW), start=1):
        world.show(sink, told(number), *rows)
        assert world.rows() == {"1": BELOW[2]}


def test_a_tie_below_a_delete_is_of_no_matter(world: World) -> None:
    sink = world.handle(order_by="rank", delete_where="gone")
    world.show(sink, told(1), {"n": 1, "rank": 0}, {"n": 2, "rank": 0})
    world.show(sink, told(2), *BELOW[:2], {"n": 1, "rank": 2, "gone": True})
    assert world.rows().keys() == {"2"}


@pytest.mark.parametrize(
    "more",
    [
        [{"n": 1, "rank": 2, "v": "d"}],
        [{"n": 1, "rank": 2, "v": "d"}, {"n": 1, "rank": 2, "v": "d"}],
        [{"n": 1, "rank": 2, "v": "c", "gone": True}],
        [{"n": 2, "rank": 1, "v": "a"}, {"n": 2, "rank": 1, "v": "b"}],
    ],
    ids=["another value", "that comes twice", "a delete", "of another key"],
)
def test_a_tie_of_the_greatest_is_refused_in_whatever_order_rows_come(
    world: World, more: list[Row]
) -> None:
    sink = world.handle(order_by="rank", delete_where="gone")
    for rows in itertools.permutations([BELOW[2], BELOW[0], *more]):
        with pytest.raises(RefusedError, match=r"two different rows .* with the same order_by"):
            world.prepare(sink, told(1), *rows)
    assert world.rows() == {}


def test_a_greatest_row_that_comes_twice_as_it_is_counts_once(world: World) -> None:
    world.show(world.handle(order_by="rank"), told(1), *BELOW, BELOW[2])
    assert world.rows() == {"1": BELOW[2]}


# without what only writing needs

HIDDEN = """
import sys
sys.modules["pyarrow"] = None
from seamark.sinks import KeyValueSink
print(KeyValueSink("rocksdb:///data/view", key="n", undo=True).describe().kind)
"""


def test_a_view_can_be_described_where_pyarrow_is_not_installed() -> None:
    done = subprocess.run(
        [sys.executable, "-c", HIDDEN], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout.split(), done.stderr) == (0, ["key-value"], "")
