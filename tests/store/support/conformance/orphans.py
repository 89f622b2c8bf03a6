"""State that no manifest knows: ignored, cleaned up when old, left alone while it may be used."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from seamark.blobs.contract import Blobs
from seamark.errors import InvalidInputError
from seamark.manifest import OperatorCheckpoint
from seamark.store.layout import Layout
from tests.store.support.examples import OpenHandle, example, flip


class StoreOrphans:
    """cleanup_orphans."""

    def test_state_without_a_manifest_is_passed_over(self, open_handle: OpenHandle) -> None:
        store = open_handle()
        store.save_state_data(1, [b"unfinished"])
        reader = open_handle()
        assert (reader.list(), reader.list_ids()) == ([], [])
        assert reader.load_latest() is None
        assert reader.recover_latest_validated().fresh_start
        store.save(example(2))
        store.save_state_data(3, [b"unfinished"])
        assert reader.recover_latest_validated().chosen_id == 2

    def test_clean_up_removes_old_state_without_a_manifest(
        self, open_handle: OpenHandle, blobs: Blobs, layout: Layout
    ) -> None:
        store = open_handle()
        store.save_with_state(example(1), [b"decided"])
        store.save_state_data(2, [b"unfinished"])
        assert open_handle().cleanup_orphans(min_age=0) == 1
        assert blobs.stat(layout.state(2)) is None
        assert open_handle().load_state_data(1) == b"decided"
        assert open_handle().cleanup_orphans(min_age=0) == 0

    def test_clean_up_of_a_clean_store_does_nothing(self, open_handle: OpenHandle) -> None:
        store = open_handle()
        assert store.cleanup_orphans() == 0
        store.save(example(1))
        store.save_with_state(example(2), [b"state"])
        assert store.cleanup_orphans(min_age=0) == 0
        assert all(store.validate_checkpoint(number).valid for number in (1, 2))

    def test_clean_up_leaves_a_save_in_flight(self, open_handle: OpenHandle) -> None:
        store, cleaner = open_handle(), open_handle()

        def chunks() -> Iterator[bytes]:
            yield b"first "
            assert cleaner.cleanup_orphans() == 0
            yield b"last"

        store.save_with_state(example(1), chunks())
        operators = {"join": OperatorCheckpoint.in_sidecar(0, 5)}
        store.save_state_data(2, [b"state"])
        assert cleaner.cleanup_orphans() == 0
        store.save(example(2, operator_states=operators))
        reader = open_handle()
        assert reader.load_state_data(1) == b"first last"
        assert reader.load_state_data(2) == b"state"

    def test_clean_up_leaves_the_state_of_a_damaged_manifest(
        self, open_handle: OpenHandle, blobs: Blobs, layout: Layout
    ) -> None:
        open_handle().save_with_state(example(1), [b"state"])
        flip(blobs, layout.manifest(1), 40)
        assert open_handle().cleanup_orphans(min_age=0) == 0
        assert blobs.stat(layout.state(1)) is not None

    def test_clean_up_leaves_the_state_of_another_systems_checkpoint(
        self, open_handle: OpenHandle, blobs: Blobs, layout: Layout
    ) -> None:
        operators = {"join": OperatorCheckpoint.in_sidecar(0, 5)}
        blobs.create(layout.manifest(1), example(1, operator_states=operators).to_json())
        blobs.create(layout.state(1), b"state")
        assert open_handle().cleanup_orphans(min_age=0) == 0
        assert open_handle().load_state_data(1) == b"state"

    def test_clean_up_of_a_negative_age_is_refused(self, open_handle: OpenHandle) -> None:
        with pytest.raises(InvalidInputError):
            open_handle().cleanup_orphans(min_age=-1)

    def test_an_id_whose_state_was_left_behind_can_still_be_saved_by_the_owner(
        self, open_handle: OpenHandle
    ) -> None:
        dead = open_handle()
        dead.save_state_data(1, [b"of a writer that died"])
        dead.close()
        store = open_handle()
        store.claim()
        store.save_with_state(example(1), [b"mine"])
        assert open_handle().load_state_data(1) == b"mine"
        assert open_handle().validate_checkpoint(1).valid
