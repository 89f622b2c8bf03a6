"""JSON documents that carry a checksum of themselves.

The checksum is the last member and covers every other byte exactly as stored, so a flipped bit
anywhere (a value, a member's name, white space) is noticed without agreeing on a canonical form.

Tests: ``tests/store/test_bit_flips.py``.
"""

from __future__ import annotations

import hashlib
import re
from typing import Final, TypeVar

import msgspec

from seamark.errors import DamageError, FormatTooNewError
from seamark.manifest import SELF_CHECKSUM

T = TypeVar("T")

_SEAL: Final = re.compile(rb',"%b":"([0-9a-f]{64})"\}\Z' % SELF_CHECKSUM.encode())
_SEAL_LENGTH: Final = len(SELF_CHECKSUM) + len(',"":""}') + 64


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
