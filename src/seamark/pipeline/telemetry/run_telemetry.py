"""Everything that reports on one run: terminal and log, metrics, spans, timings, progress record.

Tests: ``tests/pipeline/test_metrics.py``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from typing import Any

from seamark._common.progress_bars import Advance
from seamark.pipeline.telemetry.checkpoint_metrics import NewestCheckpoint
from seamark.pipeline.telemetry.display import Display
from seamark.pipeline.telemetry.metrics import PipelineMetrics
from seamark.pipeline.telemetry.metrics_endpoint import split_address
from seamark.pipeline.telemetry.progress_record import ProgressRecord
from seamark.pipeline.telemetry.reports import EpochStats, StartReport, Timings
from seamark.pipeline.telemetry.source_follower import FollowedSources, SourceFollower, Times
from seamark.pipeline.telemetry.tracing import OpenSpan, Tracing
from seamark.spark.kafka.positions import Offsets
from seamark.spark.kafka.recorded_positions import recorded_lines


class RunTelemetry:
    """What the outside learns about a run.

    ``metrics`` and ``tracer_provider`` are what :class:`seamark.Pipeline` takes under these names,
    ``progress_url`` is the progress store that is kept up to date, or None.
    """

    def __init__(
        self,
        pipeline: str,
        *,
        metrics: Any,
        progress_url: str | None,
        tracer_provider: Any = None,
    ) -> None:
        self.metrics = _open_metrics(pipeline, metrics)
        self.timings = Timings()
        self.progress = ProgressRecord(progress_url, pipeline)
        self._display = Display(pipeline)
        self._tracing = Tracing(pipeline, tracer_provider)
        self._span: OpenSpan | None = None
        self._epoch = 0
        self._follower: SourceFollower | None = None

    def follow(self, sources: FollowedSources, group: str | None) -> None:
        """Have the positions in these sources measured, and stored in a consumer group if given."""
        self._follower = SourceFollower(sources, group, self.metrics)

    # a start

    @contextmanager
    def recovering(self) -> Iterator[None]:
        """Around a recovery: its span, and a count if it fails."""
        with self._tracing.begin("recovery") as self._span:
            try:
                yield
            except BaseException as error:
                if self.metrics is not None:
                    self.metrics.start_failed(error)
                raise

    def recovered(
        self,
        report: StartReport,
        newest: NewestCheckpoint | None,
        generation: int,
        spark_version: str,
    ) -> None:
        """Bring the progress record to the newest checkpoint, and show what the start did."""
        manifest = None if newest is None else newest.manifest
        if note := self.progress.bring_to(manifest):
            report.notes.append(note)
        if self._follower is not None and manifest is not None:
            lines = recorded_lines(manifest)
            self._follower.follow({n: "\n".join(own).encode() for n, own in lines.items()})
        self._display.show_recovery(report)
        if self._span is not None:
            self._span.tell(report.fields())
        if self.metrics is not None:
            self.metrics.started(report, generation, spark_version)
            if newest is not None:
                self.metrics.checkpoint_is(newest)

    def long_work(self, what: str, size: int) -> AbstractContextManager[Advance]:
        """Tell that work on that many bytes is under way, for as long as it takes."""
        return self._display.long_work(what, size)

    # an epoch

    def begin_epoch(self, epoch: int) -> None:
        """An epoch begins; :meth:`end_epoch` follows, whatever becomes of it."""
        self._span = self._tracing.begin("epoch", epoch=epoch)
        self._epoch = epoch
        if self.metrics is not None:
            self.metrics.epoch_began()

    def step(self, step: str, began: float) -> OpenSpan:
        """The span of a step of the epoch."""
        return self._tracing.step(f"epoch.{step}", began, epoch=self._epoch, step=step)

    def end_epoch(self) -> None:
        """The epoch is over, finished or not."""
        if self._span is not None:
            self._span.end()

    def epoch_planned(self, unread: Mapping[str, Offsets]) -> None:
        """Have it found out when the rows that come after the epoch were written."""
        if self._follower is not None:
            self._follower.look_up(unread)

    def times_of(self, unread: Mapping[str, Offsets]) -> Times:
        """When these rows were written, as far as that is known without waiting."""
        return self._follower.times_of(unread) if self._follower is not None else {}

    def checkpoint_is(self, newest: NewestCheckpoint) -> None:
        """Tell the metrics about the newest checkpoint."""
        if self.metrics is not None:
            self.metrics.checkpoint_is(newest)

    def epoch_done(self, stats: EpochStats) -> None:
        """Show and count an epoch that all sinks have committed."""
        self.timings.add({**stats.phases, "total": stats.seconds})
        if self.metrics is not None:
            self.metrics.epoch_done(stats)
        if self._span is not None:
            self._span.tell(stats.fields())
        self._display.show_epoch(stats)
        if self._follower is not None:
            self._follower.follow(stats.positions)

    def epoch_failed(self, error: BaseException) -> None:
        """Count an epoch that was not finished."""
        if self.metrics is not None:
            self.metrics.epoch_failed()
        if self._span is not None:
            self._span.failed(error)

    def restarted(self) -> None:
        """Count a query that is started again within the run."""
        if self.metrics is not None:
            self.metrics.restarted()

    def fenced(self) -> None:
        """Count a run that another writer of the store has ended."""
        if self.metrics is not None:
            self.metrics.fenced()

    # the background

    def stored_between_epochs(self, objects: int, size: int) -> None:
        """Count objects that were stored in the background."""
        if self.metrics is not None:
            self.metrics.stored_between_epochs(objects, size)

    def background_put_off(self) -> None:
        """Count work in the background that failed and is tried again later."""
        if self.metrics is not None:
            self.metrics.background_put_off()

    def damage_found(self, is_healed: bool) -> None:
        """Count a stored object that is damaged."""
        if self.metrics is not None:
            self.metrics.damage_found(is_healed)

    def close(self) -> None:
        """Close the progress store and the metrics' port."""
        if self._follower is not None:
            self._follower.close()
        self.progress.close()
        if self.metrics is not None:
            self.metrics.close()


def _open_metrics(pipeline: str, option: Any) -> PipelineMetrics | None:
    if option is None or option is False:
        return None
    if isinstance(option, bool):
        return PipelineMetrics(pipeline)
    if isinstance(option, int):
        return PipelineMetrics(pipeline, port=option)
    if isinstance(option, str):
        host, port = split_address(option)
        return PipelineMetrics(pipeline, port=port, host=host)
    return PipelineMetrics(pipeline, registry=option)
