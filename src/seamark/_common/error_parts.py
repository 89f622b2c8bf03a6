"""An error as plain values, and made again from them in another process.

Tests: ``tests/sources/test_spark_reader.py``, ``tests/ui/test_state_rows.py``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from seamark import errors
from seamark.errors import PositionUnavailable, SeamarkError


def parts_of(error: SeamarkError) -> dict[str, Any]:
    """The error as values that JSON has."""
    known = next(cls for cls in type(error).__mro__ if getattr(errors, cls.__name__, None) is cls)
    parts: dict[str, Any] = {
        "type": known.__name__,
        "what": error.what,
        "where": error.where,
        "hint": error.hint,
    }
    if isinstance(error, PositionUnavailable):
        parts["source"] = error.source
        for name, value in (("requested", error.requested), ("earliest", error.earliest)):
            parts[name] = None if value is None else value.hex()
    return parts


def error_of(parts: Mapping[str, Any], clean: Callable[[str], str] = str) -> SeamarkError:
    """The error again, its texts passed through ``clean``.

    :class:`ValueError`, :class:`KeyError` or :class:`TypeError` when these are no such parts.
    """
    cls = getattr(errors, parts["type"], None)
    if not (isinstance(cls, type) and issubclass(cls, SeamarkError)):
        raise ValueError(f"{parts['type']!r} is not an error of Seamark's")

    def text(name: str) -> str | None:
        return None if parts[name] is None else clean(str(parts[name]))

    def data(name: str) -> bytes | None:
        return None if parts[name] is None else bytes.fromhex(parts[name])

    what = clean(str(parts["what"]))
    if cls is PositionUnavailable:
        return PositionUnavailable(
            what,
            where=text("where"),
            hint=text("hint"),
            source=text("source"),
            requested=data("requested"),
            earliest=data("earliest"),
        )
    return cls(what, where=text("where"), hint=text("hint"))
