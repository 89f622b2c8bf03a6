"""Operations on state to break, what was true before each, and what must be true afterwards."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Protocol

from seamark.blobs.contract import Blobs
from seamark.errors import SeamarkError
from seamark.state import CheckpointBatcher, CheckpointId, PartitionState, StateStore

BIG = bytes(range(256))
HERE, THERE = "checkpoints/", "copies/"
Place = tuple[str, int]
States = Mapping[Place, PartitionState]
Entries = list[tuple[str, bytes]]


class Open(Protocol):
    """The backend as a new process opens it."""

    def __call__(self) -> Blobs: ...


def state_store(open_blobs: Open, prefix: str = HERE) -> StateStore:
    """One thread, so that the order of I/Os is the same each time; small limits."""
    return StateStore(
        open_blobs(), prefix=prefix, parallelism=1, pack_below=100, pack_bytes=150, longest_chain=2
    )


@dataclass
class Facts:
    """What callers were told before the accident, and what the accident may have changed."""

    acknowledged: dict[tuple[str, CheckpointId], States] = field(default_factory=dict)
    may_appear: dict[tuple[str, CheckpointId], States] = field(default_factory=dict)
    may_vanish: set[tuple[str, CheckpointId]] = field(default_factory=set)
    flushed: dict[int, Entries] = field(default_factory=dict)
    may_be_flushed: dict[int, Entries] = field(default_factory=dict)

    def copied(self) -> Facts:
        """The same facts, to be changed by one of many accidents."""
        return Facts(
            dict(self.acknowledged),
            dict(self.may_appear),
            set(self.may_vanish),
            {epoch: list(entries) for epoch, entries in self.flushed.items()},
            {epoch: list(entries) for epoch, entries in self.may_be_flushed.items()},
        )

    def ids(self, prefix: str = HERE) -> list[CheckpointId]:
        """The acknowledged ones, oldest first."""
        return sorted(i for where, i in self.acknowledged if where == prefix)


@dataclass(frozen=True)
class Scenario:
    """``prepare`` runs in peace, ``act`` is what the accident hits and can be repeated after it."""

    name: str
    prepare: Callable[[Open, Facts], None]
    act: Callable[[Open, Facts], None]


def commit(
    store: StateStore,
    facts: Facts,
    puts: Mapping[Place, bytes],
    *,
    parent: CheckpointId | None = None,
    delta: bool = False,
    **options: Any,
) -> CheckpointId:
    """Write a checkpoint and note what it must restore to."""
    states = dict(facts.may_appear[HERE, parent]) if parent else {}
    with store.begin(1, parent=parent, **options) as writer:
        for place, state in puts.items():
            writer.put(*place, state, is_delta=delta)
            if delta:
                old = states[place]
                states[place] = PartitionState(old.snapshot, [*old.deltas, state])
            else:
                states[place] = PartitionState(state, [])
        facts.may_appear[HERE, writer.checkpoint_id] = states
        writer.commit()
    facts.acknowledged[HERE, writer.checkpoint_id] = states
    return writer.checkpoint_id


def first_states() -> dict[Place, bytes]:
    return {("agg", 0): b"a" * 80, ("agg", 1): bytes(range(99)), ("join", 0): BIG}


def _nothing(open_blobs: Open, facts: Facts) -> None:
    pass


def _one(open_blobs: Open, facts: Facts) -> None:
    commit(state_store(open_blobs), facts, first_states())


def _line(open_blobs: Open, facts: Facts) -> None:
    _one(open_blobs, facts)
    for number in (1, 2):
        changes = {("agg", 0): b"delta %d" % number, ("join", 0): BIG[: 100 + number]}
        parent = facts.ids()[-1]
        commit(state_store(open_blobs), facts, changes, parent=parent, delta=number == 1)


def _line_and_rebase(open_blobs: Open, facts: Facts) -> None:
    _line(open_blobs, facts)
    _rebase(open_blobs, facts)


def _three(open_blobs: Open, facts: Facts) -> None:
    for _ in range(3):
        _one(open_blobs, facts)


def _two_lines(open_blobs: Open, facts: Facts) -> None:
    _line(open_blobs, facts)
    _one(open_blobs, facts)


def _first_commit(open_blobs: Open, facts: Facts) -> None:
    commit(state_store(open_blobs), facts, first_states())


def _incremental(open_blobs: Open, facts: Facts) -> None:
    changes = {("agg", 0): b"changes", ("join", 0): BIG[:101]}
    commit(state_store(open_blobs), facts, changes, parent=facts.ids()[0], delta=True)


def _rebase(open_blobs: Open, facts: Facts) -> None:
    changes = {("agg", 1): b"new", ("join", 0): BIG}
    commit(state_store(open_blobs), facts, changes, parent=facts.ids()[2], rebase=True)


def _removing(facts: Facts, doomed: list[CheckpointId], remove: Callable[[], object]) -> None:
    keys = {(HERE, checkpoint_id) for checkpoint_id in doomed}
    facts.may_vanish |= keys
    remove()
    for key in keys:
        facts.acknowledged.pop(key, None)


def _prune(open_blobs: Open, facts: Facts) -> None:
    *doomed, _ = facts.ids()
    _removing(facts, doomed, lambda: state_store(open_blobs).prune(1))


def _delete(open_blobs: Open, facts: Facts) -> None:
    *_, last = facts.ids()
    store = state_store(open_blobs)
    if last in store.list():
        _removing(facts, [last], lambda: store.delete(last))


def _delete_the_origin(open_blobs: Open, facts: Facts) -> None:
    """All but the rebased one go, newest first; it refers to objects of all of them."""
    for checkpoint_id in facts.ids()[2::-1]:
        store = state_store(open_blobs)
        if checkpoint_id in store.list():
            _removing(facts, [checkpoint_id], partial(store.delete, checkpoint_id))


def _copy(open_blobs: Open, facts: Facts) -> None:
    source, target = state_store(open_blobs), state_store(open_blobs, THERE)
    last = facts.ids()[-1]
    whole = {(THERE, i): s for (where, i), s in facts.acknowledged.items() if where == HERE}
    facts.may_appear |= whole
    source.copy(last, target)
    facts.acknowledged[THERE, last] = whole[THERE, last]


def _with_orphans(open_blobs: Open, facts: Facts) -> None:
    _line_and_rebase(open_blobs, facts)
    store = state_store(open_blobs)
    for checkpoint_id in (CheckpointId.now(), facts.ids()[0]):
        task = store.task(checkpoint_id, "dead")
        task.put("agg", 0, b"small")
        task.put("agg", 5, BIG)
        task.finish()


def _clean(open_blobs: Open, facts: Facts) -> None:
    state_store(open_blobs).cleanup_orphans(min_age=0)


def _flushed_once(open_blobs: Open, facts: Facts) -> None:
    _flush(open_blobs, facts, [("first", b"entry")])


def _flush(open_blobs: Open, facts: Facts, entries: Entries | None = None) -> None:
    batcher = CheckpointBatcher(open_blobs())
    entries = entries or [("agg/0", b"x" * 50), ("agg/1", BIG)]
    for key, data in entries:
        batcher.add(key, data)
    facts.may_be_flushed.setdefault(7, []).extend(entries)
    batcher.flush(7)
    facts.flushed.setdefault(7, []).extend(entries)


SCENARIOS = [
    Scenario("a first commit", _nothing, _first_commit),
    Scenario("an incremental commit", _one, _incremental),
    Scenario("a rebase", _line, _rebase),
    Scenario("a prune", _three, _prune),
    Scenario("a prune of a chain", _two_lines, _prune),
    Scenario("a prune of what a rebase refers to", _line_and_rebase, _prune),
    Scenario("a delete", _line, _delete),
    Scenario("deletes of what a rebase refers to", _line_and_rebase, _delete_the_origin),
    Scenario("a copy", _line, _copy),
    Scenario("a copy of a rebased one", _line_and_rebase, _copy),
    Scenario("a clean-up", _with_orphans, _clean),
    Scenario("a first flush", _nothing, _flush),
    Scenario("a second flush", _flushed_once, _flush),
]


def violations(
    open_blobs: Open, facts: Facts, *, go_on: bool = True, restore: bool = True
) -> Iterator[str]:
    """Every promise that does not hold in what an accident has left.

    With ``go_on`` the next process then works on; what it is told is noted in ``facts``. Without
    ``restore`` checkpoints are verified only, which takes half the time.
    """
    for prefix in (HERE, THERE):
        store = state_store(open_blobs, prefix)
        yield from _listed_but_broken(store, prefix, facts, restore=restore)
    yield from _flushes(CheckpointBatcher(open_blobs()), facts)
    if go_on:
        try:
            yield from _the_next_process(open_blobs, facts)
        except SeamarkError as error:
            yield f"the next process cannot go on: {error!r}"


def _listed_but_broken(
    store: StateStore, prefix: str, facts: Facts, *, restore: bool
) -> Iterator[str]:
    ids = store.list()
    known = {i: s for (where, i), s in facts.may_appear.items() if where == prefix}
    acknowledged = {i for where, i in facts.acknowledged if where == prefix}
    gone = {i for where, i in facts.may_vanish if where == prefix}
    if lost := acknowledged - set(ids) - gone:
        yield f"I3 {prefix}: acknowledged {lost} are lost"
    for checkpoint_id in ids:
        if checkpoint_id not in known:
            yield f"{prefix}: {checkpoint_id} appeared from nowhere"
            continue
        if issues := store.verify(checkpoint_id).issues:
            kind = "doomed" if checkpoint_id in gone else "visible"
            yield f"I1 {prefix}: {checkpoint_id} is {kind} and damaged: {issues}"
            continue
        if not restore:
            continue
        found = {(name, number): state for name, number, state in store.restore_all(checkpoint_id)}
        if found != known[checkpoint_id]:
            yield f"I1 {prefix}: {checkpoint_id} restores to {found}"
    latest = store.latest()
    certain = max(acknowledged - gone, default=None)
    if certain and (latest is None or latest.checkpoint_id < certain):
        yield f"I3 {prefix}: {certain} was acknowledged, the latest is {latest}"


def _flushes(batcher: CheckpointBatcher, facts: Facts) -> Iterator[str]:
    try:
        found = batcher.load(7)
    except SeamarkError as error:
        yield f"a batch cannot be loaded: {error!r}"
        return
    certain = facts.flushed.get(7, [])
    maybe = facts.may_be_flushed.get(7, [])
    if missing := [entry for entry in certain if entry not in found]:
        yield f"flushed entries {missing} are lost: {found}"
    if extra := [entry for entry in found if entry not in maybe]:
        yield f"entries {extra} were never flushed"


def _the_next_process(open_blobs: Open, facts: Facts) -> Iterator[str]:
    """Builds on the latest, begins anew, repeats the copy, flushes: all must work."""
    store = state_store(open_blobs)
    latest = store.latest()
    if latest is not None:
        child = commit(store, facts, {("new", 9): b"child"}, parent=latest.checkpoint_id)
        if (found := store.latest()) is None or found.checkpoint_id != child:
            yield f"committed {child}, the latest is {found}"
    commit(store, facts, {("agg", 0): b"begins anew"})
    if facts.may_appear.keys() & {(THERE, i) for i in facts.ids()}:
        _copy_again(open_blobs, facts)
    _flush(open_blobs, facts, [("of the next process", b"more")])
    yield from violations(open_blobs, facts, go_on=False, restore=False)


def _copy_again(open_blobs: Open, facts: Facts) -> None:
    last = max(i for where, i in facts.may_appear if where == THERE)
    state_store(open_blobs).copy(last, state_store(open_blobs, THERE))
    facts.acknowledged[THERE, last] = facts.may_appear[THERE, last]
