"""A manifest of the same shape in plain msgspec: what reading and writing it must cost at least."""

from __future__ import annotations

import msgspec

from seamark import CheckpointManifest


class PlainConnector(msgspec.Struct, frozen=True):
    """A source's position."""

    offsets: dict[str, str] = {}
    epoch: int = 0
    metadata: dict[str, str] = {}


class PlainOperator(msgspec.Struct, frozen=True):
    """An operator's state."""

    state_b64: str | None = None
    external: bool = False
    external_offset: int = 0
    external_length: int = 0


class PlainRecord(msgspec.Struct, frozen=True):
    """A record in flight."""

    input_id: int
    data_b64: str


class PlainManifest(msgspec.Struct, frozen=True):
    """The 23 fields and those that Seamark adds to every manifest; no check of any value."""

    version: int
    checkpoint_id: int
    epoch: int
    timestamp_ms: int
    source_offsets: dict[str, PlainConnector] = {}
    sink_epochs: dict[str, int] = {}
    sink_commit_statuses: dict[str, str | dict[str, str]] = {}
    table_offsets: dict[str, PlainConnector] = {}
    operator_states: dict[str, PlainOperator] = {}
    table_store_checkpoint_path: str | None = None
    wal_position: int = 0
    per_core_wal_positions: list[int] = []
    watermark: int | None = None
    source_watermarks: dict[str, int] = {}
    source_names: list[str] = []
    sink_names: list[str] = []
    pipeline_hash: int | None = None
    inflight_data: dict[str, list[PlainRecord]] = {}
    size_bytes: int = 0
    is_incremental: bool = False
    parent_id: int | None = None
    state_checksum: str | None = None
    vnode_count: int = 0
    writer: str = "bench pid 1 seamark 0"
    generation: int = 1
    timeline: str = "0" * 32


def plain_copy(manifest: CheckpointManifest) -> PlainManifest:
    """The same values in plain structs."""
    return msgspec.json.decode(manifest.to_json(), type=PlainManifest)
