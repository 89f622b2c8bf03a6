"""Manifests to save, and ways to harm what was saved."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Protocol

from seamark._common.json_documents import seal
from seamark.blobs.contract import Blobs
from seamark.errors import FencedError
from seamark.manifest import (
    CheckpointManifest,
    ConnectorCheckpoint,
    InFlightRecord,
    OperatorCheckpoint,
    SinkCommitStatus,
)
from seamark.store import CheckpointStore

NAMES_THAT_LEAD_AWAY = ("", "..", ".", "a/b", "../up", "a\\b", "nul\x00")
NOT_AN_ID: tuple[Any, ...] = (0, -1, 2**64, True, 1.0, "1", None)


class OpenHandle(Protocol):
    """Opens the store under test once more, as another process would."""

    def __call__(
        self, *, keep: int | None = None, vnode_count: int | None = None
    ) -> CheckpointStore: ...


def example(checkpoint_id: int, epoch: int | None = None, **fields: Any) -> CheckpointManifest:
    """A small manifest with one inline operator, one source and one sink."""
    given: dict[str, Any] = {
        "operator_states": {"count": OperatorCheckpoint.inline(b"%d" % checkpoint_id)},
        "source_names": ["trades"],
        "source_offsets": {"trades": ConnectorCheckpoint({"p0": str(checkpoint_id)})},
        "sink_names": ["lake"],
        "sink_epochs": {"lake": checkpoint_id},
        "sink_commit_statuses": {"lake": SinkCommitStatus.pending()},
    }
    return CheckpointManifest.new(checkpoint_id, epoch or checkpoint_id, **given | fields)


def example_in_full(checkpoint_id: int) -> CheckpointManifest:
    """A manifest in which every field says something."""
    return example(
        checkpoint_id,
        timestamp_ms=1_772_000_000_000,
        sink_commit_statuses={"lake": SinkCommitStatus.failed('disk "full" \\ é')},
        table_offsets={"rates": ConnectorCheckpoint({"lsn": "0/16"}, 7, {"kind": "jdbc"})},
        operator_states={
            "naïve": OperatorCheckpoint.inline(b"\x00\xff"),
            "empty": OperatorCheckpoint.inline(b""),
        },
        table_store_checkpoint_path="state/0190/parts",
        wal_position=2**64 - 1,
        per_core_wal_positions=[1, 2, 2**63],
        watermark=-(2**63),
        source_watermarks={"trades": 2**63 - 1},
        pipeline_hash=2**64 - 1,
        inflight_data={"join": [InFlightRecord(3, "AAE=")]},
        parent_id=checkpoint_id - 1 or None,
        vnode_count=64,
        extra={"of_tomorrow": {"deep": [1, None, "x"]}, "fingerprint": "abc"},
    )


def child(checkpoint_id: int, parent_id: int) -> CheckpointManifest:
    """A checkpoint that holds only what its parent lacks."""
    return example(checkpoint_id, is_incremental=True, parent_id=parent_id)


def raw_document(manifest: CheckpointManifest, *, generation: int) -> bytes:
    """The bytes of a manifest as a writer of that generation would have sent them."""
    return seal(manifest.with_extra(writer="zombie", generation=generation).to_json())


def overwrite(blobs: Blobs, key: str, data: bytes) -> None:
    """Put other bytes where a value is, past the store."""
    blob = blobs.read(key, 1 << 30)
    assert blob is not None, f"there is no {key} to overwrite"
    blobs.replace(key, data, blob.tag)


def flip(blobs: Blobs, key: str, at: int) -> None:
    """Flip one bit of a stored value."""
    blob = blobs.read(key, 1 << 30)
    assert blob is not None, f"there is no {key} to harm"
    data = bytearray(blob.data)
    data[at] ^= 1
    overwrite(blobs, key, bytes(data))


def outcomes(actions: list[Callable[[], object]]) -> list[BaseException | None]:
    """Start all actions together; what each raised, :class:`FencedError` or nothing."""
    start = threading.Barrier(len(actions))

    def one(action: Callable[[], object]) -> BaseException | None:
        start.wait(30)
        try:
            action()
        except FencedError as error:
            return error
        return None

    with ThreadPoolExecutor(len(actions)) as pool:
        return list(pool.map(one, actions))
