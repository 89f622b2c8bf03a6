"""One batch of a query, and nothing after it: its rows are kept, and the query waits to be stopped.

The next batch would come in many years. Spark tells sources that a batch is done when it plans the
next one, so no source deletes, moves or acknowledges anything.

Tests: ``tests/pipeline/test_replay.py``.
"""

from __future__ import annotations

import threading
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from seamark.checkpoint_dir.working_copy import WorkingCopy
from seamark.errors import SeamarkError
from seamark.spark.kept_rows import drop_rows, keep_rows
from seamark.spark.query import RunningQuery

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.query import StreamingQuery

_ATTACH_PATIENCE: Final = 120.0
_FINISH_PATIENCE: Final = 10.0
_LOOK: Final = 0.02


ONE_BATCH: Final = {"processingTime": "36500 days"}
"""A trigger with which a query runs one batch, and the next one in 2069."""


class OneBatch:
    """Runs the first batch of a query, which must be the expected one."""

    def __init__(self, copy: WorkingCopy, batch: int, watermark_ms: int) -> None:
        self.copy = copy
        self._batch = batch
        self._watermark = watermark_ms
        self._query: RunningQuery | None = None
        self._attached = threading.Event()
        self._ended = threading.Event()
        self._failure: BaseException | None = None
        self._rows: DataFrame | None = None
        self.next_watermark = 0
        """What the next epoch would run with."""

    def attach(self, query: RunningQuery | None) -> None:
        """Set the query that the batch belongs to."""
        self._query = query
        if query is not None:
            self._attached.set()

    def run_batch(self, batch: DataFrame, batch_id: int) -> None:
        """Compute all rows of the batch and keep them. Spark calls this."""
        try:
            self._rows = self._computed(batch, batch_id)
        except BaseException as error:
            self._failure = error
            if isinstance(error, Exception):
                raise
            # py4j answers Spark only after an Exception
            raise SeamarkError(f"the batch was cut off by {type(error).__name__}") from error
        finally:
            self._ended.set()

    def _computed(self, batch: DataFrame, batch_id: int) -> DataFrame:
        if not self._attached.wait(_ATTACH_PATIENCE) or self._query is None:
            raise SeamarkError("Spark runs a batch of a query that was never started")
        if batch_id != self._batch:
            raise SeamarkError(
                f"Spark runs batch {batch_id}, and batch {self._batch} was to be run again",
                where=self.copy.root,
            )
        self._query.require_declared_plan(batch_id + 1, self._watermark)
        # every partition is computed, so state is complete, and once, so nothing is written twice
        rows = keep_rows(batch)
        _, self.next_watermark, _ = self._query.next_commit()
        return rows

    def rows(self, query: StreamingQuery) -> DataFrame:
        """Wait for the batch, and give its rows. Raises what has failed."""
        while not self._ended.wait(_LOOK) and query.isActive:
            pass
        self._let_spark_finish(query)
        if self._failure is not None:
            raise self._failure
        if self._rows is None:
            raise query.exception() or SeamarkError("Spark has not run the batch")
        return self._rows

    def stop(self, query: StreamingQuery) -> None:
        """End the query; rows that nobody has taken are dropped by :meth:`discard`."""
        with suppress(Exception):  # what it has failed with is told by rows()
            query.stop()

    def discard(self) -> None:
        """Drop the rows, if there are any."""
        if self._rows is not None:
            drop_rows(self._rows)

    def _let_spark_finish(self, query: StreamingQuery) -> None:
        """Spark notes the batch in the scratch directory; a stop in between would be logged."""
        deadline = time.monotonic() + _FINISH_PATIENCE
        while time.monotonic() < deadline and query.isActive:
            if self._is_noted and not query.status["isTriggerActive"]:
                return
            time.sleep(_LOOK)

    @property
    def _is_noted(self) -> bool:
        return self.copy.size(f"commits/{self._batch}") is not None
