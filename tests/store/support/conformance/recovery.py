"""The walk from the newest checkpoint down to the first that can be trusted."""

from __future__ import annotations

from seamark.blobs.contract import Blobs
from seamark.store.layout import Layout
from tests.store.support.examples import OpenHandle, child, example, flip, overwrite


class StoreRecovery:
    """recover_latest_validated, and the pointer."""

    def test_an_empty_store_is_a_fresh_start(self, open_handle: OpenHandle) -> None:
        report = open_handle().recover_latest_validated()
        assert (report.chosen_id, report.skipped, report.fresh_start) == (None, [], True)
        assert report.elapsed >= 0

    def test_the_newest_valid_checkpoint_is_chosen(self, open_handle: OpenHandle) -> None:
        store = open_handle()
        for number in (1, 2, 3):
            store.save_with_state(example(number), [b"state"])
        report = open_handle().recover_latest_validated()
        assert (report.chosen_id, report.skipped, report.examined) == (3, [], 1)
        assert not report.fresh_start

    def test_damaged_checkpoints_are_skipped_with_a_reason(
        self, open_handle: OpenHandle, blobs: Blobs, layout: Layout
    ) -> None:
        store = open_handle()
        for number in (1, 2, 3, 4):
            store.save_with_state(example(number), [b"state"])
        overwrite(blobs, layout.manifest(4), b"")
        flip(blobs, layout.state(3), 2)
        blobs.delete([layout.state(2)])
        report = open_handle().recover_latest_validated()
        assert report.chosen_id == 1
        assert [number for number, _ in report.skipped] == [4, 3, 2]
        assert all(why for _, why in report.skipped)
        assert report.examined == 4

    def test_all_damaged_is_not_a_fresh_start(
        self, open_handle: OpenHandle, blobs: Blobs, layout: Layout
    ) -> None:
        store = open_handle()
        for number in (1, 2, 3):
            store.save(example(number))
            flip(blobs, layout.manifest(number), 40)
        report = open_handle().recover_latest_validated()
        assert report.chosen_id is None
        assert [number for number, _ in report.skipped] == [3, 2, 1]
        assert not report.fresh_start

    def test_a_lost_pointer_is_not_a_fresh_start(
        self, open_handle: OpenHandle, blobs: Blobs, layout: Layout
    ) -> None:
        store = open_handle()
        for number in (1, 2):
            store.save(example(number))
        blobs.delete([layout.pointer])
        reader = open_handle()
        assert reader.recover_latest_validated().chosen_id == 2
        latest = reader.load_latest()
        assert latest is not None
        assert latest.checkpoint_id == 2

    def test_a_pointer_that_makes_no_sense_is_no_obstacle(
        self, open_handle: OpenHandle, blobs: Blobs, layout: Layout
    ) -> None:
        store = open_handle()
        for number in (1, 2):
            store.save(example(number))
        for nonsense in (b"", b"\xff\x00", b"checkpoint_", b"checkpoint_-1", b"{}", b"[" * 5000):
            overwrite(blobs, layout.pointer, nonsense)
            reader = open_handle()
            assert reader.recover_latest_validated().chosen_id == 2, nonsense[:20]
            assert reader.load_latest() is not None
        open_handle().save(example(3))
        pointer = blobs.read(layout.pointer, 100)
        assert pointer is not None
        assert layout.decode_pointer(pointer.data) == 3

    def test_a_stale_pointer_does_not_lose_a_checkpoint(
        self, open_handle: OpenHandle, blobs: Blobs, layout: Layout
    ) -> None:
        store = open_handle()
        for number in (1, 2, 3):
            store.save(example(number))
        overwrite(blobs, layout.pointer, layout.encode_pointer(1))
        assert open_handle().recover_latest_validated().chosen_id == 3

    def test_the_pointer_never_moves_back(
        self, open_handle: OpenHandle, blobs: Blobs, layout: Layout
    ) -> None:
        one, two = open_handle(), open_handle()
        one.save(example(1))
        two.save(example(5))
        one.save(example(3))
        open_handle().save(example(4))
        pointer = blobs.read(layout.pointer, 100)
        assert pointer is not None
        assert layout.decode_pointer(pointer.data) == 5

    def test_a_checkpoint_that_the_pointer_names_and_that_is_gone_is_damage(
        self, open_handle: OpenHandle, blobs: Blobs, layout: Layout
    ) -> None:
        store = open_handle()
        for number in (1, 2):
            store.save(example(number))
        blobs.delete([layout.manifest(2)])
        report = open_handle().recover_latest_validated()
        assert report.chosen_id == 1
        assert [number for number, _ in report.skipped] == [2]

    def test_a_pointer_to_nothing_in_a_store_without_manifests_is_not_a_fresh_start(
        self, open_handle: OpenHandle, blobs: Blobs, layout: Layout
    ) -> None:
        open_handle().save(example(1))
        blobs.delete([layout.manifest(1)])
        report = open_handle().recover_latest_validated()
        assert (report.chosen_id, report.fresh_start) == (None, False)
        assert [number for number, _ in report.skipped] == [1]

    def test_a_checkpoint_whose_parent_is_gone_is_skipped(
        self, open_handle: OpenHandle, blobs: Blobs, layout: Layout
    ) -> None:
        store = open_handle()
        for number in (1, 2):
            store.save(example(number))
        store.save(child(3, parent_id=2))
        blobs.delete([layout.manifest(2)])
        report = open_handle().recover_latest_validated()
        assert report.chosen_id == 1
        assert report.skipped[0][0] == 3
        assert "2" in report.skipped[0][1]

    def test_recovery_changes_nothing(
        self, open_handle: OpenHandle, blobs: Blobs, layout: Layout
    ) -> None:
        store = open_handle()
        for number in (1, 2):
            store.save_with_state(example(number), [b"state"])
        flip(blobs, layout.manifest(2), 40)
        before = [
            entry for folder in ("checkpoints/", "manifests/") for entry in blobs.entries(folder)
        ]
        reader = open_handle()
        reader.recover_latest_validated()
        reader.validate_checkpoint(2)
        after = [
            entry for folder in ("checkpoints/", "manifests/") for entry in blobs.entries(folder)
        ]
        assert before == after

    def test_warnings_of_the_chosen_one_are_reported(
        self, open_handle: OpenHandle, blobs: Blobs, layout: Layout
    ) -> None:
        blobs.create(layout.manifest(1), example(1).to_json())
        report = open_handle().recover_latest_validated()
        assert report.chosen_id == 1
        assert any("another system" in text for text in report.warnings)
