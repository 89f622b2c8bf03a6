"""Saving and loading manifests."""

from __future__ import annotations

import threading

import pytest

from seamark.blobs.contract import Blobs
from seamark.errors import FencedError, InvalidInputError
from seamark.manifest import DEFAULT_VNODE_COUNT
from seamark.store.layout import OWNER_KEY, Layout
from tests.store.support.examples import (
    OpenHandle,
    example,
    example_in_full,
    outcomes,
)


class StoreSaving:
    """save, load_latest, load_by_id, list, list_ids, vnode_count."""

    def test_opening_and_reading_creates_nothing(
        self, open_handle: OpenHandle, blobs: Blobs
    ) -> None:
        store = open_handle()
        assert store.load_latest() is None
        assert store.load_by_id(1) is None
        assert store.load_state_data(1) is None
        assert (store.list(), store.list_ids(), store.next_id()) == ([], [], 1)
        store.recover_latest_validated()
        store.validate_checkpoint(1)
        store.plan_prune(1)
        store.close()
        for folder in ("checkpoints/", "manifests/", "probe/", "locks/", "tmp/"):
            assert blobs.entries(folder) == []
        assert blobs.stat(OWNER_KEY) is None

    def test_what_was_saved_is_the_latest(self, open_handle: OpenHandle) -> None:
        store = open_handle()
        assert store.load_latest() is None
        saved = store.save(example(1))
        assert store.load_latest() == saved
        assert open_handle().load_latest() == saved

    def test_the_latest_is_the_newest_of_several(self, open_handle: OpenHandle) -> None:
        store = open_handle()
        for number in (1, 2, 3):
            store.save(example(number, epoch=number * 10))
        latest = open_handle().load_latest()
        assert latest is not None
        assert (latest.checkpoint_id, latest.epoch) == (3, 30)

    def test_a_checkpoint_is_loaded_by_its_id(self, open_handle: OpenHandle) -> None:
        store = open_handle()
        saved = {number: store.save(example(number)) for number in (1, 2)}
        other = open_handle()
        assert [other.load_by_id(number) for number in (1, 2)] == [saved[1], saved[2]]
        assert other.load_by_id(3) is None

    def test_a_list_has_ids_and_epochs_in_ascending_order(self, open_handle: OpenHandle) -> None:
        store = open_handle()
        for number in (3, 1, 2):
            store.save(example(number, epoch=number + 10))
        assert store.list() == [(1, 11), (2, 12), (3, 13)]
        assert store.list_ids() == [1, 2, 3]

    def test_every_field_makes_the_round_trip(self, open_handle: OpenHandle) -> None:
        store = open_handle()
        store.save(example(1))
        given = example_in_full(2)
        store.save(given)
        loaded = open_handle().load_by_id(2)
        assert loaded is not None
        added = {"state_checksum", "size_bytes", "extra"}
        for name in set(given.__struct_fields__) - added:
            assert getattr(loaded, name) == getattr(given, name), name
        assert given.extra.items() <= loaded.extra.items()

    def test_save_returns_the_manifest_as_it_is_stored(self, open_handle: OpenHandle) -> None:
        store = open_handle()
        saved = store.save(example(1))
        assert saved == open_handle().load_by_id(1)
        assert saved.state_checksum is not None
        assert saved.extra["writer"]
        document = saved.replace(size_bytes=0).with_extra(self_checksum=None)
        assert saved.size_bytes == len(document.to_json())

    def test_keys_and_the_pointer_are_where_the_layout_says(
        self, open_handle: OpenHandle, blobs: Blobs, layout: Layout
    ) -> None:
        store = open_handle()
        store.save_with_state(example(7), [b"state"])
        assert blobs.stat(layout.manifest(7)) is not None
        assert blobs.stat(layout.state(7)) is not None
        pointer = blobs.read(layout.pointer, 100)
        assert pointer is not None
        assert pointer.data == layout.encode_pointer(7)

    def test_the_loser_of_a_create_is_told(self, open_handle: OpenHandle) -> None:
        first, second = open_handle(), open_handle()
        saved = first.save(example(1, epoch=10))
        with pytest.raises(FencedError):
            second.save(example(1, epoch=20))
        assert open_handle().load_by_id(1) == saved

    def test_the_loser_of_a_create_with_state_harms_nothing(self, open_handle: OpenHandle) -> None:
        first, second = open_handle(), open_handle()
        first.save_with_state(example(1, epoch=10), [b"the winner's"])
        with pytest.raises(FencedError):
            second.save_with_state(example(1, epoch=20), [b"the loser's"])
        reader = open_handle()
        assert reader.load_state_data(1) == b"the winner's"
        assert reader.validate_checkpoint(1).valid

    def test_saving_the_same_bytes_again_is_a_retry_and_succeeds(
        self, open_handle: OpenHandle
    ) -> None:
        manifest = example(1)
        first = open_handle().save_with_state(manifest, [b"state"])
        again = open_handle().save_with_state(manifest, [b"state"])
        assert again == first
        assert open_handle().list() == [(1, 1)]

    def test_a_second_save_at_another_time_is_another_checkpoint_and_refused(
        self, open_handle: OpenHandle
    ) -> None:
        store = open_handle()
        store.save(example(1, timestamp_ms=1000))
        with pytest.raises(FencedError):
            store.save(example(1, timestamp_ms=2000))

    def test_one_of_many_racing_saves_decides(self, open_handle: OpenHandle) -> None:
        handles = [open_handle() for _ in range(4)]
        told = outcomes(
            [lambda n=n, h=h: h.save(example(1, epoch=n + 1)) for n, h in enumerate(handles)]  # type: ignore[misc]
        )
        won = [number for number, error in enumerate(told) if error is None]
        assert len(won) == 1
        assert open_handle().list() == [(1, won[0] + 1)]

    def test_one_handle_serves_many_threads(self, open_handle: OpenHandle) -> None:
        store = open_handle()
        told = outcomes([lambda n=n: store.save(example(n)) for n in range(1, 7)])  # type: ignore[misc]
        assert told == [None] * 6
        assert store.list() == [(n, n) for n in range(1, 7)]
        latest = store.load_latest()
        assert latest is not None
        assert latest.checkpoint_id == 6

    def test_a_reader_never_sees_a_checkpoint_without_its_state(
        self, open_handle: OpenHandle
    ) -> None:
        writer, reader = open_handle(), open_handle()
        done = threading.Event()

        def write() -> None:
            try:
                for number in range(1, 7):
                    writer.save_with_state(example(number), [b"%d" % number * 50_000])
            finally:
                done.set()

        thread = threading.Thread(target=write)
        thread.start()
        try:
            while not done.is_set():
                for number in reader.list_ids():
                    assert reader.load_state_data(number) == b"%d" % number * 50_000
        finally:
            thread.join(60)

    def test_a_closed_store_says_so(self, open_handle: OpenHandle) -> None:
        store = open_handle()
        store.close()
        store.close()
        with pytest.raises(InvalidInputError):
            store.load_latest()
        with pytest.raises(InvalidInputError):
            store.save(example(1))

    def test_the_number_of_partitions_is_256_unless_given(self, open_handle: OpenHandle) -> None:
        assert open_handle().vnode_count() == DEFAULT_VNODE_COUNT == 256
        assert open_handle(vnode_count=8).vnode_count() == 8
        for wrong in (0, -1, 2**16):
            with pytest.raises(InvalidInputError):
                open_handle(vnode_count=wrong)
