"""Faults below a store: what is reported, what is kept, and what is never concluded from them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

import obstore
import pytest
from obstore.exceptions import (
    AlreadyExistsError,
    GenericError,
    PermissionDeniedError,
    PreconditionError,
)
from obstore.store import MemoryStore

from seamark.blobs import conditional_writes as settle
from seamark.blobs import object_store
from seamark.blobs.filesystem import FilesystemBlobs
from seamark.blobs.object_store import ObjectBlobs
from seamark.errors import (
    DamageError,
    FencedError,
    OutcomeUnknownError,
    SeamarkError,
    StoreUnavailableError,
)
from seamark.manifest import CheckpointManifest, SinkCommitStatus
from seamark.store import CheckpointStore
from seamark.store.layout import FilesystemLayout, ObjectLayout
from tests.store.support.scenarios import (
    EVERY_DAY,
    SCENARIOS,
    Facts,
    Scenario,
    full,
    save,
    violations,
)
from tests.support.disk import SimulatedDisk
from tests.support.faults import Fault
from tests.support.mounting import mount
from tests.support.recording import Call, Recording
from tests.support.slow_cases import slow_except

SOME = slow_except(SCENARIOS, *EVERY_DAY, name=lambda scenario: scenario.name)
TIMED_OUT = GenericError("operation timed out")
REFUSED = PermissionDeniedError("the credentials have expired")


class Bucket:
    """An object store in memory whose requests can be made to fail."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._bucket = MemoryStore()
        self._monkeypatch = monkeypatch
        monkeypatch.setattr(settle, "_DELAYS", (0.0, 0.0, 0.0))

    def open(self) -> CheckpointStore:
        return CheckpointStore(ObjectBlobs(self._bucket, "test"), ObjectLayout())

    @contextmanager
    def failing(self, *faults: Fault) -> Iterator[Recording]:
        recording = Recording(faults=faults)
        wrapped = recording.wrap(obstore, kind="obstore")
        self._monkeypatch.setattr(object_store, "obstore", wrapped)
        yield recording
        self._monkeypatch.setattr(object_store, "obstore", obstore)


@pytest.fixture
def bucket(monkeypatch: pytest.MonkeyPatch) -> Bucket:
    return Bucket(monkeypatch)


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> SimulatedDisk:
    disk = SimulatedDisk()
    mount(monkeypatch, disk, disk.fcntl)
    return disk


def open_local() -> CheckpointStore:
    return CheckpointStore(FilesystemBlobs("/store"), FilesystemLayout())


# It worked, but it said time-out.


def test_a_save_that_worked_but_timed_out_is_a_save(bucket: Bucket) -> None:
    store = bucket.open()
    fault = Fault("fail_after", r"^put manifests/manifest-", error=TIMED_OUT)
    with bucket.failing(fault) as recording:
        store.save(CheckpointManifest.new(1, epoch=1))
    assert recording.fired(fault) == 1
    assert bucket.open().list() == [(1, 1)]


def test_an_update_that_worked_but_timed_out_is_an_update(bucket: Bucket) -> None:
    store = bucket.open()
    saved = store.save(
        CheckpointManifest.new(1, epoch=1, sink_commit_statuses={"a": SinkCommitStatus.pending()})
    )
    with bucket.failing(Fault("fail_after", r"^put manifests/manifest-", error=TIMED_OUT)):
        store.update_manifest(
            saved.replace(sink_commit_statuses={"a": SinkCommitStatus.failed("disk")})
        )
    loaded = bucket.open().load_by_id(1)
    assert loaded is not None
    assert loaded.sink_commit_statuses == {"a": SinkCommitStatus.failed("disk")}


def test_a_claim_that_worked_but_timed_out_is_a_claim(bucket: Bucket) -> None:
    store = bucket.open()
    with bucket.failing(Fault("fail_after", r"^put owner.json", count=1, error=TIMED_OUT)):
        claim = store.claim()
    assert claim.generation == 1 == bucket.open().owner().generation
    store.check_claim()


def test_a_save_whose_outcome_stays_unknown_says_so_and_may_appear_later(bucket: Bucket) -> None:
    store = bucket.open()
    store.save(CheckpointManifest.new(1, epoch=1))
    late = Fault("fail_after", r"^put manifests/manifest-", count=1, error=TIMED_OUT)
    down = [
        Fault("fail_before", r"^get manifests/manifest-", count=None),
        Fault("fail_before", r"^put manifests/manifest-", count=None, skip=1),
    ]
    with bucket.failing(late, *down), pytest.raises(OutcomeUnknownError) as caught:
        store.save(CheckpointManifest.new(2, epoch=2))
    assert caught.value.exit_code == 7
    assert bucket.open().recover_latest_validated().chosen_id == 2


@pytest.mark.parametrize(
    "then",
    [Fault("fail_before", r"^put manifests/manifest-", count=None, skip=1, error=REFUSED), None],
    ids=["refused", "there already"],
)
def test_once_a_try_may_have_arrived_no_later_error_says_that_nothing_was_saved(
    bucket: Bucket, then: Fault | None
) -> None:
    store = bucket.open()
    store.save(CheckpointManifest.new(1, epoch=1))
    late = Fault("fail_after", r"^put manifests/manifest-", count=1, error=TIMED_OUT)
    unread = Fault("fail_before", r"^get manifests/manifest-", count=None)
    faults = [late, unread, *([then] if then else [])]
    with bucket.failing(*faults), pytest.raises(OutcomeUnknownError):
        store.save(CheckpointManifest.new(2, epoch=2))
    assert bucket.open().recover_latest_validated().chosen_id == 2


def test_an_update_that_may_have_arrived_is_not_said_to_have_failed(bucket: Bucket) -> None:
    store = bucket.open()
    saved = store.save(
        CheckpointManifest.new(1, epoch=1, sink_commit_statuses={"a": SinkCommitStatus.pending()})
    )
    late = Fault("fail_after", r"^put manifests/manifest-", count=1, error=TIMED_OUT)
    refused = Fault("fail_before", r"^put manifests/", count=None, skip=1, error=REFUSED)
    unread = Fault("fail_before", r"^get manifests/manifest-", count=None)
    changed = saved.replace(sink_commit_statuses={"a": SinkCommitStatus.failed("disk")})
    with bucket.failing(late, refused, unread), pytest.raises(OutcomeUnknownError):
        store.update_manifest(changed)
    loaded = bucket.open().load_by_id(1)
    assert loaded is not None
    assert loaded.sink_commit_statuses == {"a": SinkCommitStatus.failed("disk")}


@pytest.mark.parametrize("scenario", SOME)
def test_I1_to_I8_hold_when_any_request_works_but_reports_failure(
    scenario: Scenario, bucket: Bucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    attempts = requests_of(scenario, monkeypatch)
    for number in range(attempts):
        fresh, facts = Bucket(monkeypatch), Facts()
        store = scenario.prepare(fresh.open, facts)
        failing = fresh.failing(Fault("fail_after", r"^put ", skip=number, error=TIMED_OUT))
        with failing, suppress(SeamarkError):  # being told is fine; the truth is looked at below
            scenario.act(store, facts)
        found = list(violations(fresh.open, facts))
        assert not found, f"put {number + 1} of {attempts} said time-out: {found}"


@pytest.mark.parametrize("scenario", SOME)
def test_a_client_that_is_refused_what_it_has_done_itself_stops_nothing(
    scenario: Scenario, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has asked again, because the first answer was lost on its way."""
    for number in range(len(conditional_puts_of(scenario, monkeypatch))):
        fresh, facts = Bucket(monkeypatch), Facts()
        store = scenario.prepare(fresh.open, facts)
        puts: list[str] = []

        def is_repeated(call: Call, number: int = number, puts: list[str] = puts) -> bool:
            puts.extend([str(call)] * is_conditional(call))
            return is_conditional(call) and len(puts) == number + 1

        def refusal(number: int = number, puts: list[str] = puts) -> BaseException:
            is_create = "mode=create" in puts[number]
            return AlreadyExistsError("409") if is_create else PreconditionError("412")

        with fresh.failing(Fault("fail_after", is_repeated, error=refusal)):
            scenario.act(store, facts)
        found = list(violations(fresh.open, facts))
        assert not found, f"{puts[number]} was refused: {found}"


def is_conditional(call: Call) -> bool:
    return call.name == "put" and "mode=overwrite" not in call.summary


def conditional_puts_of(scenario: Scenario, monkeypatch: pytest.MonkeyPatch) -> list[Call]:
    fresh, facts = Bucket(monkeypatch), Facts()
    store = scenario.prepare(fresh.open, facts)
    with fresh.failing() as recording:
        scenario.act(store, facts)
    return [call for call in recording.calls if is_conditional(call)]


@pytest.mark.parametrize("scenario", SOME)
def test_I1_to_I8_hold_when_any_request_fails(
    scenario: Scenario, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(requests_of(scenario, monkeypatch)):
        fresh, facts = Bucket(monkeypatch), Facts()
        store = scenario.prepare(fresh.open, facts)
        failing = fresh.failing(Fault("fail_before", "", skip=number, count=None))
        with failing, suppress(SeamarkError):
            scenario.act(store, facts)
        found = list(violations(fresh.open, facts))
        assert not found, f"everything failed from request {number + 1} on: {found}"


def requests_of(scenario: Scenario, monkeypatch: pytest.MonkeyPatch) -> int:
    fresh, facts = Bucket(monkeypatch), Facts()
    store = scenario.prepare(fresh.open, facts)
    with fresh.failing() as recording:
        scenario.act(store, facts)
    assert recording.calls
    return len(recording.calls)


# An error that proves nothing.


@pytest.mark.parametrize(
    "what",
    [r"^get manifests/manifest-000003", r"^get checkpoints/state-000003", r"^list ", "^get owner"],
)
def test_I8_an_unreadable_newest_checkpoint_is_not_a_reason_to_take_an_older_one(
    bucket: Bucket, what: str
) -> None:
    store, facts = bucket.open(), Facts()
    store.claim()
    for checkpoint_id in (1, 2, 3):
        save(store, facts, checkpoint_id)
    reader = bucket.open()
    failing = bucket.failing(Fault("fail_before", what, count=None))
    with failing, pytest.raises(StoreUnavailableError) as caught:
        reader.recover_latest_validated()
    assert caught.value.exit_code == 7
    assert bucket.open().recover_latest_validated().chosen_id == 3


def test_I8_an_io_error_on_a_disk_is_not_damage(
    disk: SimulatedDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    facts = Facts()
    for checkpoint_id in (1, 2):
        save(open_local(), facts, checkpoint_id)
    broken = Recording(faults=[Fault("fail_before", r"^open .*000002/manifest", count=None)])
    mount(monkeypatch, broken.wrap(disk), disk.fcntl)
    with pytest.raises(StoreUnavailableError, match=r"000002/manifest\.json"):
        open_local().recover_latest_validated()
    with pytest.raises(StoreUnavailableError):
        open_local().validate_checkpoint(2)
    with pytest.raises(StoreUnavailableError):
        open_local().prune(1)


def test_a_refused_permission_is_told_without_retries(bucket: Bucket) -> None:
    store = bucket.open()
    store.save(CheckpointManifest.new(1, epoch=1))
    refused = Fault("fail_before", "^put", count=None, error=PermissionDeniedError("403"))
    with bucket.failing(refused) as recording, pytest.raises(StoreUnavailableError) as caught:
        store.save(CheckpointManifest.new(2, epoch=2))
    assert recording.fired(refused) == 1
    assert "permission" in str(caught.value)
    assert not isinstance(caught.value, OutcomeUnknownError)


# Full disks, short writes, torn writes, flipped bits, stale listings.


@pytest.mark.parametrize("scenario", SOME)
def test_I1_to_I8_hold_when_the_disk_is_full_from_any_io_on(
    scenario: Scenario, monkeypatch: pytest.MonkeyPatch
) -> None:
    def run(skip: int | None) -> tuple[SimulatedDisk, Facts, int]:
        disk, facts = SimulatedDisk(), Facts()
        mount(monkeypatch, disk, disk.fcntl)
        store = scenario.prepare(open_local, facts)
        faults = [Fault("disk_full", "", count=None, skip=skip)] if skip is not None else []
        recording = Recording(faults=faults)
        mount(monkeypatch, recording.wrap(disk), disk.fcntl)
        try:
            scenario.act(store, facts)
        except StoreUnavailableError as error:
            assert "full" in str(error) or isinstance(error, OutcomeUnknownError)
        mount(monkeypatch, disk, disk.fcntl)
        return disk, facts, sum(call.needs_space for call in recording.calls)

    _, _, needing_space = run(None)
    for skip in range(needing_space):
        disk, facts, _ = run(skip)
        found = list(violations(open_local, facts))
        assert not found, f"full after {skip}: {found}\n{disk.tree()}"


def test_short_writes_are_continued(disk: SimulatedDisk, monkeypatch: pytest.MonkeyPatch) -> None:
    short = Recording(faults=[Fault("short_write", "^write", count=5)])
    mount(monkeypatch, short.wrap(disk), disk.fcntl)
    save(open_local(), Facts(), 1)
    mount(monkeypatch, disk, disk.fcntl)
    assert open_local().validate_checkpoint(1).valid


def test_I7_a_bit_flipped_on_the_way_from_the_store_is_noticed(bucket: Bucket) -> None:
    save(bucket.open(), Facts(), 1)
    for pieces_before in (0, 1):  # in the manifest, in the sidecar
        flip = Fault("bit_flip", "^get.stream.next", skip=pieces_before, bit=1000)
        with bucket.failing(flip) as recording:
            result = bucket.open().validate_checkpoint(1)
        assert recording.fired(flip) == 1
        assert not result.valid
        with bucket.failing(flip), pytest.raises(DamageError):
            bucket.open().load_state_data(1)


def test_a_stale_listing_hides_nothing_that_the_pointer_names(bucket: Bucket) -> None:
    store, facts = bucket.open(), Facts()
    save(store, facts, 1)
    with bucket.failing(Fault("stale_listing", "^list", count=None, behind=1000)):
        save(store, facts, 2)
        assert store.recover_latest_validated().chosen_id == 2


def test_what_is_removed_while_its_last_bytes_are_asked_for_again_is_gone(bucket: Bucket) -> None:
    blobs = bucket.open().backend
    blobs.create("a", b"some bytes")
    removed = GenericError("Object at location a not found: 404 <Code>NoSuchKey</Code>")
    with bucket.failing(Fault("fail_before", "^get.stream.next", count=None, error=removed)):
        assert blobs.read("a", 100) is None
        assert blobs.read_range("a", 0, 4) is None
    no_bucket = GenericError("404 <Code>NoSuchBucket</Code>")
    failing = bucket.failing(Fault("fail_before", "^get.stream.next", error=no_bucket))
    with failing, pytest.raises(StoreUnavailableError):
        blobs.read("a", 100)


def test_a_slow_store_is_only_slow(bucket: Bucket) -> None:
    with bucket.failing(Fault("slow", "", count=None, seconds=0.01)):
        save(bucket.open(), Facts(), 1)
    assert bucket.open().recover_latest_validated().chosen_id == 1


# Stores that do not do what they say.


def test_a_store_that_ignores_conditions_is_refused_at_the_first_write_and_not_before() -> None:
    store = CheckpointStore(ignoring_conditions(), ObjectLayout())
    assert store.list_ids() == []
    assert store.recover_latest_validated().fresh_start
    for write in writes(store):
        with pytest.raises(SeamarkError, match="ignores the condition") as caught:
            write()
        assert caught.value.exit_code == 6
    assert store.list_ids() == []


def writes(store: CheckpointStore) -> list[Callable[[], object]]:
    manifest, chunks = full(1)
    return [
        lambda: store.save(CheckpointManifest.new(1, epoch=1)),
        lambda: store.save_with_state(manifest, chunks),
        lambda: store.save_state_data(1, chunks),
        store.claim,
    ]


def ignoring_conditions() -> ObjectBlobs:
    class Ignoring(ObjectBlobs):
        def _put(self, key: str, data: bytes, mode: object) -> object:
            return super()._put(key, data, "overwrite")

    return Ignoring(MemoryStore(), "test")


def test_a_store_without_conditions_can_be_used_by_one_writer_who_says_so() -> None:
    blobs = ObjectBlobs(MemoryStore(), "test", conditional=False)
    store = CheckpointStore(blobs, ObjectLayout())
    store.claim()
    save(store, Facts(), 1)
    assert store.recover_latest_validated().chosen_id == 1
    with pytest.raises(FencedError):
        store.save(CheckpointManifest.new(1, epoch=2))


def test_a_full_disk_says_what_to_do(disk: SimulatedDisk) -> None:
    disk.capacity = 0
    with pytest.raises(StoreUnavailableError) as caught:
        open_local().save(CheckpointManifest.new(1, epoch=1))
    assert caught.value.hint is not None
    assert "free some space" in caught.value.hint
