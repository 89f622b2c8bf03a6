"""Errors on their way out of a Python process of Spark's, through the JVM, into the driver.

Spark hands on a text. One line of it carries the error as JSON, so that it arrives with its type
and its parts, in whatever words Spark has wrapped it.

Tests: ``tests/sources/test_spark_reader.py``.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from seamark._common.error_parts import error_of, parts_of
from seamark.errors import SeamarkError

_MARK: Final = "seamark-error: "


class CrossingError(Exception):
    """Another error, as a text from which :func:`arrived` makes it again."""

    def __init__(self, error: SeamarkError) -> None:
        super().__init__(f"{error}\n{_MARK}{json.dumps(parts_of(error))}")


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
        return error_of(parts, clean)
    except (ValueError, KeyError, TypeError):
        return None  # cut off or garbled: reported like any other text of Spark
