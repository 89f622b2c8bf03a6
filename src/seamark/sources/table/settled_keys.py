"""Which keys of a table may be read: those below which nothing can be committed any more.

A key is taken before its transaction commits. T1 takes 1, T2 takes 2 and commits: a reader
that reads up to 2 now and continues after it never sees 1. So the largest visible key is noted,
and read only when every transaction that could hold a smaller one has ended.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from typing import Final

from seamark._common.logs import logger_named

log = logger_named("seamark.sources")

Clock = Callable[[], float]
Newest = Callable[[], int | None]
"""The largest key that is visible now; None for an empty table."""
Writers = Callable[[], frozenset[str]]
"""The transactions that may have added rows and have not ended."""

_LOOK: Final = 0.1
PREPARED: Final = "-1/"
"""The prefix of prepared transactions' names in PostgreSQL."""


class Delay:
    """A key may be read so many seconds after it was first seen: right as long as no transaction
    takes longer between taking a key and committing it.

    No seconds are right for databases with one writer at a time (SQLite): keys are committed in
    their order.
    """

    def __init__(self, newest: Newest, seconds: float, clock: Clock = time.monotonic) -> None:
        self._newest = newest
        self._seconds = seconds
        self._clock = clock
        self._seen: deque[tuple[float, int]] = deque()
        self._settled: int | None = None

    def settled(self) -> int | None:
        """The largest key that may be read now; None for nothing."""
        newest, now = self._newest(), self._clock()
        last = self._seen[-1] if self._seen else (float("-inf"), self._settled)
        # a handful of observations at any time, however often it is asked
        if newest is not None and newest != last[1] and now - last[0] >= self._seconds / 10:
            self._seen.append((now, newest))
        while self._seen and now - self._seen[0][0] >= self._seconds:
            self._settled = self._seen.popleft()[1]
        return self._settled

    def settled_now(self, patience: float) -> int | None:
        """The largest key that is visible now, after the delay."""
        newest = self._newest()
        if newest is not None:
            time.sleep(self._seconds)
        return newest


class Horizon:
    """A key may be read when all transactions that were writing when it was seen have ended.

    Sufficient where a transaction counts as writing before it takes a key and until its rows are
    visible, and where keys are handed out in order. Only those transactions are waited for, not
    later ones, so a table that is never at rest is read all the same.
    """

    def __init__(self, newest: Newest, writers: Writers, clock: Clock = time.monotonic) -> None:
        self._newest = newest
        self._writers = writers
        self._clock = clock
        self._settled: int | None = None
        self._pending: tuple[int, frozenset[str]] | None = None

    def settled(self) -> int | None:
        """The largest key that was seen with nobody left who could add a smaller one."""
        if self._pending is not None and not self._has_settled(*self._pending):
            return self._settled
        newest = self._newest()
        if newest is not None and newest != self._settled:
            writing = self._writers()  # after the key was seen: who took a smaller one is in here
            self._has_settled(newest, writing, writing)
        return self._settled

    def settled_now(self, patience: float) -> int | None:
        """What is visible now, once its writers have ended; else what was settled before."""
        deadline = self._clock() + patience
        newest = self._newest()
        while newest is not None:
            settled = self.settled()
            if settled is not None and settled >= newest:
                return newest
            if self._clock() >= deadline:
                waiting = len(self._pending[1]) if self._pending is not None else 0
                log.warning(
                    "%d transactions are still writing after %g s: rows up to key %s may be read, "
                    "the others are left to the next run",
                    waiting,
                    patience,
                    settled,
                )
                return settled
            time.sleep(_LOOK)
        return None

    def _has_settled(
        self, key: int, before: frozenset[str], now: frozenset[str] | None = None
    ) -> bool:
        writing = self._writers() if now is None else now
        left = before & writing
        if left != before:
            # PREPARE TRANSACTION gives a transaction another name; it has not ended
            left |= {writer for writer in writing if writer.startswith(PREPARED)}
        if left:
            self._pending = key, left
            return False
        self._settled, self._pending = key, None
        return True


Settling = Delay | Horizon
"""Says up to which key a table may be read."""
