"""One number for a pipeline's configuration, the same on every machine and in every version.

The hash is FNV-1a 64 over canonical JSON and one byte 0xFF, as drasi computes it. Python's own
``hash`` differs from process to process, so it cannot be kept in a checkpoint.

Tests: ``tests/progress/test_config_hash.py``.
"""

from __future__ import annotations

import json
import math
from typing import Any, Final

from seamark.errors import InvalidInputError
from seamark.progress.config_changes import changes

_OFFSET_BASIS: Final = 0xCBF29CE484222325
_PRIME: Final = 0x100000001B3
_MASK: Final = 2**64 - 1


def fnv1a_64(data: bytes) -> int:
    """The FNV-1a hash of some bytes, from 0 to 2**64 - 1."""
    value = _OFFSET_BASIS
    for byte in data:
        value = (value ^ byte) * _PRIME & _MASK
    return value


def hash_text(text: str) -> int:
    """The hash of a text: FNV-1a 64 over its UTF-8 bytes and one byte 0xFF.

    The last byte is what Rust appends when it hashes a string; no UTF-8 text contains it.
    """
    try:
        return fnv1a_64(text.encode() + b"\xff")
    except UnicodeEncodeError:
        raise InvalidInputError("a text to be hashed is not valid Unicode") from None


def canonical_json(structure: Any) -> str:
    """The one JSON text of a structure: compact, keys sorted, nothing escaped that need not be.

    Tuples are written as lists. :class:`InvalidInputError` with the place of anything else that
    JSON does not have; the value itself is not shown, for it may be a secret.
    """
    try:
        _check(structure, "")
        return json.dumps(
            structure, ensure_ascii=False, allow_nan=False, sort_keys=True, separators=(",", ":")
        )
    except RecursionError:
        raise InvalidInputError("the structure contains itself, or is nested too deeply") from None


def config_hash(structure: Any) -> int:
    """The hash of a structure's canonical JSON, whatever the order of its keys."""
    return hash_text(canonical_json(structure))


def explain_change(old: Any, new: Any) -> list[str]:
    """What differs between two structures, a sentence each; empty when their hashes are equal.

    A structure is JSON values or, when it is a ``str``, a JSON text::

        >>> explain_change({"state_partitions": 4}, '{"state_partitions":8}')
        ['state_partitions was 4, is 8']
    """
    return list(changes(_parsed(old), _parsed(new)))


def _parsed(structure: Any) -> Any:
    """The structure made of nothing but what JSON gives back, from values or from a text."""
    text = structure if isinstance(structure, str) else canonical_json(structure)
    try:
        parsed = json.loads(text)
        # Python reads NaN, lone surrogates and numbers too large for a float; JSON has none
        _check(parsed, "")
    except RecursionError:
        raise InvalidInputError("the JSON text is nested too deeply") from None
    except json.JSONDecodeError as error:
        raise InvalidInputError(f"not a JSON text: {error.msg} (character {error.pos})") from None
    except ValueError as error:  # an integer of thousands of digits
        raise InvalidInputError(f"not a JSON text of a structure: {error}") from None
    return parsed


def _check(value: Any, place: str) -> None:
    """Refuse what JSON does not have, and what ``json`` would quietly turn into something else."""
    match value:
        case None | bool() | int():
            return
        case str():
            _check_unicode(value, f"the text{_at(place)}")
        case float():
            if not math.isfinite(value):
                raise InvalidInputError(f"the number{_at(place)} is not finite")
        case list() | tuple():
            for index, item in enumerate(value):
                _check(item, f"{place}[{index}]")
        case dict():
            for key, item in value.items():
                if not isinstance(key, str):
                    raise InvalidInputError(
                        f"a key{_at(place)} must be a text, not {type(key).__name__}"
                    )
                _check_unicode(key, f"a key{_at(place)}")
                _check(item, f"{place}.{key}" if place else key)
        case _:
            raise InvalidInputError(f"{type(value).__name__}{_at(place)} is not a JSON value")


def _check_unicode(text: str, what: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError:
        raise InvalidInputError(f"{what} is not valid Unicode") from None


def _at(place: str) -> str:
    return f" at {place}" if place else ""
