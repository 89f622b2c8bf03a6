"""The rate at which bytes move in the background, and when they do not: while an epoch needs it.

Tests: ``tests/capture/test_background_budget.py``.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from typing import Final

from seamark._common.files import Buffer

LONGEST_PAUSE: Final = 1.0
"""Seconds that a piece waits for an epoch. So state goes on moving beside a very long one."""


class Stopped(Exception):
    """The run ends."""


class Budget:
    """Bytes a second, and none of them while an epoch takes its own.

    An epoch that captures and saves wants a core and the disk. A piece that has begun is finished.
    """

    def __init__(self, rate: int) -> None:
        self._rate: int | None = rate
        self._free_at = 0.0
        self._stopped = threading.Event()
        self._no_epoch = threading.Event()
        self._no_epoch.set()

    def stop(self) -> None:
        """Whoever waits gives up."""
        self._stopped.set()
        self._no_epoch.set()

    def pause(self) -> None:
        """An epoch begins to take what it needs."""
        self._no_epoch.clear()

    def resume(self) -> None:
        """It has got that."""
        self._no_epoch.set()

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
        self._stopped.wait(max(0.0, start - now))
        if not self.is_lifted:
            self._no_epoch.wait(LONGEST_PAUSE)
        if self._stopped.is_set():
            raise Stopped

    def spent_on(self, pieces: Iterator[Buffer]) -> Iterator[Buffer]:
        """The pieces, at the rate. Who consumes them all may then make them durable at once."""
        for piece in pieces:
            self.spend(len(piece))
            yield piece
        self.spend(0)
