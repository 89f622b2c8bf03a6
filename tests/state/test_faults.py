"""Faults below a state store: what is reported, what is kept, and that trying again works."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import obstore
import pytest
from obstore.exceptions import GenericError
from obstore.store import MemoryStore

from seamark.blobs import conditional_writes as settle
from seamark.blobs import object_store
from seamark.blobs.contract import Blobs
from seamark.blobs.filesystem import FilesystemBlobs
from seamark.blobs.object_store import ObjectBlobs
from seamark.errors import DamageError, OutcomeUnknownError, SeamarkError, StoreUnavailableError
from seamark.state import StateStore
from tests.state.support.scenarios import (
    BIG,
    HERE,
    SCENARIOS,
    THERE,
    Facts,
    Open,
    Scenario,
    commit,
    first_states,
    state_store,
    violations,
)
from tests.support.disk import SimulatedDisk
from tests.support.faults import Fault
from tests.support.mounting import mount
from tests.support.recording import Recording
from tests.support.slow_cases import slow_except

NEVER_FAIL = ("close", "path.exists", "path.isdir")
TIMED_OUT = GenericError("operation timed out")


class Bucket:
    """An object store in memory whose requests can be made to fail."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._bucket = MemoryStore()
        self._monkeypatch = monkeypatch
        monkeypatch.setattr(settle, "_DELAYS", (0.0, 0.0, 0.0))

    def open(self) -> Blobs:
        return ObjectBlobs(self._bucket, "test")

    def contents(self) -> dict[str, bytes]:
        found = (entry for page in obstore.list(self._bucket) for entry in page)
        return {each["path"]: bytes(self._bucket.get(each["path"]).bytes()) for each in found}

    def copied(self) -> Bucket:
        """Another one with the same objects."""
        other = Bucket(self._monkeypatch)
        for path, data in self.contents().items():
            other._bucket.put(path, data)
        return other

    @contextmanager
    def failing(self, *faults: Fault) -> Iterator[Recording]:
        recording = Recording(faults=faults)
        wrapped = recording.wrap(obstore, kind="obstore")
        self._monkeypatch.setattr(object_store, "obstore", wrapped)
        try:
            yield recording
        finally:
            self._monkeypatch.setattr(object_store, "obstore", obstore)


@pytest.fixture
def bucket(monkeypatch: pytest.MonkeyPatch) -> Bucket:
    return Bucket(monkeypatch)


def open_local() -> Blobs:
    return FilesystemBlobs("/store")


def requests_of(scenario: Scenario, monkeypatch: pytest.MonkeyPatch) -> int:
    fresh, facts = Bucket(monkeypatch), Facts()
    scenario.prepare(fresh.open, facts)
    with fresh.failing() as recording:
        scenario.act(fresh.open, facts)
    assert recording.calls
    return len(recording.calls)


def told_by(scenario: Scenario, open_blobs: Open, facts: Facts) -> str:
    """What the caller is told, as text: an error that is kept would keep files open."""
    try:
        scenario.act(open_blobs, facts)
    except SeamarkError as error:
        return repr(error)
    return "nothing"


WAYS = {
    "fails": Fault("fail_before"),
    "fails, and all after it": Fault("fail_before", count=None),
    "works and says it did not": Fault("fail_after", error=TIMED_OUT),
    "works and says it did not, and so do all after it": Fault(
        "fail_after", error=TIMED_OUT, count=None
    ),
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(
    "scenario", slow_except(SCENARIOS, "an incremental commit", "a prune", name=lambda s: s.name)
)
def test_state_is_whole_when_any_request(
    way: str, scenario: Scenario, monkeypatch: pytest.MonkeyPatch
) -> None:
    fault = WAYS[way]
    total = requests_of(scenario, monkeypatch)
    prepared, before = Bucket(monkeypatch), Facts()
    scenario.prepare(prepared.open, before)
    looked_at: list[tuple[dict[str, bytes], Facts]] = []
    for number in range(total):
        fresh, facts = prepared.copied(), before.copied()
        spoiled = Fault(fault.kind, count=fault.count, skip=number, error=fault.error)
        with fresh.failing(spoiled):
            told = told_by(scenario, fresh.open, facts)
        what = f"request {number + 1} of {total} {way} ({told})"
        assert not told.startswith("Damage"), f"{what}: an I/O error proves no damage"
        left = fresh.contents(), facts.copied()
        if left in looked_at:
            continue  # as most reads that fail leave it: to the last byte what was looked at before
        looked_at.append(left)
        found = list(violations(fresh.open, facts, go_on=False))
        assert not found, f"{what}: {found}"
        scenario.act(fresh.open, facts)  # trying again works
        found = list(violations(fresh.open, facts))
        assert not found, f"{what}, then it was tried again: {found}"


@pytest.mark.parametrize("way", ["fails", "is full from there on"])
@pytest.mark.parametrize(
    "scenario", slow_except(SCENARIOS, "a first commit", "a prune", name=lambda s: s.name)
)
def test_state_is_whole_when_any_io_of_a_disk(
    way: str, scenario: Scenario, monkeypatch: pytest.MonkeyPatch
) -> None:
    prepared, before = SimulatedDisk(), Facts()
    mount(monkeypatch, prepared, prepared.fcntl)
    scenario.prepare(open_local, before)

    def run(*faults: Fault) -> tuple[Recording, SimulatedDisk, Facts, str]:
        disk, facts = prepared.after_kill(), before.copied()
        recording = Recording(faults=faults)
        mount(monkeypatch, recording.wrap(disk), recording.wrap(disk.fcntl))
        told = told_by(scenario, open_local, facts)
        mount(monkeypatch, disk, disk.fcntl)
        return recording, disk, facts, told

    calls = run()[0].calls
    full = way != "fails"
    looked_at: list[tuple[str, dict[str, bytes], Facts]] = []
    for number in range(sum(call.needs_space for call in calls) if full else len(calls)):
        if full:
            fault = Fault("disk_full", count=None, skip=number)
        elif calls[number].name in NEVER_FAIL:
            continue
        else:
            fault = Fault("fail_before", skip=number)
        recording, disk, facts, told = run(fault)
        what = f"I/O {number + 1} ({calls[number]}) {way}, told {told}"
        assert recording.fired(fault)
        assert not told.startswith("Damage"), what
        left = disk.tree(), disk.files(), facts.copied()
        if left in looked_at:
            continue  # as most reads that fail leave it: to the last byte what was looked at before
        looked_at.append(left)
        found = list(violations(open_local, facts, go_on=False))
        assert not found, f"{what}: {found}\n{disk.tree()}"
        scenario.act(open_local, facts)
        found = list(violations(open_local, facts))
        assert not found, f"{what}, then it was tried again: {found}\n{disk.tree()}"


# What a fault may and may not be taken for.


def test_a_commit_that_worked_but_timed_out_is_a_commit(bucket: Bucket) -> None:
    facts = Facts()
    fault = Fault("fail_after", r"^put .*manifest\.json", error=TIMED_OUT)
    with bucket.failing(fault) as recording:
        new = commit(state_store(bucket.open), facts, first_states())
    assert recording.fired(fault) == 1
    assert state_store(bucket.open).list() == [new]


def test_a_commit_whose_outcome_stays_unknown_says_so(bucket: Bucket) -> None:
    facts = Facts()
    late = Fault("fail_after", r"^put .*manifest\.json", error=TIMED_OUT)
    down = [
        Fault("fail_before", r"^get .*manifest\.json", count=None),
        Fault("fail_before", r"^put .*manifest\.json", count=None, skip=1),
    ]
    with bucket.failing(late, *down), pytest.raises(OutcomeUnknownError):
        commit(state_store(bucket.open), facts, first_states())
    assert not list(violations(bucket.open, facts))


def test_a_failed_upload_fails_the_commit_and_nothing_appears(bucket: Bucket) -> None:
    facts = Facts()
    old = commit(state_store(bucket.open), facts, first_states())
    for what in (r"^put .*\.lcb", r"^put .*\.snap"):
        down = Fault("fail_before", what, count=None)
        with bucket.failing(down), pytest.raises(StoreUnavailableError):
            commit(state_store(bucket.open), facts, first_states())
        assert state_store(bucket.open).list() == [old]
    assert not list(violations(bucket.open, facts))


def test_a_pointer_that_cannot_be_written_does_not_undo_a_commit(
    bucket: Bucket, caplog: pytest.LogCaptureFixture
) -> None:
    facts = Facts()
    with bucket.failing(Fault("fail_before", "_latest", count=None)):
        new = commit(state_store(bucket.open), facts, first_states())
    assert "pointer" in caplog.text
    latest = state_store(bucket.open).latest()
    assert latest is not None
    assert latest.checkpoint_id == new


@pytest.mark.parametrize("what", ["^list", r"^get .*manifest", r"^get(_range)? .*(lcb|snap)"])
def test_an_io_error_is_neither_damage_nor_emptiness(bucket: Bucket, what: str) -> None:
    facts = Facts()
    new = commit(state_store(bucket.open), facts, first_states())
    with bucket.failing(Fault("fail_before", what, count=None)):
        store = state_store(bucket.open)
        with pytest.raises(StoreUnavailableError):
            store.list(), store.verify(new)
        with pytest.raises(StoreUnavailableError):
            store.latest(), list(store.restore_all(new))
        if what != r"^get(_range)? .*(lcb|snap)":
            with pytest.raises(StoreUnavailableError):
                store.prune(1)
    assert not list(violations(bucket.open, facts))


def test_I7_a_bit_flipped_on_the_way_from_the_store_is_noticed(bucket: Bucket) -> None:
    facts = Facts()
    old = commit(state_store(bucket.open), facts, first_states())
    changes = {("agg", 0): b"d", ("join", 0): BIG[:101]}
    new = commit(state_store(bucket.open), facts, changes, parent=old, delta=True)
    expected = facts.acknowledged[HERE, new]
    noticed = 0
    for number in range(100):
        fault = Fault("bit_flip", skip=number, bit=77 * number)
        with bucket.failing(fault) as recording:
            try:
                found = {(o, p): s for o, p, s in state_store(bucket.open).restore_all(new)}
                assert found == expected
            except DamageError:
                noticed += 1
        if not recording.fired(fault):
            break
    assert noticed == number >= 5


def test_I7_a_bit_flipped_on_the_way_is_not_copied(bucket: Bucket) -> None:
    facts = Facts()
    old = commit(state_store(bucket.open), facts, first_states())
    changes = {("agg", 0): b"d", ("join", 0): BIG[:101]}
    new = commit(state_store(bucket.open), facts, changes, parent=old, delta=True)
    for number in range(100):
        target = StateStore("memory://", prefix=THERE)
        fault = Fault("bit_flip", skip=number, bit=77 * number)
        with bucket.failing(fault) as recording:
            try:
                state_store(bucket.open).copy(new, target)
                assert new in target.list()
            except DamageError:
                assert new not in target.list()
        issues = [issue for i in target.list() for issue in target.verify(i).issues]
        assert not issues, f"read {number + 1} was wrong, and was copied: {issues}"
        if not recording.fired(fault):
            return
    raise AssertionError("the copy never ends")


def test_a_slow_store_is_only_slow(bucket: Bucket) -> None:
    facts = Facts()
    with bucket.failing(Fault("slow", "", count=None, seconds=0.005)):
        commit(state_store(bucket.open), facts, first_states())
    assert not list(violations(bucket.open, facts))


def test_two_tries_that_race_for_one_name_are_both_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    disk = SimulatedDisk()
    mount(monkeypatch, disk, disk.fcntl)
    blobs = open_local()
    store = StateStore(blobs, pack_below=0)
    with store.begin(1) as writer:
        first = store.task(writer.checkpoint_id, "first")
        first.put("agg", 0, BIG)
        first.finish()
        # both had looked before either wrote
        monkeypatch.setattr(blobs, "stat", lambda key: None)
        second = store.task(writer.checkpoint_id, "second")
        second.put("agg", 0, BIG[::-1])
        receipt = second.finish()
        monkeypatch.undo()
        mount(monkeypatch, disk, disk.fcntl)
        writer.add(receipt)
        new = writer.commit().checkpoint_id
    assert store.restore(new, "agg", 0).snapshot == BIG[::-1]
