"""Damage: found, named, and never mistaken for something else."""

from __future__ import annotations

import hashlib
import json
from typing import Any

import pytest

from seamark.blobs.contract import Blobs
from seamark.errors import DamageError, FormatTooNewError, InvalidInputError, RefusedError
from seamark.manifest import CheckpointManifest, OperatorCheckpoint
from seamark.store.layout import Layout
from tests.store.support.examples import (
    OpenHandle,
    child,
    example,
    flip,
    overwrite,
    raw_document,
)

NO_MANIFEST = (
    b"",
    b"{",
    b"null",
    b"[]",
    b"7",
    b'"text"',
    b"\x00" * 100,
    bytes(range(256)),
    b"[" * 100_000,
    b'{"version":' + b'{"a":' * 100_000,
    b'{"version":1,"checkpoint_id":1,"epoch":1}',
    b'{"version":1,"checkpoint_id":1,"epoch":1,"timestamp_ms":-1}',
    b'{"version":1,"checkpoint_id":1,"epoch":18446744073709551616,"timestamp_ms":1}',
    b'{"version":1,"checkpoint_id":1,"epoch":1e400,"timestamp_ms":1}',
    b'{"version":1,"checkpoint_id":1,"epoch":1,"timestamp_ms":' + b"9" * 5000 + b"}",
    b'{"version":1,"checkpoint_id":1,"epoch":1,"timestamp_ms":1,"watermark":9223372036854775808}',
    b'{"version":1,"checkpoint_id":1,"epoch":1,"timestamp_ms":1,"sink_commit_statuses":{"a":"?"}}',
    b'{"version":1,"checkpoint_id":1,"epoch":1,"timestamp_ms":1}trailing',
    b'{"version":1,"checkpoint_id":1,"epoch":1,"timestamp_ms":1,"source_names":["\xff"]}',
)


class StoreDamage:
    """validate_checkpoint, and reads of what is damaged."""

    def test_a_whole_checkpoint_is_valid(self, open_handle: OpenHandle) -> None:
        store = open_handle()
        store.save(example(1))
        store.save_with_state(example(2), [b"state"])
        for number in (1, 2):
            result = open_handle().validate_checkpoint(number)
            assert (result.checkpoint_id, result.valid, result.issues) == (number, True, [])

    def test_a_missing_checkpoint_is_not_valid(self, open_handle: OpenHandle) -> None:
        result = open_handle().validate_checkpoint(9)
        assert not result.valid
        assert result.damage == ["manifest not found for checkpoint 9"]

    def test_bytes_that_are_no_manifest_are_damage_and_nothing_else(
        self, open_handle: OpenHandle, blobs: Blobs, layout: Layout
    ) -> None:
        tag = blobs.create(layout.manifest(1), b"{}")
        store = open_handle()
        for data in NO_MANIFEST:
            tag = blobs.replace(layout.manifest(1), data, tag)
            assert not store.validate_checkpoint(1).valid, data[:80]
            with pytest.raises(DamageError):
                store.load_by_id(1)
        assert (store.list_ids(), store.list()) == ([1], [])
        with pytest.raises(DamageError):
            store.load_latest()

    def test_an_epoch_of_zero_is_damage(
        self, open_handle: OpenHandle, blobs: Blobs, layout: Layout
    ) -> None:
        blobs.create(layout.manifest(1), example(1).replace(epoch=0).to_json())
        assert not open_handle().validate_checkpoint(1).valid

    def test_a_flipped_bit_in_a_manifest_is_found_wherever_it_is(
        self, open_handle: OpenHandle, blobs: Blobs, layout: Layout
    ) -> None:
        saved = open_handle().save(example(1))
        blob = blobs.read(layout.manifest(1), 1 << 20)
        assert blob is not None
        text = blob.data
        reader = open_handle()
        places = (b'"epoch":', b'"writer"', b'"p0"', b'"timestamp_ms"', b'"generation":')
        for place in places:
            at = text.index(place) + len(place)
            flip(blobs, layout.manifest(1), at)
            assert not reader.validate_checkpoint(1).valid, place
            overwrite(blobs, layout.manifest(1), text)
        assert reader.load_by_id(1) == saved

    def test_a_manifest_of_ours_without_its_checksum_is_damage(
        self, open_handle: OpenHandle, blobs: Blobs, layout: Layout
    ) -> None:
        saved = open_handle().save(example(1))
        bare = saved.with_extra(self_checksum=None)
        overwrite(blobs, layout.manifest(1), bare.to_json())
        assert not open_handle().validate_checkpoint(1).valid

    def test_a_truncated_manifest_is_damage(
        self, open_handle: OpenHandle, blobs: Blobs, layout: Layout
    ) -> None:
        open_handle().save(example(1))
        blob = blobs.read(layout.manifest(1), 1 << 20)
        assert blob is not None
        for size in (0, 1, len(blob.data) // 2, len(blob.data) - 1):
            overwrite(blobs, layout.manifest(1), blob.data[:size])
            assert not open_handle().validate_checkpoint(1).valid, size

    def test_a_manifest_under_another_ids_name_is_damage(
        self, open_handle: OpenHandle, blobs: Blobs, layout: Layout
    ) -> None:
        open_handle().save(example(1))
        blob = blobs.read(layout.manifest(1), 1 << 20)
        assert blob is not None
        blobs.create(layout.manifest(2), blob.data)
        assert not open_handle().validate_checkpoint(2).valid
        assert open_handle().recover_latest_validated().chosen_id == 1

    def test_harmed_state_is_damage(
        self, open_handle: OpenHandle, blobs: Blobs, layout: Layout
    ) -> None:
        store = open_handle()
        for number in (1, 2, 3, 4):
            store.save_with_state(example(number), [b"x" * 1000])
        assert all(store.validate_checkpoint(number).valid for number in (1, 2, 3, 4))
        flip(blobs, layout.state(1), 999)
        overwrite(blobs, layout.state(2), b"x" * 999)
        overwrite(blobs, layout.state(3), b"x" * 1001)
        blobs.delete([layout.state(4)])
        for handle in (store, open_handle()):
            for number in (1, 2, 3, 4):
                assert not handle.validate_checkpoint(number).valid, number

    def test_what_could_never_be_recovered_is_refused_at_the_door(
        self, open_handle: OpenHandle
    ) -> None:
        store = open_handle()
        store.save(example(1))
        wrong: dict[str, CheckpointManifest] = {
            "epoch 0": example(2).replace(epoch=0),
            "no parent": example(2, is_incremental=True),
            "parent of itself": child(4, parent_id=4),
            "younger parent": child(5, parent_id=6),
            "missing parent": child(6, parent_id=3),
            "not base64": example(2, operator_states={"a": OperatorCheckpoint(state_b64="!")}),
        }
        for offset, length in ((0, 6), (5, 1), (2**64 - 1, 1)):
            operators = {"join": OperatorCheckpoint.in_sidecar(offset, length)}
            wrong[f"range {offset} {length}"] = example(2, operator_states=operators)
        accepted = []
        for number, (what, manifest) in enumerate(wrong.items(), 2):
            try:
                chunks = [b"state"] if manifest.has_external_state else None
                store.save_with_state(manifest.replace(checkpoint_id=number), chunks)
                accepted.append(what)
            except (InvalidInputError, RefusedError):
                continue
        assert accepted == []

    def test_a_range_outside_of_the_state_is_damage(
        self, open_handle: OpenHandle, blobs: Blobs, layout: Layout
    ) -> None:
        for number, offset, length in ((1, 0, 6), (2, 5, 1), (3, 2**64 - 1, 1)):
            operators = {"join": OperatorCheckpoint.in_sidecar(offset, length)}
            manifest = example(
                number,
                operator_states=operators,
                state_checksum=hashlib.sha256(b"state").hexdigest(),
                extra={"state_bytes": 5},
            )
            blobs.create(layout.state(number), b"state")
            blobs.create(layout.manifest(number), raw_document(manifest, generation=0))
            assert not open_handle().validate_checkpoint(number).valid, (offset, length)

    def test_a_range_outside_of_another_systems_state_is_damage_too(
        self, open_handle: OpenHandle, blobs: Blobs, layout: Layout
    ) -> None:
        operators = {"join": OperatorCheckpoint.in_sidecar(0, 6)}
        blobs.create(layout.manifest(1), example(1, operator_states=operators).to_json())
        blobs.create(layout.state(1), b"state")
        assert not open_handle().validate_checkpoint(1).valid

    def test_inline_state_that_cannot_be_decoded_is_damage(
        self, open_handle: OpenHandle, blobs: Blobs, layout: Layout
    ) -> None:
        operators = {"count": OperatorCheckpoint(state_b64="not base64!")}
        blobs.create(layout.manifest(1), example(1, operator_states=operators).to_json())
        assert not open_handle().validate_checkpoint(1).valid

    def test_a_broken_chain_of_parents_is_damage(
        self, open_handle: OpenHandle, blobs: Blobs, layout: Layout
    ) -> None:
        store = open_handle()
        store.save_with_state(example(1), [b"base"])
        store.save(child(2, parent_id=1))
        store.save(child(3, parent_id=2))
        assert store.validate_checkpoint(3).valid
        flip(blobs, layout.state(1), 0)
        assert [open_handle().validate_checkpoint(n).valid for n in (1, 2, 3)] == [False] * 3
        blobs.delete([layout.manifest(1)])
        assert [open_handle().validate_checkpoint(n).valid for n in (2, 3)] == [False] * 2

    def test_another_systems_manifest_is_read_with_a_warning(
        self, open_handle: OpenHandle, blobs: Blobs, layout: Layout
    ) -> None:
        small: dict[str, Any] = {"version": 1, "checkpoint_id": 1, "epoch": 5, "timestamp_ms": 1}
        blobs.create(layout.manifest(1), json.dumps(small, indent=2).encode())
        store = open_handle()
        result = store.validate_checkpoint(1)
        assert result.valid
        assert any("another system" in str(issue) for issue in result.issues)
        assert any("vnode_count is 0" in str(issue) for issue in result.issues)
        expected = CheckpointManifest(version=1, checkpoint_id=1, epoch=5, timestamp_ms=1)
        assert store.load_latest() == expected

    def test_a_number_of_partitions_is_compared_only_when_given(
        self, open_handle: OpenHandle
    ) -> None:
        open_handle().save(example(1, vnode_count=64))
        assert open_handle().validate_checkpoint(1).issues == []
        result = open_handle(vnode_count=32).validate_checkpoint(1)
        assert result.valid
        assert ["64" in str(issue) and "32" in str(issue) for issue in result.issues] == [True]

    def test_a_manifest_that_is_too_new_is_refused_and_not_damage(
        self, open_handle: OpenHandle, blobs: Blobs, layout: Layout
    ) -> None:
        open_handle().save(example(1))
        blobs.create(layout.manifest(2), example(2).replace(version=2).to_json())
        store = open_handle()
        for call in (store.load_latest, store.recover_latest_validated):
            with pytest.raises(FormatTooNewError):
                call()
        with pytest.raises(FormatTooNewError):
            store.validate_checkpoint(2)
