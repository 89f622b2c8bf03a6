"""A checkpoint that is published while others are removed is whole, or was never published.

Before each single I/O of the one the other runs as a whole.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any

import pytest

from seamark.blobs.contract import Blobs
from seamark.blobs.memory import MemoryBlobs
from seamark.errors import CheckpointNotFoundError, RefusedError, StoreUnavailableError
from seamark.state import CheckpointId, StateStore
from seamark.state.read_states import ReadStates
from tests.state.test_order import written
from tests.store.support.interleaving import ObjectSeat

Remove = Callable[[StateStore, CheckpointId], object]


def prune(store: StateStore, _: CheckpointId) -> object:
    return store.prune(1)


def delete(store: StateStore, parent: CheckpointId) -> object:
    try:
        store.delete(parent)
    except RefusedError as error:
        return error
    return None


REMOVALS: list[Remove] = [prune, delete]


def go_back(store: StateStore, parent: CheckpointId, *, rebase: bool) -> CheckpointId | None:
    """A checkpoint that builds on an older one; None when that is gone."""
    try:
        with store.begin(4, parent=parent, rebase=rebase) as writer:
            writer.put("op", 1, b"of another partition")
            return writer.commit().checkpoint_id
    except CheckpointNotFoundError as error:
        assert str(parent) in error.what
        return None


def begun(blobs: Blobs) -> tuple[StateStore, CheckpointId]:
    """A store, and a checkpoint that has a parent and is not the newest."""
    store = StateStore(blobs)
    parent = written(store, 2, None, parent=written(store, 1, None))
    written(store, 3, None)
    return store, parent


def begun_with_a_rebased_parent(blobs: Blobs) -> tuple[StateStore, CheckpointId]:
    """The same; the parent names objects of one that it does not build on."""
    store = StateStore(blobs)
    first = written(store, 1, None)
    with store.begin(2, parent=first, rebase=True) as writer:
        writer.put("op", 1, b"of another partition")
        parent = writer.commit().checkpoint_id
    written(store, 3, None)
    return store, parent


def require_whole(store: StateStore, made: CheckpointId | None, at: int) -> None:
    if made is None:
        newest = store.latest()
        assert newest is not None
        made = newest.checkpoint_id
    assert store.verify(made).issues == [], at
    store.cleanup_orphans(0)
    assert store.verify(made).issues == [], at


@pytest.mark.parametrize("rebase", [False, True], ids=["child", "rebased"])
@pytest.mark.parametrize("remove", REMOVALS)
def test_what_is_published_during_a_removal_keeps_what_it_builds_on(
    remove: Remove, rebase: bool
) -> None:
    kept = 0
    for at in range(1, 100):
        blobs = MemoryBlobs()
        seat = ObjectSeat(blobs)
        beside, parent = begun(blobs)
        made: list[CheckpointId | None] = []

        def publish(beside: StateStore = beside, parent: Any = parent, made: Any = made) -> None:
            made.append(go_back(beside, parent, rebase=rebase))

        seat.arm(at, publish)
        remove(StateStore(seat), parent)
        if seat.disarm():
            assert kept > 3, "it was hardly ever published"
            return
        kept += made[0] is not None
        require_whole(beside, made[0], at)
    raise AssertionError("it never came to an end")


class FailingSeat(ObjectSeat):
    """One of the calls after the other process was let in is not answered."""

    fails_in = 0

    def _next(self) -> Blobs:
        was_waiting = self._visitor is not None
        base = super()._next()
        if not was_waiting and self._visitor is None:
            self.fails_in -= 1
            if self.fails_in == 0:
                raise StoreUnavailableError("no answer")
        return base


@pytest.mark.parametrize("fails_in", range(1, 9))
@pytest.mark.parametrize("remove", REMOVALS)
def test_what_is_published_during_a_removal_that_fails_keeps_what_it_builds_on(
    remove: Remove, fails_in: int
) -> None:
    for at in range(1, 100):
        blobs = MemoryBlobs()
        seat = FailingSeat(blobs)
        seat.fails_in = fails_in
        beside, parent = begun(blobs)
        made: list[CheckpointId | None] = []

        def publish(beside: StateStore = beside, parent: Any = parent, made: Any = made) -> None:
            made.append(go_back(beside, parent, rebase=False))

        seat.arm(at, publish)
        with suppress(StoreUnavailableError):
            remove(StateStore(seat), parent)
        if seat.disarm():
            return
        require_whole(beside, made[0], at)
    raise AssertionError("it never came to an end")


@pytest.mark.parametrize("rebase", [False, True], ids=["child", "rebased"])
@pytest.mark.parametrize("is_removed_first", [False, True], ids=["then removed", "removed first"])
def test_what_is_left_for_one_that_is_being_published_is_left_whole(
    rebase: bool, is_removed_first: bool
) -> None:
    for at in range(1, 100):
        blobs = MemoryBlobs()
        seat = ObjectSeat(blobs)
        beside, parent = begun_with_a_rebased_parent(blobs)

        def publish(beside: StateStore = beside, parent: CheckpointId = parent) -> None:
            go_back(beside, parent, rebase=rebase)

        def take(beside: StateStore = beside) -> None:
            beside.prune(1)

        seat.arm(at, publish if is_removed_first else take)
        if is_removed_first:
            StateStore(seat).prune(1)
        else:
            go_back(StateStore(seat), parent, rebase=rebase)
        if seat.disarm():
            assert at > 3, "hardly anything was read"
            return
        for checkpoint_id in beside.list():
            assert beside.verify(checkpoint_id).issues == [], at
    raise AssertionError("it never came to an end")


@pytest.mark.parametrize("rebase", [False, True], ids=["child", "rebased"])
@pytest.mark.parametrize("remove", REMOVALS)
def test_what_is_to_be_published_after_its_parent_has_gone_is_refused(
    remove: Remove, rebase: bool
) -> None:
    told = 0
    for at in range(1, 100):
        blobs = MemoryBlobs()
        seat = ObjectSeat(blobs)
        beside, parent = begun(blobs)

        def take(beside: StateStore = beside, parent: Any = parent) -> None:
            remove(beside, parent)

        seat.arm(at, take)
        made = go_back(StateStore(seat), parent, rebase=rebase)
        told += made is None
        if seat.disarm():
            assert told > 3, "it was hardly ever overtaken"
            return
        require_whole(beside, made, at)
    raise AssertionError("it never came to an end")


def test_a_parent_that_is_put_back_says_what_it_said() -> None:
    refused = 0
    for at in range(1, 100):
        blobs = MemoryBlobs()
        seat = ObjectSeat(blobs)
        beside, parent = begun(blobs)
        key = f"checkpoints/{parent}/manifest.json"
        before = blobs.read(key, 1 << 20)
        seat.arm(at, partial(go_back, beside, parent, rebase=False))
        told = delete(StateStore(seat), parent)
        if seat.disarm():
            assert refused > 3, "it was hardly ever published"
            return
        if isinstance(told, RefusedError):
            refused += 1
            now = blobs.read(key, 1 << 20)
            assert before is not None
            assert now is not None
            assert now.data == before.data, at
    raise AssertionError("it never came to an end")


def test_a_clean_up_removes_nothing_of_a_parent_that_is_about_to_be_put_back() -> None:
    refused = 0
    for at in range(1, 100):
        blobs = MemoryBlobs()
        seat = ObjectSeat(blobs)
        beside, parent = begun(blobs)
        child = go_back(beside, parent, rebase=False)
        assert child is not None
        data = blobs.read(f"checkpoints/{parent}/manifest.json", 1 << 20)
        assert data is not None
        blobs.delete([f"checkpoints/{parent}/manifest.json"])

        def put_back(blobs: MemoryBlobs = blobs, parent: Any = parent, data: Any = data) -> None:
            blobs.create(f"checkpoints/{parent}/manifest.json", data.data)

        seat.arm(at, put_back)
        try:
            StateStore(seat).cleanup_orphans(0)
        except RefusedError as error:
            assert str(parent) in error.what
            refused += 1
        if seat.disarm():
            assert refused, "the parent was never missing"
            return
        assert beside.verify(child).issues == [], at
    raise AssertionError("it never came to an end")


def leave_needs(blobs: MemoryBlobs, by: CheckpointId, needs: bytes, age: float) -> None:
    """What somebody has left who died so many seconds ago."""
    then = time.time() - age
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(time, "time", lambda: then)
        blobs.create(f"checkpoints/{by}/needs.json", needs)


@pytest.mark.parametrize("age", [60.0, 7200.0])
def test_what_a_writer_that_died_was_about_to_need_counts_for_an_hour(age: float) -> None:
    blobs = MemoryBlobs()
    store, parent = begun(blobs)
    writer = store.begin(4, parent=parent)
    blobs.create(f"checkpoints/{writer.checkpoint_id}/needs.json", f'["{parent}"]'.encode())
    now = blobs.clock()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(blobs, "clock", lambda: now + age)
        store.prune(1)
        assert (parent in store.list()) == (age < 3600)
        store.cleanup_orphans(0)
    store.prune(1)
    assert len(store.list()) == 1
    assert not [entry for entry in blobs.entries("") if "needs" in entry.key]


@pytest.mark.parametrize("data", [b"", b"{}", b'["../x", 7]', b"[" * 5000, b" " * (2 << 20)])
def test_what_no_writer_has_left_keeps_nothing(data: bytes) -> None:
    blobs = MemoryBlobs()
    store, parent = begun(blobs)
    blobs.create(f"checkpoints/{store.begin(4).checkpoint_id}/needs.json", data)
    assert store.prune(1) == 2
    assert parent not in store.list()


@pytest.mark.parametrize("left", [False, True], ids=["first-try", "after-one-that-died"])
def test_a_copy_into_a_store_that_is_pruned_meanwhile_leaves_nothing_broken(*, left: bool) -> None:
    """A copy that died long ago has left what it needed, and that counts no more."""
    origin, parent = begun(MemoryBlobs())
    with origin.begin(5, parent=parent, rebase=True) as writer:
        rebased = writer.commit().checkpoint_id
    for at in range(1, 200):
        blobs = MemoryBlobs()
        for each in (parent, rebased) if left else ():
            leave_needs(blobs, each, b"[]", age=7200.0)
        seat = ObjectSeat(blobs)
        beside, target = StateStore(blobs), StateStore(seat)
        newest = written(beside, 9, None)
        known = ReadStates()
        seat.arm(at, partial(beside.prune, 1))
        for each in (parent, rebased):
            try:
                origin.copy(each, target, known)
            except StoreUnavailableError as error:
                assert "removed since" in error.what
        for each in beside.list():
            assert beside.verify(each).issues == [], at
        assert newest in beside.list()
        if seat.disarm():
            return
    raise AssertionError("it never came to an end")
