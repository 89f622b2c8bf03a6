"""What a look costs the store, and what it finds."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest

from seamark.blobs.contract import Entry
from seamark.errors import SeamarkError
from seamark.manifest import SinkCommitStatus
from seamark.store import CheckpointStore
from seamark.ui import store_watch
from seamark.ui.bounds import NEWEST
from seamark.ui.overview import store_health
from seamark.ui.points import status_of
from seamark.ui.store_watch import StoreWatch
from tests.ui.support.serving import CountedBlobs
from tests.ui.support.stores import epoch_manifest


def filled(count: int) -> tuple[CountedBlobs, CheckpointStore]:
    blobs = CountedBlobs()
    store = blobs.store()
    store.claim(writer="driver-1")
    for number in range(1, count + 1):
        add(store, number)
    blobs.asked.clear()
    return blobs, store


def add(store: CheckpointStore, number: int, **changes: object) -> None:
    store.save(epoch_manifest(number, newest=number, now_ms=int(time.time() * 1000), **changes))


def unsettled(watch: StoreWatch) -> list[int]:
    return [point.id for point in watch.points.values() if not point.is_settled]


def damage_of(watch: StoreWatch) -> SeamarkError | None:
    return watch.state.damage


def test_a_look_at_a_store_that_has_not_changed_reads_two_small_objects() -> None:
    blobs, _ = filled(300)
    watch = StoreWatch(blobs.store, blobs.url)
    assert watch.look()
    assert blobs.asked["manifests"] <= NEWEST + 2  # and whether the newest is a tombstone
    blobs.asked.clear()
    assert not watch.look()
    assert dict(blobs.asked) == {"read": 2}


def test_a_new_checkpoint_costs_one_manifest_and_no_listing() -> None:
    blobs, store = filled(100)
    watch = StoreWatch(blobs.store, blobs.url)
    watch.look()
    add(store, 101)
    blobs.asked.clear()
    assert watch.look()
    assert watch.state.ids[-1] == 101
    assert blobs.asked["entries"] == 0
    assert blobs.asked["manifests"] == 1


def test_a_checkpoint_is_read_again_until_its_sinks_have_committed() -> None:
    blobs, store = filled(3)
    pending = {"bars": SinkCommitStatus.pending(), "large": SinkCommitStatus.committed()}
    add(store, 4, sink_commit_statuses=pending)
    watch = StoreWatch(blobs.store, blobs.url)
    watch.look()
    assert unsettled(watch) == [4]
    manifest = store.load_by_id(4)
    assert manifest is not None
    done = dict.fromkeys(("bars", "large"), SinkCommitStatus.committed())
    store.update_manifest(manifest.replace(sink_commit_statuses=done))
    assert watch.look()
    assert unsettled(watch) == []
    blobs.asked.clear()
    watch.look()
    assert blobs.asked["manifests"] == 0


def test_what_is_pruned_is_gone_at_the_next_look() -> None:
    blobs, store = filled(10)
    watch = StoreWatch(blobs.store, blobs.url)
    watch.look()
    store.prune(3)
    assert watch.look()
    assert watch.state.ids == (8, 9, 10)


@pytest.mark.parametrize("is_seen_empty", [False, True])
def test_a_store_that_is_begun_anew_in_its_place_shows_nothing_of_the_one_before(
    is_seen_empty: bool,
) -> None:
    blobs, _ = filled(10)
    watch = StoreWatch(blobs.store, blobs.url)
    watch.look()
    assert watch.state.ids == (*range(1, 11),)
    blobs.delete([entry.key for entry in blobs.entries("")])
    if is_seen_empty:
        watch.look()
        assert watch.state.ids == ()
    store = blobs.store()
    store.claim(writer="driver-2")
    for number in range(1, 13):
        add(store, number)
    watch.look()
    shown = watch.read(watch.state.ids)
    assert [*shown] == [*range(1, 13)]
    assert {point.timeline for point in shown.values()} == {store.owner().timeline}


def test_what_is_remembered_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store_watch, "KEPT_POINTS", 50)
    blobs, _ = filled(120)
    watch = StoreWatch(blobs.store, blobs.url)
    watch.look()
    watch.read(range(1, 60))
    assert len(watch.points) == 50


def test_an_owner_that_is_damaged_is_told_and_comes_back() -> None:
    blobs, _ = filled(3)
    watch = StoreWatch(blobs.store, blobs.url)
    watch.look()
    whole = blobs._values["owner.json"]
    blobs._values["owner.json"] = (whole[0].replace(b"generation", b"Generation"), 99_999, whole[2])
    assert watch.look()
    assert damage_of(watch) is not None
    blobs._values["owner.json"] = whole
    assert watch.look()
    assert damage_of(watch) is None
    assert watch.state.ids == (1, 2, 3)


def test_a_parent_that_a_listing_has_missed_is_looked_for_before_it_is_called_gone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    blobs, store = filled(1)
    for number in range(2, 7):
        add(store, number, is_incremental=True, parent_id=number - 1)
    listed, missing = blobs.entries, {4, 5}

    def without_some(prefix: str) -> list[Entry]:
        keys = {store._parts.layout.manifest(number) for number in missing}
        return [entry for entry in listed(prefix) if entry.key not in keys]

    monkeypatch.setattr(blobs, "entries", without_some)
    watch = StoreWatch(blobs.store, blobs.url)
    watch.look()
    assert watch.state.ids == (1, 2, 3, 4, 5, 6)
    assert store_health(watch.state, watch.points, time.time()).word == "running"
    blobs.asked.clear()
    assert not watch.look()
    assert dict(blobs.asked) == {"read": 2}


def test_a_parent_that_is_gone_is_looked_for_once() -> None:
    blobs, store = filled(1)
    for number in (2, 3):
        add(store, number, is_incremental=True, parent_id=number - 1)
    blobs.delete([store._parts.layout.manifest(2)])
    watch = StoreWatch(blobs.store, blobs.url)
    watch.look()
    assert store_health(watch.state, watch.points, time.time()).word == "damaged"
    blobs.asked.clear()
    watch.look()
    assert dict(blobs.asked) == {"read": 2}


def statuses(watch: StoreWatch) -> dict[int, str]:
    state, points = watch.state, watch.points
    known = set(state.known)
    return {i: status_of(points[i], state.owner, points, known) for i in state.ids}


def after_the_first_call(
    monkeypatch: pytest.MonkeyPatch, owner: object, name: str, do: Callable[[], object]
) -> None:
    """Let a writer do something right after a look has called this function once."""
    waiting, real = [do], getattr(owner, name)

    def beside(*arguments: Any) -> Any:
        found = real(*arguments)
        if waiting:
            waiting.pop()()
        return found

    monkeypatch.setattr(owner, name, beside)


@pytest.mark.parametrize("step", ["glance", "is_writer_alive"])
def test_a_look_beside_a_rollback_shows_one_history(
    monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    blobs, store = filled(5)
    watch = StoreWatch(blobs.store, blobs.url)

    def roll_back() -> None:
        store.supersede(4, 5)
        add(store, 6)

    after_the_first_call(monkeypatch, store_watch, step, roll_back)
    assert watch.look()
    valid = dict.fromkeys((1, 2, 3, 6), "valid")
    assert statuses(watch) == valid | dict.fromkeys((4, 5), "superseded")
    assert not watch.look()
