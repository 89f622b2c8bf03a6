"""The parts of a manifest: positions of sources, state of operators, statuses of sinks."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from typing import Self

import msgspec

from seamark._common.checks import U64_MAX, check_number
from seamark.errors import DamageError, InvalidInputError


class ConnectorCheckpoint(msgspec.Struct, frozen=True):
    """The position of a source or reference table, as strings that its connector understands."""

    offsets: dict[str, str] = {}
    epoch: int = 0
    metadata: dict[str, str] = {}

    def __post_init__(self) -> None:
        if not (self.epoch.__class__ is int and 0 <= self.epoch <= U64_MAX):
            check_number("epoch", self.epoch, 0, U64_MAX)


class OperatorCheckpoint(msgspec.Struct, frozen=True):
    """The state of one operator: inline as base64, or a range of the sidecar."""

    state_b64: str | None = None
    external: bool = False
    external_offset: int = 0
    external_length: int = 0

    def __post_init__(self) -> None:
        if not self.external and self.external_offset == 0 == self.external_length:
            return
        check_number("external_offset", self.external_offset, 0, U64_MAX)
        check_number("external_length", self.external_length, 0, U64_MAX)

    @classmethod
    def inline(cls, data: bytes) -> Self:
        """Keep ``data`` inside the manifest. Empty state is the empty string."""
        return cls(state_b64=base64.b64encode(data).decode("ascii"))

    @classmethod
    def in_sidecar(cls, offset: int, length: int) -> Self:
        """Refer to ``length`` bytes at ``offset`` of the sidecar."""
        return cls(external=True, external_offset=offset, external_length=length)

    @classmethod
    def from_bytes(cls, data: bytes, threshold: int, offset: int = 0) -> tuple[Self, bytes | None]:
        """Inline ``data`` of at most ``threshold`` bytes; else the chunk to write at ``offset``."""
        if len(data) <= threshold:
            return cls.inline(data), None
        return cls.in_sidecar(offset, len(data)), data

    def decode_inline(self) -> bytes | None:
        """The inline bytes, or None when the state is in the sidecar or absent.

        :class:`DamageError` when the text is not base64: state that cannot be read must not pass
        for empty state.
        """
        if self.external or self.state_b64 is None:
            return None
        try:
            return base64.b64decode(self.state_b64, validate=True)
        except (binascii.Error, ValueError) as error:
            raise DamageError(f"inline operator state is not base64: {error}") from None


class SinkCommitStatus:
    """Whether a sink has committed the epoch: pending, committed, or failed with a message.

    In JSON: ``"Pending"``, ``"Committed"``, ``{"Failed": "message"}``.
    """

    __slots__ = ("_kind", "_message")

    _kind: str
    _message: str | None

    def __init__(self, kind: str, message: str | None = None) -> None:
        if kind not in ("Pending", "Committed", "Failed"):
            raise InvalidInputError(f"unknown sink commit status {kind[:100]!r}")
        if (kind == "Failed") != isinstance(message, str):
            raise InvalidInputError("a failed sink has a message, and only a failed one")
        object.__setattr__(self, "_kind", kind)
        object.__setattr__(self, "_message", message)

    @classmethod
    def pending(cls) -> Self:
        """Staged and durable, not yet visible."""
        return cls("Pending")

    @classmethod
    def committed(cls) -> Self:
        """Visible to the sink's readers."""
        return cls("Committed")

    @classmethod
    def failed(cls, message: str) -> Self:
        """The commit was tried and failed; the next start tries again."""
        return cls("Failed", message)

    @property
    def kind(self) -> str:
        """``"Pending"``, ``"Committed"`` or ``"Failed"``."""
        return self._kind

    @property
    def message(self) -> str | None:
        """Why it failed; None unless it did."""
        return self._message

    @property
    def is_committed(self) -> bool:
        """True when nothing is left to do for this sink."""
        return self._kind == "Committed"

    def to_builtins(self) -> str | dict[str, str]:
        """The JSON value."""
        return {"Failed": self._message} if self._message is not None else self._kind

    @classmethod
    def from_builtins(cls, value: object) -> Self:
        """The status of a JSON value; :class:`InvalidInputError` for anything else."""
        if isinstance(value, str) and value != "Failed":
            return cls(value)
        if isinstance(value, Mapping) and len(value) == 1 and isinstance(value.get("Failed"), str):
            return cls.failed(value["Failed"])
        raise InvalidInputError(f"not a sink commit status: {repr(value)[:100]}")

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError("SinkCommitStatus is immutable")

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, SinkCommitStatus):
            return NotImplemented
        return (self._kind, self._message) == (other._kind, other._message)

    def __hash__(self) -> int:
        return hash((self._kind, self._message))

    def __repr__(self) -> str:
        inner = "" if self._message is None else repr(self._message)
        return f"SinkCommitStatus.{self._kind.lower()}({inner})"

    def __reduce__(self) -> tuple[object, ...]:
        return (SinkCommitStatus, (self._kind, self._message))


class InFlightRecord(msgspec.Struct, frozen=True):
    """A record that was planned but not finished when the checkpoint was taken."""

    input_id: int
    data_b64: str

    def __post_init__(self) -> None:
        if not (self.input_id.__class__ is int and 0 <= self.input_id <= U64_MAX):
            check_number("input_id", self.input_id, 0, U64_MAX)
