"""How far a watched directory is stored: when a checkpoint is due, what was taken, what failed."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass
from datetime import timedelta

from seamark.errors import InvalidInputError
from seamark.native.snapshot import Snapshot


@dataclass(frozen=True)
class Schedule:
    """How often a checkpoint is taken: after that many batches, or after that many seconds."""

    batches: int | None
    seconds: float | None

    @classmethod
    def of(cls, given: float | timedelta) -> Schedule:
        """An int is a number of batches, a float or a timedelta is a time."""
        if isinstance(given, int) and not isinstance(given, bool) and given >= 1:
            return cls(given, None)
        seconds = given.total_seconds() if isinstance(given, timedelta) else given
        if isinstance(seconds, float) and 0 < seconds <= threading.TIMEOUT_MAX:
            return cls(None, seconds)
        raise InvalidInputError(
            f"every={given!r} is neither a number of batches nor a time",
            hint="An int from 1 on counts batches; a float or a timedelta above 0 is a time.",
        )

    def is_due(self, newest: int, last: int | None, waited: float) -> bool:
        """Whether the newest batch is to be taken, ``waited`` seconds after the last one was."""
        if last is None or newest < last:  # fewer than before: the directory was rolled back
            return True
        if self.batches is not None:
            return newest - last >= self.batches
        return newest > last and waited >= (self.seconds or 0.0)


@dataclass(frozen=True)
class LastCheckpoint:
    """The newest checkpoint that is known to be stored."""

    checkpoint_id: int
    batch: int
    at: float
    """Seconds since the Unix epoch."""


@dataclass(frozen=True)
class LastFailure:
    """The latest thing that went wrong."""

    what: str
    at: float
    """Seconds since the Unix epoch."""


@dataclass(frozen=True, kw_only=True)
class WatchStatus:
    """How a watched directory and its store stood when they were last looked at."""

    running: bool
    newest_batch: int | None
    """The last batch that Spark has committed; None when there is none yet."""
    last: LastCheckpoint | None
    """None until it is known that anything is stored."""
    lag_batches: int | None
    """Committed batches that are not stored; None when no batch is committed."""
    lag_seconds: float | None
    """For how long at most there has been one that is not stored; 0 when there is none."""
    checkpoints: int
    """How many were taken."""
    failures: int
    """How many tries went wrong, and were made again later."""
    failures_in_a_row: int
    """0 when the latest try went well."""
    last_failure: LastFailure | None

    def __str__(self) -> str:
        if self.newest_batch is None:
            parts = ["no batch committed yet"]
        else:
            parts = [f"batch {self.newest_batch} committed", self._lag_text()]
        if self.last is not None:
            parts.append(f"checkpoint {self.last.checkpoint_id} holds batch {self.last.batch}")
        if self.failures:
            parts.append(f"{self.failures} failed {'tries' if self.failures > 1 else 'try'}")
        if self.failures_in_a_row and self.last_failure is not None:
            parts.append(f"the last: {self.last_failure.what}")
        return " · ".join(parts)

    def _lag_text(self) -> str:
        if not self.lag_batches:
            return "nothing to do"
        batches = "1 batch" if self.lag_batches == 1 else f"{self.lag_batches} batches"
        return f"{batches} behind for {self.lag_seconds or 0:.0f} s"


class WatchNotes:
    """What a watcher remembers. Safe from several threads; holds its lock for moments only."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._running = False
        self._newest: int | None = None
        self._last: LastCheckpoint | None = None
        self._run_again = False
        self._level_at = time.monotonic()  # when last everything was stored, as far as seen
        self._began = self._level_at
        self._checkpoints = 0
        self._failures = 0
        self._in_a_row = 0
        self._failure: LastFailure | None = None

    def started(self) -> None:
        with self._lock:
            self._running = True
            self._level_at = time.monotonic()

    def ended(self) -> None:
        with self._lock:
            self._running = False

    def saw(self, newest: int | None, *, run_again: bool = False) -> None:
        """This is the newest batch of the directory, and whether the stored one was run again."""
        with self._lock:
            self._newest = newest
            self._run_again = run_again
            if newest is None or newest == self._stored():
                self._level_at = time.monotonic()

    def took(self, taken: Snapshot, began: float) -> None:
        """A batch is stored; it was the newest one at ``began`` on the monotonic clock."""
        with self._lock:
            self._last = LastCheckpoint(taken.checkpoint_id, taken.batch, time.time())
            self._run_again = False
            if self._newest is None or self._newest < taken.batch:
                self._newest = taken.batch
            self._level_at = self._began = began
            self._checkpoints += taken.is_new

    def failed(self, what: str) -> int:
        """Something went wrong; for how many times in a row."""
        with self._lock:
            self._failures += 1
            self._in_a_row += 1
            self._failure = LastFailure(what, time.time())
            return self._in_a_row

    def worked(self) -> int:
        """All went well; how many failures in a row that has ended."""
        with self._lock:
            before, self._in_a_row = self._in_a_row, 0
            return before

    @property
    def last_batch(self) -> int | None:
        """The newest batch that is stored; None when the directory's is another one by now."""
        with self._lock:
            return self._stored()

    def _stored(self) -> int | None:
        return None if self._last is None or self._run_again else self._last.batch

    @property
    def waited(self) -> float:
        """Seconds since the last checkpoint was started."""
        with self._lock:
            return time.monotonic() - self._began

    def status(self) -> WatchStatus:
        """All of it, as of now."""
        with self._lock:
            lag = None
            if self._newest is not None:
                # a directory that was rolled back is all new
                stored = self._stored()
                lag = self._newest - (-1 if stored is None or stored > self._newest else stored)
            behind = time.monotonic() - self._level_at if lag else 0.0
            return WatchStatus(
                running=self._running,
                newest_batch=self._newest,
                last=self._last,
                lag_batches=lag,
                lag_seconds=None if lag is None else behind,
                checkpoints=self._checkpoints,
                failures=self._failures,
                failures_in_a_row=self._in_a_row,
                last_failure=self._failure,
            )
