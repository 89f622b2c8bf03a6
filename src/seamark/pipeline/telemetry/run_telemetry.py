"""Everything that reports on one run: terminal and log, metrics, timings, the progress record.

Tests: ``tests/pipeline/test_metrics.py``.
"""

from __future__ import annotations

from typing import Any

from seamark.manifest import CheckpointManifest
from seamark.pipeline.telemetry.display import Display
from seamark.pipeline.telemetry.metrics import PipelineMetrics, split_address
from seamark.pipeline.telemetry.progress_record import ProgressRecord
from seamark.pipeline.telemetry.reports import EpochStats, StartReport, Timings


class RunTelemetry:
    """What the outside learns about a run.

    ``metrics`` is what :class:`seamark.Pipeline` takes under that name, ``progress_url`` the
    progress store that is kept up to date, or None.
    """

    def __init__(self, pipeline: str, *, metrics: Any, progress_url: str | None) -> None:
        self.metrics = _open_metrics(pipeline, metrics)
        self.timings = Timings()
        self.progress = ProgressRecord(progress_url, pipeline)
        self._display = Display(pipeline)

    def recovered(self, report: StartReport, newest: CheckpointManifest | None) -> None:
        """Bring the progress record to the newest checkpoint, and show what the start did."""
        if note := self.progress.bring_to(newest):
            report.notes.append(note)
        self._display.show_recovery(report)
        if self.metrics is not None:
            self.metrics.recovered(report.seconds)

    def epoch_done(self, stats: EpochStats) -> None:
        """Show and count an epoch that all sinks have committed."""
        self.timings.add({**stats.phases, "total": stats.seconds})
        if self.metrics is not None:
            self.metrics.epoch_done(stats)
        self._display.show_epoch(stats)

    def epoch_failed(self) -> None:
        """Count an epoch that was not finished."""
        if self.metrics is not None:
            self.metrics.epoch_failed()

    def restarted(self) -> None:
        """Count a query that is started again within the run."""
        if self.metrics is not None:
            self.metrics.restarted()

    def close(self) -> None:
        """Close the progress store and the metrics' port."""
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
