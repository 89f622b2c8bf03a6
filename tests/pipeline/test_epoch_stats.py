"""Percentiles are of the last hundred epochs, and each is a time that was measured."""

from __future__ import annotations

import threading
from dataclasses import FrozenInstanceError

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seamark.pipeline.telemetry.reports import Percentiles, Timings

durations = st.lists(st.floats(0, 1000), min_size=1, max_size=150)


def test_before_the_first_epoch_there_is_nothing_to_tell() -> None:
    assert Timings().percentiles() == {}


def test_one_epoch_is_every_percentile() -> None:
    timings = Timings()
    timings.add({"write": 0.5, "save": 0.25})
    assert timings.percentiles() == {
        "write": Percentiles(0.5, 0.5, 0.5),
        "save": Percentiles(0.25, 0.25, 0.25),
        "total": Percentiles(0.75, 0.75, 0.75),
    }


def test_a_hundred_epochs_give_the_50th_95th_and_99th() -> None:
    timings = Timings()
    for milliseconds in reversed(range(1, 101)):
        timings.add({"write": milliseconds})
    assert timings.percentiles()["write"] == Percentiles(50, 95, 99)


def test_twenty_epochs_give_the_19th_as_p95() -> None:
    timings = Timings()
    for milliseconds in range(1, 21):
        timings.add({"write": milliseconds})
    assert timings.percentiles()["write"] == Percentiles(10, 19, 20)


def test_only_the_last_hundred_epochs_count() -> None:
    timings = Timings()
    for _ in range(50):
        timings.add({"write": 1000.0, "rebuild": 1.0})
    for _ in range(100):
        timings.add({"write": 1.0})
    assert timings.percentiles() == {
        "write": Percentiles(1.0, 1.0, 1.0),
        "total": Percentiles(1.0, 1.0, 1.0),
    }


def test_a_phase_counts_only_the_epochs_that_had_it() -> None:
    timings = Timings()
    for _ in range(99):
        timings.add({"write": 1.0})
    timings.add({"write": 1.0, "retain": 7.0})
    assert timings.percentiles()["retain"] == Percentiles(7.0, 7.0, 7.0)


def test_a_total_that_was_measured_is_kept() -> None:
    timings = Timings()
    timings.add({"write": 1.0, "total": 1.5})
    assert timings.percentiles()["total"].p50 == 1.5


def test_what_was_added_is_not_changed_from_outside() -> None:
    timings = Timings()
    phases = {"write": 1.0}
    timings.add(phases)
    phases["write"] = 9.0
    found = timings.percentiles()["write"]
    assert found.p50 == 1.0
    with pytest.raises(FrozenInstanceError):
        found.p50 = 2.0  # type: ignore[misc]


@given(durations)
def test_every_percentile_was_measured_and_they_are_in_order(measured: list[float]) -> None:
    timings = Timings()
    for seconds in measured:
        timings.add({"write": seconds})
    kept = measured[-100:]
    found = timings.percentiles()["write"]
    assert {found.p50, found.p95, found.p99} <= set(kept)
    assert found.p50 <= found.p95 <= found.p99
    for percent, value in ((50, found.p50), (95, found.p95), (99, found.p99)):
        assert sum(seconds <= value for seconds in kept) * 100 >= percent * len(kept)
        assert sum(seconds < value for seconds in kept) * 100 < percent * len(kept)


def test_threads_may_add_while_others_ask() -> None:
    timings = Timings()
    done = threading.Event()
    seen: list[dict[str, Percentiles]] = []

    def ask() -> None:
        while not done.is_set():
            seen.append(timings.percentiles())

    def add() -> None:
        for _ in range(2000):
            timings.add({"write": 1.0, "save": 2.0})

    asking = threading.Thread(target=ask)
    adding = [threading.Thread(target=add) for _ in range(2)]
    asking.start()
    for thread in adding:
        thread.start()
    for thread in adding:
        thread.join()
    done.set()
    asking.join()
    assert timings.percentiles()["total"] == Percentiles(3.0, 3.0, 3.0)
    assert all(found.get("total", Percentiles(3.0, 3.0, 3.0)).p99 == 3.0 for found in seen)
