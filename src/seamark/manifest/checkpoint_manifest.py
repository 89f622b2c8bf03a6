"""The manifest as a frozen value, and as the JSON document that is stored.

The 23 named fields have the names and the JSON shapes of LaminarDB's manifest, so its checkpoints
can be read here and ours there. Four of those names say little on Spark; they have a second name
(:data:`JSON_NAMES`). Everything else in a document is kept in ``extra`` and written back as it
was: fields of our own, which are typed attributes (:class:`SeamarkFacts`), and unknown fields.
"""

from __future__ import annotations

import time
from typing import Any, Final, Self

import msgspec

from seamark._common.checks import I64_MAX, I64_MIN, U16_MAX, U32_MAX, U64_MAX, check_number
from seamark._common.json_documents import DocumentReader, encode_document
from seamark.errors import DamageError, InvalidInputError
from seamark.manifest.facts import FACTS, SEAMARK_FIELDS, SeamarkFacts
from seamark.manifest.parts import (
    ConnectorCheckpoint,
    InFlightRecord,
    OperatorCheckpoint,
    SinkCommitStatus,
)

DEFAULT_VNODE_COUNT: Final = 256


class _Named(msgspec.Struct, frozen=True):
    """The 23 named fields. Only the first four are mandatory in JSON."""

    version: int
    checkpoint_id: int
    epoch: int
    timestamp_ms: int
    source_offsets: dict[str, ConnectorCheckpoint] = {}
    sink_epochs: dict[str, int] = {}
    sink_commit_statuses: dict[str, SinkCommitStatus] = {}
    table_offsets: dict[str, ConnectorCheckpoint] = {}
    operator_states: dict[str, OperatorCheckpoint] = {}
    table_store_checkpoint_path: str | None = None
    wal_position: int = 0
    per_core_wal_positions: list[int] = []
    watermark: int | None = None
    source_watermarks: dict[str, int] = {}
    source_names: list[str] = []
    sink_names: list[str] = []
    pipeline_hash: int | None = None
    inflight_data: dict[str, list[InFlightRecord]] = {}
    size_bytes: int = 0
    is_incremental: bool = False
    parent_id: int | None = None
    state_checksum: str | None = None
    vnode_count: int = 0


JSON_NAMES: Final = {
    "batch": "wal_position",
    "state_versions": "per_core_wal_positions",
    "state_partitions": "vnode_count",
    "state_checkpoint": "table_store_checkpoint_path",
}
"""Our names of fields, and LaminarDB's names, which are those in JSON."""
_OUR_NAMES: Final = JSON_NAMES.keys() | FACTS.keys()
_U64_FIELDS: Final = ("checkpoint_id", "epoch", "timestamp_ms", "wal_position", "size_bytes")
NAMED_FIELDS: Final = frozenset(_Named.__struct_fields__)


class CheckpointManifest(_Named, SeamarkFacts, frozen=True, dict=True):
    """A point-in-time snapshot of a whole pipeline. See the module for what is kept and why."""

    extra: dict[str, Any] = {}

    def __post_init__(self) -> None:
        # runs for each manifest that is read, so names are looked up only for a wrong value
        for number in (
            self.version,
            self.checkpoint_id,
            self.epoch,
            self.timestamp_ms,
            self.wal_position,
            self.size_bytes,
            self.vnode_count,
        ):
            if number.__class__ is not int or not 0 <= number <= U64_MAX:
                self._check_numbers()
        if self.version > U32_MAX or self.vnode_count > U16_MAX:
            self._check_numbers()
        if self.pipeline_hash is not None:
            check_number("pipeline_hash", self.pipeline_hash, 0, U64_MAX)
        if self.parent_id is not None:
            check_number("parent_id", self.parent_id, 0, U64_MAX)
        if self.watermark is not None:
            check_number("watermark", self.watermark, I64_MIN, I64_MAX)
        self._check_collections()
        if not NAMED_FIELDS.isdisjoint(self.extra):
            taken = sorted(NAMED_FIELDS & self.extra.keys())
            raise InvalidInputError(f"extra fields may not repeat named ones: {taken}")

    def _check_collections(self) -> None:
        for sink, epoch in self.sink_epochs.items():
            if epoch.__class__ is not int or not 0 <= epoch <= U64_MAX:
                check_number(f"sink_epochs[{sink!r}]", epoch, 0, U64_MAX)
        for source, mark in self.source_watermarks.items():
            if mark.__class__ is not int or not I64_MIN <= mark <= I64_MAX:
                check_number(f"source_watermarks[{source!r}]", mark, I64_MIN, I64_MAX)
        for position in self.per_core_wal_positions:
            check_number("per_core_wal_positions", position, 0, U64_MAX)

    def _check_numbers(self) -> None:
        check_number("version", self.version, 0, U32_MAX)
        check_number("vnode_count", self.vnode_count, 0, U16_MAX)
        for name in _U64_FIELDS:
            check_number(name, getattr(self, name), 0, U64_MAX)

    @classmethod
    def new(cls, checkpoint_id: int, epoch: int, **fields: Any) -> Self:
        """A manifest of the current format, created now.

        Fields go by our name or by the name in JSON. Our own fields (:class:`SeamarkFacts`) can be
        given too; one that is None is left out.
        """
        given = _by_json_names(fields, {})
        given.setdefault("timestamp_ms", time.time_ns() // 1_000_000)
        given.setdefault("vnode_count", DEFAULT_VNODE_COUNT)
        return cls(version=1, checkpoint_id=checkpoint_id, epoch=epoch, **given)

    def replace(self, **changes: Any) -> Self:
        """A copy with some fields changed; for their names see :meth:`new`."""
        return msgspec.structs.replace(self, **_by_json_names(changes, self.extra))

    def with_extra(self, **changes: Any) -> Self:
        """A copy with extra fields added or changed; those that are None are removed.

        An update of a stored manifest changes only the extra fields that it names.
        """
        merged = {k: v for k, v in {**self.extra, **changes}.items() if v is not None}
        return self.replace(extra=merged)

    def to_json(self) -> bytes:
        """The document as stored, without a checksum of its own."""
        return encode_document(_encoder, self)

    @classmethod
    def from_json(cls, data: bytes) -> Self:
        """Read a document of any known version; :class:`DamageError` when it is not one."""
        return _reader.read(cls, data)

    @property
    def batch(self) -> int:
        """Spark's batch (``wal_position`` in JSON)."""
        return self.wal_position

    @property
    def state_versions(self) -> list[int]:
        """The state version of each partition (``per_core_wal_positions`` in JSON)."""
        return self.per_core_wal_positions

    @property
    def state_partitions(self) -> int:
        """The number of state partitions (``vnode_count`` in JSON)."""
        return self.vnode_count

    @property
    def state_checkpoint(self) -> str | None:
        """The path of the partitioned state (``table_store_checkpoint_path`` in JSON)."""
        return self.table_store_checkpoint_path

    @property
    def is_ours(self) -> bool:
        """Whether Seamark wrote it: it has at least one of our extra fields."""
        return not SEAMARK_FIELDS.isdisjoint(self.extra)

    @property
    def builds_on(self) -> int | None:
        """The checkpoint that it needs, None for a full one.

        :class:`DamageError` unless that one is older, so that every chain of parents ends.
        """
        if not self.is_incremental:
            return None
        parent = self.parent_id or 0
        if not 0 < parent < self.checkpoint_id:
            raise DamageError(
                f"checkpoint {self.checkpoint_id} builds on {parent}, which is not older"
            )
        return parent

    @property
    def has_inline_state(self) -> bool:
        """Whether any operator keeps its state inside the manifest."""
        return any(not op.external for op in self.operator_states.values())

    @property
    def has_external_state(self) -> bool:
        """Whether any operator keeps its state in the sidecar."""
        return any(op.external for op in self.operator_states.values())

    def validate(self, expected_vnode_count: int | None = None) -> list[str]:
        """What looks wrong, one sentence each; empty when nothing does."""
        from seamark.manifest.findings import manifest_findings

        return manifest_findings(self, expected_vnode_count)


def _by_json_names(fields: dict[str, Any], extra: dict[str, Any]) -> dict[str, Any]:
    """The fields as the struct has them; our own ones are merged into ``extra``."""
    if _OUR_NAMES.isdisjoint(fields):
        return fields
    facts = {name: value for name, value in fields.items() if name in FACTS}
    named = {JSON_NAMES.get(k, k): value for k, value in fields.items() if k not in facts}
    if len(named) + len(facts) < len(fields):
        twice = sorted(
            ours for ours, theirs in JSON_NAMES.items() if {ours, theirs} <= fields.keys()
        )
        raise InvalidInputError(f"given under both of its names: {', '.join(twice)}")
    if facts:
        merged = {**named.get("extra", extra), **facts}
        named["extra"] = {k: v for k, v in merged.items() if k not in facts or v is not None}
    return named


def _encode_status(value: object) -> object:
    if isinstance(value, SinkCommitStatus):
        return value.to_builtins()
    raise TypeError(f"a manifest cannot hold a {type(value).__name__}")


def _decode_status(kind: type, value: object) -> object:
    if kind is SinkCommitStatus:
        return SinkCommitStatus.from_builtins(value)
    raise TypeError(f"cannot read a {kind.__name__}")


_encoder = msgspec.json.Encoder(enc_hook=_encode_status)
_reader = DocumentReader("manifest", _Named, SEAMARK_FIELDS, _decode_status)
