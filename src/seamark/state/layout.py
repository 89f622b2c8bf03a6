"""Where a state checkpoint keeps what, and its manifest.

::

    checkpoints/
    ├── _latest                              the newest checkpoint's id
    └── {checkpoint_id}/
        ├── manifest.json                    CheckpointManifestV2, written last
        ├── operators/{operator}/partition-{n}.snap    a full state
        ├── operators/{operator}/partition-{n}.delta   changes since the parent
        ├── packs/{token}.lcb                many small states in one object
        └── offsets/{source}.json

Ids are UUIDv7: their order as text is the order in which they were made.
"""

from __future__ import annotations

import threading
import time
import uuid
from functools import total_ordering
from typing import Any, Final, Self

import msgspec
import uuid_utils

from seamark._common.checks import I64_MAX, I64_MIN, U32_MAX, U64_MAX, check_name, check_number
from seamark._common.json_documents import DocumentReader, encode_document
from seamark.errors import InvalidInputError

_last_lock = threading.Lock()
_last_value = 0


@total_ordering
class CheckpointId:
    """A time-sortable identifier. Ids made by one process strictly increase."""

    __slots__ = ("_uuid",)

    _uuid: uuid.UUID

    def __init__(self, value: uuid.UUID) -> None:
        object.__setattr__(self, "_uuid", value)

    @classmethod
    def now(cls) -> Self:
        """A new id, larger than every one that this process has made."""
        return cls.after(None)

    @classmethod
    def after(cls, other: CheckpointId | None) -> Self:
        """A new id that is also larger than ``other``, whose clock may have been ahead of ours."""
        global _last_value  # noqa: PLW0603 - strictly increasing is a promise of the process
        with _last_lock:
            above = max(_last_value, other._uuid.int if other else 0)
            _last_value = max(uuid_utils.uuid7().int, above + 1)
            return cls(uuid.UUID(int=_last_value))

    @classmethod
    def before(cls, seconds: float) -> Self:
        """The smallest id of a point in time, as seconds since 1970: all made earlier are less."""
        return cls(uuid.UUID(int=(int(seconds * 1000) & ((1 << 48) - 1)) << 80))

    @classmethod
    def from_uuid(cls, value: uuid.UUID) -> Self:
        """The id with that UUID."""
        return cls(uuid.UUID(int=value.int))

    @classmethod
    def parse(cls, text: str) -> Self:
        """The id written as hyphenated text; :class:`InvalidInputError` for anything else."""
        try:
            value = uuid.UUID(text)
        except (ValueError, AttributeError, TypeError):
            raise InvalidInputError(f"not a checkpoint id: {text!r}") from None
        if str(value) != text:
            raise InvalidInputError(f"not a checkpoint id: {text!r}")
        return cls(value)

    def as_uuid(self) -> uuid.UUID:
        """The UUID."""
        return self._uuid

    def to_string_id(self) -> str:
        """The hyphenated text."""
        return str(self._uuid)

    @property
    def timestamp_ms(self) -> int:
        """When it was made, in milliseconds since the Unix epoch."""
        return self._uuid.int >> 80

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError("CheckpointId is immutable")

    def __str__(self) -> str:
        return str(self._uuid)

    def __repr__(self) -> str:
        return f"CheckpointId({self._uuid})"

    def __eq__(self, other: object) -> bool:
        return self._uuid == other._uuid if isinstance(other, CheckpointId) else NotImplemented

    def __lt__(self, other: object) -> bool:
        return self._uuid < other._uuid if isinstance(other, CheckpointId) else NotImplemented

    def __hash__(self) -> int:
        return hash(self._uuid)

    def __reduce__(self) -> tuple[object, ...]:
        return (CheckpointId, (self._uuid,))


class CheckpointPaths:
    """Computes keys and does no I/O."""

    def __init__(self, prefix: str = "checkpoints/") -> None:
        self.prefix = prefix if not prefix or prefix.endswith("/") else f"{prefix}/"

    def latest_pointer(self) -> str:
        """The pointer to the newest checkpoint."""
        return f"{self.prefix}_latest"

    def checkpoint_dir(self, checkpoint_id: CheckpointId) -> str:
        """The folder of a checkpoint, with its slash."""
        return f"{self.prefix}{checkpoint_id}/"

    def manifest(self, checkpoint_id: CheckpointId) -> str:
        """The manifest of a checkpoint."""
        return f"{self.checkpoint_dir(checkpoint_id)}manifest.json"

    def snapshot(self, checkpoint_id: CheckpointId, operator: str, partition: int) -> str:
        """The full state of one partition."""
        name = state_path(operator, partition, is_delta=False)
        return self.checkpoint_dir(checkpoint_id) + name

    def delta(self, checkpoint_id: CheckpointId, operator: str, partition: int) -> str:
        """The changes of one partition."""
        return self.checkpoint_dir(checkpoint_id) + state_path(operator, partition, is_delta=True)

    def source_offset(self, checkpoint_id: CheckpointId, source: str) -> str:
        """The position of one source."""
        check_name(source, "source name")
        return f"{self.checkpoint_dir(checkpoint_id)}offsets/{source}.json"


def state_path(operator: str, partition: int, *, is_delta: bool, token: str = "") -> str:
    """The path of one partition's state, relative to its checkpoint's folder."""
    check_name(operator, "operator name")
    check_number("partition", partition, 0, U32_MAX)
    variant = f"-{token}" if token else ""
    kind = "delta" if is_delta else "snap"
    return f"operators/{operator}/partition-{partition}{variant}.{kind}"


class PartitionSnapshotEntry(msgspec.Struct, frozen=True, gc=False):
    """The snapshot or one delta of a partition, and how to find and to verify it."""

    partition_id: int
    is_delta: bool
    path: str
    """Relative to the checkpoint's folder; to that of ``origin`` when there is one."""
    size_bytes: int
    sha256: str | None = None
    origin: CheckpointId | msgspec.UnsetType = msgspec.UNSET
    """The checkpoint that wrote it, when that is another one."""
    pack: tuple[int, int, int] | msgspec.UnsetType = msgspec.UNSET
    """(offset, length, codec) of the block, when ``path`` is a pack."""

    def __post_init__(self) -> None:
        # there may be very many of these: functions are called only to say what is wrong
        number, size = self.partition_id, self.size_bytes
        if number.__class__ is not int or not 0 <= number <= U32_MAX:
            check_number("partition_id", number, 0, U32_MAX)
        if size.__class__ is not int or not 0 <= size <= U64_MAX:
            check_number("size_bytes", size, 0, U64_MAX)
        place = self.pack
        if place is not msgspec.UNSET and (place[0] < 0 or place[1] < 0 or place[2] < 0):
            raise InvalidInputError(f"a block cannot be at {place}")


class OperatorSnapshotEntry(msgspec.Struct, frozen=True):
    """The partitions of one operator. Of one partition, a snapshot stands before its deltas."""

    partitions: list[PartitionSnapshotEntry]
    total_bytes: int = 0

    def __post_init__(self) -> None:
        check_number("total_bytes", self.total_bytes, 0, U64_MAX)


class SourceOffsetEntry(msgspec.Struct, frozen=True):
    """The position of one source."""

    source_type: str
    offsets: dict[str, str]
    epoch: int

    def __post_init__(self) -> None:
        check_number("epoch", self.epoch, 0, U64_MAX)


class _NamedV2(msgspec.Struct, frozen=True):
    version: int
    checkpoint_id: CheckpointId
    epoch: int
    timestamp_ms: int
    operators: dict[str, OperatorSnapshotEntry] = {}
    source_offsets: dict[str, SourceOffsetEntry] = {}
    parent_id: CheckpointId | None = None
    watermark: int | None = None
    total_size_bytes: int = 0


class CheckpointManifestV2(_NamedV2, frozen=True):
    """What a state checkpoint holds: an entry per operator and partition that it wrote or needs."""

    extra: dict[str, Any] = {}

    def __post_init__(self) -> None:
        check_number("epoch", self.epoch, 0, U64_MAX)
        check_number("timestamp_ms", self.timestamp_ms, 0, U64_MAX)
        check_number("total_size_bytes", self.total_size_bytes, 0, U64_MAX)
        if self.watermark is not None:
            check_number("watermark", self.watermark, I64_MIN, I64_MAX)
        if taken := self.extra.keys() & set(_NamedV2.__struct_fields__):
            raise InvalidInputError(f"extra fields may not repeat named ones: {sorted(taken)}")

    @classmethod
    def new(cls, checkpoint_id: CheckpointId, epoch: int, **fields: Any) -> Self:
        """A manifest of version 2, created now."""
        fields.setdefault("timestamp_ms", time.time_ns() // 1_000_000)
        return cls(version=2, checkpoint_id=checkpoint_id, epoch=epoch, **fields)

    def replace(self, **changes: Any) -> Self:
        """A copy with some fields changed."""
        return msgspec.structs.replace(self, **changes)

    def to_json(self) -> bytes:
        """The document as stored, without a checksum of its own."""
        return encode_document(_encoder, self)

    @classmethod
    def from_json(cls, data: bytes) -> Self:
        """Read a document; :class:`~seamark.errors.DamageError` when it is not one."""
        return _reader.read(cls, data)


def encode_ids(value: object) -> object:
    """For msgspec: ids become text."""
    if isinstance(value, CheckpointId):
        return str(value)
    raise TypeError(f"{type(value).__name__} has no place in a manifest")


def decode_ids(kind: type, value: object) -> object:
    """For msgspec: text becomes ids."""
    if kind is CheckpointId:
        return CheckpointId.parse(str(value))
    raise TypeError(f"cannot read a {kind.__name__}")


OURS: Final = frozenset({"writer"})

_encoder = msgspec.json.Encoder(enc_hook=encode_ids)
_reader = DocumentReader("state manifest", _NamedV2, OURS, decode_ids)
