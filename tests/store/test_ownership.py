"""Two writers on one store, paused before each single I/O of the one for all that the other does.

Every case runs once for each I/O that the first writer makes. On an object store only conditional
writes keep the two apart; on a disk the lock does, and the second one may have to wait for it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import ClassVar

import pytest

from seamark import CheckpointManifest, FencedError, OperatorCheckpoint, SinkCommitStatus
from seamark.blobs.contract import Tag
from seamark.errors import CheckpointNotFoundError, RefusedError, SeamarkError
from seamark.store import CheckpointStore
from seamark.store.manifests import tombstone_bytes
from seamark.store.owner import Standing, standing
from tests.store.support.interleaving import Kind, ObjectSeat, Place, Seat

WAIT = 100.0
A_MOMENT = 0.05
KINDS: list[Kind] = ["object", "locked", "filesystem"]

Answer = CheckpointManifest | SeamarkError | object
Operation = Callable[[CheckpointStore], object]


def manifest(checkpoint_id: int, text: str = "", parent: int | None = None) -> CheckpointManifest:
    return CheckpointManifest.new(
        checkpoint_id,
        epoch=checkpoint_id,
        operator_states={"op": OperatorCheckpoint.in_sidecar(0, 4)},
        sink_commit_statuses={"out": SinkCommitStatus.pending()},
        is_incremental=parent is not None,
        parent_id=parent,
        extra={"note": text} if text else {},
    )


def save(checkpoint_id: int, text: str = "", parent: int | None = None) -> Operation:
    state = f"state {text}".encode()
    return lambda s: s.save_with_state(manifest(checkpoint_id, text, parent), [state])


def save_next(text: str) -> Operation:
    return lambda s: save(s.next_id(), text)(s)


def prune(keep: int) -> Operation:
    return lambda s: s.prune(keep)


def claim(store: CheckpointStore) -> object:
    return store.claim()


def told(operation: Operation, store: CheckpointStore) -> Answer:
    """What the caller learns: the value, or the error that is not a surprise."""
    try:
        return operation(store)
    except (FencedError, CheckpointNotFoundError, RefusedError) as error:
        return error


class Meeting:
    """One store with a few checkpoints, and two handles; the second one waits in a thread."""

    def __init__(self, kind: Kind, root: Path, ready: Callable[[Meeting], None]) -> None:
        self.place = Place(kind, str(root))
        self.seat: Seat = self.place.seat(waits=True)
        self.first = self.place.store(self.seat)
        self.second = self.place.store(self.place.seat())
        ready(self)

    def run(self, at: int, one: Operation, other: Operation) -> tuple[Answer, Answer, bool]:
        """Both answers, and whether the other one was let in before the first had ended."""
        answers: list[Answer] = []
        thread = threading.Thread(target=lambda: answers.append(told(other, self.second)))
        entered = threading.Event()

        def let_in() -> None:
            entered.set()
            thread.start()
            locked = self.seat.locks_held > 0
            thread.join(A_MOMENT if locked else WAIT)
            assert locked or not thread.is_alive(), "it waits for a lock that nobody holds"

        self.seat.arm(at, let_in)
        answer = told(one, self.first)
        if self.seat.disarm():
            thread.start()
        thread.join(WAIT)
        assert not thread.is_alive(), "the two wait for each other"
        return answer, answers[0], entered.is_set()

    def observer(self) -> CheckpointStore:
        return self.place.store()

    def close(self) -> None:
        self.first.close()
        self.second.close()


def meetings(
    kind: Kind, tmp_path: Path, ready: Callable[[Meeting], None], one: Operation, other: Operation
) -> Iterator[tuple[Meeting, Answer, Answer]]:
    """One meeting for each I/O of ``one``, the invariants checked after each."""
    for at in range(1, 100):
        meeting = Meeting(kind, tmp_path / str(at), ready)
        before = meeting.observer().list_ids()
        first, second, was_let_in = meeting.run(at, one, other)
        check(meeting, before)
        yield meeting, first, second
        meeting.close()
        if not was_let_in:
            assert at > 2, "nothing was interleaved"
            return
    raise AssertionError("it never came to an end")


def check(meeting: Meeting, before: list[int]) -> None:
    """What holds after any two operations."""
    store = meeting.observer()
    owner = store.owner()
    readable = [i for i, _ in store.list()]
    for checkpoint_id in readable:  # I1
        result = store.validate_checkpoint(checkpoint_id)
        assert result.valid, result
        assert store.load_state_data(checkpoint_id) is not None
    current = [i for i in readable if standing(owner, i) is Standing.CURRENT]
    report = store.recover_latest_validated()
    assert report.chosen_id == max(current, default=None), "I3"
    assert not (report.fresh_start and before)
    assert store.next_id() > max([*store.list_ids(), *before, owner.prune_boundary], default=0), (
        "I5"
    )
    for pin in owner.pins.values():  # I6
        assert store.validate_checkpoint(pin.checkpoint_id).valid
    data = meeting.place.value(meeting.place.layout.pointer)
    named = meeting.place.layout.decode_pointer(data or b"") or 0
    assert named >= max(before, default=0), "I5: the pointer moved back"


def saved(*ids: int, parents: dict[int, int] | None = None) -> Callable[[Meeting], None]:
    """A store that holds these."""

    def ready(meeting: Meeting) -> None:
        with meeting.place.store() as store:
            for i in ids:
                save(i, "before", (parents or {}).get(i))(store)

    return ready


def claimed(*ids: int) -> Callable[[Meeting], None]:
    """A store that the first writer has claimed and saved these into."""

    def ready(meeting: Meeting) -> None:
        meeting.first.claim()
        for i in ids:
            save(i, "before")(meeting.first)

    return ready


def notes(meeting: Meeting, checkpoint_id: int) -> object:
    found = meeting.observer().load_by_id(checkpoint_id)
    return None if found is None else found.extra.get("note")


def won(answer: Answer) -> bool:
    return not isinstance(answer, SeamarkError)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("owned", [False, True], ids=["unclaimed", "claimed"])
def test_a_claim_lets_a_save_win_or_lose_but_not_both(
    kind: Kind, owned: bool, tmp_path: Path
) -> None:
    ready = claimed(1, 2) if owned else saved(1, 2)
    for meeting, save_answer, claim_answer in meetings(kind, tmp_path, ready, save(3, "a"), claim):
        assert won(claim_answer)
        assert (notes(meeting, 3) == "a") == won(save_answer)
        assert (notes(meeting, 3) is None) == (not won(save_answer))
        after = meeting.second.next_id()
        save(after, "b")(meeting.second)
        assert meeting.observer().recover_latest_validated().chosen_id == after
        with pytest.raises(FencedError):
            save(after + 1, "late")(meeting.first)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("owned", [False, True], ids=["unclaimed", "claimed"])
def test_a_successor_that_goes_on_and_prunes_is_not_disturbed_by_a_late_save(
    kind: Kind, owned: bool, tmp_path: Path
) -> None:
    """The late create comes after the id was used by another writer, or pruned, or cleaned up."""

    def take_over(store: CheckpointStore) -> object:
        store.claim()
        for text in "bcd":
            save_next(text)(store)
        store.prune(1)
        store.cleanup_orphans(0)
        return store.recover_latest_validated().chosen_id

    ready = claimed(1, 2) if owned else saved(1, 2)
    for meeting, late, chosen in meetings(kind, tmp_path, ready, save(3, "a"), take_over):
        assert meeting.observer().recover_latest_validated().chosen_id == chosen
        assert meeting.observer().list_ids() == [chosen]
        if won(late) and owned and notes(meeting, 3) != "a":
            with pytest.raises(FencedError):
                meeting.first.check_claim()


@pytest.mark.parametrize("kind", KINDS)
def test_a_late_save_under_a_higher_id_does_not_count(kind: Kind, tmp_path: Path) -> None:
    ready = claimed(1, 2)
    for meeting, answer, _ in meetings(kind, tmp_path, ready, save(7, "a"), claim):
        if notes(meeting, 7) is None:
            with pytest.raises(FencedError):
                meeting.first.check_claim()
        else:
            assert won(answer)
        save_next("b")(meeting.second)
        assert meeting.observer().load_latest() is not None


@pytest.mark.parametrize("kind", KINDS)
def test_two_saves_of_one_id_have_one_winner(kind: Kind, tmp_path: Path) -> None:
    for meeting, a, b in meetings(kind, tmp_path, saved(1), save(2, "a"), save(2, "b")):
        assert [won(a), won(b)].count(True) == 1
        assert notes(meeting, 2) == ("a" if won(a) else "b")
        text = b"state a" if won(a) else b"state b"
        assert meeting.observer().load_state_data(2) == text


@pytest.mark.parametrize("kind", KINDS)
def test_two_saves_into_a_tombstone_that_was_given_back_have_one_winner(
    kind: Kind, tmp_path: Path
) -> None:
    def ready(meeting: Meeting) -> None:
        saved(1)(meeting)
        with meeting.place.store() as gone:
            assert gone.claim().tombstone_id == 2

    for meeting, a, b in meetings(kind, tmp_path, ready, save(2, "a"), save(2, "b")):
        assert [won(a), won(b)].count(True) == 1
        assert notes(meeting, 2) == ("a" if won(a) else "b")


@pytest.mark.parametrize("kind", KINDS)
def test_two_claims_leave_one_owner_that_can_save(kind: Kind, tmp_path: Path) -> None:
    def ready(meeting: Meeting) -> None:
        claimed(1, 2)(meeting)
        meeting.second.claim()

    for meeting, a, b in meetings(kind, tmp_path, ready, claim, claim):
        assert won(a) or won(b)
        last = meeting.observer().owner().generation
        owners = [s for s in (meeting.first, meeting.second) if _owns(s)]
        assert len(owners) == 1, f"generation {last} has no owner"
        save_next("mine")(owners[0])
        loser = meeting.first if owners[0] is meeting.second else meeting.second
        with pytest.raises(FencedError):
            save_next("not mine")(loser)


def test_a_claim_takes_over_the_tombstone_that_a_claim_it_overtook_puts_late() -> None:
    """Without a lock the tombstone may arrive after the second claim has looked for one."""
    place = Place("object")
    with place.store() as store:
        store.claim()
        for number in (1, 2):
            save(number)(store)
    slow = place.store(place.seat())._parts
    generation = slow.ownership._raise_generation("slow", None, ExitStack()).generation

    class Late(ObjectSeat):
        arrives: ClassVar = [3]

        def create(self, key: str, data: bytes) -> Tag:
            if key == place.layout.manifest(3) and self.arrives:
                slow.manifests.put(self.arrives.pop(), tombstone_bytes(generation, "slow"), None)
            return super().create(key, data)

    fast = place.store(Late(place.blobs))
    assert fast.claim().tombstone_id == 3
    owner = place.store().owner()
    assert (owner.tombstones, owner.voided) == ((3,), ())
    assert place.store().list_ids() == [1, 2]
    save(3)(fast)
    assert place.store().list_ids() == [1, 2, 3]


def _owns(store: CheckpointStore) -> bool:
    try:
        store.check_claim()
    except FencedError:
        return False
    return True


@pytest.mark.parametrize("kind", KINDS)
def test_a_claim_that_loses_does_not_stop_the_owner_that_is_saving(
    kind: Kind, tmp_path: Path
) -> None:
    def take_over(store: CheckpointStore) -> object:
        store.claim()
        return [save_next(text)(store) for text in "ab"]

    for meeting, answer, _ in meetings(kind, tmp_path, saved(1, 2), claim, take_over):
        if not won(answer):
            save_next("c")(meeting.second)


@pytest.mark.parametrize("kind", KINDS)
def test_a_prune_and_a_save_leave_the_newest(kind: Kind, tmp_path: Path) -> None:
    for meeting, a, b in meetings(kind, tmp_path, saved(1, 2, 3), save(4, "a"), prune(1)):
        assert won(a)
        assert won(b)
        assert set(meeting.observer().list_ids()) >= {4}
    for meeting, a, b in meetings(kind, tmp_path / "p", saved(1, 2, 3), prune(1), save(4, "a")):
        assert won(a)
        assert won(b)
        assert set(meeting.observer().list_ids()) >= {4}


@pytest.mark.parametrize("kind", KINDS)
def test_two_prunes_bring_nothing_back(kind: Kind, tmp_path: Path) -> None:
    for meeting, _, _ in meetings(kind, tmp_path, saved(1, 2, 3, 4, 5), prune(3), prune(1)):
        owner = meeting.observer().owner()
        assert meeting.observer().list_ids()[-1] == 5
        for i in (1, 2, 3, 4):
            there = meeting.observer().load_by_id(i) is not None
            assert there or standing(owner, i) is Standing.PRUNED, f"{i} is gone and counts"


@pytest.mark.parametrize("kind", KINDS)
def test_a_pin_is_refused_or_honoured_by_a_prune(kind: Kind, tmp_path: Path) -> None:
    def pin(store: CheckpointStore) -> object:
        return store.pin("keep", 2)

    def unpruned(meeting: Meeting, pinned: Answer) -> None:
        ids = meeting.observer().list_ids()
        assert (2 in ids and 1 in ids) == won(pinned), "a pin keeps what it builds on"

    ready = saved(1, 2, 3, 4, parents={2: 1})
    for meeting, pinned, _ in meetings(kind, tmp_path, ready, pin, prune(1)):
        unpruned(meeting, pinned)
    for meeting, _, pinned in meetings(kind, tmp_path / "p", ready, prune(1), pin):
        unpruned(meeting, pinned)


@pytest.mark.parametrize("kind", KINDS)
def test_a_fenced_prune_takes_nothing_that_a_rollback_needs(kind: Kind, tmp_path: Path) -> None:
    """The plan of a writer that was paused is not carried out after its successor rolled back."""

    def roll_back(store: CheckpointStore) -> object:
        store.claim()
        store.supersede(3, 4)
        return save(store.next_id(), "again", parent=2)(store)

    ready = claimed(1, 2, 3, 4)
    for meeting, _, new in meetings(kind, tmp_path, ready, prune(2), roll_back):
        if won(new):
            assert isinstance(new, CheckpointManifest)
            report = meeting.observer().recover_latest_validated()
            assert report.chosen_id == new.checkpoint_id, report


@pytest.mark.parametrize("kind", KINDS)
def test_two_updates_lose_no_status(kind: Kind, tmp_path: Path) -> None:
    def update(**statuses: str) -> Operation:
        def run(store: CheckpointStore) -> object:
            found = store.load_by_id(1)
            assert found is not None
            told_by = {name: SinkCommitStatus.failed(text) for name, text in statuses.items()}
            merged = {**found.sink_commit_statuses, **told_by}
            return store.update_manifest(found.replace(sink_commit_statuses=merged))

        return run

    for meeting, a, b in meetings(kind, tmp_path, saved(1), update(a="1"), update(b="2")):
        found = meeting.observer().load_by_id(1)
        assert found is not None
        assert won(a) or won(b)
        for name, answer in (("a", a), ("b", b)):
            assert (name in found.sink_commit_statuses) == won(answer)


@pytest.mark.parametrize("kind", KINDS)
def test_an_update_never_brings_back_what_a_prune_removed(kind: Kind, tmp_path: Path) -> None:
    def update(store: CheckpointStore) -> object:
        found = store.load_by_id(1)
        if found is None:
            return None
        return store.update_manifest(found.with_extra(note="new"))

    for meeting, _, _ in meetings(kind, tmp_path, saved(1, 2), update, prune(1)):
        assert meeting.observer().list_ids() == [2]
        assert meeting.place.value(meeting.place.layout.manifest(1)) is None


@pytest.mark.parametrize("kind", KINDS)
def test_a_visit_that_claims_and_leaves_costs_an_unclaimed_save_at_most_an_error(
    kind: Kind, tmp_path: Path
) -> None:
    """A clean-up by command claims, does its work and leaves, while a save is under way."""

    def visit(store: CheckpointStore) -> object:
        store.claim()
        store.cleanup_orphans(0)
        store.close()
        return None

    for meeting, answer, _ in meetings(kind, tmp_path, saved(1, 2), save(3, "a"), visit):
        assert won(answer) == (notes(meeting, 3) == "a")
    if kind != "object":  # where nothing is locked, only check_claim() of a claim tells
        for meeting, answer, _ in meetings(kind, tmp_path / "h", saved(1, 2), save(5, "a"), visit):
            assert won(answer) == (notes(meeting, 5) == "a")
