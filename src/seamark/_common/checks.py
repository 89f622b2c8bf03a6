"""Checks of numbers, names and texts that a caller passes in.

Tests: ``tests/manifest/test_parts.py``.
"""

from __future__ import annotations

import math
import re
from datetime import timedelta
from typing import Final

from seamark.errors import InvalidInputError

U16_MAX: Final = 2**16 - 1
U32_MAX: Final = 2**32 - 1
U64_MAX: Final = 2**64 - 1
I64_MIN: Final = -(2**63)
I64_MAX: Final = 2**63 - 1


def check_id(value: int, what: str = "checkpoint id") -> int:
    """``value`` when it can be a checkpoint id: a whole number from 1 to 2**64 - 1."""
    return check_number(what, value, 1, U64_MAX)


def check_name(name: str, what: str = "name") -> str:
    """``name`` when it can be part of a path without leaving its folder."""
    check_text(name, what)
    if problem := unsafe_name(name):
        raise InvalidInputError(f"{what} {name!r} {problem}")
    return name


def check_text(text: str, what: str) -> str:
    """``text`` when it can be stored: not empty and valid Unicode."""
    try:
        if not isinstance(text, str) or not text.encode():
            raise InvalidInputError(f"{what} must be a text that is not empty, not {text!r}")
    except UnicodeEncodeError:
        raise InvalidInputError(f"{what} {text!r} is not valid Unicode") from None
    return text


def unsafe_name(name: str) -> str | None:
    """Why a name may not become part of a path, or None when it may."""
    if not name:
        return "is empty"
    if name in (".", "..") or _SEPARATORS.search(name):
        return "could leave its directory"
    return None


def unsafe_path(path: str) -> str | None:
    """Why a relative path may not be followed, or None when it may."""
    if not path:
        return "is empty"
    if any(unsafe_name(part) for part in path.removesuffix("/").split("/")):
        return "could leave its directory"
    return None


def check_prefix(prefix: str) -> str:
    """``prefix`` when it names a folder below the root: empty, or a path that stays inside."""
    if not isinstance(prefix, str):
        raise InvalidInputError(f"a prefix must be a text, not {prefix!r}")
    if prefix and (problem := unsafe_path(check_text(prefix, "a prefix"))):
        raise InvalidInputError(f"the prefix {prefix!r} {problem}")
    return prefix


def check_duration(what: str, duration: float | timedelta) -> float:
    """A duration in seconds, when it is one: a number that is finite and not negative."""
    value = duration.total_seconds() if isinstance(duration, timedelta) else duration
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise InvalidInputError(f"{what} must be seconds or a timedelta, not {duration!r}")
    if not math.isfinite(value) or value < 0:
        raise InvalidInputError(f"{what} cannot be {value}")
    return float(value)


_SEPARATORS: Final = re.compile(r"[/\\\x00]")


def check_number(what: str, value: int, low: int, high: int) -> int:
    """``value`` when it is a whole number from ``low`` to ``high``."""
    if value.__class__ is int and low <= value <= high:
        return value
    if isinstance(value, bool) or not isinstance(value, int):
        raise InvalidInputError(f"{what} must be a whole number, not {value!r}")
    raise InvalidInputError(f"{what} must be from {low} to {high}, not {value}")
