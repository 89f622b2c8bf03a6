"""JSON documents: fields that this version does not know, and a checksum of the document itself.

A document is a struct whose last field is ``extra``. In JSON its members stand next to the named
ones, so what a newer version wrote survives when this one reads the document and writes it back.

The checksum is the last member and covers every other byte exactly as stored, so a flipped bit
anywhere (a value, a member's name, white space) is noticed without agreeing on a canonical form.

Tests: ``tests/test_hostile_documents.py``.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable
from typing import Any, Final, TypeVar

import msgspec

from seamark import limits
from seamark._common.text import shortened
from seamark.errors import DamageError, FormatTooNewError

S = TypeVar("S", bound=msgspec.Struct)
T = TypeVar("T")

UNREADABLE: Final = (ValueError, RecursionError)
"""What decoding foreign JSON can raise: not JSON, not UTF-8, a wrong type, nested too deeply."""
SELF_CHECKSUM: Final = "self_checksum"
_TWICE: Final = "an object names a member twice"
_SEAL: Final = re.compile(rb',"%b":"([0-9a-f]{64})"\}\Z' % SELF_CHECKSUM.encode())
_SEAL_LENGTH: Final = len(SELF_CHECKSUM) + len(',"":""}') + 64


def decode_foreign(text: str) -> Any:
    """The value of foreign JSON; one of :data:`UNREADABLE` when it is none.

    :class:`DamageError`, and next to nothing is held in memory, when it has too many values.
    """
    require_few_values(text)
    return json.loads(text)


def decode_unambiguous(text: str) -> Any:
    """The same for JSON that another program reads as well.

    One of :data:`UNREADABLE` also when an object names a member twice: programs differ in which of
    them they take.
    """
    require_few_values(text)
    return json.loads(text, object_pairs_hook=_members)


def require_unambiguous(text: str) -> None:
    """One of :data:`UNREADABLE` as above; of the document next to nothing is held in memory."""
    require_few_values(text)
    json.loads(text, object_pairs_hook=_named_once)


def require_few_values(text: str) -> None:
    """:class:`DamageError` when foreign JSON has too many values to be decoded."""
    count = most_values_in(text)
    if count > limits.MOST_VALUES:
        raise DamageError(f"a JSON text has {count} values, and {limits.MOST_VALUES} is the most")


def most_values_in(text: str | bytes) -> int:
    """How many values a JSON text can have at most; nothing of it is decoded."""
    # each value follows one of these; some inside of texts are counted as well
    return sum(map(text.count, ",[{") if isinstance(text, str) else map(text.count, b",[{"))


def _named_once(pairs: list[tuple[str, Any]]) -> None:
    if len({name for name, _ in pairs}) < len(pairs):
        raise ValueError(_TWICE)


def _members(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) < len(pairs):
        raise ValueError(_TWICE)
    return members


def encode_document(encoder: msgspec.json.Encoder, document: msgspec.Struct) -> bytes:
    """The JSON of a struct whose last field ``extra`` is spread out among the others."""
    extra: dict[str, Any] = document.extra  # type: ignore[attr-defined]
    whole = encoder.encode(document)
    encoded = encoder.encode(extra)
    # `extra` is the last member: cut it off and put its own members in its place
    named = whole[: len(whole) - len(encoded) - len(b',"extra":}')]
    return named + b"}" if not extra else b"%b,%b" % (named, encoded[1:])


class DocumentReader:
    """Reads documents in one pass as long as every member is known, and in two otherwise."""

    def __init__(
        self,
        what: str,
        named: type[msgspec.Struct],
        known_extra: frozenset[str],
        dec_hook: Callable[[type, Any], Any],
    ) -> None:
        self._what = what
        self._fields = frozenset(named.__struct_fields__)
        self._extra = tuple(sorted(known_extra))
        # the extra fields that we know are members here, so only an unknown one makes the strict
        # decoder give up and costs a second pass
        strict = msgspec.defstruct(
            f"_Known{named.__name__}",
            [(name, Any | msgspec.UnsetType, msgspec.UNSET) for name in self._extra],
            bases=(named,),
            frozen=True,
            forbid_unknown_fields=True,
        )
        self._strict = msgspec.json.Decoder(strict, dec_hook=dec_hook)
        self._tolerant = msgspec.json.Decoder(named, dec_hook=dec_hook)

    def read(self, cls: type[S], data: bytes) -> S:
        """The document as ``cls``; :class:`DamageError` when it is not one."""
        try:
            try:
                values = self._gathered(msgspec.structs.astuple(self._strict.decode(data)))
            except msgspec.ValidationError:
                # an unknown member or a real mistake: the tolerant decoder can tell which
                named = msgspec.structs.astuple(self._tolerant.decode(data))
                members = msgspec.json.decode(data, type=dict[str, Any])
                values = (*named, {k: v for k, v in members.items() if k not in self._fields})
            return cls(*values)
        except RecursionError:
            raise DamageError(f"corrupt {self._what}: nested too deeply") from None
        except (msgspec.DecodeError, ValueError) as error:
            # it may repeat a name or a value, however long
            reason = shortened(str(error), limits.LONGEST_REASON)
            raise DamageError(f"corrupt {self._what}: {reason}") from None

    def _gathered(self, known: tuple[Any, ...]) -> tuple[Any, ...]:
        """The named values, then the extra ones that were there as one dictionary."""
        count = len(self._fields)
        extra = zip(self._extra, known[count:], strict=True)
        return (*known[:count], {k: v for k, v in extra if v is not msgspec.UNSET})


def seal(document: bytes) -> bytes:
    """The document with its checksum as one more member."""
    digest = hashlib.sha256(document).hexdigest().encode()
    return b'%b,"%b":"%b"}' % (document[:-1], SELF_CHECKSUM.encode(), digest)


def checksum_of(data: bytes) -> str | None:
    """The checksum that a sealed document carries."""
    match = _SEAL.search(data[-_SEAL_LENGTH:])
    return match[1].decode() if match else None


def is_sealed(data: bytes) -> bool:
    """Whether the document ends in a checksum, right or wrong."""
    return checksum_of(data) is not None


def unseal(data: bytes) -> bytes:
    """The document without its checksum; :class:`DamageError` when that does not fit."""
    match = _SEAL.search(data[-_SEAL_LENGTH:])
    if match is None:
        raise DamageError("its own checksum is missing")
    document = data[: len(data) - _SEAL_LENGTH] + b"}"
    actual = hashlib.sha256(document).hexdigest()
    expected = match[1].decode()
    if actual != expected:
        raise DamageError(
            f"its own checksum differs (expected {expected[:12]}…, found {actual[:12]}…)"
        )
    return document


def decode_sealed(
    data: bytes, kind: type[T], *, version_field: str, newest: int, name: str, too_new: str
) -> T:
    """Read a sealed document of a version that is known, which its ``version_field`` gives.

    :class:`DamageError` when it is not whole; :class:`FormatTooNewError`, beginning with
    ``too_new``, when its version is later than ``newest``.
    """
    try:
        document = unseal(data)
        version = msgspec.json.decode(document, type=dict[str, msgspec.Raw])[version_field]
        number = msgspec.json.decode(version, type=int)
        if number > newest:
            raise FormatTooNewError(
                f"{too_new} {number}; this Seamark knows up to {newest}",
                hint="Use the Seamark that wrote it, or a newer one.",
            )
        return msgspec.json.decode(document, type=kind)
    except DamageError as error:
        raise DamageError(f"{name} is damaged: {error.what}") from None
    except KeyError:
        raise DamageError(f"{name} is damaged: it has no {version_field}") from None
    except (msgspec.DecodeError, ValueError, RecursionError) as error:
        raise DamageError(f"{name} is damaged: {error}") from None
