"""Whatever reads a state store while another process publishes and prunes sees it at one moment.

Before each single I/O of a reader the other process publishes, prunes or deletes. Readers of a
chosen checkpoint are in ``test_order.py``.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable, Iterator
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any, Final

import pytest

from seamark.blobs.contract import Blobs
from seamark.blobs.filesystem import FilesystemBlobs
from seamark.blobs.memory import MemoryBlobs
from seamark.errors import CheckpointNotFoundError, DamageError, StoreUnavailableError
from seamark.state import StateStore
from tests.state.test_order import DAY, epoch_of, id_at, written
from tests.store.support.interleaving import ObjectSeat
from tests.support.mounting import mount

VISITED: Final = frozenset({"access", "listdir", "lstat", "open", "scandir", "stat"})

Visit = Callable[[StateStore], Iterator[object]]
Read = Callable[[StateStore], object]


@pytest.fixture(autouse=True)
def _own_ids(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ids of one process only grow, so those from the future would be with all later tests."""
    monkeypatch.setattr("seamark.state.layout._last_value", 0)


class VisitedOs:
    """The operating system; before one of its calls somebody else is let in."""

    def __init__(self) -> None:
        self._visitor: Callable[[], object] | None = None
        self._at = 0

    def arm(self, at: int, visitor: Callable[[], object]) -> None:
        """Let ``visitor`` in before the ``at``-th call from here on."""
        self._at, self._visitor = at, visitor

    def disarm(self) -> bool:
        """Whether the visitor has not been let in; it will not be any more."""
        waiting, self._visitor = self._visitor is not None, None
        return waiting

    def __getattr__(self, name: str) -> Any:
        value = getattr(os, name)
        if name not in VISITED:
            return value

        def call(*args: Any, **named: Any) -> Any:
            self._at -= 1
            if self._visitor is not None and self._at <= 0:
                visitor, self._visitor = self._visitor, None
                visitor()
            return value(*args, **named)

        return call


# what another process does meanwhile, step by step


def publish_and_prune(store: StateStore) -> Iterator[object]:
    yield written(store, 3, None)
    yield store.prune(1)


def publish_by_a_slow_clock_and_prune(store: StateStore) -> Iterator[object]:
    yield written(store, 3, -DAY)
    yield store.prune(1)


def publish_and_delete_the_one_before(store: StateStore) -> Iterator[object]:
    before = store.list()[-1]
    yield written(store, 3, None)
    store.delete(before)
    yield before


VISITS: list[Visit] = [
    publish_and_prune,
    publish_by_a_slow_clock_and_prune,
    publish_and_delete_the_one_before,
]


def latest(store: StateStore) -> object:
    return epoch_of(store.latest())


def last_listed(store: StateStore) -> object:
    return store.list()[-1:]


def begun(where: str | Blobs, *, unfinished: bool) -> StateStore:
    """Two checkpoints, and an object of one that was never published."""
    store = StateStore(where)
    for epoch in (1, 2):
        written(store, epoch, None)
    if unfinished:
        task = store.task(id_at(-DAY / 2), "task")
        task.put("op", 0, b"not published")
        task.finish()
    return store


def exhaust(steps: Iterator[object]) -> None:
    for _ in steps:
        pass


def go_through(visit: Visit, read: Read, store: StateStore, moments: list[object]) -> None:
    """A whole visit, with what a reader says after each step."""
    moments.extend(read(store) for _ in visit(store))


@pytest.mark.parametrize("unfinished", [False, True], ids=["published", "and unfinished"])
@pytest.mark.parametrize("read", [latest, last_listed])
@pytest.mark.parametrize("visit", VISITS)
def test_a_reader_on_a_disk_sees_the_store_as_it_is_at_one_moment(
    visit: Visit, read: Read, unfinished: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    system = VisitedOs()
    mount(monkeypatch, system, fcntl)
    for at in range(1, 100):
        where = str(tmp_path / str(at))
        writer, reader = begun(where, unfinished=unfinished), StateStore(where)
        moments = [read(writer)]
        system.arm(at, partial(go_through, visit, read, writer, moments))
        found = read(reader)
        if system.disarm():
            assert at > 3, "almost nothing was read"
            return
        assert found in moments, at
    raise AssertionError("it never came to an end")


def test_a_store_that_is_pruned_during_every_listing_is_not_called_empty(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    system = VisitedOs()
    mount(monkeypatch, system, fcntl)
    writer, reader = begun(str(tmp_path), unfinished=True), StateStore(str(tmp_path))
    epochs = count(3)

    def listdir(path: str) -> list[str]:
        names = os.listdir(path)
        with monkeypatch.context() as paused:
            paused.delattr(system, "listdir")  # the prune lists too
            written(writer, next(epochs), None)
            writer.prune(1)
        return names

    monkeypatch.setattr(system, "listdir", listdir, raising=False)
    with pytest.raises(StoreUnavailableError, match="pruned while they were being read"):
        reader.list()


class SyncedSeat(ObjectSeat):
    """Somebody may also be let in before a value is made durable."""

    def make_durable(self, key: str) -> None:
        self._next().make_durable(key)


class PagedBlobs(MemoryBlobs):
    """Lists one key and then the others, like an object store with very many of them."""

    def __init__(self) -> None:
        super().__init__()
        self.waiting: list[Callable[[], object]] = []
        """Who is let in between two pages, once."""

    def folders_holding(self, prefix: str, name: str) -> list[str]:
        first = self.entries(prefix)[:1]
        while self.waiting:
            self.waiting.pop()()
        rest = [entry for entry in self.entries(prefix) if entry.key > first[-1].key]
        tails = [entry.key.removeprefix(prefix).split("/") for entry in (*first, *rest)]
        return [tail[0] for tail in tails if tail[1:] == [name]]


@pytest.mark.parametrize("read", [latest, last_listed])
def test_an_object_store_whose_pages_were_overtaken_is_not_called_empty(read: Read) -> None:
    """The newest is published under a name that the listing has already passed."""
    blobs = PagedBlobs()
    store = begun(blobs, unfinished=True)
    blobs.waiting.append(partial(exhaust, publish_by_a_slow_clock_and_prune(store)))
    found = read(store)
    assert blobs.waiting == []
    assert found == read(store)
    assert found not in (None, [])


def test_a_clean_up_leaves_what_a_checkpoint_needs_that_is_published_meanwhile() -> None:
    """Also when the one that named it before is pruned before its manifest is read."""
    for at in range(1, 50):
        blobs = MemoryBlobs()
        seat = ObjectSeat(blobs)
        beside, store = StateStore(blobs), StateStore(seat)
        first = written(beside, 1, None)

        def rebase(beside: StateStore = beside, first: Any = first) -> None:
            with beside.begin(2, parent=first, rebase=True) as writer:
                writer.put("op", 1, b"another partition")
                writer.commit()
            beside.prune(1)

        seat.arm(at, rebase)
        store.cleanup_orphans(0)
        if seat.disarm():
            assert at > 3, "almost nothing was read"
            return
        newest = beside.latest()
        assert newest is not None
        assert beside.verify(newest.checkpoint_id).issues == [], at
    raise AssertionError("it never came to an end")


@pytest.mark.parametrize("on_disk", [False, True], ids=["memory", "disk"])
def test_building_on_a_parent_that_is_pruned_meanwhile_says_that_it_is_gone(
    on_disk: bool, tmp_path: Path
) -> None:
    """Never that it is damaged: its successors are whole."""
    told = []
    for at in range(1, 100):
        base = FilesystemBlobs(str(tmp_path / str(at))) if on_disk else MemoryBlobs()
        seat = SyncedSeat(base)
        beside, store = StateStore(base), StateStore(seat)
        parent = written(beside, 2, None, parent=written(beside, 1, None))
        seat.arm(at, partial(exhaust, publish_and_prune(beside)))
        try:
            written(store, 4, None, parent=parent)
        except CheckpointNotFoundError as error:
            assert str(parent) in error.what
            told.append(at)
        if seat.disarm():
            assert len(told) > 3, "it was hardly ever overtaken"
            return
    raise AssertionError("it never came to an end")


def test_a_parent_that_is_there_and_builds_on_one_that_is_lost_is_damaged() -> None:
    blobs = MemoryBlobs()
    store = StateStore(blobs)
    first = written(store, 1, None)
    parent = written(store, 2, None, parent=first)
    writer = store.begin(3, parent=parent)
    blobs.delete([f"checkpoints/{first}/manifest.json"])
    with pytest.raises(DamageError, match=f"{first}, which {parent} builds on, is missing"):
        writer.commit()
    with pytest.raises(DamageError, match="is missing"):
        store.begin(3, parent=parent)
