"""Recording what the sinks did: the only change that a decided checkpoint sees."""

from __future__ import annotations

import hashlib
import json
from contextlib import suppress
from typing import Any

import pytest

from seamark.blobs.contract import Blobs
from seamark.errors import (
    CheckpointNotFoundError,
    FencedError,
    InvalidInputError,
    RefusedError,
)
from seamark.manifest import CheckpointManifest, OperatorCheckpoint, SinkCommitStatus
from seamark.store import CheckpointStore
from seamark.store.layout import Layout
from tests.store.support.examples import (
    NAMES_THAT_LEAD_AWAY,
    OpenHandle,
    example,
    example_in_full,
)

COMMITTED = {"lake": SinkCommitStatus.committed()}


def loaded(store: CheckpointStore, checkpoint_id: int) -> CheckpointManifest:
    """A checkpoint that must be there."""
    manifest = store.load_by_id(checkpoint_id)
    assert manifest is not None
    return manifest


class StoreUpdates:
    """update_manifest."""

    def test_statuses_and_epochs_of_sinks_are_recorded(self, open_handle: OpenHandle) -> None:
        store = open_handle()
        saved = store.save(example(1))
        statuses = {"lake": SinkCommitStatus.failed("full"), "cache": SinkCommitStatus.committed()}
        updated = store.update_manifest(
            saved.replace(sink_commit_statuses=statuses, sink_epochs={"lake": 0, "cache": 1})
        )
        again = loaded(open_handle(), 1)
        assert again == updated
        assert again.sink_commit_statuses == statuses
        assert again.sink_epochs == {"lake": 0, "cache": 1}

    def test_the_checksum_is_kept_by_an_update(self, open_handle: OpenHandle) -> None:
        store = open_handle()
        saved = store.save_with_state(example(1), [b"state"])
        bare = saved.replace(state_checksum=None, sink_commit_statuses=COMMITTED, extra={})
        store.update_manifest(bare)
        again = loaded(open_handle(), 1)
        assert again.state_checksum == saved.state_checksum is not None
        assert again.state_bytes == 5
        assert open_handle().validate_checkpoint(1).valid

    def test_a_manifest_that_was_never_loaded_can_carry_the_update(
        self, open_handle: OpenHandle
    ) -> None:
        manifest = example(1)
        open_handle().save(manifest)
        open_handle().update_manifest(manifest.replace(sink_commit_statuses=COMMITTED))
        assert loaded(open_handle(), 1).sink_commit_statuses == COMMITTED
        assert open_handle().validate_checkpoint(1).valid

    def test_extra_fields_are_added_and_unknown_ones_kept(self, open_handle: OpenHandle) -> None:
        store = open_handle()
        store.save(
            example(1, extra={"of_tomorrow": {"deep": [1, None]}, "timings": {"write": 1.5}})
        )
        bare = loaded(store, 1).replace(extra={"timings": {"write": 1.5, "commit": 2.0}})
        store.update_manifest(bare)
        extra = loaded(open_handle(), 1).extra
        assert extra["of_tomorrow"] == {"deep": [1, None]}
        assert extra["timings"] == {"write": 1.5, "commit": 2.0}

    def test_unknown_fields_inside_of_known_ones_are_kept(
        self, open_handle: OpenHandle, blobs: Blobs, layout: Layout
    ) -> None:
        document: dict[str, Any] = json.loads(example(1).to_json())
        document["source_offsets"]["trades"]["of_tomorrow"] = [1, 2]
        document["operator_states"]["count"]["codec"] = "zstd"
        blobs.create(layout.manifest(1), json.dumps(document).encode())
        store = open_handle()
        store.update_manifest(loaded(store, 1).replace(sink_commit_statuses=COMMITTED))
        blob = blobs.read(layout.manifest(1), 1 << 20)
        assert blob is not None
        stored = json.loads(blob.data)
        assert stored["source_offsets"]["trades"]["of_tomorrow"] == [1, 2]
        assert stored["operator_states"]["count"]["codec"] == "zstd"
        assert open_handle().validate_checkpoint(1).valid

    def test_an_update_of_another_systems_checkpoint_keeps_its_state(
        self, open_handle: OpenHandle, blobs: Blobs, layout: Layout
    ) -> None:
        external = {"join": OperatorCheckpoint.in_sidecar(0, 5)}
        mixed = {**external, "count": OperatorCheckpoint.inline(b"7")}
        sidecar_alone = hashlib.sha256(b"state").hexdigest()
        for number, (operators, checksum) in enumerate(
            [(external, None), (external, sidecar_alone), (mixed, None), (mixed, sidecar_alone)], 1
        ):
            foreign = example(number, operator_states=operators, state_checksum=checksum)
            blobs.create(layout.manifest(number), foreign.to_json())
            blobs.create(layout.state(number), b"state")
            store = open_handle()
            assert store.validate_checkpoint(number).valid, (number, "before")
            store.update_manifest(loaded(store, number).replace(sink_commit_statuses=COMMITTED))
            reader = open_handle()
            assert reader.validate_checkpoint(number).valid, number
            assert reader.load_state_data(number) == b"state", number
            assert reader.cleanup_orphans(min_age=0) == 0, number
            assert blobs.stat(layout.state(number)) is not None

    def test_nothing_else_may_change(self, open_handle: OpenHandle) -> None:
        store = open_handle()
        saved = store.save(example_in_full(2))
        changes: dict[str, Any] = {
            "version": 0,
            "epoch": 3,
            "timestamp_ms": 1,
            "source_offsets": {},
            "table_offsets": {},
            "operator_states": {"naïve": OperatorCheckpoint.inline(b"other")},
            "table_store_checkpoint_path": None,
            "wal_position": 1,
            "per_core_wal_positions": [],
            "watermark": 1,
            "source_watermarks": {},
            "source_names": [],
            "sink_names": [],
            "pipeline_hash": None,
            "inflight_data": {},
            "is_incremental": True,
            "parent_id": None,
            "state_checksum": "0" * 64,
            "vnode_count": 1,
        }
        for name, value in changes.items():
            with pytest.raises(RefusedError, match=name):
                store.update_manifest(saved.replace(**{name: value}))
        for name in ("writer", "generation", "timeline", "state_bytes", "state_object"):
            with pytest.raises(RefusedError, match=name):
                store.update_manifest(saved.with_extra(**{name: "other"}))
        assert loaded(open_handle(), 2) == saved

    def test_an_update_cannot_harm_a_checkpoint_by_a_bad_name(
        self, open_handle: OpenHandle
    ) -> None:
        store = open_handle()
        saved = store.save(example(1))
        for name in NAMES_THAT_LEAD_AWAY:
            with pytest.raises(InvalidInputError):
                store.update_manifest(
                    saved.replace(sink_commit_statuses={name: SinkCommitStatus.committed()})
                )
            with pytest.raises(InvalidInputError):
                store.update_manifest(saved.replace(sink_epochs={name: 1}))
        assert open_handle().validate_checkpoint(1).valid

    def test_an_update_needs_a_checkpoint(self, open_handle: OpenHandle) -> None:
        store = open_handle()
        with pytest.raises(CheckpointNotFoundError):
            store.update_manifest(example(1))
        assert store.list_ids() == []

    def test_an_update_does_not_bring_back_what_was_pruned(self, open_handle: OpenHandle) -> None:
        store = open_handle()
        first = store.save(example(1))
        store.save(example(2))
        assert open_handle().prune(1) == 1
        for handle in (store, open_handle()):
            with pytest.raises(CheckpointNotFoundError):
                handle.update_manifest(first.replace(sink_commit_statuses=COMMITTED))
        assert open_handle().list_ids() == [2]

    def test_an_update_of_an_older_one_leaves_the_pointer(
        self, open_handle: OpenHandle, blobs: Blobs, layout: Layout
    ) -> None:
        store = open_handle()
        first = store.save(example(1))
        store.save(example(2))
        store.update_manifest(first.replace(sink_commit_statuses=COMMITTED))
        pointer = blobs.read(layout.pointer, 100)
        assert pointer is not None
        assert layout.decode_pointer(pointer.data) == 2

    def test_an_update_sees_what_another_handle_added(self, open_handle: OpenHandle) -> None:
        one, two = open_handle(), open_handle()
        saved = one.save(example(1))
        two.update_manifest(saved.replace(extra={"timings": {"commit": 1}}))
        one.update_manifest(saved.replace(extra={"of_others": 5}))
        extra = loaded(open_handle(), 1).extra
        assert (extra["timings"], extra["of_others"]) == ({"commit": 1}, 5)

    def test_an_update_from_an_old_reading_does_not_undo_a_newer_one(
        self, open_handle: OpenHandle
    ) -> None:
        pending = SinkCommitStatus.pending()
        committed = SinkCommitStatus.committed()
        one, two = open_handle(), open_handle()
        saved = one.save(example(1, sink_commit_statuses={"a": pending, "b": pending}))
        two.update_manifest(saved.replace(sink_commit_statuses={"a": committed, "b": pending}))
        with suppress(FencedError):  # being told is fine: load again and repeat
            one.update_manifest(saved.replace(sink_commit_statuses={"a": pending, "b": committed}))
        assert loaded(open_handle(), 1).sink_commit_statuses["a"] == committed

    def test_updates_can_be_repeated(self, open_handle: OpenHandle) -> None:
        store = open_handle()
        saved = store.save_with_state(example(1), [b"state"])
        for number in range(3):
            status = {"lake": SinkCommitStatus.failed(f"try {number}")}
            saved = store.update_manifest(saved.replace(sink_commit_statuses=status))
        assert loaded(open_handle(), 1).sink_commit_statuses["lake"].message == "try 2"
        assert open_handle().validate_checkpoint(1).valid
