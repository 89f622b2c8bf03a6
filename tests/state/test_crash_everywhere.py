"""Every operation on state is killed at every I/O that it makes, and the store comes out whole.

The I/Os are those that a recording around ``os``, ``fcntl`` and ``obstore`` sees; none is placed by
hand. After each death the disk is looked at as ``kill -9`` leaves it, as a power cut leaves it, and
as an unlucky power cut leaves it that kept some of what was not fsynced and lost the rest. Then the
next process goes on, and the power is cut once more.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Literal

import obstore
import pytest
from obstore.store import MemoryStore

from seamark.blobs import object_store
from seamark.blobs.contract import Blobs
from seamark.blobs.filesystem import FilesystemBlobs
from seamark.blobs.object_store import ObjectBlobs
from tests.state.support.scenarios import SCENARIOS, Facts, Scenario, violations
from tests.support.disk import SimulatedDisk
from tests.support.mounting import mount
from tests.support.recording import Crash, Recording
from tests.support.slow_cases import slow_except

When = Literal["before", "after", "torn"]


def open_local() -> Blobs:
    return FilesystemBlobs("/store")


# a dead process closes nothing, also not when Python lets go of a generator
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.sampled(8)
@pytest.mark.parametrize("when", ["after", "torn"])
@pytest.mark.parametrize(
    "scenario", slow_except(SCENARIOS, "a first commit", "a prune", name=lambda s: s.name)
)
def test_state_is_whole_after_a_death_at_any_io_on_a_disk(
    scenario: Scenario, when: When, monkeypatch: pytest.MonkeyPatch
) -> None:
    prepared, before = SimulatedDisk(), Facts()
    mount(monkeypatch, prepared, prepared.fcntl)
    scenario.prepare(open_local, before)

    def run(crash_at: int | None) -> tuple[Recording, SimulatedDisk, Facts]:
        disk, facts = prepared.after_kill(), before.copied()
        recording = Recording(crash_at=crash_at, when=when)
        mount(monkeypatch, recording.wrap(disk), recording.wrap(disk.fcntl))
        die(lambda: scenario.act(open_local, facts))
        return recording, disk, facts

    whole = run(None)
    total, looked_at = len(whole[0].calls), 0
    known: list[object] = []
    for crash_at in range(1, total + 2):  # the last one dies after the end
        if crash_at <= total and when == "torn" and not whole[0].calls[crash_at - 1].writes:
            continue  # the same as dying before it
        recording, disk, facts = run(crash_at) if crash_at <= total else whole
        assert recording.crashed or crash_at > total, f"no crash at I/O {crash_at} of {total}"
        last = recording.calls[-1]
        if last.only_reads and crash_at <= total:
            continue  # the disk is as the death before has left it
        looked_at += 1
        for what, after in images(disk, crash_at):
            durable = after.after_power_cut()
            left = after.tree(), after.files(), durable.tree(), durable.files(), facts
            if left in known:
                continue  # to the last byte what an earlier death has left
            known.append(left)
            seen = facts.copied()
            found = look(after, seen, monkeypatch, go_on=True)
            assert not found, f"died {when} {last}, {what}: {found}\n{after.tree()}"
            cut = after.after_power_cut()
            found = look(cut, seen, monkeypatch, go_on=False)
            assert not found, (
                f"died {when} {last}, {what}, then another process worked on and the power was "
                f"cut: {found}\n{cut.tree()}"
            )
    assert looked_at >= (5 if when == "after" else 1)


def look(
    disk: SimulatedDisk, facts: Facts, monkeypatch: pytest.MonkeyPatch, *, go_on: bool
) -> list[str]:
    mount(monkeypatch, disk, disk.fcntl)
    return list(violations(open_local, facts, go_on=go_on, restore=go_on))


def images(disk: SimulatedDisk, seed: int) -> Iterator[tuple[str, SimulatedDisk]]:
    yield "killed", disk.after_kill()
    yield "power cut", disk.after_power_cut()
    yield "unlucky power cut", disk.after_power_cut(random.Random(seed))


def die(act: Callable[[], None]) -> None:
    with suppress(Crash):
        act()


@pytest.mark.sampled(10)
@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize(
    "scenario",
    slow_except(SCENARIOS, "an incremental commit", "a prune of a chain", name=lambda s: s.name),
)
def test_state_is_whole_after_a_death_at_any_request_to_an_object_store(
    scenario: Scenario, when: When, monkeypatch: pytest.MonkeyPatch
) -> None:
    def run(crash_at: int | None) -> tuple[Recording, Callable[[], Blobs], Facts]:
        bucket, facts = MemoryStore(), Facts()

        def open_remote() -> Blobs:
            return ObjectBlobs(bucket, "test")

        monkeypatch.setattr(object_store, "obstore", obstore)
        scenario.prepare(open_remote, facts)
        recording = Recording(crash_at=crash_at, when=when)
        monkeypatch.setattr(object_store, "obstore", recording.wrap(obstore, kind="obstore"))
        die(lambda: scenario.act(open_remote, facts))
        monkeypatch.setattr(object_store, "obstore", obstore)
        return recording, open_remote, facts

    total = len(run(None)[0].calls)
    assert total >= 1
    for crash_at in range(1, total + 1):
        recording, open_remote, facts = run(crash_at)
        assert recording.crashed, f"{scenario.name}: no crash at request {crash_at} of {total}"
        found = list(violations(open_remote, facts))
        assert not found, f"died {when} {recording.calls[-1]}: {found}"


def test_a_death_in_a_thread_that_uploads_reaches_the_caller(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bucket = MemoryStore()
    first_commit = SCENARIOS[0]
    recording = Recording(crash_at=1)
    monkeypatch.setattr(object_store, "obstore", recording.wrap(obstore, kind="obstore"))
    with pytest.raises(Crash):
        first_commit.act(lambda: ObjectBlobs(bucket, "test"), Facts())
