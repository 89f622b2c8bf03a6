"""Waiting for a source that does not answer, instead of ending the run.

Spark itself waits for Kafka for minutes and then ends the query; a table that is away ends it at
once. Within ``source_timeout`` after that, the sources are asked until they answer, and then the
query is started again. An epoch that was under way runs again on the rows that it was planned for.

Tests: ``tests/pipeline/test_source_outage.py``.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Final

from seamark._common.logs import logger_named
from seamark.errors import SourceUnavailableError
from seamark.pipeline.declaration.source_positions import require_positions, require_tables
from seamark.pipeline.epoch.running_epoch import EpochHistory
from seamark.pipeline.epoch.topic_ids import require_same_topics
from seamark.sources.position_looks import PositionLook
from seamark.spark.failures import is_outage
from seamark.spark.kafka.sources import KafkaSources

log = logger_named("seamark.pipeline")

WaitForSources = Callable[[float, Callable[[], bool]], None]
"""Asks all sources for so many seconds, or until the run is to stop.

:class:`SourceUnavailableError` when one does not answer, :class:`PositionUnavailable` when one
answers and no longer has the rows that come next.
"""

_PAUSE: Final = 1.0
"""Seconds between two starts of the query, for a source that answers and fails again."""


def waiting_for(
    kafka: KafkaSources | None,
    history: EpochHistory,
    looks: Mapping[str, PositionLook] | None = None,
    known_ids: Callable[[], Mapping[str, Any]] = dict,
) -> WaitForSources | None:
    """Wait until Kafka and the tables answer, and see that the newest epoch can be gone on from.

    A topic may have been made again meanwhile: Spark would read it from the old offset. One that
    no checkpoint names yet is compared by ``known_ids``. None without any source that can be asked.
    """
    if kafka is None and not looks:
        return None

    def wait(patience: float, is_stopping: Callable[[], bool]) -> None:
        looked_at = {} if kafka is None else kafka.look(patience, is_stopping, is_passing=is_outage)
        topics = {name: known.topics for name, known in looked_at.items()}
        if history.newest is not None:
            require_positions(history.newest, topics)
            patient = {n: replace(look, patience=patience) for n, look in (looks or {}).items()}
            require_tables(history.newest, patient, is_stopping)
        require_same_topics(known_ids(), topics)

    return wait


class SourceOutage:
    """How long a run has been without its sources."""

    def __init__(
        self, wait: WaitForSources | None, patience: float, stopping: threading.Event
    ) -> None:
        self._wait = wait
        self._patience = patience
        self._stopping = stopping
        self._began: float | None = None
        self._epoch = 0

    def is_over(self, failure: BaseException, epoch: int) -> bool:
        """Wait for the sources after a failure; False when the run has to end with it.

        Only the failure of a source to answer is waited out. The time counts from the first failure
        after which no epoch was decided. True as well when the run is to stop.
        :class:`PositionUnavailable` when the rows that come next are gone.
        """
        if self._wait is None or not is_outage(failure):
            return False
        if self._began is None or epoch > self._epoch:
            self._began, self._epoch = time.monotonic(), epoch
        left = self._began + self._patience - time.monotonic()
        if left <= 0:
            return False
        if self._stopping.wait(min(_PAUSE, left)):
            return True  # whoever stops the run need not hear of it
        log.warning("%s: the query is started again when it answers within %.0f s", failure, left)
        try:
            self._wait(left, self._stopping.is_set)
        except SourceUnavailableError as error:
            log.warning("%s", error)
            return self._stopping.is_set()
        return True
