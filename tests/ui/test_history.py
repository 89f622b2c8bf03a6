"""Which checkpoints a picture is made of."""

from __future__ import annotations

from typing import Any

import hypothesis
import pytest
from hypothesis import strategies as st

from seamark.store.owner import Owner
from seamark.ui.bounds import MOST_NAMES, MOST_POINTS
from seamark.ui.history import history_document, window_of
from seamark.ui.points import Point
from seamark.ui.store_watch import StoreState

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


def events(
    owner: Owner, points: dict[int, Point], **forks: int
) -> dict[str, list[tuple[int, str]]]:
    """By kind: where it happened, and what is said about it."""
    ids = tuple(sorted(points))
    state = StoreState("/store", owner, ids, frozenset(ids))
    named = {checkpoint: [name] for name, checkpoint in forks.items()}
    found: dict[str, list[tuple[int, str]]] = {}
    for event in history_document(state, window_of(ids, None, None), points, named)["events"]:
        found.setdefault(event["kind"], []).append((event["id"], event["text"]))
    return found


def test_the_first_start_later_recoveries_and_writers_that_lost_the_store_are_events() -> None:
    owner = Owner(generation=5, fences=((1, 1), (4, 2), (7, 5)))
    found = events(owner, {number: Point(number, epoch=number) for number in range(1, 9)})
    assert found["start"] == [(1, "generation 1 began this store")]
    assert [at for at, _ in found["recovery"]] == [4, 7]
    assert found["fence"] == [(7, "generation 3 to 4 claimed it, saved nothing, and is fenced")]


def test_the_first_checkpoint_of_a_fork_and_those_that_were_forked_are_marked() -> None:
    points = {number: Point(number, epoch=number) for number in range(1, 5)}
    points[1] = Point(1, epoch=1, forked_from="/origin@9")
    found = events(Owner(), points, trial=3)
    assert found["fork"] == [(1, "forked from /origin@9"), (3, "forked: trial")]


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


def picture(points: list[Point]) -> dict[str, Any]:
    ids = tuple(point.id for point in points)
    state = StoreState("/store", Owner(), ids, frozenset(ids))
    return history_document(state, window_of(ids, None, None), dict(zip(ids, points, strict=True)))


def test_a_picture_has_so_many_names_and_sums_up_the_rest() -> None:
    """Checkpoints that each name other steps, sources and sinks make no square of their number."""
    points = [
        Point(
            number,
            phases={"commit": 1.0} | {f"{number}.{each}": 0.5 for each in range(MOST_NAMES - 1)},
            lag={f"{number}.{each}": 2 for each in range(MOST_NAMES)},
            rows={f"{number}.{each}": 3 for each in range(MOST_NAMES)} if number > 1 else {},
        )
        for number in range(1, 31)
    ]
    data = picture(points)
    others = 30 * (MOST_NAMES - 1) + 1 - MOST_NAMES
    assert len(data["phases"]) == MOST_NAMES + 1
    assert data["phases"]["commit"] == [1.0] * 30
    assert data["phases"][f"{others} others"][-1] == 0.5 * (MOST_NAMES - 1)
    for column, values in (("lag", [2] * 30), ("rows", [None] + [3] * 29)):
        assert len(data[column]) == MOST_NAMES + 1
        sums = [sum(filter(None, each)) for each in zip(*data[column].values(), strict=True)]
        assert sums == [(value or 0) * MOST_NAMES for value in values]
        assert (
            f"{30 * MOST_NAMES - MOST_NAMES * (2 if column == 'rows' else 1)} others"
            in data[column]
        )
    assert all(each[0] is None for each in data["rows"].values())


def test_names_that_most_checkpoints_have_are_drawn_in_their_usual_order() -> None:
    odd = {f"odd {each}": 1 for each in range(MOST_NAMES)}
    points = [Point(1, rows=odd), Point(2, rows={"b": 1, "a": 1}), Point(3, rows={"b": 1, "a": 1})]
    names = list(picture(points)["rows"])
    assert names == [*list(odd)[: MOST_NAMES - 2], "b", "a", "2 others"]
    assert list(picture(points[1:])["rows"]) == ["b", "a"]


def test_a_sink_of_the_name_of_the_rest_keeps_its_rows() -> None:
    odd = {f"odd {each}": 1 for each in range(MOST_NAMES)}
    data = picture([Point(1, rows=odd), *(Point(n, rows={"1 others": 7}) for n in (2, 3))])
    assert data["rows"]["1 others"] == [None, 7, 7]
    assert data["rows"]["(1 others)"] == [1, None, None]
