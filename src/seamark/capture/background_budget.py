"""The rate at which bytes move in the background.

Tests: ``tests/capture/test_state_moves.py``.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

from seamark._common.files import Buffer


class Stopped(Exception):
    """The run ends."""


class Budget:
    """Bytes a second."""

    def __init__(self, rate: int) -> None:
        self._rate: int | None = rate
        self._free_at = 0.0
        self._stopped = threading.Event()

    def stop(self) -> None:
        """Whoever waits gives up."""
        self._stopped.set()

    @property
    def is_lifted(self) -> bool:
        """Whether the run ends, so that only what it needs should still be done."""
        return self._rate is None

    def lift(self) -> None:
        """Nobody waits any more: the run ends."""
        self._rate, self._free_at = None, 0.0

    def spend(self, size: int) -> None:
        """Wait until that many bytes may be moved."""
        rate, now = self._rate, time.monotonic()
        start = max(self._free_at, now)
        self._free_at = now if rate is None else start + size / rate
        if self._stopped.wait(max(0.0, start - now)):
            raise Stopped

    def spent_on(self, pieces: Iterator[Buffer]) -> Iterator[Buffer]:
        """The pieces, at the rate."""
        for piece in pieces:
            self.spend(len(piece))
            yield piece
