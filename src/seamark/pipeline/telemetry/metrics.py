"""Prometheus metrics of pipelines, for those who ask for them: ``pip install 'seamark[metrics]'``.

All names start with ``seamark_`` and carry the label ``pipeline``; pipelines of one process can
share a registry and a port, from which Prometheus reads.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from functools import wraps
from typing import TYPE_CHECKING, Concatenate, Final, ParamSpec
from weakref import WeakKeyDictionary

from seamark._common.checks import U16_MAX, check_number
from seamark._common.logs import logger_named
from seamark.errors import InvalidInputError, RefusedError
from seamark.pipeline.telemetry.metrics_server import HttpServer
from seamark.pipeline.telemetry.reports import PHASES, EpochStats
from seamark.spark.kafka.positions import PositionStatus

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
log = logger_named("seamark.pipeline")
P = ParamSpec("P")

LOOPBACK: Final = "127.0.0.1"
_lock: Final = threading.Lock()


def _doubling(first: float, count: int) -> tuple[float, ...]:
    return tuple(first * 2**step for step in range(count))


CHECKPOINT_BUCKETS: Final = _doubling(0.01, 15)
PHASE_BUCKETS: Final = _doubling(0.001, 16)
PRECOMMIT_BUCKETS: Final = _doubling(0.005, 14)
COMMIT_BUCKETS: Final = _doubling(0.005, 15)


def _only_watching(
    method: Callable[Concatenate[PipelineMetrics, P], None],
) -> Callable[Concatenate[PipelineMetrics, P], None]:
    """Let no failure out: a registry can need files and memory that are not there."""

    @wraps(method)
    def wrapper(self: PipelineMetrics, /, *args: P.args, **kwargs: P.kwargs) -> None:
        try:
            method(self, *args, **kwargs)
        except Exception as error:  # noqa: BLE001 - counting must not fail an epoch
            log.warning("%s was not counted in the metrics: %s", method.__name__, error)

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
        registry = registry if registry is not None else _default_registry()
        self._pipeline = pipeline
        self._families = families = _families_of(registry)
        # counters start at zero, so that a first failure shows as an increase; gauges appear
        # with their first value, for a zero would be taken for one
        self._completed = families.checkpoints_completed.labels(pipeline)
        self._failed = families.checkpoints_failed.labels(pipeline)
        self._duration = families.checkpoint_duration.labels(pipeline)
        for phase in PHASES:
            families.phase_duration.labels(pipeline, phase)
        self._recoveries = families.recoveries.labels(pipeline)
        self._recovery_duration = families.recovery_duration.labels(pipeline)
        self._restarts = families.restarts.labels(pipeline)
        self._damaged = {
            is_healed: families.damaged_objects.labels(pipeline, outcome)
            for is_healed, outcome in ((True, "healed"), (False, "lost"))
        }
        self._server: MetricsServer | None = None
        if port is not None:
            self._server = MetricsServer.serving(registry, host, port)

    @property
    def port(self) -> int | None:
        """The port on which the metrics can be scraped, or None."""
        return self._server.port if self._server is not None else None

    @_only_watching
    def epoch_done(self, figures: EpochStats) -> None:
        """Count an epoch that was decided and shown by all sinks."""
        families = self._families
        self._completed.inc()
        families.checkpoint_epoch.labels(self._pipeline).set(figures.epoch)
        families.checkpoint_size.labels(self._pipeline).set(figures.new_bytes)
        self._duration.observe(figures.seconds)
        for phase, seconds in figures.phases.items():
            families.phase_duration.labels(self._pipeline, phase).observe(seconds)
        if figures.watermark is not None:
            families.watermark.labels(self._pipeline).set(figures.watermark)

    @_only_watching
    def epoch_failed(self) -> None:
        """Count an epoch that was not decided, or not finished; the epoch's number stays."""
        self._failed.inc()

    @_only_watching
    def sink_prepared(self, sink: str, seconds: float) -> None:
        """Record how long a sink took to make an epoch durable."""
        self._families.sink_precommit_duration.labels(self._pipeline, sink).observe(seconds)

    @_only_watching
    def sink_committed(self, sink: str, seconds: float) -> None:
        """Record how long a sink took to show an epoch."""
        self._families.sink_commit_duration.labels(self._pipeline, sink).observe(seconds)
        # so that the series is there, with zero, before the first failure
        self._families.sink_commit_failures.labels(self._pipeline, sink)

    @_only_watching
    def sink_failed(self, sink: str) -> None:
        """Count a commit that a sink refused or did not finish."""
        self._families.sink_commit_failures.labels(self._pipeline, sink).inc()

    @_only_watching
    def recovered(self, seconds: float) -> None:
        """Count a start that went on from a checkpoint."""
        self._recoveries.inc()
        self._recovery_duration.observe(seconds)

    @_only_watching
    def restarted(self) -> None:
        """Count a query that was started again within a run."""
        self._restarts.inc()

    @_only_watching
    def source_measured(self, source: str, statuses: Sequence[PositionStatus]) -> None:
        """Record how far each partition of a source is behind, and how old its next row is."""
        families = self._families
        for status in statuses:
            labels = (self._pipeline, source, f"{status.topic}-{status.partition}")
            families.source_offset.labels(*labels).set(status.wanted)
            if status.lag is not None:
                families.source_lag.labels(*labels).set(status.lag)
            if status.age_ms is not None:
                families.source_age.labels(*labels).set(status.age_ms / 1000)
            if status.left_ms is not None:
                families.source_left.labels(*labels).set(status.left_ms / 1000)

    @_only_watching
    def damage_found(self, is_healed: bool) -> None:
        """Count a stored object that is damaged, and whether it could be stored again."""
        self._damaged[is_healed].inc()

    def close(self) -> None:
        """Stop answering on the port, unless another pipeline shares it; the values stay."""
        server, self._server = self._server, None
        if server is not None:
            server.release()


class _MetricFamilies:
    """The metrics of one registry, which all its pipelines share."""

    def __init__(self, registry: CollectorRegistry) -> None:
        from prometheus_client import Counter, Gauge, Histogram

        def counter(name: str, meaning: str, *labels: str) -> Counter:
            return Counter(f"seamark_{name}", meaning, ["pipeline", *labels], registry=registry)

        def gauge(name: str, meaning: str, *labels: str) -> Gauge:
            return Gauge(f"seamark_{name}", meaning, ["pipeline", *labels], registry=registry)

        def histogram(name: str, meaning: str, buckets: Sequence[float], *labels: str) -> Histogram:
            names = ["pipeline", *labels]
            return Histogram(f"seamark_{name}", meaning, names, buckets=buckets, registry=registry)

        self.checkpoints_completed = counter(
            "checkpoints_completed_total", "Epochs that were saved and shown by all sinks"
        )
        self.checkpoints_failed = counter(
            "checkpoints_failed_total", "Epochs that were tried and not completed"
        )
        self.checkpoint_epoch = gauge("checkpoint_epoch", "The last epoch that completed")
        self.checkpoint_size = gauge("checkpoint_size_bytes", "What the last checkpoint added")
        self.checkpoint_duration = histogram(
            "checkpoint_duration_seconds", "Completed epochs, all their steps", CHECKPOINT_BUCKETS
        )
        self.phase_duration = histogram(
            "phase_duration_seconds", "The steps of completed epochs", PHASE_BUCKETS, "phase"
        )
        self.sink_precommit_duration = histogram(
            "sink_precommit_duration_seconds", "Making an epoch durable", PRECOMMIT_BUCKETS, "sink"
        )
        self.sink_commit_duration = histogram(
            "sink_commit_duration_seconds", "Showing an epoch to readers", COMMIT_BUCKETS, "sink"
        )
        self.sink_commit_failures = counter(
            "sink_commit_failures_total", "Commits that a sink refused or did not finish", "sink"
        )
        self.recoveries = counter("recoveries_total", "Starts that went on from a checkpoint")
        self.recovery_duration = histogram(
            "recovery_duration_seconds", "Starts that went on from a checkpoint", CHECKPOINT_BUCKETS
        )
        self.watermark = gauge("watermark_ms", "The watermark, in milliseconds since 1970")
        by_partition = ("source", "partition")
        self.source_offset = gauge("source_offset", "The next row to be read", *by_partition)
        self.source_lag = gauge("source_lag_rows", "Rows that were not read yet", *by_partition)
        self.source_age = gauge(
            "source_position_age_seconds", "How old the next row to be read is", *by_partition
        )
        self.source_left = gauge(
            "source_retention_left_seconds", "Until retention reaches that row", *by_partition
        )
        self.restarts = counter("pipeline_restarts_total", "Queries started again within a run")
        self.damaged_objects = counter(
            "damaged_objects_total", "Stored state found damaged, stored again or lost", "outcome"
        )


_families: Final[WeakKeyDictionary[CollectorRegistry, _MetricFamilies]] = WeakKeyDictionary()


def _default_registry() -> CollectorRegistry:
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


def _families_of(registry: CollectorRegistry) -> _MetricFamilies:
    """The families of a registry, made when its first pipeline comes."""
    with _lock:
        known = _families.get(registry)
        if known is None:
            try:
                known = _MetricFamilies(registry)
            except ValueError as error:
                raise RefusedError(
                    f"the registry cannot take the metrics of Seamark: {error}",
                    hint="Something else has registered metrics that start with 'seamark_'. Give "
                    "the pipeline a registry of its own.",
                ) from error
            _families[registry] = known
        return known


class MetricsServer:
    """Serves one registry on one port for as long as a pipeline uses it."""

    def __init__(self, registry: CollectorRegistry, host: str, port: int) -> None:
        from prometheus_client import make_wsgi_app

        self._registry = registry
        self._address = (host, port)
        self._users = 0
        self._http = HttpServer(make_wsgi_app(registry), host, port)
        self.port: int = self._http.port

    @classmethod
    def serving(cls, registry: CollectorRegistry, host: str, port: int) -> MetricsServer:
        """The server of this registry at that address, the one of another pipeline if it is there.

        ``RefusedError`` when the address is taken or not of this machine.
        """
        check_number("the port for metrics", port, 0, U16_MAX)
        with _lock:
            server = next((known for known in _running if known._fits(registry, host, port)), None)
            if server is None:
                try:
                    server = cls(registry, host, port)
                except (OSError, UnicodeError) as error:
                    why = (error.strerror if isinstance(error, OSError) else None) or error
                    raise RefusedError(
                        f"metrics cannot be served on {host}:{port}: {why}",
                        hint="Choose another port, or 0 for any that is free.",
                    ) from error
                _running.append(server)
            server._users += 1
            return server

    def _fits(self, registry: CollectorRegistry, host: str, port: int) -> bool:
        # port 0 asks for a port of one's own
        return port != 0 and self._registry is registry and self._address == (host, port)

    def release(self) -> None:
        """Give up one use; with the last one the port is free again."""
        with _lock:
            self._users -= 1
            if self._users:
                return
            _running.remove(self)
            self._http.close()


def split_address(address: str, what: str = "metrics are") -> tuple[str, int]:
    """Host and port out of ``host:port``; the host of IPv6 is in brackets, as in ``[::1]:9100``."""
    host, colon, port = address.rpartition(":")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    elif ":" in host:
        colon = ""  # IPv6 without brackets: it is unclear where the port starts
    if not colon or not host or not (port.isascii() and port.isdigit()) or int(port) > U16_MAX:
        raise InvalidInputError(
            f"{what} served at host:port, which {address!r} is not",
            hint="For example '0.0.0.0:9100', '[::1]:9100', or the port alone as a number: then "
            "only this machine can read it.",
        )
    return host, int(port)


_running: Final[list[MetricsServer]] = []
