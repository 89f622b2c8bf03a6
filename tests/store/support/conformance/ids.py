"""Ids and names: which are taken, which are refused, and in what order they come."""

from __future__ import annotations

from typing import Any

import pytest

from seamark.blobs.contract import Blobs
from seamark.errors import FencedError, InvalidInputError
from seamark.manifest import ConnectorCheckpoint, OperatorCheckpoint, SinkCommitStatus
from seamark.store.layout import Layout
from tests.store.support.examples import (
    NAMES_THAT_LEAD_AWAY,
    NOT_AN_ID,
    OpenHandle,
    example,
    raw_document,
)


class StoreIds:
    """next_id, and everything that takes an id or a name."""

    def test_the_next_id_is_one_more_than_all_that_were_used(self, open_handle: OpenHandle) -> None:
        store = open_handle()
        assert store.next_id() == 1
        store.save(example(1))
        assert store.next_id() == 2
        store.save(example(10))
        assert open_handle().next_id() == 11

    def test_a_save_that_was_given_up_uses_its_id(self, open_handle: OpenHandle) -> None:
        store = open_handle()
        store.save_state_data(4, [b"state"])
        assert open_handle().next_id() == 5

    def test_a_pruned_id_is_not_given_out_again(self, open_handle: OpenHandle) -> None:
        store = open_handle()
        for number in (1, 2, 3):
            store.save(example(number))
        store.prune(1)
        assert store.next_id() == 4
        store.claim()
        store.supersede(3, 3)
        assert store.next_id() == 4

    def test_a_damaged_id_is_not_given_out_again(
        self, open_handle: OpenHandle, blobs: Blobs, layout: Layout
    ) -> None:
        open_handle().save(example(1))
        blobs.create(layout.manifest(2), b"not json")
        assert open_handle().next_id() == 3

    def test_the_id_of_a_checkpoint_that_vanished_is_not_given_out_again(
        self, open_handle: OpenHandle, blobs: Blobs, layout: Layout
    ) -> None:
        store = open_handle()
        for number in (1, 2):
            store.save(example(number))
        blobs.delete([layout.manifest(2)])  # only the pointer still tells of it
        assert open_handle().next_id() == 3

    def test_a_zombie_that_saves_a_pruned_id_is_refused(self, open_handle: OpenHandle) -> None:
        store = open_handle()
        for number in (1, 2, 3):
            store.save(example(number))
        store.prune(1)
        for number in (1, 2):
            with pytest.raises(FencedError):
                open_handle().save_with_state(example(number), [b"state"])
            with pytest.raises(FencedError):
                open_handle().save_state_data(number, [b"state"])
        assert open_handle().list() == [(3, 3)]

    def test_a_zombies_late_write_of_a_pruned_id_is_invisible(
        self, open_handle: OpenHandle, blobs: Blobs, layout: Layout
    ) -> None:
        store = open_handle()
        for number in (1, 2, 3):
            store.save(example(number))
        store.prune(1)
        blobs.create(layout.manifest(2), raw_document(example(2), generation=0))
        reader = open_handle()
        assert reader.list_ids() == [3]
        assert reader.list() == [(3, 3)]
        assert reader.load_by_id(2) is None
        assert reader.recover_latest_validated().chosen_id == 3

    def test_ids_beyond_six_digits_are_sorted_as_numbers(self, open_handle: OpenHandle) -> None:
        store = open_handle()
        ids = [2, 999_999, 1_000_000, 10_000_000, 2**63]
        for number in reversed(ids):
            store.save_with_state(example(number, epoch=1), [b"%d" % number])
        reader = open_handle()
        assert reader.list_ids() == ids
        assert [number for number, _ in reader.list()] == ids
        latest = reader.load_latest()
        assert latest is not None
        assert latest.checkpoint_id == 2**63
        assert reader.recover_latest_validated().chosen_id == 2**63
        assert [reader.load_state_data(number) for number in ids] == [b"%d" % n for n in ids]

    def test_the_largest_id_can_be_used(self, open_handle: OpenHandle) -> None:
        store = open_handle()
        store.save(example(2**64 - 1, epoch=1))
        assert open_handle().list_ids() == [2**64 - 1]
        assert open_handle().recover_latest_validated().chosen_id == 2**64 - 1

    def test_what_is_no_id_is_refused_everywhere(self, open_handle: OpenHandle) -> None:
        store = open_handle()
        store.claim()
        for wrong in NOT_AN_ID:
            for call in (
                lambda wrong=wrong: store.load_by_id(wrong),
                lambda wrong=wrong: store.load_state_data(wrong),
                lambda wrong=wrong: store.validate_checkpoint(wrong),
                lambda wrong=wrong: store.save_state_data(wrong, [b"x"]),
                lambda wrong=wrong: store.pin("name", wrong),
                lambda wrong=wrong: store.supersede(wrong, 2),
                lambda wrong=wrong: store.supersede(1, wrong),
                lambda wrong=wrong: list(store.stream_state_data(wrong)),
            ):
                with pytest.raises(InvalidInputError):
                    call()
        with pytest.raises(InvalidInputError):
            store.save(example(1).replace(checkpoint_id=0))
        with pytest.raises(InvalidInputError):
            store.update_manifest(example(1).replace(checkpoint_id=0))
        assert store.list_ids() == []

    def test_names_that_could_leave_their_folder_are_refused(self, open_handle: OpenHandle) -> None:
        store = open_handle()
        store.save(example(1))
        for name in NAMES_THAT_LEAD_AWAY:
            wrong: list[dict[str, Any]] = [
                {"operator_states": {name: OperatorCheckpoint.inline(b"")}},
                {"source_names": [name]},
                {"source_offsets": {name: ConnectorCheckpoint()}, "source_names": []},
                {"source_watermarks": {name: 1}},
                {"sink_names": [name]},
                {"sink_epochs": {name: 1}},
                {"sink_commit_statuses": {name: SinkCommitStatus.pending()}},
                {"table_offsets": {name: ConnectorCheckpoint()}},
                {"inflight_data": {name: []}},
            ]
            for fields in wrong:
                with pytest.raises(InvalidInputError):
                    store.save(example(2, **fields))
            with pytest.raises(InvalidInputError):
                store.pin(name, 1)
        for path in ("../up", "/root", "a/../../b", "a//b", ""):
            with pytest.raises(InvalidInputError):
                store.save(example(2, table_store_checkpoint_path=path))
        assert store.list_ids() == [1]

    def test_names_of_every_other_kind_are_fine(self, open_handle: OpenHandle) -> None:
        names = ["mv:peaks", "naïve ü", "a b", "100%", "…", "a.b", "-x", "'\"", "?*", "x" * 300]
        states = {name: OperatorCheckpoint.inline(name.encode()) for name in names}
        store = open_handle()
        store.save(example(1, operator_states=states))
        for name in names[:5]:
            store.pin(name, 1)
        assert set(open_handle().pins()) == set(names[:5])
        assert open_handle().validate_checkpoint(1).valid
