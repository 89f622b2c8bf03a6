"""JSON documents with named fields and, next to them, fields that this version does not know.

A document is a struct whose last field is ``extra``. In JSON its members stand next to the named
ones, so what a newer version wrote survives when this one reads the document and writes it back.

Tests: ``tests/test_hostile_documents.py``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeVar

import msgspec

from seamark.errors import DamageError

S = TypeVar("S", bound=msgspec.Struct)

UNREADABLE: Final = (ValueError, RecursionError)
"""What decoding foreign JSON can raise: not JSON, not UTF-8, a wrong type, nested too deeply."""


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
            raise DamageError(f"corrupt {self._what}: {error}") from None

    def _gathered(self, known: tuple[Any, ...]) -> tuple[Any, ...]:
        """The named values, then the extra ones that were there as one dictionary."""
        count = len(self._fields)
        extra = zip(self._extra, known[count:], strict=True)
        return (*known[:count], {k: v for k, v in extra if v is not msgspec.UNSET})
