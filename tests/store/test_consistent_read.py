"""Readers beside a writer that saves, prunes, claims and rolls back at any of their I/Os.

Every read gives what the store held before or what it holds after; never damage, never nothing.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path

import pytest

from seamark._common.progress_bars import no_bar
from seamark.blobs.contract import Blobs, Entry
from seamark.blobs.memory import MemoryBlobs
from seamark.blobs.object_store import ObjectBlobs
from seamark.capture.checkpoint_contents import chain_of
from seamark.cli.list import _listed
from seamark.errors import CheckpointNotFoundError, DamageError, StoreUnavailableError
from seamark.pipeline.recovery.rollback import plan_rollback
from seamark.reports.checkpoint_document import describe
from seamark.reports.checkpoint_summary import summarize_checkpoints
from seamark.reports.recovery_walk import explain_walk
from seamark.reports.verification import check_named
from seamark.store import CheckpointStore
from seamark.store.consistent_read import until_settled
from seamark.store.content_health import check_contents
from seamark.store.copy.plan import plan_copy
from seamark.store.copy.run import copy_checkpoints
from seamark.store.inspection import examine, scan
from seamark.store.layout import ObjectLayout
from seamark.store.owner import Owner
from tests.store.support.interleaving import Kind, Place, Seat
from tests.store.test_ownership import save, save_next
from tests.support.servers import ObjectServer

Read = Callable[[CheckpointStore], object]
IN_MEMORY: list[Kind] = ["object", "locked"]

Listed = Callable[[CheckpointStore], list[int]]
Visit = Callable[[CheckpointStore], Iterator[object]]


def latest(store: CheckpointStore) -> object:
    found = store.load_latest()
    return found and found.checkpoint_id


def by_id(store: CheckpointStore) -> object:
    found = store.load_by_id(3)
    return found and found.checkpoint_id


def state(store: CheckpointStore) -> object:
    return store.load_state_data(3)


def streamed(store: CheckpointStore) -> object:
    try:
        return b"".join(map(bytes, store.stream_state_data(3)))
    except CheckpointNotFoundError:
        return None


def recovered(store: CheckpointStore) -> object:
    report = store.recover_latest_validated()
    return report.chosen_id, report.broken, report.fresh_start


def validated(store: CheckpointStore) -> object:
    return store.validate_checkpoint(3).damage


def examined(store: CheckpointStore) -> object:
    return examine(store, 3, read_data=False).result.damage


def chained(store: CheckpointStore) -> object:
    newest = store.load_latest()
    assert newest is not None
    try:
        return [manifest.checkpoint_id for manifest in chain_of(store, newest)]
    except CheckpointNotFoundError:
        return "pruned"


def healthy(store: CheckpointStore) -> object:
    return [check.found for check in check_contents(store) if check.verdict == "failed"]


def pruning_plan(store: CheckpointStore) -> object:
    return [(each.checkpoint_id, each.keep) for each in store.plan_prune(2)]


def described(store: CheckpointStore) -> object:
    newest = store.load_latest()
    assert newest is not None
    try:
        return describe(store, newest)["broken_chain"]
    except CheckpointNotFoundError:
        return None


def explained(store: CheckpointStore) -> object:
    document = explain_walk(store)
    return document["outcome"], document["chosen"] and document["chosen"]["id"]


EXACT: list[Read] = [
    explained,
    described,
    latest,
    by_id,
    state,
    streamed,
    recovered,
    validated,
    examined,
    healthy,
    pruning_plan,
    lambda store: store.plan_cleanup(0),
    lambda store: store.next_id(),
]
"""Their answer is the one from before or the one from after."""


def ids(store: CheckpointStore) -> list[int]:
    return store.list_ids()


def epochs(store: CheckpointStore) -> list[int]:
    return [number for number, _ in store.list()]


def surveyed(store: CheckpointStore) -> list[int]:
    found = list(scan(store))
    assert [each for each in found if each.damage] == []
    return sorted(each.checkpoint_id for each in found)


def summarized(store: CheckpointStore) -> list[int]:
    found = summarize_checkpoints(store)
    assert [each for each in found.values() if each.damage] == []
    return sorted(found)


LISTINGS: list[Listed] = [ids, epochs, surveyed, summarized]
"""Each of their rows is of one moment; the newest is never missing."""


# what a writer does, step by step


def exhaust(steps: Iterator[object]) -> None:
    for _ in steps:
        pass


def save_and_prune(store: CheckpointStore) -> Iterator[object]:
    for text in "abc":
        yield save_next(text)(store)
    yield store.prune(1)


def prune_around_a_pin(store: CheckpointStore) -> Iterator[object]:
    yield store.pin("old", 1)
    yield from save_and_prune(store)


def only_prune(store: CheckpointStore) -> Iterator[object]:
    yield store.prune(1)


def claim_and_prune(store: CheckpointStore) -> Iterator[object]:
    yield store.claim()
    yield from save_and_prune(store)
    store.close()
    yield None


def claim_twice(store: CheckpointStore) -> Iterator[object]:
    yield store.claim()
    yield store.claim()


def roll_back(store: CheckpointStore) -> Iterator[object]:
    yield store.claim()
    yield store.supersede(3, 3)
    yield save(store.next_id(), "again", parent=2)(store)


def prune_on_a_full_disk(store: CheckpointStore) -> Iterator[object]:
    """Save, then remove before ``owner.json`` could be changed, which fails to the end."""
    for text in "ab":
        yield save_next(text)(store)

    def full(change: Callable[[Owner], Owner]) -> Owner:
        change(store.owner())
        raise StoreUnavailableError("full") from OSError(errno.ENOSPC, "No space left on device")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(store._parts.ownership, "amend", full)
        with pytest.raises(StoreUnavailableError):
            store.prune(1)
    yield None


VISITS: list[Visit] = [
    save_and_prune,
    prune_around_a_pin,
    only_prune,
    prune_on_a_full_disk,
    claim_and_prune,
    claim_twice,
    roll_back,
]


class Meeting:
    """A store of three checkpoints, one of which builds on another, and a reader at its seat."""

    def __init__(self, place: Place) -> None:
        self.place = place
        with place.store() as store:
            save(1, "before")(store)
            save(2, "before")(store)
            save(3, "before", parent=2)(store)
        self.seat: Seat = place.seat()
        self.reader = place.store(self.seat)

    def arm(self, at: int, visit: Visit) -> None:
        """Let the visitor in before that I/O of the reader."""
        self.seat.arm(at, lambda: exhaust(self.steps(visit)))

    def steps(self, visit: Visit) -> Iterator[object]:
        return visit(self.place.store(self.place.seat()))


def possible(place: Place, visit: Visit, read: Read) -> list[object]:
    """What a reader finds before a visit and after each of its steps."""
    meeting = Meeting(place)
    return [
        read(place.store()),
        *(read(place.store()) for _ in meeting.steps(visit)),
    ]


def overtaken(places: Iterator[Place], visit: Visit, read: Read) -> Iterator[object]:
    """What the reader finds, for a visit at each of its I/Os."""
    for at in range(1, 200):
        meeting = Meeting(next(places))
        meeting.arm(at, visit)
        found = read(meeting.reader)
        if meeting.seat.disarm():
            assert at > 1, "nothing was read"
            return
        yield found
    raise AssertionError("it never came to an end")


def check(places: Iterator[Place], visit: Visit, read: Read) -> None:
    """The answer is one that the store gives at some moment of the visit."""
    allowed = possible(next(places), visit, read)
    for found in overtaken(places, visit, read):
        assert found in allowed or (read is chained and found == "pruned"), read


def check_listing(places: Iterator[Place], visit: Visit, read: Listed) -> None:
    """Each row was there at some moment, and none is missing that was there all the time."""
    allowed = [set(read_ids) for read_ids in possible(next(places), visit, read)]  # type: ignore[call-overload]
    for found in overtaken(places, visit, read):
        assert isinstance(found, list)
        assert set(found) <= set().union(*allowed)
        assert set(found) >= set.intersection(*allowed)
        assert max(found) in map(max, allowed), "the newest is missing"


def places_of(kind: Kind, root: Path) -> Iterator[Place]:
    number = 0
    while True:
        number += 1
        yield Place(kind, str(root / str(number)))


@pytest.mark.parametrize("visit", VISITS)
@pytest.mark.parametrize("kind", IN_MEMORY)
def test_a_reader_sees_a_whole_store_whatever_a_writer_does_meanwhile(
    kind: Kind, visit: Visit, tmp_path: Path
) -> None:
    for number, read in enumerate([*EXACT, chained]):
        check(places_of(kind, tmp_path / str(number)), visit, read)
    for read in LISTINGS:
        check_listing(places_of(kind, tmp_path / read.__name__), visit, read)


def test_a_reader_of_a_disk_is_overtaken_as_harmlessly(tmp_path: Path) -> None:
    for number, read in enumerate((latest, recovered, state)):
        check(places_of("filesystem", tmp_path / str(number)), save_and_prune, read)
    for listing in (ids, epochs, surveyed):
        places = places_of("filesystem", tmp_path / listing.__name__)
        check_listing(places, save_and_prune, listing)


@pytest.mark.parametrize("read", [latest, epochs, surveyed])
def test_a_listing_that_has_missed_everything_is_repeated(read: Read, tmp_path: Path) -> None:
    """What it could have found was pruned on a full disk, and what was saved came after it."""
    meeting = Meeting(Place("object", str(tmp_path)))
    missed = ["manifests/"]

    class Late(Seat):
        def entries(self, prefix: str) -> list[Entry]:
            return [] if missed and prefix == missed.pop() else super().entries(prefix)

    seat = Late(meeting.place.blobs)
    assert read(meeting.place.store(seat)) == read(meeting.place.store())


def listed_and_verified(store: CheckpointStore) -> list[int]:
    _, rows, _ = until_settled(partial(_listed, store, verify=True), store.url)
    assert [each for each in rows.values() if each.damage] == []
    return sorted(rows)


def verified(store: CheckpointStore) -> list[int]:
    checks = until_settled(partial(check_named, store, None, 1.0, 0, no_bar), store.url)
    assert {each.status for each in checks} <= {"ok", "gone"}
    return [each.id for each in checks if each.status == "ok"]


@pytest.mark.parametrize("visit", VISITS)
@pytest.mark.parametrize("read", [listed_and_verified, verified])
def test_what_is_verified_beside_a_writer_is_neither_damaged_nor_nothing(
    read: Listed, visit: Visit, tmp_path: Path
) -> None:
    for found in overtaken(places_of("locked", tmp_path), visit, read):
        assert found


class Unlucky(Seat):
    """Its first listing has missed a checkpoint that was saved meanwhile, but not the next one."""

    def __init__(self, base: Blobs, missed: str) -> None:
        super().__init__(base)
        self._missed: str | None = missed

    def entries(self, prefix: str) -> list[Entry]:
        found = super().entries(prefix)
        seen = [entry for entry in found if entry.key != self._missed]
        if len(seen) < len(found):
            self._missed = None
        return seen


@pytest.mark.parametrize("read", [summarized, listed_and_verified, verified])
def test_a_parent_that_a_listing_has_missed_is_not_called_gone(
    read: Listed, tmp_path: Path
) -> None:
    place = Meeting(Place("object", str(tmp_path))).place
    reader = place.store(Unlucky(place.blobs, place.layout.manifest(2)))
    assert sorted(read(reader)) == [1, 2, 3]


def test_a_copy_takes_a_parent_that_a_listing_has_missed(tmp_path: Path) -> None:
    place = Meeting(Place("object", str(tmp_path))).place
    reader = place.store(Unlucky(place.blobs, place.layout.manifest(2)))
    results = copy_checkpoints(reader, CheckpointStore(MemoryBlobs(), ObjectLayout()))
    assert [(each.checkpoint_id, each.outcome) for each in results] == [
        (number, "copied") for number in (1, 2, 3)
    ]


class OnS3(Place):
    """A place in a bucket of its own prefix."""

    def __init__(self, server: ObjectServer) -> None:
        self._server, self._url = server, server.new_url("overtaken")
        super().__init__("object")

    def _base(self) -> Blobs:
        return ObjectBlobs.open(self._url, self._server.storage_options, conditional=True)


@pytest.mark.slow
def test_a_reader_of_s3_is_overtaken_as_harmlessly(s3: ObjectServer) -> None:
    def places() -> Iterator[Place]:
        while True:
            yield OnS3(s3)

    for read in (latest, recovered):
        check(places(), save_and_prune, read)
    check_listing(places(), claim_twice, ids)


class Crowd(Seat):
    """Another writer is let in before every single call."""

    def __init__(self, base: Blobs, visit: Callable[[], None]) -> None:
        super().__init__(base)
        self._visit = visit

    def _next(self) -> Blobs:
        self._visit()
        return self.base


@pytest.mark.parametrize("read", [latest, recovered, ids, epochs, surveyed, pruning_plan])
def test_a_reader_that_is_always_overtaken_says_so_and_blames_nobody(read: Read) -> None:
    blobs = MemoryBlobs()
    writer = CheckpointStore(blobs, ObjectLayout())
    exhaust(save_and_prune(writer))
    crowd = Crowd(blobs, lambda: exhaust(save_and_prune(writer)))
    reader = CheckpointStore(crowd, ObjectLayout())
    try:
        found = read(reader)
    except StoreUnavailableError as error:
        assert "pruned while they were being read" in error.what
        assert "pin" in (error.hint or "")
    else:
        assert found
        assert read is not recovered or (isinstance(found, tuple) and found[0] and not found[1])


@pytest.mark.parametrize("kind", IN_MEMORY)
def test_what_is_really_gone_is_damage_even_while_others_prune(kind: Kind, tmp_path: Path) -> None:
    """Somebody has removed the manifest that the pointer names, and an old one is pruned."""
    for at in range(1, 12):
        meeting = Meeting(Place(kind, str(tmp_path / str(at))))
        meeting.place.overwrite(meeting.place.layout.manifest(3), None)
        meeting.arm(at, only_prune)
        report = meeting.reader.recover_latest_validated()
        assert report.chosen_id == 2
        assert report.broken == [
            (3, "manifest not found for checkpoint 3, although the pointer names it")
        ]


@pytest.mark.parametrize("kind", IN_MEMORY)
def test_state_that_is_really_damaged_is_damage_even_while_others_prune(
    kind: Kind, tmp_path: Path
) -> None:
    for at in range(1, 12):
        meeting = Meeting(Place(kind, str(tmp_path / str(at))))
        meeting.place.overwrite(meeting.place.layout.state(3), b"something else")
        meeting.arm(at, only_prune)
        report = meeting.reader.recover_latest_validated()
        assert report.chosen_id == 2
        assert [number for number, _ in report.broken] == [3]
        with pytest.raises(DamageError):
            meeting.reader.load_state_data(3)


@pytest.mark.parametrize("kind", IN_MEMORY)
@pytest.mark.parametrize("visit", [save_and_prune, prune_on_a_full_disk])
@pytest.mark.parametrize("wanted", [None, 3])
def test_a_copy_that_is_overtaken_copies_what_is_there_or_says_that_it_is_gone(
    kind: Kind, wanted: int | None, visit: Visit, tmp_path: Path
) -> None:
    for at in range(1, 100):
        meeting = Meeting(Place(kind, str(tmp_path / str(at))))
        meeting.arm(at, visit)
        target = CheckpointStore(MemoryBlobs(), ObjectLayout())
        try:
            plan = plan_copy(meeting.reader, target, wanted)
        except CheckpointNotFoundError:
            assert wanted is not None
            continue
        results = copy_checkpoints(meeting.reader, target, plan)
        outcomes = {each.outcome for each in results}
        assert outcomes <= {"copied", "gone"}
        report = target.recover_latest_validated()
        assert (report.chosen_id is not None) == ("copied" in outcomes)
        assert report.broken == []
        if meeting.seat.disarm():
            return
    raise AssertionError("it never came to an end")


# a rollback that has claimed the store already


def finish_rollback(store: CheckpointStore) -> Callable[[], None]:
    """Claim; what is left of the rollback is done by the returned function."""
    store.claim()

    def finish() -> None:
        store.supersede(2, 3)
        save(store.next_id(), "again", parent=1)(store)
        store.release()

    return finish


def standings(store: CheckpointStore) -> object:
    return [(each.checkpoint_id, each.superseded) for each in scan(store)]


def statuses(store: CheckpointStore) -> object:
    return [(i, each.status) for i, each in summarize_checkpoints(store).items()]


def rollback_plan(store: CheckpointStore) -> object:
    return plan_rollback(store, 1).given_up


def copied(store: CheckpointStore) -> object:
    """What a copy holds when it is done, however often it has to be repeated."""
    target = CheckpointStore(MemoryBlobs(), ObjectLayout())
    for _ in range(3):
        with suppress(StoreUnavailableError):
            copy_checkpoints(store, target)
            break
    else:
        raise AssertionError("the source was rolled back once, and the copy failed three times")
    owner, newest = target.owner(), target.load_latest()
    assert newest is not None
    if newest.timeline is not None:  # that of the rollback
        assert newest.timeline == owner.timeline, "one history, and the owner of another"
    return newest.checkpoint_id, owner.superseded


@pytest.mark.parametrize("read", [standings, statuses, rollback_plan, pruning_plan, copied])
@pytest.mark.parametrize("kind", IN_MEMORY)
def test_a_reader_never_mixes_the_histories_before_and_after_a_rollback(
    kind: Kind, read: Read, tmp_path: Path
) -> None:
    places = places_of(kind, tmp_path)
    place = Meeting(next(places)).place
    finish = finish_rollback(place.store())
    allowed = [read(place.store())]
    finish()
    allowed.append(read(place.store()))
    for at in range(1, 200):
        meeting = Meeting(next(places))
        rollback = finish_rollback(meeting.place.store(meeting.place.seat()))
        meeting.seat.arm(at, rollback)
        assert read(meeting.reader) in allowed, at
        if meeting.seat.disarm():
            assert at > 1
            return
    raise AssertionError("it never came to an end")


def test_a_copy_of_a_source_that_is_rolled_back_meanwhile_is_refused_and_can_be_repeated() -> None:
    source = Meeting(Place("object")).reader
    finish = finish_rollback(source)
    target = CheckpointStore(MemoryBlobs(), ObjectLayout())
    plan = plan_copy(source, target)
    finish()
    with pytest.raises(StoreUnavailableError, match="rolled back while it was being copied"):
        copy_checkpoints(source, target, plan)
    copy_checkpoints(source, target)
    newest = target.load_latest()
    assert newest is not None
    assert (newest.checkpoint_id, newest.timeline) == (4, source.owner().timeline)
    assert target.owner().superseded == source.owner().superseded
