"""State is moved, and the process dies, or the store fails, at every single request.

After each accident the newest decided checkpoint is whole and restores the same bytes, the next run
goes on, and a clean-up leaves no orphan and nothing less than what is needed.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path

import obstore
import pytest
from obstore.exceptions import GenericError

from seamark.blobs import conditional_writes, object_store
from seamark.errors import OutcomeUnknownError, SeamarkError
from tests.capture.support.accidents import (
    ACCIDENTS,
    Accident,
    Bucket,
    look,
    moves_of,
    small_packs,
    snapshot,
)
from tests.capture.test_capture_and_restore import Stored
from tests.support.faults import Fault
from tests.support.recording import Crash, Recording
from tests.support.slow_cases import slow_except

TIMED_OUT = GenericError("operation timed out")
EVERY_DAY = (
    "an epoch",
    "an upload in the background",
    "the index after an upload",
    "the end of a run",
)

WRITES = "^(put|open_writer|delete)"

Wrap = Callable[[Recording], None]


@pytest.fixture
def wrap(monkeypatch: pytest.MonkeyPatch) -> Wrap:
    small_packs(monkeypatch)
    monkeypatch.setattr(conditional_writes, "_DELAYS", (0.0, 0.0, 0.0))

    def wrapped(recording: Recording) -> None:
        monkeypatch.setattr(object_store, "obstore", recording.wrap(obstore, kind="obstore"))

    return wrapped


@pytest.fixture
def unwrap(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    return lambda: monkeypatch.setattr(object_store, "obstore", obstore)


def by_name(accident: Accident) -> str:
    return accident.name


# a death before a request leaves what a death after the one before it has left
@pytest.mark.sampled(10)
@pytest.mark.parametrize("accident", slow_except(ACCIDENTS, *EVERY_DAY, name=by_name))
def test_I1_to_I9_hold_for_moving_state_after_a_death_at_any_request(
    accident: Accident, tmp_path: Path, wrap: Wrap, unwrap: Callable[[], None]
) -> None:
    def run(crash_at: int | None) -> tuple[Recording, Bucket, int]:
        bucket = Bucket(tmp_path)
        stored = bucket.stored()
        accident.prepare(stored)
        recording = Recording(crash_at=crash_at, when="after")
        wrap(recording)
        with suppress(Crash):
            accident.act(stored)
        unwrap()
        return recording, bucket, len(stored.manifests)

    recording, bucket, decided = run(None)
    bucket.after(decided)
    total = len(recording.calls)
    assert total >= 2
    for crash_at in range(1, total + 1):
        recording, bucket, decided = run(crash_at)
        assert recording.crashed, f"no crash at request {crash_at} of {total}"
        if recording.calls[-1].only_reads:
            continue  # the store is as the death before has left it
        try:
            bucket.after(decided)
        except BaseException as error:
            error.add_note(f"died after {recording.calls[-1]}")
            raise


def run_to_its_end(stored: Stored, act: Callable[[Stored], None]) -> None:
    """What a run does with an error: undo what can be undone, and end."""
    try:
        act(stored)
    except OutcomeUnknownError:
        pass
    except SeamarkError:
        stored.capture.undone()
    moves = moves_of(stored)
    moves._thread = None
    with suppress(SeamarkError):
        moves.close()


def faults_at(number: int, how: str) -> Iterable[Fault]:
    if how == "works and reports failure":
        return [Fault("fail_after", WRITES, skip=number, error=TIMED_OUT)]
    if how == "works, reports failure, and the store is down for a while":
        return [
            Fault("fail_after", WRITES, skip=number, error=TIMED_OUT),
            Fault("fail_before", WRITES, skip=number + 1, count=4, error=TIMED_OUT),
        ]
    if how == "fails":
        return [Fault("fail_before", "", skip=number, error=TIMED_OUT)]
    return [Fault("fail_before", "", skip=number, count=None, error=TIMED_OUT)]


@pytest.mark.parametrize(
    "how",
    [
        "works and reports failure",
        "works, reports failure, and the store is down for a while",
        "fails",
        "fails, and so do all that follow",
    ],
)
@pytest.mark.parametrize(
    "accident", slow_except(ACCIDENTS, "the end of a run", "an epoch", name=by_name)
)
def test_I1_to_I9_hold_for_moving_state_when_any_request(
    accident: Accident, how: str, tmp_path: Path, wrap: Wrap, unwrap: Callable[[], None]
) -> None:
    def run(faults: Iterable[Fault]) -> tuple[Recording, Bucket, int]:
        bucket = Bucket(tmp_path)
        stored = bucket.stored()
        accident.prepare(stored)
        recording = Recording(faults=list(faults))
        wrap(recording)
        run_to_its_end(stored, accident.act)
        unwrap()
        return recording, bucket, len(stored.manifests)

    calls = run([])[0].calls
    total = sum(
        how.startswith("fails") or re.search(WRITES, str(call)) is not None for call in calls
    )
    assert total
    for number in range(total):
        recording, bucket, decided = run(faults_at(number, how))
        try:
            bucket.after(decided)
        except BaseException as error:
            error.add_note(f"request {number + 1} {how}: {recording.calls}")
            raise


def test_I3_what_an_unanswered_save_may_refer_to_is_not_removed_at_the_end_of_the_run(
    tmp_path: Path, wrap: Wrap, unwrap: Callable[[], None]
) -> None:
    bucket = Bucket(tmp_path)
    stored = bucket.stored()
    for batch in range(3):
        stored.take(batch)
    snapshot(stored, 0, 2)
    look(stored)
    key = "manifests/manifest-000004"
    wrap(
        Recording(
            faults=[
                Fault("fail_after", f"^put {key}", count=1, error=TIMED_OUT),
                Fault("fail_before", f"^get {key}", count=4, error=TIMED_OUT),
                Fault("fail_before", f"^put {key}", skip=1, count=3, error=TIMED_OUT),
            ]
        )
    )
    with pytest.raises(OutcomeUnknownError):
        stored.take(3)
    unwrap()
    moves = moves_of(stored)
    moves._thread = None
    moves.close()
    assert bucket.open().list_ids() == [1, 2, 3, 4]
    bucket.after(decided=4)


def test_a_pack_that_cannot_be_read_does_not_pile_up_objects(
    tmp_path: Path, wrap: Wrap, unwrap: Callable[[], None]
) -> None:
    bucket = Bucket(tmp_path)
    stored = bucket.stored()
    for batch in range(6):
        stored.take(batch)
    before = set(stored.shared.entries())
    for at in range(1, 8):
        wrap(Recording(faults=[Fault("fail_before", "^(get|put)", skip=at, error=TIMED_OUT)]))
        with suppress(SeamarkError):
            look(stored)
        unwrap()
        arrived = {
            f.shared.name for m in moves_of(stored).arrived() for f in m.stored.values() if f.shared
        }
        moves_of(stored).undecided()
        assert set(stored.shared.entries()) == before | arrived
