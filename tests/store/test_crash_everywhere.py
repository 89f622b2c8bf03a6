"""Every operation is killed at every I/O that it makes, and the store must come out whole.

The I/Os are those that a recording around ``os``, ``fcntl`` and ``obstore`` sees; none is placed by
hand. After each death the disk is looked at as ``kill -9`` leaves it, as a power cut leaves it, and
as an unlucky power cut leaves it that kept some of what was not fsynced and lost the rest.
"""

from __future__ import annotations

import fcntl
import os
import random
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Literal

import obstore
import pytest
from obstore.store import MemoryStore

from seamark.blobs import object_store
from seamark.blobs.filesystem import FilesystemBlobs
from seamark.blobs.object_store import ObjectBlobs
from seamark.store import CheckpointStore
from seamark.store.layout import FilesystemLayout, ObjectLayout
from tests.store.support.scenarios import EVERY_DAY, SCENARIOS, Facts, Scenario, violations
from tests.support.disk import SimulatedDisk
from tests.support.mounting import mount
from tests.support.recording import Crash, Recording
from tests.support.slow_cases import slow_except

UNLUCKY = 2
When = Literal["before", "after", "torn"]


def by_name(scenario: Scenario) -> str:
    return scenario.name


def open_local(root: str = "/store") -> CheckpointStore:
    return CheckpointStore(FilesystemBlobs(root), FilesystemLayout())


# a death before an I/O leaves what a death after the one before it has left
@pytest.mark.sampled(8)
@pytest.mark.parametrize("when", ["after", "torn"])
@pytest.mark.parametrize(
    "scenario",
    slow_except(
        SCENARIOS,
        "a save with a sidecar",
        "a prune",
        "an update",
        name=by_name,
    ),
)
def test_I1_to_I8_hold_after_a_death_at_any_io_on_a_disk(
    scenario: Scenario, when: When, monkeypatch: pytest.MonkeyPatch
) -> None:
    def run(crash_at: int | None) -> tuple[Recording, SimulatedDisk, Facts]:
        disk, facts = SimulatedDisk(), Facts()
        mount(monkeypatch, disk, disk.fcntl)
        store = scenario.prepare(open_local, facts)
        recording = Recording(crash_at=crash_at, when=when)
        mount(monkeypatch, recording.wrap(disk), recording.wrap(disk.fcntl))
        die(lambda: scenario.act(store, facts))
        return recording, disk, facts

    recording, disk, facts = run(None)
    for what, after in images(disk, seed=0):
        mount(monkeypatch, after, after.fcntl)
        found = list(violations(open_local, facts))
        assert not found, f"finished, then {what}: {found}\n{after.tree()}"
    calls, total, looked_at = recording.calls, len(recording.calls), 0
    told: Facts | None = None
    for crash_at in range(1, total + 1):
        if when == "torn" and not calls[crash_at - 1].writes:
            continue  # the same as dying before it
        recording, disk, facts = run(crash_at)
        assert recording.crashed, f"{scenario.name}: no crash at I/O {crash_at} of {total}"
        if recording.calls[-1].only_reads and facts == told:
            continue  # the disk is as the death before has left it, and nobody was told more
        told, looked_at = facts, looked_at + 1
        for what, after in images(disk, crash_at):
            mount(monkeypatch, after, after.fcntl)
            found = list(violations(open_local, facts))
            assert not found, f"died {when} {recording.calls[-1]}, {what}: {found}\n{after.tree()}"
    assert total >= 5
    assert looked_at or when == "torn"


def images(disk: SimulatedDisk, seed: int) -> Iterator[tuple[str, SimulatedDisk]]:
    yield "killed", disk.after_kill()
    yield "power cut", disk.after_power_cut()
    for luck in range(UNLUCKY):
        survivors = random.Random(seed * 1000 + luck)
        yield f"unlucky power cut {luck}", disk.after_power_cut(survivors)


def die(act: Callable[[], None]) -> None:
    with suppress(Crash):
        act()


@pytest.mark.sampled(12)
@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("scenario", slow_except(SCENARIOS, *EVERY_DAY, name=by_name))
def test_I1_to_I8_hold_after_a_death_at_any_request_to_an_object_store(
    scenario: Scenario, when: When, monkeypatch: pytest.MonkeyPatch
) -> None:
    def run(crash_at: int | None) -> tuple[Recording, Callable[[], CheckpointStore], Facts]:
        bucket, facts = MemoryStore(), Facts()

        def open_remote() -> CheckpointStore:
            return CheckpointStore(ObjectBlobs(bucket, "test"), ObjectLayout())

        monkeypatch.setattr(object_store, "obstore", obstore)
        store = scenario.prepare(open_remote, facts)
        recording = Recording(crash_at=crash_at, when=when)
        monkeypatch.setattr(object_store, "obstore", recording.wrap(obstore, kind="obstore"))
        die(lambda: scenario.act(store, facts))
        monkeypatch.setattr(object_store, "obstore", obstore)
        return recording, open_remote, facts

    total = len(run(None)[0].calls)
    assert total >= 2
    for crash_at in range(1, total + 1):
        recording, open_remote, facts = run(crash_at)
        assert recording.crashed, f"{scenario.name}: no crash at request {crash_at} of {total}"
        found = list(violations(open_remote, facts))
        assert not found, f"died {when} {recording.calls[-1]}: {found}"


@pytest.mark.sampled(6)
@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:unclosed scandir:ResourceWarning")  # nobody closes it: dead
@pytest.mark.parametrize("scenario", SCENARIOS, ids=by_name)
def test_I1_to_I8_hold_after_a_death_at_any_io_on_the_real_file_system(
    scenario: Scenario, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def run(crash_at: int | None) -> tuple[Recording, Callable[[], CheckpointStore], Facts]:
        root, facts = str(tmp_path / f"store-{crash_at}"), Facts()
        mount(monkeypatch, os, fcntl)
        store = scenario.prepare(lambda: open_local(root), facts)
        recording = Recording(crash_at=crash_at, when="after")
        mount(monkeypatch, recording.wrap(os), recording.wrap(fcntl))
        die(lambda: scenario.act(store, facts))
        mount(monkeypatch, os, fcntl)
        close_files_below(root)  # a dead process keeps no lock
        return recording, lambda: open_local(root), facts

    total = len(run(None)[0].calls)
    for crash_at in range(1, total + 1, 5):
        recording, reopen, facts = run(crash_at)
        assert recording.crashed
        found = list(violations(reopen, facts))
        assert not found, f"died after {recording.calls[-1]}: {found}"


def close_files_below(root: str) -> None:
    for name in os.listdir("/proc/self/fd"):
        try:
            if os.readlink(f"/proc/self/fd/{name}").startswith(root + "/"):
                os.close(int(name))
        except OSError:
            continue  # the listing's own descriptor is gone by now
