"""Errors on their way out of a Python process of Spark's, through the JVM, into the driver.

Spark hands on a text. One line of it carries the error as JSON, so that it arrives with its type
and its parts, in whatever words Spark has wrapped it.

Tests: ``tests/sources/test_spark_reader.py``.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

from seamark import errors
from seamark.errors import PositionUnavailable, SeamarkError

_MARK: Final = "seamark-error: "


class CrossingError(Exception):
    """Another error, as a text from which :func:`arrived` makes it again."""

    def __init__(self, error: SeamarkError) -> None:
        super().__init__(f"{error}\n{_MARK}{json.dumps(_parts(error))}")


@contextmanager
def crossing() -> Iterator[None]:
    """Carry our error to the driver as text that holds nothing else."""
    try:
        yield
    except SeamarkError as error:
        raise CrossingError(error) from None


def arrived(text: str, clean: Callable[[str], str]) -> SeamarkError | None:
    """The error that a text of Spark's carries, its parts cleaned of secrets; None without one."""
    _, mark, rest = text.partition(_MARK)
    if not mark:
        return None
    try:
        # whatever Spark adds after the object is not looked at
        parts, _ = json.JSONDecoder().raw_decode(rest)
        return _rebuilt(parts, clean)
    except (ValueError, KeyError, TypeError):
        return None  # cut off or garbled: reported like any other text of Spark


def _parts(error: SeamarkError) -> dict[str, Any]:
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


def _rebuilt(parts: dict[str, Any], clean: Callable[[str], str]) -> SeamarkError:
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
