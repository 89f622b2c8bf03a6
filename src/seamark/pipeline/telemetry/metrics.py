"""Prometheus metrics of pipelines, for those who ask for them: ``pip install 'seamark[metrics]'``.

Pipelines of one process can share a registry and a port, from which Prometheus reads. What there
is to read is in ``metric_families.py``, and for users in ``docs/metrics.md``.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import wraps
from typing import TYPE_CHECKING, Concatenate, Final, ParamSpec

from seamark._common.logs import logger_named
from seamark._redaction import redacted
from seamark._version import __version__
from seamark.errors import FencedError
from seamark.pipeline.telemetry.checkpoint_metrics import CheckpointGauges, NewestCheckpoint
from seamark.pipeline.telemetry.metric_families import Labels, default_registry, families_of
from seamark.pipeline.telemetry.metrics_endpoint import LOOPBACK, MetricsEndpoint
from seamark.pipeline.telemetry.reports import PHASES, CopyOutcome, EpochStats, StartReport
from seamark.spark.kafka.positions import PositionStatus

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry, Gauge
log = logger_named("seamark.pipeline")
P = ParamSpec("P")

_LONGEST: Final = 300
SINK_STEPS: Final = ("write", "prepare", "commit")
"""Steps in which a sink can fail."""


def _only_watching(
    method: Callable[Concatenate[PipelineMetrics, P], None],
) -> Callable[Concatenate[PipelineMetrics, P], None]:
    """Let no failure out: a registry can need files and memory that are not there."""

    @wraps(method)
    def wrapper(self: PipelineMetrics, /, *args: P.args, **kwargs: P.kwargs) -> None:
        try:
            method(self, *args, **kwargs)
        except Exception as error:  # noqa: BLE001 - counting must not fail an epoch
            reason = redacted(str(error))[:_LONGEST]
            log.warning("%s was not counted in the metrics: %s", method.__name__, reason)

    return wrapper


class PipelineMetrics:
    """The metrics of one pipeline, in a registry that others may use too.

    With ``port`` they can be scraped over HTTP until ``close()``, from this machine unless another
    ``host`` is given; port 0 takes a free one. ``RefusedError`` when prometheus_client is not
    installed or the port is taken. Its other methods never raise.
    """

    def __init__(
        self,
        pipeline: str,
        registry: CollectorRegistry | None = None,
        port: int | None = None,
        *,
        host: str = LOOPBACK,
    ) -> None:
        registry = registry if registry is not None else default_registry()
        self._pipeline = pipeline
        self._families = families = families_of(registry)
        self._series = series = families.series_of(pipeline)
        self._newest = CheckpointGauges(families, series)
        # counters start at zero, so that a first failure shows as an increase; gauges appear
        # with their first value, for a zero would be taken for one
        self._completed = families.epochs_completed.labels(pipeline)
        self._failed = families.epochs_failed.labels(pipeline)
        self._fenced = families.fenced.labels(pipeline)
        self._duration = families.epoch_duration.labels(pipeline)
        for phase in PHASES:
            families.step_duration.labels(pipeline, phase)
        self._written = families.written_bytes.labels(pipeline)
        self._starts = families.starts.labels(pipeline)
        self._start_failures = families.start_failures.labels(pipeline)
        self._recoveries = families.recoveries.labels(pipeline)
        self._recovery_duration = families.recovery_duration.labels(pipeline)
        self._restarts = families.query_restarts.labels(pipeline)
        self._uploads = families.uploads.labels(pipeline)
        self._uploaded = families.uploaded_bytes.labels(pipeline)
        self._put_off = families.background_failures.labels(pipeline)
        self._damaged = {
            is_healed: families.damaged_objects.labels(pipeline, outcome)
            for is_healed, outcome in ((True, "healed"), (False, "lost"))
        }
        self._measured: dict[str, dict[Gauge, dict[Labels, float]]] = {}
        self._measured_at: dict[Labels, float] = {}
        self._endpoint: MetricsEndpoint | None = None
        if port is not None:
            self._endpoint = MetricsEndpoint.serving(registry, host, port)

    @property
    def port(self) -> int | None:
        """The port on which the metrics can be scraped, or None."""
        return self._endpoint.port if self._endpoint is not None else None

    # starts

    @_only_watching
    def started(self, report: StartReport, generation: int, spark_version: str) -> None:
        """Count a start, and tell what it found and did."""
        families, one = self._families, self._series.tell_one
        self._starts.inc()
        if not report.fresh_start:
            self._recoveries.inc()
            self._recovery_duration.observe(report.seconds)
        self._series.tell(families.info, {(__version__, spark_version): 1})
        one(families.running, 1)
        one(families.started_at, time.time())
        one(families.generation, generation)
        one(families.recovery_damaged, report.damaged)
        one(families.recovery_superseded, len(report.skipped) - report.damaged)
        one(families.recovery_aborted, len(report.aborted))
        one(families.recovery_restored, report.restored_bytes)
        outcomes: dict[Labels, float] = {
            (each.value,): each == report.copy_outcome for each in CopyOutcome
        }
        self._series.tell(families.recovery_copy, outcomes)

    @_only_watching
    def start_failed(self, error: BaseException) -> None:
        """Count a start that failed."""
        self._start_failures.inc()
        if isinstance(error, FencedError):
            self._fenced.inc()

    @_only_watching
    def restarted(self) -> None:
        """Count a query that was started again within a run."""
        self._restarts.inc()

    @_only_watching
    def fenced(self) -> None:
        """Count a run that another writer of the store has ended."""
        self._fenced.inc()

    @_only_watching
    def ended(self) -> None:
        """Tell that the run is over."""
        self._series.tell_one(self._families.running, 0)

    # epochs

    @_only_watching
    def epoch_began(self) -> None:
        """Tell when an epoch was begun."""
        self._series.tell_one(self._families.epoch_started_at, time.time())

    @_only_watching
    def checkpoint_is(self, newest: NewestCheckpoint) -> None:
        """Tell all about the newest checkpoint, whether or not all sinks show its epoch."""
        self._newest.tell(newest)

    @_only_watching
    def epoch_done(self, figures: EpochStats) -> None:
        """Count an epoch that was decided and shown by all sinks."""
        families = self._families
        self._completed.inc()
        self._written.inc(figures.new_bytes)
        self._duration.observe(figures.seconds)
        for phase, seconds in figures.phases.items():
            families.step_duration.labels(self._pipeline, phase).observe(seconds)
        for sink, rows in figures.rows_per_sink.items():
            if rows is not None:
                families.sink_rows.labels(self._pipeline, sink).inc(rows)

    @_only_watching
    def epoch_failed(self) -> None:
        """Count an epoch that was not decided, or not finished; the checkpoint stays."""
        self._failed.inc()

    # sinks

    @_only_watching
    def has_sinks(self, names: Sequence[str]) -> None:
        """Have the counters of all sinks there before the first failure, with zero."""
        for name in names:
            for step in SINK_STEPS:
                self._families.sink_failures.labels(self._pipeline, name, step)

    @_only_watching
    def sink_prepared(self, sink: str, seconds: float) -> None:
        """Record how long a sink took to make an epoch durable."""
        self._families.sink_prepare_duration.labels(self._pipeline, sink).observe(seconds)

    @_only_watching
    def sink_committed(self, sink: str, seconds: float) -> None:
        """Record how long a sink took to show an epoch."""
        self._families.sink_commit_duration.labels(self._pipeline, sink).observe(seconds)

    @_only_watching
    def sink_failed(self, sink: str, step: str) -> None:
        """Count a try of a step that a sink refused or did not finish."""
        self._families.sink_failures.labels(self._pipeline, sink, step).inc()

    # sources

    @_only_watching
    def source_measured(self, source: str, statuses: Sequence[PositionStatus]) -> None:
        """Record how far each partition of a source is behind, and how old its next row is."""
        families = self._families
        own: dict[Gauge, dict[Labels, float]] = {
            families.source_lag: {},
            families.source_age: {},
            families.source_left: {},
        }
        for status in statuses:
            labels = (source, status.topic, str(status.partition))
            if status.lag is not None:
                own[families.source_lag][labels] = status.lag
            if status.age_ms is not None:
                own[families.source_age][labels] = status.age_ms / 1000
            if status.left_ms is not None:
                own[families.source_left][labels] = status.left_ms / 1000
        self._measured[source] = own
        for gauge in own:
            told = [by_gauge[gauge] for by_gauge in self._measured.values()]
            self._series.tell(gauge, {labels: at for each in told for labels, at in each.items()})
        self._measured_at[(source,)] = time.time()
        self._series.tell(families.source_measured_at, self._measured_at)

    # the background

    @_only_watching
    def stored_between_epochs(self, objects: int, size: int) -> None:
        """Count objects that were stored in the background."""
        self._uploads.inc(objects)
        self._uploaded.inc(size)

    @_only_watching
    def background_put_off(self) -> None:
        """Count work in the background that failed and is tried again later."""
        self._put_off.inc()

    @_only_watching
    def damage_found(self, is_healed: bool) -> None:
        """Count a stored object that is damaged, and whether it could be stored again."""
        self._damaged[is_healed].inc()

    def close(self) -> None:
        """Stop answering on the port, unless another pipeline shares it; the values stay."""
        self.ended()
        endpoint, self._endpoint = self._endpoint, None
        if endpoint is not None:
            endpoint.release()
