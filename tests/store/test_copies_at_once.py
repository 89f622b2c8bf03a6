"""Two copies of one store to one place at once, as of nightly jobs: neither harms the other."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any

import pytest

from seamark.errors import FencedError, SeamarkError
from seamark.store import CheckpointStore
from seamark.store.copy.plan import plan_copy
from seamark.store.copy.run import copy_checkpoints
from tests.pipeline.support.forks import Origin
from tests.store.support.copies import problems, save
from tests.store.support.interleaving import Kind, Place, Seat
from tests.support.recording import Crash

KINDS: list[Kind] = ["object", "locked"]
Fill = Callable[[CheckpointStore], object]


def with_sidecar(store: CheckpointStore) -> None:
    store.claim(pipeline="orders")
    save(store, 1)


def with_objects(store: CheckpointStore) -> None:
    Origin(store).add()


def die() -> None:
    raise Crash


@pytest.mark.parametrize("later", [1, 2])
@pytest.mark.parametrize("fill", [with_sidecar, with_objects])
@pytest.mark.parametrize("kind", KINDS)
def test_what_one_copy_has_brought_stays_whole_when_the_other_one_dies(
    kind: Kind, fill: Fill, later: int
) -> None:
    for at in range(1, 100):
        source, place = Place("object"), Place(kind)
        fill(source.store())
        seat, over = place.seat(), list[object]()

        def overtake(
            source: Place = source, place: Place = place, seat: Seat = seat, over: Any = over
        ) -> None:
            over += copy_checkpoints(source.store(), place.store())
            seat.arm(later, die)

        seat.arm(at, overtake)
        with suppress(Crash, SeamarkError):
            copy_checkpoints(source.store(), place.store(seat))
        seat.disarm()
        if not over:
            assert at > 10, "it was hardly ever overtaken"
            return
        assert problems(place.store(), [1]) == [], at
    raise AssertionError("it never came to an end")


@pytest.mark.parametrize("fill", [with_sidecar, with_objects])
@pytest.mark.parametrize("kind", KINDS)
def test_a_copy_that_another_one_overtakes_says_so(kind: Kind, fill: Fill) -> None:
    fenced = 0
    for at in range(1, 100):
        source, place = Place("object"), Place(kind)
        fill(source.store())
        seat = place.seat()
        seat.arm(at, partial(copy_checkpoints, source.store(), place.store()))
        try:
            copy_checkpoints(source.store(), place.store(seat))
        except FencedError as error:
            assert "copied" in error.what
            fenced += 1
        if seat.disarm():
            assert fenced > 10, "it was hardly ever overtaken"
            return
        assert problems(place.store(), [1]) == [], at
    raise AssertionError("it never came to an end")


def test_what_another_copy_has_brought_meanwhile_is_not_called_strange() -> None:
    """The source has saved it after this copy began."""
    for at in range(1, 100):
        source, place = Place("object"), Place("object")
        with_sidecar(source.store())
        copy_checkpoints(source.store(), place.store())

        def go_on(source: Place = source, place: Place = place) -> None:
            writer = source.store()
            writer.claim(pipeline="orders")
            save(writer, 2)
            copy_checkpoints(source.store(), place.store())

        seat = place.seat()
        seat.arm(at, go_on)
        plan_copy(source.store(), place.store(seat))
        if seat.disarm():
            assert at > 3, "almost nothing was read"
            return
    raise AssertionError("it never came to an end")
