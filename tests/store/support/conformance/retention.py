"""Keeping and removing checkpoints: prune, automatic pruning, pins."""

from __future__ import annotations

import time
from datetime import timedelta

import pytest

from seamark.blobs.contract import Blobs
from seamark.errors import CheckpointNotFoundError, InvalidInputError, RefusedError
from seamark.store import CheckpointStore
from seamark.store.layout import Layout
from tests.store.support.examples import OpenHandle, child, example, flip


def saved_in(store: CheckpointStore, *ids: int) -> CheckpointStore:
    """The store with some more checkpoints, each with state of its own."""
    for number in ids:
        store.save_with_state(example(number), [b"state of %d" % number])
    return store


class StoreRetention:
    """prune, plan_prune, pin, unpin, pins."""

    def test_prune_keeps_the_newest_and_removes_the_rest(
        self, open_handle: OpenHandle, blobs: Blobs, layout: Layout
    ) -> None:
        store = saved_in(open_handle(), 1, 2, 3, 4, 5)
        assert store.prune(2) == 3
        reader = open_handle()
        assert reader.list() == [(4, 4), (5, 5)]
        assert [reader.load_by_id(number) for number in (1, 2, 3)] == [None] * 3
        assert reader.load_state_data(5) == b"state of 5"
        for number in (1, 2, 3):
            assert blobs.stat(layout.manifest(number)) is None
            assert blobs.stat(layout.state(number)) is None
            assert reader.load_state_data(number) is None

    def test_prune_with_nothing_to_remove_does_nothing(self, open_handle: OpenHandle) -> None:
        store = open_handle()
        assert store.prune(1) == 0
        saved_in(store, 1, 2)
        assert store.prune(2) == 0
        assert store.prune(100) == 0
        assert store.list_ids() == [1, 2]

    def test_pruning_everything_is_refused(self, open_handle: OpenHandle) -> None:
        store = saved_in(open_handle(), 1)
        for wrong in (0, -1):
            with pytest.raises(InvalidInputError):
                store.prune(wrong)
            with pytest.raises(InvalidInputError):
                open_handle(keep=wrong)
        with pytest.raises(InvalidInputError):
            store.prune()
        with pytest.raises(InvalidInputError):
            store.prune(within=-1)
        assert store.list_ids() == [1]

    def test_a_save_prunes_by_itself_when_told_to(self, open_handle: OpenHandle) -> None:
        saved_in(open_handle(keep=2), 1, 2, 3, 4)
        assert open_handle().list_ids() == [3, 4]

    def test_prune_counts_only_valid_checkpoints(
        self, open_handle: OpenHandle, blobs: Blobs, layout: Layout
    ) -> None:
        saved_in(open_handle(), 1, 2, 3, 4, 5)
        flip(blobs, layout.manifest(5), 40)
        flip(blobs, layout.state(4), 3)
        store = open_handle()
        store.prune(2)
        assert [n for n in (2, 3) if open_handle().validate_checkpoint(n).valid] == [2, 3]
        assert open_handle().load_by_id(1) is None
        assert open_handle().recover_latest_validated().chosen_id == 3

    def test_prune_keeps_all_when_none_is_valid(
        self, open_handle: OpenHandle, blobs: Blobs, layout: Layout
    ) -> None:
        saved_in(open_handle(), 1, 2, 3)
        for number in (1, 2, 3):
            flip(blobs, layout.manifest(number), 40)
        assert open_handle().prune(1) == 0
        assert open_handle().list_ids() == [1, 2, 3]

    def test_prune_does_not_count_state_without_a_manifest(self, open_handle: OpenHandle) -> None:
        store = saved_in(open_handle(), 1, 2)
        store.save_state_data(3, [b"unfinished"])
        store.save_state_data(4, [b"unfinished"])
        assert store.prune(2) == 0
        assert store.list_ids() == [1, 2]

    def test_prune_keeps_the_parents_of_what_it_keeps(self, open_handle: OpenHandle) -> None:
        store = saved_in(open_handle(), 1, 2)
        store.save(child(3, parent_id=2))
        store.save(child(4, parent_id=3))
        assert store.prune(1) == 1
        assert open_handle().list_ids() == [2, 3, 4]
        assert open_handle().recover_latest_validated().chosen_id == 4
        store.save(example(5))
        assert store.prune(1) == 3
        assert open_handle().list_ids() == [5]

    def test_prune_does_not_count_superseded_checkpoints(self, open_handle: OpenHandle) -> None:
        store = open_handle()
        store.claim()
        saved_in(store, 1, 2, 3, 4)
        store.supersede(3, 4)
        store.prune(1)
        assert open_handle().recover_latest_validated().chosen_id == 2
        assert open_handle().load_by_id(1) is None

    def test_prune_keeps_what_is_young(self, open_handle: OpenHandle) -> None:
        store = open_handle()
        now = time.time_ns() // 1_000_000
        for number, age in ((1, 7200), (2, 1800), (3, 60)):
            store.save(example(number, timestamp_ms=now - age * 1000))
        assert store.prune(within=timedelta(hours=1)) == 1
        assert store.list_ids() == [2, 3]
        assert store.prune(1, within=600) == 1
        assert store.list_ids() == [3]

    def test_the_newest_valid_one_outlives_every_time_span(self, open_handle: OpenHandle) -> None:
        store = open_handle()
        for number in (1, 2):
            store.save(example(number, timestamp_ms=1000))
        assert store.prune(within=1) == 1
        assert store.list_ids() == [2]

    def test_a_plan_says_what_prune_will_do_and_why(self, open_handle: OpenHandle) -> None:
        store = saved_in(open_handle(), 1, 2, 3)
        store.pin("release", 1)
        plan = store.plan_prune(1)
        assert [(verdict.checkpoint_id, verdict.keep) for verdict in plan] == [
            (3, True),
            (2, False),
            (1, True),
        ]
        assert "release" in plan[2].reason
        assert all(verdict.reason for verdict in plan)
        assert store.list_ids() == [1, 2, 3]
        assert store.prune(1) == 1
        assert store.list_ids() == [1, 3]

    def test_a_pinned_checkpoint_is_never_pruned(self, open_handle: OpenHandle) -> None:
        store = saved_in(open_handle(), 1, 2, 3, 4)
        open_handle().pin("before the migration", 2)
        assert store.prune(1) == 2
        reader = open_handle()
        assert reader.list_ids() == [2, 4]
        assert reader.load_state_data(2) == b"state of 2"
        assert reader.validate_checkpoint(2).valid
        store.unpin("before the migration")
        assert store.prune(1) == 1
        assert open_handle().list_ids() == [4]

    def test_a_pin_keeps_the_parents_too(self, open_handle: OpenHandle) -> None:
        store = saved_in(open_handle(), 1)
        store.save(child(2, parent_id=1))
        saved_in(store, 3)
        store.pin("kept", 2)
        assert store.prune(1) == 0
        assert open_handle().validate_checkpoint(2).valid

    def test_an_expired_pin_keeps_nothing(self, open_handle: OpenHandle) -> None:
        store = saved_in(open_handle(), 1, 2)
        store.pin("short", 1, expires_in=timedelta(milliseconds=20))
        store.pin("long", 1, expires_in=3600)
        store.unpin("long")
        time.sleep(0.05)
        assert store.prune(1) == 1
        assert open_handle().list_ids() == [2]

    def test_pins_are_listed_with_their_checkpoint(self, open_handle: OpenHandle) -> None:
        store = saved_in(open_handle(), 1, 2)
        pin = store.pin("one", 1)
        store.pin("two", 2, expires_in=60)
        pins = open_handle().pins()
        assert pins["one"] == pin
        assert {name: pin.checkpoint_id for name, pin in pins.items()} == {"one": 1, "two": 2}
        assert pins["one"].expires_at_ms is None
        assert pins["two"].expires_at_ms is not None

    def test_a_pin_needs_a_checkpoint_and_a_free_name(self, open_handle: OpenHandle) -> None:
        store = saved_in(open_handle(), 1, 2, 3)
        store.prune(2)
        for number in (1, 4):
            with pytest.raises(CheckpointNotFoundError):
                store.pin("name", number)
        store.pin("name", 2)
        store.pin("name", 2, expires_in=60)
        with pytest.raises(RefusedError):
            store.pin("name", 3)
        with pytest.raises(CheckpointNotFoundError):
            store.unpin("other")
        assert store.pins()["name"].checkpoint_id == 2

    def test_a_pruned_store_is_not_a_fresh_start(
        self, open_handle: OpenHandle, blobs: Blobs, layout: Layout
    ) -> None:
        saved_in(open_handle(), 1, 2).prune(1)
        blobs.delete([layout.manifest(2), layout.state(2), layout.pointer])
        report = open_handle().recover_latest_validated()
        assert report.chosen_id is None
        assert not report.fresh_start
