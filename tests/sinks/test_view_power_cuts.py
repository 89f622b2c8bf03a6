"""The folder of a view dies at every I/O that it makes, and keeps what a server may have lost.

What a server has acknowledged it can lose in the same power cut. So an epoch that was prepared must
be found whole, staged or kept, whatever else became of the disk.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field

import pytest

from seamark._common.files import write_all
from seamark.errors import DamageError
from seamark.sinks import epoch_folder, folders, staged_epochs
from seamark.sinks.contract import receipt_of
from seamark.sinks.keyvalue import view_staging as keyvalue_staging
from seamark.sinks.keyvalue.view import StagedEpoch, Step, ViewVersion
from seamark.sinks.keyvalue.view_staging import Staging
from tests.sinks.support.views import told
from tests.support.disk import SimulatedDisk
from tests.support.mounting import mount
from tests.support.recording import Crash, Recording

PATH = "/data/trades/bars"
KEEP = 2


@dataclass
class Facts:
    """What a pipeline had been told before the process died."""

    prepared: list[ViewVersion] = field(default_factory=list)
    done: bool = False


def staged(number: int) -> StagedEpoch:
    before = staged(number - 1).version if number > 1 else None
    return StagedEpoch(
        receipt=receipt_of(told(number), f"a{number}"),
        after=before,
        watermark=5,
        positions={"orders": b"x"},
        config_hash=7,
    )


def run(facts: Facts) -> None:
    folder = Staging(PATH, KEEP)
    folder.make()
    for number in (1, 2, 3, 4):
        epoch = staged(number)
        with staged_epochs.staging_into(folder.folder(f"a{number}", number), folder.path):
            _put(folder.folder(f"a{number}", number), b"rows of %d" % number)
        folder.seal(epoch)
        facts.prepared.append(epoch.version)
        # here the server commits it
        folder.put_aside(f"a{number}")
    staged_epochs.remove_staged(folder.path, "a9")
    facts.done = True


@pytest.mark.slow
def test_a_prepared_epoch_is_found_whole_after_a_death_at_any_io(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seen = 0
    for what, disk, facts in deaths(monkeypatch):
        seen += 1
        _mount(monkeypatch, disk)
        folder = Staging(PATH, KEEP)
        for version in facts.prepared[-KEEP:]:
            found = folder.find(version)
            assert found is not None, f"{what}: {version}\n{disk.tree()}"
            assert folder.read(found, Step(version, None)).version == version, f"{what}: {version}"
        for version in facts.prepared[:-KEEP]:
            found = folder.find(version)  # it may be half removed, and is never taken for whole
            if found is not None:
                with suppress(DamageError):
                    assert folder.read(found, Step(version, None)).version == version
        for attempt in staged_epochs.staged_attempts(folder.path):
            folder.epochs(attempt)  # whatever is torn, it can be looked at and removed
            if attempt not in [version.attempt for version in facts.prepared]:
                staged_epochs.remove_staged(folder.path, attempt)
        for version in facts.prepared[-1:]:
            folder.put_aside(version.attempt)
            found = folder.find(version)
            assert found is not None
            assert "/kept/" in found
        assert disk.open_files() == []
    assert seen > 300


def deaths(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[str, SimulatedDisk, Facts]]:
    def attempt(crash_at: int | None) -> tuple[Recording, SimulatedDisk, Facts]:
        disk, facts = SimulatedDisk(), Facts()
        recording = Recording(crash_at=crash_at, when="after")
        _mount(monkeypatch, recording.wrap(disk), recording.wrap(disk.fcntl))
        with suppress(Crash):
            run(facts)
        return recording, disk, facts

    recording, disk, facts = attempt(None)
    assert facts.done
    yield "finished", disk.after_power_cut(), facts
    for crash_at in range(1, len(recording.calls) + 1):
        again, disk, facts = attempt(crash_at)
        assert again.crashed
        what = f"died after {recording.calls[crash_at - 1]} ({crash_at})"
        yield f"{what}, killed", disk.after_kill(), facts
        yield f"{what}, power cut", disk.after_power_cut(), facts
        luck = random.Random(crash_at)
        yield f"{what}, unlucky power cut", disk.after_power_cut(luck), facts


def _mount(monkeypatch: pytest.MonkeyPatch, disk: object, locks: object = None) -> None:
    mount(monkeypatch, disk, locks)
    for module in (epoch_folder, folders, keyvalue_staging, staged_epochs):
        monkeypatch.setattr(module, "os", disk)


def _put(folder: str, data: bytes) -> None:
    os = vars(keyvalue_staging)["os"]
    os.makedirs(folder, exist_ok=True)
    fd = os.open(f"{folder}/part-0.parquet", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
    write_all(fd, data)
    os.close(fd)
