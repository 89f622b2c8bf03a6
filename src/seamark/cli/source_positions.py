"""The positions of sources: in full for a program, shortened to one line for people.

Tests: ``tests/cli/test_list.py``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, Final

from seamark.cli.output import without_secrets
from seamark.manifest import ConnectorCheckpoint

_LONGEST: Final = 24
_WHOLE: Final = re.compile(r"-?[0-9]{1,18}")
_DIGITS: Final = re.compile(r"([0-9]{1,18})")


def positions(checkpoints: Mapping[str, ConnectorCheckpoint]) -> dict[str, dict[str, str]]:
    """The offsets of each source or table, readable, in the order of their names."""
    return {
        name: dict(sorted(at.offsets.items(), key=_natural)) for name, at in checkpoints.items()
    }


def _natural(item: tuple[str, Any]) -> list[tuple[bool, int, str]]:
    """partition-2 before partition-10."""
    parts: Iterable[str] = _DIGITS.split(item[0])
    return [
        (is_number, int(part) if is_number else 0, part)
        for number, part in enumerate(parts)
        for is_number in [number % 2 == 1]
    ]


def positions_text(sources: Mapping[str, Mapping[str, str]]) -> str:
    """Each source with its lowest and highest position: ``trades 600…602``."""
    return ", ".join(f"{name} {_span(at)}".rstrip() for name, at in sources.items())


def short_positions_text(sources: Mapping[str, Mapping[str, str]]) -> str:
    """The same without a name where there is only one source."""
    return _span(next(iter(sources.values()))) if len(sources) == 1 else positions_text(sources)


def _span(at: Mapping[str, str]) -> str:
    values = [str(value) for value in without_secrets(at).values()]
    if len(values) > 1 and all(map(_WHOLE.fullmatch, values)):
        numbers = [int(value) for value in values]
        low, high = min(numbers), max(numbers)
        return str(low) if low == high else f"{low}…{high}"
    if not values:
        return "at its beginning"
    first = values[0] if len(values[0]) <= _LONGEST else f"{values[0][: _LONGEST - 1]}…"
    return first if len(values) == 1 else f"{first} +{len(values) - 1}"
