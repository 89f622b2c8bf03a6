"""All sinks of a pipeline, doing one step of an epoch together."""

from __future__ import annotations

import contextvars
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import TimeoutError as FutureTimeoutError
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Final, TypeVar

from seamark._common.logs import logger_named
from seamark._common.retry import retry_unavailable
from seamark._redaction import redacted
from seamark.errors import (
    DamageError,
    InvalidInputError,
    LineageError,
    OutcomeUnknownError,
    SeamarkError,
    StoreUnavailableError,
)
from seamark.manifest import SinkCommitStatus
from seamark.pipeline.declaration.compile import Output
from seamark.pipeline.declaration.settings import Step
from seamark.pipeline.declaration.structure import DeclaredPipeline
from seamark.pipeline.epoch.output_digests import OutputDigests
from seamark.pipeline.epoch.running_epoch import Interrupted, RunningEpoch
from seamark.sinks.contract import Committable, foreign_name
from seamark.spark.failures import is_of_spark
from seamark.spark.query import INTERRUPTED_BY_STOP, RunningQuery
from seamark.spark.session import is_local, may_mix_state_in_a_task

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from seamark.pipeline.telemetry.metrics import PipelineMetrics

log = logger_named("seamark.pipeline")

T = TypeVar("T")

_PAUSE: Final = 0.2
_MESSAGE_LIMIT: Final = 1000


class StepTimeout(SeamarkError):
    """A sink did not finish a step in time."""


@contextmanager
def writing(query: RunningQuery, seconds: float | None) -> Iterator[None]:
    """Cancel Spark's jobs when staging takes longer than it may, and see that none was cancelled.

    :class:`StepTimeout`, and :class:`Interrupted` when the query was stopped meanwhile: also when
    everything has come to its end. A function may have caught the error of a job that was
    cancelled, and then its rows are not written.
    """
    cancelled = threading.Event()

    def cancel() -> None:
        cancelled.set()
        query.cancel_jobs()

    timer = None if seconds is None else threading.Timer(seconds, cancel)
    try:
        if timer is not None:
            timer.start()
        yield
    except Exception as error:
        if cancelled.is_set():
            raise _too_late(seconds or 0) from error
        raise
    finally:
        if timer is not None:
            timer.cancel()
    if cancelled.is_set():
        raise _too_late(seconds or 0)
    if query.is_stopped():
        raise Interrupted(INTERRUPTED_BY_STOP)


def _too_late(seconds: float) -> StepTimeout:
    return StepTimeout(
        f"the step 'write' did not finish in {seconds:g} s",
        hint="The epoch is run again by the next start. step_timeouts sets the limit.",
    )


class SinkFailed(SeamarkError):
    """A sink raised an error of its own, which is the cause of this one."""


@contextmanager
def _named(output: Output, epoch: int, count: Callable[[], None]) -> Iterator[None]:
    """Say of an error which sink it comes from, and in which epoch; count those that are its own.

    An error of Spark may just as well come from a source.
    """
    try:
        yield
    except SeamarkError:
        count()
        raise
    except Exception as error:
        if is_of_spark(error):
            error.add_note(f"while sink {output.name!r} was written in epoch {epoch}")
            raise
        count()
        described = output.sink.describe()
        raise SinkFailed(
            f"sink {output.name!r} failed in epoch {epoch}",
            where=f"{described.kind} {described.target}: "
            + redacted(f"{type(error).__name__}: {error}")[:_MESSAGE_LIMIT],
            hint="The epoch is not decided. The next start runs it again, on the same rows.",
        ) from error


class PipelineSinks:
    """The sinks of one run. They work in parallel where that is possible."""

    def __init__(self, declared: DeclaredPipeline, metrics: PipelineMetrics | None = None) -> None:
        self._compiled = declared.compiled
        self._identity = declared.identity
        self._settings = declared.settings
        self._metrics = metrics
        self.digests = OutputDigests(self.outputs, enabled=self._settings.digests)
        """Of the rows that were staged last."""
        self._pool = ThreadPoolExecutor(max(4, len(self._compiled.outputs)), "seamark-sink")
        if metrics is not None:
            metrics.has_sinks(self.names)

    @property
    def outputs(self) -> Sequence[Output]:
        """The outputs, in the order of their declaration."""
        return self._compiled.outputs

    @property
    def names(self) -> list[str]:
        """Their names."""
        return [output.name for output in self.outputs]

    def stage(
        self,
        batch: DataFrame,
        epoch: RunningEpoch,
        without: set[str],
        check_claim: Callable[[], None],
        *,
        apart: bool = False,
    ) -> None:
        """Have every sink write its rows aside. The batch is read in full, and planned once.

        Sinks in ``without`` show the epoch already; their rows are read and dropped. The claim is
        checked right before a sink changes its target. ``apart`` means that tasks which compute
        several partitions of the batch would write different kinds of state.
        """
        self.digests.begin()
        self.digests.note_shown_before(without)
        to_stage = [(n, o) for n, o in enumerate(self.outputs) if o.name not in without]
        apart = apart and not may_mix_state_in_a_task(batch.sparkSession)
        if not apart:
            batch = self._narrowed(batch)
            if len(to_stage) == 1 == len(self.outputs) and self._reads_once(to_stage[0][1]):
                # as in a job written by hand: rows that are read only once are not persisted
                output = to_stage[0][1]
                self._stage_one(batch, output, epoch, check_claim)
                self.digests.take_again(output.name, batch)
                return
        batch = batch.persist()
        try:
            every_row = self._compiled.reads_every_row
            if apart or not any(o.sink.consumes_all and every_row(n) for n, o in to_stage):
                batch.count()  # Spark cannot load state unless it has computed every partition
            computed = self._narrowed(batch) if apart else batch
            for number, output in to_stage:
                rows = self._compiled.rows_of(computed, number)
                if not output.sink.consumes_all:
                    # a function may unpersist its rows, which must not be the batch to Spark: what
                    # is computed again has other state than that of the rows that it has seen
                    rows = rows.where("true")  # a projection of all columns would be the same
                self._stage_one(rows, output, epoch, check_claim)
            for number, output in enumerate(self.outputs):
                rows_of = partial(self._compiled.rows_of, computed, number)
                self.digests.require(output.name, rows_of)
        finally:
            batch.unpersist()

    def _stage_one(
        self, rows: DataFrame, output: Output, epoch: RunningEpoch, check_claim: Callable[[], None]
    ) -> None:
        if output.sink.shows_at_once:
            check_claim()
        rows = self.digests.observe(output.name, rows)
        with _named(output, epoch.number, partial(self._count_failure, output, Step.WRITE)):
            output.sink.stage(rows, epoch.for_sink(output.name), epoch.attempt)

    def _reads_once(self, output: Output) -> bool:
        return output.sink.consumes_all and self.digests.is_observable(output.name)

    def _narrowed(self, batch: DataFrame) -> DataFrame:
        if self._compiled.is_sorted:
            return batch  # coalesce() puts together whatever lies at one place, in any order
        spark, partitions = batch.sparkSession, self._settings.coalesce
        if partitions == "auto":
            # on a cluster a task that holds many state partitions would have to redo them all
            partitions = spark.sparkContext.defaultParallelism if is_local(spark) else None
        return batch if partitions is None else batch.coalesce(partitions)

    def prepare(self, epoch: RunningEpoch, without: set[str]) -> dict[str, Committable]:
        """Make durable what was staged; the committable of each sink."""
        waiting = {o.name: o for o in self.outputs if o.name not in without}
        committables = self._together(Step.PREPARE, waiting, self._prepare_one)
        for name, committable in committables.items():
            _require_usable(name, committable, epoch)
        return committables

    def names_at_target(self, sink: str) -> dict[str, str]:
        """The names of the pipeline and of an output that its target knows it by."""
        identity = self._identity
        return {"pipeline": identity.name, "sink": identity.name_at_target(sink)}

    def _prepare_one(self, output: Output) -> Committable:
        began = time.perf_counter()
        prepare = self._counted(output, Step.PREPARE, output.sink.prepare)
        patience, what = self._settings.store_timeout, f"preparing sink {output.name}"
        committable = retry_unavailable(prepare, patience, what)
        if self._metrics is not None:
            self._metrics.sink_prepared(output.name, time.perf_counter() - began)
        return committable

    def commit(self, committables: Mapping[str, Committable]) -> dict[str, SinkCommitStatus]:
        """Show the epoch in every sink; the status of each. Never raises for a sink's failure."""
        waiting = {o.name: o for o in self.outputs if o.name in committables}

        def one(output: Output) -> SinkCommitStatus:
            return self._commit_one(output, committables[output.name])

        return self._together(Step.COMMIT, waiting, one, late=_failed)

    def _commit_one(self, output: Output, committable: Committable) -> SinkCommitStatus:
        began = time.perf_counter()
        patience, what = self._settings.store_timeout, f"committing sink {output.name}"
        commit = self._counted(output, Step.COMMIT, partial(output.sink.commit, committable))
        for left in reversed(range(self._settings.commit_tries)):
            try:
                # waits for a server that restarts, or a disk that is full
                retry_unavailable(commit, patience, what)
            except Exception as error:  # noqa: BLE001 - whatever a sink raises becomes its status
                if left and _is_worth_trying(error):
                    reason = redacted(str(error))
                    log.warning("sink %s did not commit, trying again: %s", output.name, reason)
                    time.sleep(_PAUSE)
                    continue
                return _failed(error)
            if self._metrics is not None:
                self._metrics.sink_committed(output.name, time.perf_counter() - began)
            return SinkCommitStatus.committed()
        raise AssertionError("not reached")

    def _counted(self, output: Output, step: Step, action: Callable[[], T]) -> Callable[[], T]:
        """An action of a sink, with each of its failures counted."""

        def tried() -> T:
            try:
                return action()
            except Exception:
                self._count_failure(output, step)
                raise

        return tried

    def _count_failure(self, output: Output, step: Step) -> None:
        if self._metrics is not None:
            self._metrics.sink_failed(output.name, step.value)

    def abort(self, attempt: str) -> None:
        """Remove what this attempt has staged, as far as it can be done now."""
        for output in self.outputs:
            try:
                output.sink.abort(attempt)
            except Exception as error:  # noqa: BLE001 - the next start does it again
                reason = redacted(str(error))
                log.warning("sink %s did not clean up %s: %s", output.name, attempt, reason)

    def _together(
        self,
        step: Step,
        outputs: Mapping[str, Output],
        work: Callable[[Output], T],
        late: Callable[[Exception], T] | None = None,
    ) -> dict[str, T]:
        limit = self._settings.step_timeouts.get(step)
        deadline = None if limit is None else time.monotonic() + limit
        if len(outputs) == 1 and deadline is None:
            return {name: work(output) for name, output in outputs.items()}
        futures = {
            # whoever watches sees what a sink does as part of this step
            name: self._pool.submit(contextvars.copy_context().run, work, output)
            for name, output in outputs.items()
        }
        return {name: self._result(step, name, f, deadline, late) for name, f in futures.items()}

    def _result(
        self,
        step: Step,
        name: str,
        future: Future[T],
        deadline: float | None,
        late: Callable[[Exception], T] | None,
    ) -> T:
        left = None if deadline is None else max(deadline - time.monotonic(), 0)
        try:
            return future.result(left)
        except FutureTimeoutError:
            if self._metrics is not None:
                self._metrics.sink_failed(name, step.value)
            error = StepTimeout(
                f"sink {name!r} did not finish the step '{step.value}' in "
                f"{self._settings.step_timeouts[step]:g} s",
                hint="The next start finishes or undoes the epoch. step_timeouts sets the limit.",
            )
            if late is None:
                raise error from None
            return late(error)

    def close(self) -> None:
        """Shut down the threads; one that hangs in a sink is left behind."""
        self._pool.shutdown(wait=False, cancel_futures=True)


def _require_usable(sink: str, committable: Committable, epoch: RunningEpoch) -> None:
    """:class:`InvalidInputError` for a committable with which no start could finish the epoch."""
    why: str | None = "it is not a dict"
    if isinstance(committable, dict):
        why = foreign_name(committable, epoch.names_for(sink))
    if why is not None:
        raise InvalidInputError(
            f"sink {sink!r} has prepared epoch {epoch.number} with a committable that cannot be "
            f"used: {why}",
            hint="The epoch is not decided. A field of that name has to hold what stage() was "
            "given; call the sink's own something else.",
        )


def _is_worth_trying(error: Exception) -> bool:
    """Whether a commit may succeed at once when it is repeated.

    Damage does not pass: a target that has taken a part of the epoch may say that it shows it.
    """
    waited = isinstance(error, StoreUnavailableError) and not isinstance(error, OutcomeUnknownError)
    return not waited and not isinstance(error, LineageError | DamageError)


def _failed(error: Exception) -> SinkCommitStatus:
    text = redacted(f"{type(error).__name__}: {error}")
    return SinkCommitStatus.failed(text[:_MESSAGE_LIMIT])
