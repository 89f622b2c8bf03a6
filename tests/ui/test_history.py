"""Which checkpoints a picture is made of."""

from __future__ import annotations

import hypothesis
import pytest
from hypothesis import strategies as st

from seamark.ui.bounds import MOST_POINTS
from seamark.ui.history import window_of

ALL = tuple(range(1, 10_001))


def test_a_picture_of_everything_is_made_of_few_checkpoints() -> None:
    window = window_of(ALL, 1, 10_000)
    assert (window.first, window.last, window.total) == (1, 10_000, 10_000)
    assert MOST_POINTS // 8 < len(window.drawn) <= MOST_POINTS
    assert window.drawn[-1] == 10_000


def test_by_default_a_picture_shows_the_newest_end() -> None:
    window = window_of(ALL, None, None)
    assert window.drawn == [*range(10_001 - MOST_POINTS, 10_001)]


def test_pinned_ones_are_drawn_whatever_lies_around_them() -> None:
    assert {777, 4242} <= set(window_of(ALL, 1, 10_000, marked={777, 4242}).drawn)


def test_looking_again_when_more_have_come_needs_few_other_manifests() -> None:
    """A thinned picture stays on the same checkpoints, so that they need not be read again."""
    before = set(window_of(ALL, 1, 10_000).drawn)
    after = set(window_of((*ALL, 10_001, 10_002), 1, 10_002).drawn)
    assert len(after - before) <= 2


@pytest.mark.parametrize(("first", "last"), [(20_000, 30_000), (None, 0), (5, 4)])
def test_a_window_without_checkpoints_is_empty(first: int | None, last: int) -> None:
    assert window_of(ALL, first, last).drawn == []


@hypothesis.given(
    st.sets(st.integers(1, 2**63 - 1), max_size=300),
    st.integers(1, 2**63 - 1) | st.none(),
    st.integers(1, 2**63 - 1) | st.none(),
    st.sets(st.integers(1, 2**63 - 1), max_size=20),
)
def test_any_window_is_bounded_and_in_order(
    ids: set[int], first: int | None, last: int | None, marked: set[int]
) -> None:
    window = window_of(sorted(ids), first, last, marked=marked, most=20)
    assert window.drawn == sorted(set(window.drawn))
    assert len(window.drawn) <= 20
    assert set(window.drawn) <= ids
    assert all(window.first <= i <= window.last for i in window.drawn)
