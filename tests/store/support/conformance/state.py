"""State beside the manifest: the sidecar and its checksums."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterator

import pytest

from seamark.blobs.contract import Blobs, Buffer
from seamark.errors import (
    CheckpointNotFoundError,
    DamageError,
    FencedError,
    InvalidInputError,
    RefusedError,
    SeamarkError,
)
from seamark.manifest import OperatorCheckpoint
from seamark.store.layout import Layout
from tests.store.support.examples import OpenHandle, example, flip

EXTERNAL = {
    "join": OperatorCheckpoint.in_sidecar(0, 5),
    "window": OperatorCheckpoint.in_sidecar(5, 4),
}
MIXED = {
    **EXTERNAL,
    "count": OperatorCheckpoint.inline(b"7"),
    "Agg": OperatorCheckpoint.inline(b""),
}
SIDECAR = b"hellorest"


def inline_hash(**states: bytes) -> str:
    """The checksum of inline state, worked out here from its description."""
    texts = sorted((n.encode(), base64.b64encode(data)) for n, data in states.items())
    return hashlib.sha256(b"".join(n + b"\0" + text + b"\0" for n, text in texts)).hexdigest()


class ProducerFailed(Exception):
    """Stands for whatever a caller's own iterator may raise."""


class StoreState:
    """save_with_state, save_state_data, load_state_data, stream_state_data."""

    def test_state_is_the_concatenation_of_its_chunks(self, open_handle: OpenHandle) -> None:
        chunks: list[Buffer] = [b"one", bytearray(b"two"), memoryview(b"three"), b""]
        open_handle().save_with_state(example(1), chunks)
        assert open_handle().load_state_data(1) == b"onetwothree"

    def test_state_may_come_from_an_iterator(self, open_handle: OpenHandle) -> None:
        open_handle().save_with_state(example(1), (b"%d," % n for n in range(1000)))
        expected = b"".join(b"%d," % n for n in range(1000))
        reader = open_handle()
        assert reader.load_state_data(1) == expected
        assert b"".join([bytes(piece) for piece in reader.stream_state_data(1)]) == expected

    def test_an_iterator_may_use_its_buffer_again(self, open_handle: OpenHandle) -> None:
        def chunks() -> Iterator[bytearray]:
            buffer = bytearray(1000)
            for number in range(4):
                buffer[:] = bytes([number]) * 1000
                yield buffer

        open_handle().save_with_state(example(1), chunks())
        reader = open_handle()
        assert reader.validate_checkpoint(1).valid
        assert reader.load_state_data(1) == b"".join(bytes([n]) * 1000 for n in range(4))

    def test_no_chunks_mean_no_sidecar(self, open_handle: OpenHandle) -> None:
        store = open_handle()
        saved = store.save_with_state(example(1))
        assert saved.state_bytes is None
        assert store.load_state_data(1) is None
        assert list(store.stream_state_data(1)) == []

    def test_a_sidecar_may_be_empty(self, open_handle: OpenHandle) -> None:
        store = open_handle()
        saved = store.save_with_state(example(1), [])
        assert saved.state_bytes == 0
        assert store.load_state_data(1) == b""
        assert store.validate_checkpoint(1).valid

    def test_the_manifest_appears_after_its_state(self, open_handle: OpenHandle) -> None:
        store, reader = open_handle(), open_handle()
        seen: list[list[int]] = []

        def chunks() -> Iterator[bytes]:
            yield b"first"
            seen.append(reader.list_ids())
            yield b"last"
            seen.append(reader.list_ids())

        store.save_with_state(example(1), chunks())
        assert seen == [[], []]
        assert reader.list_ids() == [1]

    def test_chunks_that_fail_leave_no_checkpoint(self, open_handle: OpenHandle) -> None:
        def chunks() -> Iterator[bytes]:
            yield b"first"
            raise ProducerFailed

        store = open_handle()
        with pytest.raises(ProducerFailed):
            store.save_with_state(example(1), chunks())
        assert store.list_ids() == []
        assert store.recover_latest_validated().fresh_start
        store.save_with_state(example(1), [b"second try"])
        assert store.load_state_data(1) == b"second try"

    def test_state_and_manifest_can_be_saved_one_after_the_other(
        self, open_handle: OpenHandle
    ) -> None:
        for operators in (EXTERNAL, MIXED):
            store = open_handle()
            number = store.next_id()
            store.save_state_data(number, [SIDECAR[:3], SIDECAR[3:]])
            store.save(example(number, operator_states=operators))
            reader = open_handle()
            assert reader.load_state_data(number) == SIDECAR
            assert reader.validate_checkpoint(number).valid

    def test_state_that_another_process_wrote_is_taken_over(self, open_handle: OpenHandle) -> None:
        open_handle().save_state_data(1, [SIDECAR])
        open_handle().save(example(1, operator_states=EXTERNAL))
        reader = open_handle()
        assert reader.load_state_data(1) == SIDECAR
        assert reader.validate_checkpoint(1).valid

    def test_state_for_a_checkpoint_that_is_decided_is_refused(
        self, open_handle: OpenHandle, blobs: Blobs
    ) -> None:
        store = open_handle()
        store.save_with_state(example(1, operator_states=EXTERNAL), [SIDECAR])
        store.save(example(2))
        before = [entry.key for entry in blobs.entries("")]
        for writer in (store, open_handle()):
            for number in (1, 2):
                for state in (SIDECAR, b"other bytes"):
                    with pytest.raises(FencedError, match="decided"):
                        writer.save_state_data(number, [state])
        assert [entry.key for entry in blobs.entries("")] == before
        assert open_handle().load_state_data(1) == SIDECAR
        number = store.claim().tombstone_id
        store.save_state_data(number, [SIDECAR])  # its own tombstone is in nobody's way
        store.save(example(number, operator_states=EXTERNAL))
        assert open_handle().recover_latest_validated().chosen_id == number

    def test_a_manifest_whose_state_was_never_written_is_refused(
        self, open_handle: OpenHandle
    ) -> None:
        store = open_handle()
        with pytest.raises(RefusedError):
            store.save(example(1, operator_states=EXTERNAL))
        assert store.list_ids() == []

    def test_checksums_follow_the_three_rules(self, open_handle: OpenHandle) -> None:
        store = open_handle()
        inline = inline_hash(count=b"1")
        assert store.save(example(1)).state_checksum == inline
        external = store.save_with_state(example(2, operator_states=EXTERNAL), [SIDECAR])
        assert external.state_checksum == hashlib.sha256(SIDECAR).hexdigest()
        mixed = store.save_with_state(example(3, operator_states=MIXED), [SIDECAR])
        both = inline_hash(count=b"7", Agg=b"").encode() + SIDECAR
        assert mixed.state_checksum == hashlib.sha256(both).hexdigest()
        assert all(store.validate_checkpoint(number).valid for number in (1, 2, 3))

    def test_chunks_beside_inline_operators_alone_are_mixed_and_valid(
        self, open_handle: OpenHandle
    ) -> None:
        saved = open_handle().save_with_state(example(1), [SIDECAR])
        both = inline_hash(count=b"1").encode() + SIDECAR
        assert saved.state_checksum == hashlib.sha256(both).hexdigest()
        assert open_handle().validate_checkpoint(1).valid

    def test_sizes_count_state_and_manifest(self, open_handle: OpenHandle) -> None:
        saved = open_handle().save_with_state(example(1), [b"x" * 5000])
        bare = saved.replace(size_bytes=0).with_extra(self_checksum=None)
        assert saved.state_bytes == 5000
        assert saved.size_bytes == 5000 + len(bare.to_json())

    def test_a_wrong_checksum_is_refused_at_the_door(self, open_handle: OpenHandle) -> None:
        store = open_handle()
        with pytest.raises(InvalidInputError):
            store.save(example(1, state_checksum="0" * 64))
        assert store.list_ids() == []

    def test_harmed_state_is_not_handed_out(
        self, open_handle: OpenHandle, blobs: Blobs, layout: Layout
    ) -> None:
        open_handle().save_with_state(example(1), [b"x" * 1000])
        flip(blobs, layout.state(1), 500)
        reader = open_handle()
        with pytest.raises(DamageError):
            reader.load_state_data(1)
        with pytest.raises(DamageError):
            list(reader.stream_state_data(1))

    def test_state_of_nothing_is_none(self, open_handle: OpenHandle) -> None:
        store = open_handle()
        assert store.load_state_data(5) is None
        with pytest.raises(CheckpointNotFoundError):
            list(store.stream_state_data(5))

    def test_chunks_that_are_no_bytes_are_refused(self, open_handle: OpenHandle) -> None:
        store = open_handle()
        for wrong in (b"one value", "text", [1, 2], ["text"], [None]):
            with pytest.raises((SeamarkError, TypeError)):
                store.save_with_state(example(1), wrong)  # type: ignore[arg-type]
        assert store.list_ids() == []
