"""What the packs of a chain of checkpoints may unpack to.

Tests: ``tests/test_limits_of_restores.py``.
"""

from __future__ import annotations

from collections.abc import Iterable

from seamark import limits_by_size
from seamark.errors import DamageError
from seamark.state.pack import PackedEntry


class UnpackBudget:
    """What the packs of a checkpoint and of those it builds on may unpack to, all together."""

    def __init__(self) -> None:
        self._plain = self._stored = 0

    def spend(self, entries: Iterable[PackedEntry], stored: int) -> None:
        """:class:`DamageError` when it is used up; asked before a pack is unpacked."""
        self._plain += sum(entry.size for entry in entries)
        self._stored += stored
        if limits_by_size.unpacks_to_too_much(self._plain, self._stored):
            raise DamageError(
                f"its packs claim {self._plain} bytes, too much for {self._stored} stored ones"
            )
