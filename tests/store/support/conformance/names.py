"""Names inside of manifests: none leads to anything but the checkpoint's own state."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from typing import Any, Final

import pytest

from seamark._common.json_documents import seal, unseal
from seamark.blobs.contract import Blobs
from seamark.errors import DamageError
from seamark.manifest import OperatorCheckpoint
from seamark.store import CheckpointStore
from seamark.store.inspection import examine, read_sidecar_range, scan
from seamark.store.layout import Layout
from seamark.testing.conformance.blob_names import LEADING_AWAY
from tests.store.support.examples import OpenHandle, example, overwrite

_SECRET: Final = b"of another checkpoint"
_INSIDE: Final = {"op": OperatorCheckpoint.in_sidecar(0, 4)}


def resealed(blobs: Blobs, key: str, **changes: Any) -> None:
    """Change fields of a stored manifest as somebody who knows the format would; None drops one."""
    blob = blobs.read(key, 1 << 30)
    assert blob is not None
    members = {**json.loads(unseal(blob.data)), **changes}
    document = {name: value for name, value in members.items() if value is not None}
    overwrite(blobs, key, seal(json.dumps(document, separators=(",", ":")).encode()))


def reads_of(store: CheckpointStore, checkpoint_id: int) -> dict[str, object]:
    """What each way to read a state gives: bytes, or the error."""
    manifest = store.load_by_id(checkpoint_id)
    assert manifest is not None
    ways: dict[str, Callable[[], object]] = {
        "load_state_data": lambda: store.load_state_data(checkpoint_id),
        "stream_state_data": lambda: b"".join(map(bytes, store.stream_state_data(checkpoint_id))),
        "read_state_range": lambda: read_sidecar_range(store, manifest, 0, 4),
    }
    found: dict[str, object] = {}
    for name, read in ways.items():
        try:
            found[name] = read()
        except DamageError as error:
            found[name] = error
    return found


class StoreNames:
    """A manifest is written by whoever can write to the store, and may say anything."""

    def _stored(self, open_handle: OpenHandle) -> CheckpointStore:
        store = open_handle()
        store.save_with_state(example(1, operator_states=_INSIDE), [_SECRET])
        store.save_with_state(example(2, operator_states=_INSIDE), [b"mine"])
        return store

    def test_a_manifest_reaches_no_state_but_its_own(
        self, open_handle: OpenHandle, blobs: Blobs, layout: Layout
    ) -> None:
        self._stored(open_handle)
        reaching = (
            *LEADING_AWAY,
            layout.state(1),
            layout.state_in_parts(1, 1, "ab"),
            layout.manifest(1),
            layout.pointer,
            "owner.json",
            f"other/../{layout.state(1)}",
            layout.state(2).replace("/", "%2F"),
            7,
            ["checkpoints/state-000001.bin"],
        )
        whole = blobs.read(layout.manifest(2), 1 << 30)
        assert whole is not None
        # followed to checkpoint 1, the name would lead to bytes that fit
        fitting = {
            "state_checksum": hashlib.sha256(_SECRET).hexdigest(),
            "state_bytes": len(_SECRET),
        }
        told: list[dict[str, Any]] = [{"state_object": named} for named in reaching]
        told += [{"state_object": layout.state(1), lacking: None} for lacking in fitting]
        for changes in told:
            overwrite(blobs, layout.manifest(2), whole.data)
            resealed(blobs, layout.manifest(2), **fitting | changes)
            store = open_handle()
            for way, found in reads_of(store, 2).items():
                assert isinstance(found, DamageError), f"{way} follows {changes}"
            assert not store.validate_checkpoint(2).valid
            assert not examine(store, 2, read_data=False).result.valid
        assert store.recover_latest_validated().chosen_id == 1
        assert next(scan(store)).damage is not None

    def test_state_without_a_checksum_is_not_taken_for_verified(
        self, open_handle: OpenHandle, blobs: Blobs, layout: Layout
    ) -> None:
        """Seamark always writes one, so that whoever removes it gains nothing."""
        self._stored(open_handle)
        resealed(blobs, layout.manifest(2), state_checksum=None)
        store = open_handle()
        for way, found in reads_of(store, 2).items():
            assert isinstance(found, DamageError) or way == "read_state_range", way
        assert store.validate_checkpoint(2).damage == ["the manifest has no checksum of its state"]
        assert store.recover_latest_validated().chosen_id == 1

    def test_an_operator_whose_state_nobody_vouches_for_is_damage(
        self, open_handle: OpenHandle, blobs: Blobs, layout: Layout
    ) -> None:
        """Taken for a checkpoint without a sidecar, its operator would start from nothing."""
        self._stored(open_handle)
        resealed(blobs, layout.manifest(2), state_checksum=None, state_bytes=None)
        store = open_handle()
        assert not store.validate_checkpoint(2).valid
        with pytest.raises(DamageError):
            store.load_state_data(2)
        with pytest.raises(DamageError):
            list(store.stream_state_data(2))
        assert store.recover_latest_validated().chosen_id == 1

    def test_clean_up_after_a_hostile_manifest_leaves_what_others_need(
        self, open_handle: OpenHandle, blobs: Blobs, layout: Layout
    ) -> None:
        self._stored(open_handle)
        resealed(blobs, layout.manifest(2), state_object=layout.state(1))
        store = open_handle()
        store.claim()
        store.cleanup_orphans(min_age=0)
        assert store.load_state_data(1) == _SECRET
        assert store.prune(1) == 0
        assert store.recover_latest_validated().chosen_id == 1
