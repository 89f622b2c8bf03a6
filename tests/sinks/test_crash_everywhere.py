"""A FileSink is killed at every I/O that it makes, and readers must never see half an epoch.

After each death the disk is looked at as ``kill -9`` leaves it, as a power cut leaves it, and as
unlucky power cuts leave it that kept some of what was not fsynced and lost the rest.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Literal

import pytest

from seamark.sinks import Committable
from seamark.testing.conformance.sink_examples import NEW, OLD, PIPELINE, SINK, epoch
from tests.sinks.support.frames import frame
from tests.sinks.support.hand_written import HandWritten, mount_sinks, rows_on
from tests.support.disk import SimulatedDisk
from tests.support.recording import Crash, Recording
from tests.support.slow_cases import slow_except

When = Literal["after", "torn"]
PATH = "/lake/rows"
UNLUCKY = 2
FIRST, SECOND, THIRD = [1, 2, 3, 4], [5, 6, 7], [8, 9]


@dataclass
class Facts:
    """What a pipeline had been told before the process died."""

    decided: Committable | None = None
    committed: bool = False
    taken_back: bool = False


Scenario = Callable[[Facts], None]


def handle() -> HandWritten:
    return HandWritten(PATH)


def run_epoch(number: int, rows: list[int], attempt: str, timeline: str = OLD) -> None:
    sink = handle()
    sink.stage(frame(rows), epoch(number, timeline), attempt)
    sink.commit(sink.prepare())


def after_an_attempt_that_failed(facts: Facts) -> None:
    sink = handle()
    sink.stage(frame([66, 77]), epoch(2), "a1")
    sink.prepare()
    sink.abort("a1")
    sink.stage(frame([88]), epoch(2), "a2")
    sink.stage(frame(SECOND), epoch(2), "a2")
    facts.decided = sink.prepare()
    sink.commit(facts.decided)
    facts.committed = True


def finished_by_the_next_process(facts: Facts) -> None:
    sink = handle()
    sink.stage(frame(SECOND), epoch(2), "a2")
    facts.decided = sink.prepare()
    handle().commit(facts.decided)
    facts.committed = True
    handle().commit(facts.decided)


@pytest.mark.parametrize("when", slow_except(["after", "torn"], "torn"))
@pytest.mark.parametrize("scenario", [after_an_attempt_that_failed, finished_by_the_next_process])
def test_I2_an_epoch_is_shown_whole_or_not_at_all_after_a_death_at_any_io(
    scenario: Scenario, when: When, monkeypatch: pytest.MonkeyPatch
) -> None:
    def before() -> None:
        run_epoch(1, FIRST, "z1")

    for what, after, facts in deaths(scenario, when, monkeypatch, before):
        allowed = [Counter(FIRST + SECOND)] if facts.committed else [Counter(FIRST)]
        if facts.decided is not None:
            allowed.append(Counter(FIRST + SECOND))
        assert rows_on(after, PATH) in allowed, f"{what}\n{after.tree()}"
        mount_sinks(monkeypatch, after, after.fcntl)
        recover(facts)
        assert rows_on(after, PATH) == Counter(FIRST + SECOND), f"{what}\n{after.tree()}"
        assert handle().leftovers() == [], what
        assert rows_on(after.after_power_cut(), PATH) == Counter(FIRST + SECOND), what
        assert after.open_files() == []


def recover(facts: Facts) -> None:
    """What a pipeline does at its start."""
    sink = handle()
    if facts.decided is not None:
        sink.commit(facts.decided)
    for attempt in sink.leftovers():
        sink.abort(attempt)
    receipt = sink.newest()
    assert receipt is not None
    assert receipt.epoch == (2 if facts.decided else 1)
    if facts.decided is None:
        run_epoch(2, SECOND, "a3")


def one_history() -> None:
    for number, rows in enumerate((FIRST, SECOND, THIRD), 1):
        run_epoch(number, rows, f"z{number}")


def the_same_rolled_back_before() -> None:
    one_history()
    handle().unpublish_after(1)
    run_epoch(2, SECOND, "b2")
    run_epoch(3, THIRD, "b3", NEW)


def a_rollback(facts: Facts) -> None:
    handle().unpublish_after(1)
    facts.taken_back = True


@pytest.mark.slow
@pytest.mark.parametrize("before", [one_history, the_same_rolled_back_before])
def test_taking_back_loses_nothing_and_leaves_no_hole_after_a_death_at_any_io(
    before: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    wholes = [Counter(rows) for rows in (FIRST, FIRST + SECOND, FIRST + SECOND + THIRD)]
    taken = Counter((SECOND + THIRD) * (1 if before is one_history else 2))
    for what, after, facts in deaths(a_rollback, "after", monkeypatch, before):
        shown = rows_on(after, PATH)
        assert shown in wholes, f"{what}\n{after.tree()}"
        if facts.taken_back:
            assert shown == Counter(FIRST), f"{what}\n{after.tree()}"
        mount_sinks(monkeypatch, after, after.fcntl)
        handle().unpublish_after(1)
        for disk in (after, after.after_power_cut()):
            assert rows_on(disk, PATH) == Counter(FIRST), f"{what}\n{disk.tree()}"
            assert rows_put_aside(disk) == taken, f"{what}\n{disk.tree()}"


def rows_put_aside(disk: SimulatedDisk) -> Counter[int]:
    rows: Counter[int] = Counter()
    for timeline in disk.listdir(f"{PATH}/_seamark/unpublished"):
        rows += rows_on(disk, f"{PATH}/_seamark/unpublished/{timeline}")
    return rows


def deaths(
    scenario: Scenario, when: When, monkeypatch: pytest.MonkeyPatch, before: Callable[[], None]
) -> Iterator[tuple[str, SimulatedDisk, Facts]]:
    """Every disk that a death at any I/O of the scenario can leave, and what was known by then."""

    def run(crash_at: int | None) -> tuple[Recording, SimulatedDisk, Facts]:
        disk, facts = SimulatedDisk(), Facts()
        mount_sinks(monkeypatch, disk, disk.fcntl)
        handle().open(PIPELINE, SINK, None)
        before()
        recording = Recording(crash_at=crash_at, when=when)
        mount_sinks(monkeypatch, recording.wrap(disk), recording.wrap(disk.fcntl))
        with suppress(Crash):
            scenario(facts)
        return recording, disk, facts

    recording, disk, facts = run(None)
    assert facts.committed or facts.taken_back, "the scenario comes to its end"
    assert disk.open_files() == []
    for what, after in images(disk, 0):
        yield f"finished, {what}", after, facts
    calls = recording.calls
    for crash_at in range(1, len(calls) + 1):
        if when == "torn" and not calls[crash_at - 1].writes:
            continue  # the same as dying after the one before
        recording, disk, facts = run(crash_at)
        assert recording.crashed
        for what, after in images(disk, crash_at):
            yield f"died {when} {calls[crash_at - 1]} ({crash_at}), {what}", after, facts


def images(disk: SimulatedDisk, seed: int) -> Iterator[tuple[str, SimulatedDisk]]:
    yield "killed", disk.after_kill()
    yield "power cut", disk.after_power_cut()
    for luck in range(UNLUCKY):
        survivors = random.Random(seed * 1000 + luck)
        yield f"unlucky power cut {luck}", disk.after_power_cut(survivors)
