"""Positions of a progress store as they are shown: a small store may hold millions of values.

Tests: ``tests/cli/test_sources.py``.
"""

from __future__ import annotations

import json
from typing import Any, Final

from seamark import limits
from seamark._common.json_documents import most_values_in

LEFT_OUT: Final = "left out"
"""Instead of an encoding: the position is not shown."""


class ShownPositions:
    """Decodes one position after the other, until they are too much to be shown."""

    def __init__(self) -> None:
        self._values = limits.MOST_SHOWN_VALUES
        self._bytes = limits.LARGEST_SHOWN

    def __call__(self, position: bytes | None) -> tuple[str | None, Any]:
        """As what it is shown, and how: JSON and text as they are, anything else in hex.

        One that is too much beside those before it is :data:`LEFT_OUT`.
        """
        if position is None:
            return None, None
        values = most_values_in(position)
        if values > self._values or len(position) > self._bytes:
            return LEFT_OUT, None
        self._values -= values
        self._bytes -= len(position)
        return readable(position)


def readable(position: bytes) -> tuple[str, Any]:
    """How a position is shown, and as what."""
    try:
        text = position.decode("utf-8")
    except UnicodeDecodeError:
        return "hex", position.hex()
    try:
        return "json", json.loads(text, parse_constant=_no_constant)
    except (ValueError, RecursionError):
        pass
    is_plain = all(char.isprintable() or char in "\n\t" for char in text)
    return ("text", text) if is_plain else ("hex", position.hex())


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")
