"""All metrics of Seamark: names, meanings, labels. One set a registry, which its pipelines share.

Names follow Prometheus' conventions: base units (seconds, bytes), ``_total`` for what only grows,
``_timestamp_seconds`` for moments. Every metric has the label ``pipeline``; all other labels name
parts of the pipeline, so that their number is bounded by its declaration and its topics.

Tests: ``tests/pipeline/test_metrics.py``.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Final
from weakref import WeakKeyDictionary

from seamark.errors import RefusedError

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram


def _doubling(first: float, count: int) -> tuple[float, ...]:
    return tuple(first * 2**step for step in range(count))


EPOCH_BUCKETS: Final = _doubling(0.01, 15)
STEP_BUCKETS: Final = _doubling(0.001, 16)
PREPARE_BUCKETS: Final = _doubling(0.005, 14)
COMMIT_BUCKETS: Final = _doubling(0.005, 15)

_PLACE: Final = ("source", "topic", "partition")


class MetricFamilies:
    """The metrics of one registry, which all its pipelines share."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._registry: CollectorRegistry | None = registry
        self._series: dict[str, Series] = {}
        self._define_runs()
        self._define_epochs()
        self._define_checkpoints()
        self._define_sinks()
        self._define_sources()
        self._define_background()
        self._registry = None  # else it would never be given up

    def series_of(self, pipeline: str) -> Series:
        """The gauges of a pipeline; those of an earlier run in this process are the same."""
        return self._series.setdefault(pipeline, Series(pipeline))

    def _define_runs(self) -> None:
        self.info = self._gauge(
            "pipeline_info", "Always 1; the versions that run it", "version", "spark_version"
        )
        self.running = self._gauge("pipeline_running", "1 while it runs, 0 after its end")
        self.started_at = self._gauge("pipeline_start_timestamp_seconds", "When it was started")
        self.generation = self._gauge(
            "generation", "The claim on the store: each start of a writer has the next number"
        )
        self.fenced = self._counter("fenced_total", "Runs ended by another writer of the store")
        self.starts = self._counter("starts_total", "Starts that succeeded")
        self.start_failures = self._counter("start_failures_total", "Starts that failed")
        self.recoveries = self._counter("recoveries_total", "Starts that went on from a checkpoint")
        self.recovery_duration = self._histogram(
            "recovery_duration_seconds", "Starts that went on from a checkpoint", EPOCH_BUCKETS
        )
        self.recovery_damaged = self._gauge(
            "recovery_damaged_checkpoints", "Newer checkpoints that the last start found damaged"
        )
        self.recovery_superseded = self._gauge(
            "recovery_superseded_checkpoints", "Newer checkpoints that were rolled back before"
        )
        self.recovery_aborted = self._gauge(
            "recovery_aborted_attempts", "Attempts of earlier writers that the last start removed"
        )
        self.recovery_copy = self._gauge(
            "recovery_working_copy",
            "1 for what the last start did with the working copy, else 0",
            "outcome",
        )
        self.recovery_restored = self._gauge(
            "recovery_restored_bytes", "What the last start wrote to rebuild the working copy"
        )
        self.query_restarts = self._counter(
            "query_restarts_total", "Queries that were started again within a run"
        )

    def _define_epochs(self) -> None:
        self.epochs_completed = self._counter(
            "epochs_completed_total", "Epochs that were saved and shown by all sinks"
        )
        self.epochs_failed = self._counter(
            "epochs_failed_total", "Epochs that were tried and not completed"
        )
        self.epoch_started_at = self._gauge(
            "epoch_start_timestamp_seconds", "When the last epoch was begun, finished or not"
        )
        self.epoch_duration = self._histogram(
            "epoch_duration_seconds", "Completed epochs, all their steps", EPOCH_BUCKETS
        )
        self.step_duration = self._histogram(
            "epoch_step_duration_seconds", "The steps of completed epochs", STEP_BUCKETS, "step"
        )
        self.written_bytes = self._counter(
            "checkpoint_written_bytes_total", "What the checkpoints of completed epochs added"
        )

    def _define_checkpoints(self) -> None:
        gauge, by_operator = self._gauge, "operator"
        self.checkpoint_id = gauge("checkpoint_id", "The newest checkpoint")
        self.checkpoint_epoch = gauge("checkpoint_epoch", "Its epoch")
        self.checkpoint_at = gauge("checkpoint_timestamp_seconds", "When it was taken")
        self.checkpoint_full = gauge("checkpoint_full", "1 if it builds on no other, else 0")
        self.checkpoint_parents = gauge("checkpoint_parents", "How many others it builds on")
        self.checkpoint_gaps = gauge("checkpoint_gaps", "How often sources have left out rows")
        self.added_bytes = gauge("checkpoint_added_bytes", "What it added to the store")
        self.referenced_bytes = gauge(
            "checkpoint_referenced_bytes", "Objects of earlier checkpoints that it needs"
        )
        self.object_bytes = gauge("checkpoint_object_bytes", "All objects that a restore reads")
        self.restore_bytes = gauge("checkpoint_restore_bytes", "What a restore of it writes")
        self.checkpoint_lag = gauge(
            "checkpoint_lag_rows", "Rows that were there and not read yet by its epoch", *_PLACE
        )
        self.checkpoint_age = gauge(
            "checkpoint_position_age_seconds", "How old the next row was when it was taken", *_PLACE
        )
        self.table_version = gauge("table_version", "Version of a reference table", "table")
        self.table_files = gauge("table_files", "Files of a reference table", "table")
        self.watermark = gauge("watermark_timestamp_seconds", "The watermark that its epoch had")
        self.next_watermark = gauge(
            "next_watermark_timestamp_seconds", "The watermark of the epoch after it"
        )
        self.source_watermark = gauge(
            "source_watermark_timestamp_seconds", "How far a source has come", "source"
        )
        self.state_partitions = gauge("state_partitions", "Partitions of the state")
        self.state_bytes = gauge("state_bytes", "State files that it consists of", by_operator)
        self.state_new_bytes = gauge("state_new_bytes", "Those that are new in it", by_operator)
        self.state_files = gauge("state_files", "How many they are", by_operator)
        self.state_largest = gauge(
            "state_largest_partition_bytes", "State of the largest partition", by_operator
        )

    def _define_sinks(self) -> None:
        self.sink_info = self._gauge("sink_info", "Always 1; what it keeps", "sink", "guarantee")
        self.sink_status = self._gauge(
            "sink_status", "1 for its status in the newest checkpoint, else 0", "sink", "status"
        )
        self.sink_epoch = self._gauge("sink_committed_epoch", "The epoch that it shows", "sink")
        self.sink_epoch_rows = self._gauge("sink_epoch_rows", "Rows of the last epoch", "sink")
        self.sink_history_rows = self._gauge(
            "sink_history_rows", "Rows of all epochs since they are counted", "sink"
        )
        self.sink_rows = self._counter("sink_rows_total", "Rows of completed epochs", "sink")
        self.sink_prepare_duration = self._histogram(
            "sink_prepare_duration_seconds", "Making an epoch durable", PREPARE_BUCKETS, "sink"
        )
        self.sink_commit_duration = self._histogram(
            "sink_commit_duration_seconds", "Showing an epoch to readers", COMMIT_BUCKETS, "sink"
        )
        self.sink_failures = self._counter(
            "sink_failures_total",
            "Tries of a step that failed, whether or not a later try succeeded",
            "sink",
            "step",
        )

    def _define_sources(self) -> None:
        self.source_offset = self._gauge("source_offset", "The next row to be read", *_PLACE)
        self.source_lag = self._gauge("source_lag_rows", "Rows that were not read yet", *_PLACE)
        self.source_age = self._gauge(
            "source_position_age_seconds", "How old the next row to be read is", *_PLACE
        )
        self.source_left = self._gauge(
            "source_retention_left_seconds", "Until retention reaches that row", *_PLACE
        )
        self.source_measured_at = self._gauge(
            "source_measured_timestamp_seconds", "When lag and age were measured", "source"
        )

    def _define_background(self) -> None:
        self.uploads = self._counter(
            "background_uploads_total", "Objects that were stored between epochs"
        )
        self.uploaded_bytes = self._counter(
            "background_uploaded_bytes_total", "Bytes of these objects"
        )
        self.background_failures = self._counter(
            "background_failures_total", "Times that the work between epochs had to be put off"
        )
        self.damaged_objects = self._counter(
            "damaged_objects_total", "Stored state found damaged, stored again or lost", "outcome"
        )

    def _counter(self, name: str, meaning: str, *labels: str) -> Counter:
        from prometheus_client import Counter

        names = ["pipeline", *labels]
        return Counter(f"seamark_{name}", meaning, names, registry=self._registry)

    def _gauge(self, name: str, meaning: str, *labels: str) -> Gauge:
        from prometheus_client import Gauge

        names = ["pipeline", *labels]
        return Gauge(f"seamark_{name}", meaning, names, registry=self._registry)

    def _histogram(
        self, name: str, meaning: str, buckets: Sequence[float], *labels: str
    ) -> Histogram:
        from prometheus_client import Histogram

        return Histogram(
            f"seamark_{name}",
            meaning,
            ["pipeline", *labels],
            buckets=buckets,
            registry=self._registry,
        )


Labels = tuple[str, ...]
Value = float | Callable[[], float]
"""A number, or what tells it when it is read."""


class Series:
    """The gauges of one pipeline, without those that nothing is known of any more."""

    def __init__(self, pipeline: str) -> None:
        self._pipeline = pipeline
        self._told: dict[Gauge, set[Labels]] = {}

    def tell(self, gauge: Gauge, values: Mapping[Labels, float] | Mapping[Labels, Value]) -> None:
        """Set a gauge by its labels; a series that is not among them disappears.

        So a partition or a sink that is gone does not keep its last value for ever.
        """
        for labels in self._told.get(gauge, set()).difference(values):
            gauge.remove(self._pipeline, *labels)
        self._told[gauge] = set(values)
        for labels, value in values.items():
            child = gauge.labels(self._pipeline, *labels)
            if callable(value):
                child.set_function(value)
            else:
                child.set(value)

    def tell_one(self, gauge: Gauge, value: Value | None) -> None:
        """Set a gauge that has no other labels; with None it disappears."""
        self.tell(gauge, {} if value is None else {(): value})


_lock: Final = threading.Lock()
_families: Final[WeakKeyDictionary[CollectorRegistry, MetricFamilies]] = WeakKeyDictionary()


def default_registry() -> CollectorRegistry:
    """prometheus_client's own; :class:`RefusedError` when that is not installed."""
    try:
        from prometheus_client import REGISTRY
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] != "prometheus_client":
            raise
        raise RefusedError(
            "metrics need the package prometheus_client, which is not installed",
            hint="Install it with pip install 'seamark[metrics]', or run without metrics.",
        ) from None
    return REGISTRY


def families_of(registry: CollectorRegistry) -> MetricFamilies:
    """The families of a registry, made when its first pipeline comes."""
    with _lock:
        known = _families.get(registry)
        if known is None:
            try:
                known = MetricFamilies(registry)
            except ValueError as error:
                raise RefusedError(
                    f"the registry cannot take the metrics of Seamark: {error}",
                    hint="Something else has registered metrics that start with 'seamark_'. Give "
                    "the pipeline a registry of its own.",
                ) from error
            _families[registry] = known
        return known
