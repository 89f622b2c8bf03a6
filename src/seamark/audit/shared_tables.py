"""A table that several sinks of a checkpoint name is opened once, and each version read once.

Any number of sinks may name one table. They are read one after the other, those of one table
together, so that no more than one table is kept open.

Tests: ``tests/audit/test_shared_tables.py``.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Hashable
from typing import Any, Final, TypeVar

from seamark.errors import DamageError

T = TypeVar("T")

_LOCAL: Final = re.compile(r"^file:(?://(?:localhost)?(?=/))?", re.IGNORECASE)


class SharedTables:
    """What is known of the table that was read last, at each look at it."""

    def __init__(self) -> None:
        self._place: Hashable = None
        self._known: dict[Hashable, Any] = {}
        self.look: Hashable = None
        """What tells a look from those before it. What looks damaged is not taken from them."""

    def once(self, place: Hashable, part: Hashable, find: Callable[[], T]) -> T:
        """A part of what is at a place, found out by the first sink that asks for it.

        That it is damaged is found out once, too.
        """
        if place != self._place:
            self._place, self._known = place, {}
        key = self.look, part
        if key not in self._known:
            try:
                self._known[key] = find()
            except DamageError as error:
                self._known[key] = error
        if isinstance(found := self._known[key], DamageError):
            raise found
        kept: T = found
        return kept


def table_place(url: str) -> Hashable:
    """The same for one table or file on this machine, however its path is spelled."""
    path = _LOCAL.sub("", url)
    try:
        found = os.stat(path)
    except (OSError, ValueError):
        return url
    return found.st_dev, found.st_ino
