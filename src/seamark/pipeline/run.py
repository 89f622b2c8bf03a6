"""A running pipeline: its query, its supervisor, and how it ends.

Tests: ``tests/pipeline/test_hard_cases.py``.
"""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Final

from seamark._common.logs import logger_named
from seamark._common.signals import first_signal
from seamark.errors import FencedError, SeamarkError
from seamark.pipeline.epoch.coordinator import Coordinator
from seamark.pipeline.epoch.running_epoch import PlanDiffers
from seamark.pipeline.source_outage import SourceOutage, WaitForSources
from seamark.pipeline.telemetry.reports import Percentiles, StartReport
from seamark.spark.failures import explained, is_of_spark

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

log = logger_named("seamark.pipeline")

_LOOK: Final = 0.1
_COMMIT_PATIENCE: Final = 5.0


class Run:
    """One run of a pipeline, from :meth:`seamark.Pipeline.start`."""

    def __init__(
        self,
        coordinator: Coordinator,
        start_query: Callable[[Coordinator], StreamingQuery],
        report: StartReport,
        on_end: Callable[[], None],
        wait_for_sources: WaitForSources | None = None,
        page_url: str | None = None,
    ) -> None:
        self._coordinator = coordinator
        self._outage = SourceOutage(
            wait_for_sources, coordinator.declared.settings.source_timeout, coordinator.stopping
        )
        self._start_query = start_query
        self.report = report
        """What the start found in the store and did about it."""
        self.page_url = page_url
        """Where its page is, with the option ``ui``."""
        self._on_end = on_end
        self._stop_timeout = coordinator.declared.settings.stop_timeout
        self._changing = threading.Lock()
        self._query = start_query(coordinator)
        self._ended = threading.Event()
        self._failure: BaseException | None = None
        self._cut_off = False
        self._supervisor = threading.Thread(
            target=self._supervise, name="seamark-supervisor", daemon=True
        )
        self._supervisor.start()

    @property
    def epoch(self) -> int:
        """The newest decided epoch; 0 before the first."""
        newest = self._coordinator.history.newest
        return newest.epoch if newest is not None else 0

    @property
    def query(self) -> StreamingQuery:
        """Spark's own handle. Stop the run by :meth:`stop`, not by this."""
        return self._query

    @property
    def is_active(self) -> bool:
        """Whether it is still running."""
        return not self._ended.is_set()

    def percentiles(self) -> dict[str, Percentiles]:
        """p50, p95 and p99 of each step over the last 100 epochs, in seconds."""
        return self._coordinator.telemetry.timings.percentiles()

    def exception(self) -> BaseException | None:
        """Why it ended, or None when it runs or ended well."""
        return self._failure

    def await_termination(self, timeout: float | None = None) -> bool:
        """Wait for the end; whether it came. Raises what the run failed with."""
        if not self._ended.wait(timeout):
            return False
        if self._failure is not None:
            raise self._failure
        return True

    def stop(self, timeout: float | None = None) -> None:
        """Let the running epoch finish, then stop. After ``timeout`` it is cut off.

        Whatever is cut off is finished or undone by the next start.
        """
        patience = self._stop_timeout if timeout is None else timeout
        with self._changing:
            self._coordinator.stopping.set()
        with self._at_rest(patience) as rested:
            if rested:
                self._wait_for_commit()
            else:
                self._cut_off = True
                log.warning("the epoch did not finish within %g s and is cut off", patience)
            with suppress(Exception):  # a query that failed meanwhile is reported at its end
                self._query.stop()
        self._ended.wait(patience)

    def _wait_for_commit(self) -> None:
        """Spark notes the batch after the epoch; a stop in between would only make it repeat."""
        deadline = time.monotonic() + _COMMIT_PATIENCE
        while not self._coordinator.spark_has_committed() and time.monotonic() < deadline:
            if self._ended.wait(_LOOK / 10):
                return

    @contextmanager
    def _at_rest(self, patience: float) -> Iterator[bool]:
        lock = self._coordinator.between_epochs
        rested = lock.acquire(timeout=patience)
        try:
            yield rested
        finally:
            if rested:
                lock.release()

    def _supervise(self) -> None:
        """Wait for the end of the query, and start it again when a batch needs its old plan.

        Or when a source had not answered for longer than Spark waits, and answers again.
        """
        try:
            while True:
                error = self._wait_for_query()
                interruption = self._coordinator.interrupted
                if isinstance(interruption, PlanDiffers):
                    self._coordinator.interrupted = None
                    self._coordinator.plan_again(interruption.batch)
                    if self._start_again():
                        continue
                    return
                self._failure = self._cause(error)
                if self._failure is not None and self._outage.is_over(self._failure, self.epoch):
                    self._failure = None
                    self._begin_again()
                    if self._start_again():
                        continue
                    return
                if self._failure is None and not self._cut_off:
                    self._coordinator.finish()
                    self._warn_if_only_adopted()
                return
        except BaseException as error:  # noqa: BLE001 - reported to whoever waits
            self._failure = error
        finally:
            self._end()

    def _warn_if_only_adopted(self) -> None:
        history = self._coordinator.history
        if history.newest is None and history.first_batch > 0:
            log.warning(
                "there was nothing to read, so the store knows nothing of the adopted query yet: "
                "leave adopt= in the program until there is a checkpoint, or all rows come again"
            )

    def _end(self) -> None:
        if isinstance(self._failure, FencedError):
            self._coordinator.telemetry.fenced()
        try:
            if self._is_taken_for_dead():
                self._coordinator.abandon()
            else:
                self._on_end()
        except SeamarkError as error:
            if self._failure is None:
                self._failure = error
        finally:
            self._ended.set()

    def _is_taken_for_dead(self) -> bool:
        # what is no Exception simulates the end of the process: as after a kill, nothing is closed
        failure = self._coordinator.failure
        return failure is not None and not isinstance(failure, Exception)

    def _start_again(self) -> bool:
        """Whether the query runs again; not when the run is to stop."""
        with self._changing:
            if not self._coordinator.stopping.is_set():
                self._query = self._start_query(self._coordinator)
                return True
        return False

    def _begin_again(self) -> None:
        """Forget the epoch that failed; its plan stays, and it runs on the same rows again."""
        self._coordinator.failure = None
        self._coordinator.telemetry.restarted()
        self._coordinator.copy.forget_after(self._coordinator.history.decided_batch)

    def _wait_for_query(self) -> Exception | None:
        from pyspark.errors import PySparkException

        try:
            self._query.awaitTermination()
        except PySparkException as error:
            return error
        return None

    def _cause(self, error: Exception | None) -> BaseException | None:
        failure = self._coordinator.failure
        addresses = self._coordinator.declared.identity.addresses
        if self._cut_off:
            return None  # the epoch was cut off on request, so its failure does not count
        if failure is not None:
            return explained(failure, addresses) if is_of_spark(failure) else failure
        if error is None or self._coordinator.stopping.is_set():
            return None
        return self._coordinator.cause_of(explained(error, addresses))

    # signals

    def wait_with_signals(self, timeout: float | None) -> None:
        """Wait for the end. The first SIGTERM or Ctrl-C stops after the epoch, the second now."""
        deadline = None if timeout is None else time.monotonic() + timeout
        with first_signal(_say) as received:
            while not self._ended.wait(_LOOK):
                expired = deadline is not None and time.monotonic() > deadline
                if received or expired:
                    self.stop()
                    break
        if self._failure is not None:
            raise self._failure


def _say(received: signal.Signals) -> None:
    log.info("%s: stopping after this epoch", received.name)
