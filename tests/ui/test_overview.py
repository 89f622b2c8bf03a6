"""How a place is, in one word."""

from __future__ import annotations

from dataclasses import replace

import pytest

from seamark.errors import DamageError, StoreUnavailableError
from seamark.store.owner import Owner
from seamark.ui.overview import directory_row, looking, not_answering, store_row, trouble
from seamark.ui.points import Point
from seamark.ui.store_watch import StoreState

NOW = 1_800_000_000.0
CLAIMED = Owner(generation=3, writer="driver-1", released=False, claimed_at_ms=1)


def points(count: int = 10, *, every: float = 5.0, age: float = 2.0) -> dict[int, Point]:
    return {
        number: Point(
            number,
            epoch=number,
            at_ms=int((NOW - age - (count - number) * every) * 1000),
            took=0.1 * number,
            sinks={"bars": "Committed"},
            restore_bytes=1000,
        )
        for number in range(1, count + 1)
    }


def state(known: dict[int, Point], owner: Owner = CLAIMED, alive: bool | None = True) -> StoreState:
    ids = tuple(sorted(known))
    return StoreState("/store", owner, ids, frozenset(ids), alive)


def word(at: StoreState, known: dict[int, Point]) -> str:
    return str(store_row(at, known, NOW)["health"]["word"])


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({}, "running"),
        ({"damage": "SHA-256 differs"}, "damaged"),
        ({"error": "503 Slow Down"}, "unreadable"),
        ({"sinks": {"bars": "Failed"}, "failure": "disk full"}, "failing"),
        ({"sinks": {"bars": "Pending"}}, "running"),
        ({"parent_id": 999}, "damaged"),
    ],
)
def test_the_newest_checkpoint_decides(change: dict[str, object], expected: str) -> None:
    known = points()
    known[10] = replace(known[10], **change)  # type: ignore[arg-type]
    assert word(state(known), known) == expected


def test_damage_that_was_rolled_back_is_no_trouble() -> None:
    known = points()
    known[10] = replace(known[10], damage="SHA-256 differs")
    given_up = Owner(generation=3, released=False, superseded=((10, 10),))
    assert word(state(known, given_up), known) == "running"
    assert store_row(state(known, given_up), known, NOW)["newest"]["id"] == 9


@pytest.mark.parametrize(
    ("owner", "alive", "expected"),
    [
        (CLAIMED, True, "running"),
        (CLAIMED, None, "running"),
        (CLAIMED, False, "writer gone"),
        (Owner(generation=3, released=True), False, "stopped"),
        (Owner(), False, "ok"),
    ],
)
def test_then_its_writer_does(owner: Owner, alive: bool | None, expected: str) -> None:
    known = points()
    assert word(state(known, owner, alive), known) == expected


def test_a_pipeline_that_has_long_said_nothing_is_quiet() -> None:
    late = points(age=101.0)
    assert word(state(late), late) == "quiet"
    slow = points(every=60.0, age=101.0)  # which is nothing unusual here
    assert word(state(slow), slow) == "running"
    few = points(2, age=5000.0)  # nothing tells what is usual
    assert word(state(few), few) == "running"


def test_an_owner_that_cannot_be_read_is_damage_and_no_checkpoint_is_none() -> None:
    assert word(StoreState("/store", damage=DamageError("owner.json is damaged")), {}) == "damaged"
    assert word(StoreState("/store"), {}) == "empty"


def test_the_figures_are_of_the_newest_epochs() -> None:
    known = points()
    row = store_row(state(known), known, NOW)
    assert row["epochs_per_minute"] == 12.0
    assert row["took"]["p50"] == pytest.approx(0.6)
    assert row["took"]["p95"] == pytest.approx(1.0)
    assert row["state_bytes"] == 1000


def test_those_in_trouble_come_first() -> None:
    known = points()
    rows = [
        {"name": "a", **store_row(state(known), known, NOW)},
        {"name": "b", "health": not_answering(StoreUnavailableError("503"))._asdict()},
        {"name": "c", "health": looking()._asdict()},
        {"name": "d", **store_row(StoreState("/d", damage=DamageError("x")), {}, NOW)},
        {"name": "e", **directory_row(None)},
    ]
    assert [row["name"] for row in sorted(rows, key=trouble)] == ["d", "b", "c", "e", "a"]
