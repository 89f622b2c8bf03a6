"""After each epoch: telling Kafka how far its topics were read, and measuring what is left.

While an epoch runs, the times of the rows that come after it are read, for its checkpoint. With
metrics the lag is measured every few seconds, also while no epoch finishes: then above all. All of
it happens in a thread of its own and never holds up an epoch. What fails is logged and tried again
later; the positions that count are in the checkpoints. A position that retention is about to reach
is a warning.

Tests: ``tests/pipeline/test_source_follower.py``.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Mapping
from typing import Final, Protocol

from seamark._common.logs import logger_named
from seamark._common.text import elapsed_text, grouped
from seamark._redaction import redacted
from seamark.pipeline.telemetry.metrics import PipelineMetrics
from seamark.spark.kafka.positions import Offsets, PositionStatus

log = logger_named("seamark.pipeline")

Positions = Mapping[str, bytes]
"""By source: the line of the offset log."""

Times = Mapping[str, Mapping[str, int]]
"""By source and partition: when the row at a position was written, in ms."""

_MEASURE_EVERY: Final = 10.0
_TIMES_EVERY: Final = 1.0
_CLOSE_PATIENCE: Final = 15.0


class FollowedSources(Protocol):
    """What is asked of sources that are followed."""

    def commit(self, group: str, positions: Positions) -> None:
        """Store positions in a consumer group."""

    def measure(self, positions: Positions) -> Mapping[str, list[PositionStatus]]:
        """How far behind each source is."""

    def times(self, rows: Mapping[str, Offsets]) -> Times:
        """When these rows were written."""


class SourceFollower:
    """Works on the positions of the newest epoch; those of earlier ones are passed over."""

    def __init__(
        self, sources: FollowedSources, group: str | None, metrics: PipelineMetrics | None
    ) -> None:
        self._sources = sources
        self._group = group
        self._metrics = metrics
        self._changed = threading.Condition()
        self._newest: Positions | None = None
        self._last: Positions | None = None
        self._unread: Mapping[str, Offsets] = {}
        self._times: tuple[Mapping[str, Offsets], Times] = ({}, {})
        self._timed = float("-inf")
        self._closing = False
        self._measured = float("-inf")
        self._complaints: dict[str, str] = {}
        self._warned: set[str] = set()
        self._thread = threading.Thread(target=self._run, name="seamark-sources", daemon=True)
        self._thread.start()

    def follow(self, positions: Positions) -> None:
        """Have these positions told and measured soon."""
        with self._changed:
            self._newest = positions
            self._changed.notify()

    def look_up(self, unread: Mapping[str, Offsets]) -> None:
        """Have it found out when these rows were written, unless that was asked a moment ago."""
        if unread and time.monotonic() >= self._timed + _TIMES_EVERY:
            self._timed = time.monotonic()
            with self._changed:
                self._unread = unread
                self._changed.notify()

    def times_of(self, unread: Mapping[str, Offsets]) -> Times:
        """When these rows were written, as far as that is known by now."""
        asked, times = self._times
        return times if asked == unread else {}

    def close(self) -> None:
        """Tell the newest positions, and end; a source that does not answer is not waited for."""
        with self._changed:
            self._closing = True
            self._changed.notify()
        if self._thread.is_alive():
            self._thread.join(_CLOSE_PATIENCE)

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(
                    lambda: self._newest is not None or self._unread or self._closing,
                    self._seconds_to_wait(),
                )
                positions, self._newest = self._newest, None
                unread, self._unread = self._unread, {}
                closing = self._closing
            if unread and not closing:
                self._read_times(unread)
            if positions is not None:
                self._last = positions
                self._commit(positions)
            elif closing:
                return
            if self._last is not None and not closing:
                self._measure(self._last)

    def _seconds_to_wait(self) -> float | None:
        """Until it is time to measure again: lag grows also while no epoch finishes."""
        if self._metrics is None or self._last is None:
            return None
        return max(self._measured + _MEASURE_EVERY - time.monotonic(), 0)

    def _read_times(self, unread: Mapping[str, Offsets]) -> None:
        try:
            self._times = (unread, self._sources.times(unread))
            self._complaints.pop("times", None)
        except Exception as error:  # noqa: BLE001 - nothing depends on it
            self._complain("times", "the age of positions was not read", error)

    def _commit(self, positions: Positions) -> None:
        if self._group is None:
            return
        try:
            self._sources.commit(self._group, positions)
            self._complaints.pop("commit", None)
        except Exception as error:  # noqa: BLE001 - nothing depends on it
            self._complain(
                "commit", f"positions were not stored in consumer group {self._group!r}", error
            )

    def _measure(self, positions: Positions) -> None:
        # without metrics only where the run begins
        every = _MEASURE_EVERY if self._metrics is not None else float("inf")
        if time.monotonic() < self._measured + every:
            return
        self._measured = time.monotonic()
        try:
            for name, statuses in self._sources.measure(positions).items():
                if self._metrics is not None:
                    self._metrics.source_measured(name, statuses)
                self._warn(name, statuses)
            self._complaints.pop("measure", None)
        except Exception as error:  # noqa: BLE001 - nothing depends on it
            self._complain("measure", "the lag of sources was not measured", error)

    def _warn(self, name: str, statuses: Iterable[PositionStatus]) -> None:
        """Tell once that retention is about to delete rows that were not read."""
        for status in statuses:
            partition = f"{status.topic}-{status.partition}"
            if not status.is_near or status.left_ms is None:
                self._warned.discard(f"{name}/{partition}")
            elif f"{name}/{partition}" not in self._warned:
                self._warned.add(f"{name}/{partition}")
                log.warning(
                    "source %s: retention reaches the next row of %s in %s; %s rows are to be read",
                    name,
                    partition,
                    elapsed_text(status.left_ms / 1000),
                    grouped(status.lag or 0),
                )

    def _complain(self, what: str, text: str, error: Exception) -> None:
        """Log a failure once, until it is over or another one."""
        reason = redacted(str(error)).strip()[:300]
        if self._complaints.get(what) != type(error).__name__:
            log.warning("%s: %s", text, reason)
        self._complaints[what] = type(error).__name__
