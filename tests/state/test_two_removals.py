"""Two removals at once beside a writer: what is committed is whole."""

from __future__ import annotations

import errno
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress

import pytest

from seamark.blobs.contract import Blob, Blobs, Entry, Tag
from seamark.blobs.memory import MemoryBlobs
from seamark.errors import (
    CheckpointNotFoundError,
    DamageError,
    RefusedError,
    StoreUnavailableError,
)
from seamark.state import CheckpointId, StateStore, StateWriter
from tests.state.test_order import written

HOUR = 3600.0
MARK = "checkpoints/_removing"


def manifest_of(checkpoint_id: CheckpointId) -> str:
    return f"checkpoints/{checkpoint_id}/manifest.json"


def begun(blobs: Blobs, parent: CheckpointId) -> StateWriter:
    writer = StateStore(blobs).begin(9, parent=parent)
    writer.put("op", 1, b"of another partition")
    return writer


def committed(writer: StateWriter) -> CheckpointId | None:
    """A checkpoint on a parent; None when that is gone."""
    try:
        return writer.commit().checkpoint_id
    except CheckpointNotFoundError:
        return None


class Halting(MemoryBlobs):
    """Shares the values of another one, and calls back before one kind of call."""

    def __init__(self, base: MemoryBlobs, before: str, then: Callable[[], object]) -> None:
        super().__init__()
        self._values, self._versions = base._values, base._versions
        self.halt_before(before, then)

    def halt_before(self, before: str, then: Callable[[], object]) -> None:
        self._before, self._then = before, then

    def _at(self, call: str) -> None:
        if call == self._before:
            self._before = ""
            self._then()

    def entries(self, prefix: str) -> list[Entry]:
        self._at("entries")
        return super().entries(prefix)

    def folders_holding(self, prefix: str, name: str) -> list[str]:
        self._at(f"listing {name}")
        return super().folders_holding(prefix, name)

    def delete_durably(self, keys: Sequence[str]) -> None:
        super().delete_durably(keys)
        if self._before == "listing after taking":
            self._before = "listing needs.json"

    def create(self, key: str, data: bytes) -> Tag:
        tag = super().create(key, data)
        if key.endswith("needs.json"):
            self._at("after saying what it needs")
        return tag


def test_what_one_removal_puts_back_another_does_not_take_the_objects_of() -> None:
    blobs = MemoryBlobs()
    parent = written(StateStore(blobs), 1, None)
    writer: StateWriter
    made: list[CheckpointId | None] = []
    one_has_taken, one_may_go_on = threading.Event(), threading.Event()

    def halt() -> None:
        one_has_taken.set()
        assert one_may_go_on.wait(30)

    def delete(seat: Blobs) -> None:
        with suppress(CheckpointNotFoundError, RefusedError):
            StateStore(seat).delete(parent)
        one_has_taken.set()  # or was refused

    def finish_one() -> None:
        one_may_go_on.set()
        one.join()

    def commit() -> None:
        if not made:
            made.append(committed(writer))

    def start_one() -> None:
        other.halt_before("entries", commit)
        one.start()
        assert one_has_taken.wait(30)

    writer = begun(Halting(blobs, "after saying what it needs", finish_one), parent)
    # one has taken the manifest, and looks for what is needed when the writer has said so
    one = threading.Thread(target=delete, args=[Halting(blobs, "listing after taking", halt)])
    # the other has listed the manifest before, and saw that nothing needs it
    other = Halting(blobs, "listing needs.json", start_one)
    delete(other)
    commit()
    assert made[0] is None or StateStore(blobs).verify(made[0]).issues == []
    for each in StateStore(blobs).list():
        assert StateStore(blobs).verify(each).issues == []


class Blinking(MemoryBlobs):
    """One value is not there when it is read for the first time: a removal puts it back."""

    missed = ""

    def read(self, key: str, limit: int) -> Blob | None:
        if key == self.missed:
            self.missed = ""
            return None
        return super().read(key, limit)


@pytest.mark.parametrize("nth", [0, 1])
def test_a_parent_that_a_removal_has_put_back_is_built_on(nth: int) -> None:
    blobs = Blinking()
    store = StateStore(blobs)
    line = [written(store, 1, None)]
    line.append(written(store, 2, None, parent=line[0]))
    blobs.missed = manifest_of(line[nth])
    made = committed(begun(blobs, line[1]))
    assert made is not None
    assert store.verify(made).issues == []
    blobs.missed = manifest_of(line[0])
    assert store.verify(made).issues == []


def test_what_a_removal_may_put_back_is_not_called_damaged() -> None:
    blobs = MemoryBlobs()
    store = StateStore(blobs)
    first = written(store, 1, None)
    second = written(store, 2, None, parent=first)
    blobs.delete([manifest_of(first)])
    blobs.create(MARK, b"of another process")
    for look in (store.verify, store.partitions, lambda i: store.begin(3, parent=i)):
        with pytest.raises(StoreUnavailableError, match="will be put back"):
            look(second)
    blobs.delete([MARK])
    assert "is missing" in store.verify(second).issues[0]
    with pytest.raises(DamageError, match="is missing"):
        store.partitions(second)


def test_what_is_being_removed_is_not_found() -> None:
    blobs = MemoryBlobs()
    store = StateStore(blobs)
    first = written(store, 1, None)
    blobs.delete([manifest_of(first)])
    blobs.create(MARK, b"of another process")
    assert store.verify(first).issues == [f"state checkpoint {first} is missing"]
    with pytest.raises(CheckpointNotFoundError):
        store.begin(2, parent=first)


class Later(MemoryBlobs):
    """A store whose clock can be put forward."""

    ahead = 0.0

    def clock(self) -> float:
        return super().clock() + self.ahead


def test_a_second_removal_is_refused_until_the_mark_of_one_that_died_is_an_hour_old() -> None:
    blobs = Later()
    store = StateStore(blobs)
    first = written(store, 1, None)
    written(store, 2, None)
    blobs.create(f"checkpoints/{first}/packs/of-one-that-died.lcb", b"")
    blobs.create(MARK, b"of a process that was killed")
    for start in (
        lambda: store.prune(1),
        lambda: store.delete(first),
        lambda: store.cleanup_orphans(0),
    ):
        with pytest.raises(RefusedError, match="something else is being removed"):
            start()
    assert first in store.list()
    blobs.ahead = HOUR + 1
    assert store.prune(1) == 1
    assert blobs.stat(MARK) is None


def test_a_removal_that_takes_long_keeps_its_mark_young(monkeypatch: pytest.MonkeyPatch) -> None:
    blobs = Later()
    store = StateStore(blobs)
    newest = [written(store, epoch, None) for epoch in range(1, 6)][-1]
    taken = blobs.delete_durably

    def slowly(keys: list[str]) -> None:
        blobs.ahead += HOUR / 2
        monkeypatch.setattr("time.monotonic", lambda: blobs.ahead)
        taken(keys)
        with pytest.raises(RefusedError, match="something else is being removed"):
            StateStore(blobs).delete(newest)

    monkeypatch.setattr("time.monotonic", lambda: blobs.ahead)
    monkeypatch.setattr(blobs, "delete_durably", slowly)
    assert store.prune(1) == 4
    assert blobs.stat(MARK) is None


def test_a_removal_on_a_full_disk_runs_without_a_mark(monkeypatch: pytest.MonkeyPatch) -> None:
    blobs = MemoryBlobs()
    store = StateStore(blobs)
    written(store, 1, None)
    written(store, 2, None)

    def full(key: str, data: bytes) -> None:
        raise StoreUnavailableError(f"writing {key} failed") from OSError(errno.ENOSPC, "full")

    monkeypatch.setattr(blobs, "create", full)
    assert store.prune(1) == 1
