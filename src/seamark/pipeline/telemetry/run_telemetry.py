"""Everything that reports on one run: terminal and log, metrics, timings, the progress record.

Tests: ``tests/pipeline/test_metrics.py``.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager
from typing import Any

from seamark._common.progress_bars import Advance
from seamark.manifest import CheckpointManifest
from seamark.pipeline.telemetry.display import Display
from seamark.pipeline.telemetry.metrics import PipelineMetrics, split_address
from seamark.pipeline.telemetry.progress_record import ProgressRecord
from seamark.pipeline.telemetry.reports import EpochStats, StartReport, Timings
from seamark.pipeline.telemetry.source_follower import FollowedSources, SourceFollower, Times
from seamark.spark.kafka.positions import Offsets
from seamark.spark.kafka.recorded_positions import recorded_lines


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
        self._follower: SourceFollower | None = None

    def follow(self, sources: FollowedSources, group: str | None) -> None:
        """Have the positions in these sources measured, and stored in a consumer group if given."""
        self._follower = SourceFollower(sources, group, self.metrics)

    def recovered(self, report: StartReport, newest: CheckpointManifest | None) -> None:
        """Bring the progress record to the newest checkpoint, and show what the start did."""
        if note := self.progress.bring_to(newest):
            report.notes.append(note)
        if self._follower is not None and newest is not None:
            lines = recorded_lines(newest)
            self._follower.follow({n: "\n".join(own).encode() for n, own in lines.items()})
        self._display.show_recovery(report)
        if self.metrics is not None:
            self.metrics.recovered(report.seconds)

    def long_work(self, what: str, size: int) -> AbstractContextManager[Advance]:
        """Tell that work on that many bytes is under way, for as long as it takes."""
        return self._display.long_work(what, size)

    def epoch_planned(self, unread: Mapping[str, Offsets]) -> None:
        """Have it found out when the rows that come after the epoch were written."""
        if self._follower is not None:
            self._follower.look_up(unread)

    def times_of(self, unread: Mapping[str, Offsets]) -> Times:
        """When these rows were written, as far as that is known without waiting."""
        return self._follower.times_of(unread) if self._follower is not None else {}

    def epoch_done(self, stats: EpochStats) -> None:
        """Show and count an epoch that all sinks have committed."""
        self.timings.add({**stats.phases, "total": stats.seconds})
        if self.metrics is not None:
            self.metrics.epoch_done(stats)
        self._display.show_epoch(stats)
        if self._follower is not None:
            self._follower.follow(stats.positions)

    def epoch_failed(self) -> None:
        """Count an epoch that was not finished."""
        if self.metrics is not None:
            self.metrics.epoch_failed()

    def restarted(self) -> None:
        """Count a query that is started again within the run."""
        if self.metrics is not None:
            self.metrics.restarted()

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
