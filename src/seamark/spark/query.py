"""A running query, seen from inside its batch: what Spark itself will write when the batch ends.

Tests: ``tests/pipeline/test_shared_state.py``.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

from py4j.protocol import Py4JError

from seamark.errors import RefusedError, SeamarkError
from seamark.spark.batch_log import StateIds, commit_text
from seamark.spark.plans.executed_plan import (
    PlanOperator,
    lowest_marked,
    mixes_state,
    require_declared,
    require_settings,
    require_watermarks,
)
from seamark.spark.plans.plan_reader import (
    PlanReader,
    parse_evictions,
    parse_shape,
    parse_state_ids,
    parse_watermarks,
    plan_reader,
    state_writer,
    state_writers,
)
from seamark.spark.plans.trees import class_name, each
from seamark.spark.session import WATERMARK_POLICY

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

INTERRUPTED_BY_STOP: Final = (
    "py4j.protocol.Py4JJavaError: An error occurred while calling the batch: "
    "java.lang.InterruptedException: the query is being stopped"
)
"""What a batch raises when it is not to begin: by these words Spark knows that it is no failure."""


class RunningQuery:
    """The micro-batch execution behind a query. To be used on the thread of its batch."""

    def __init__(
        self,
        spark: SparkSession,
        query: StreamingQuery,
        *,
        format_2: bool,
        operators: Sequence[PlanOperator],
        watermarks: Mapping[str, str],
        settings: Mapping[str, str],
    ) -> None:
        wrapper: Any = query._jsq
        self._execution = wrapper.streamingQuery()
        self._run_id = str(query.runId)
        self._context = spark.sparkContext
        self._format_2 = format_2
        self._operators = operators
        self._watermarks = watermarks
        self._settings = settings
        self._shape = ""
        """The plan of the last batch that was looked at, as the reader tells it."""
        self._marked: frozenset[int] = frozenset()
        self.mixes_state = False
        """Whether a task that computes several partitions would write different kinds of state."""
        self.watermarks: Mapping[str, int] = {}
        """How far each ``withWatermark`` of the plan had come at the last :meth:`next_commit`, by
        the id of its node; empty before Spark 4.3."""

    @cached_property
    def _reader(self) -> PlanReader:
        return plan_reader(self._context._gateway, self._execution)

    def require_declared_plan(self, epoch: int, watermark: int) -> None:
        """:class:`RefusedError` when Spark's plan of this batch would lose rows.

        Every batch is asked for its whole plan. It is compared with what was declared in the first
        batch, and again whenever it is another than that of the batch before. So are the settings
        by which Spark's optimizer leaves everything as it was declared.
        """
        if not self._shape or self._operators:
            self._require_operators(epoch, watermark)
        require_settings(self._settings, self._setting, epoch)

    def _setting(self, name: str) -> str | None:
        value = self._execution.lastExecution().sparkSession().conf().getOption(name)
        return str(value.get()) if value.isDefined() else None

    def _require_operators(self, epoch: int, watermark: int) -> None:
        shape, _, evictions = self._reader.plan().partition("\n\n")
        if shape != self._shape:
            plan = parse_shape(shape)
            require_declared(plan, self._operators, epoch)
            if self._operators and self._takes_the_slowest():
                require_watermarks(plan, self._watermarks, epoch)
            self._marked = lowest_marked(plan)
            self.mixes_state = mixes_state(plan)
            self._shape = shape
        if self._marked:
            self._require_watermark(evictions, epoch, watermark)

    def _require_watermark(self, evictions: str, epoch: int, watermark: int) -> None:
        for operator, node, given in parse_evictions(evictions):
            if operator in self._marked and given != watermark:
                raise RefusedError(
                    f"epoch {epoch}: an operator would run with another watermark than the epoch",
                    where=f"operator {operator} ({node}) has {given}, the epoch {watermark}",
                    hint="Nothing was written. Please report this with the output of explain().",
                )

    def _takes_the_slowest(self) -> bool:
        """Whether the slowest watermark is that of the query, which is Spark's default."""
        conf = self._execution.lastExecution().sparkSession().conf()
        return str(conf.get(WATERMARK_POLICY)).lower() == "min"

    def next_commit(self) -> tuple[str, int, StateIds | None]:
        """(text of ``commits/N``, next watermark, state ids), after the batch's last action."""
        watermark, self.watermarks = parse_watermarks(self._reader.move_watermark())
        ids = self._state_ids() if self._format_2 else None
        return commit_text(watermark, ids or None), watermark, ids or None

    def _state_ids(self) -> StateIds:
        ids = parse_state_ids(self._reader.state_ids())
        if any(not own for partitions in ids.values() for own in partitions):
            raise SeamarkError("Spark does not tell the ids of the state that it has written")
        return ids

    def latest_offsets(self) -> list[str | None]:
        """By leaf: the newest offset that the source had when the batch was planned, if it says."""
        found: list[str | None] = []
        try:
            streams = self._execution.sources()
            for number in range(streams.size()):
                offset = streams.apply(number).reportLatestOffset()
                found.append(None if offset is None else str(offset.json()))
        except Py4JError:
            return []  # a source that does not say; it is of use to readers only
        return found

    def listed_files(self) -> int | None:
        """How many files Spark has found where its file sources have planned some; None if unknown.

        Files that are gone are not among them. A source that feeds several outputs counts once.
        """
        try:
            return sum(len(location.inputFiles()) for location in self._file_locations())
        except Py4JError:
            return None  # a source of another kind

    def listed_times(self) -> dict[str, int]:
        """When each file was modified that Spark has found for the batch, by its URI, in ms."""
        found: dict[str, int] = {}
        try:
            for location in self._file_locations():
                for status in each(location.allFiles()):
                    uri = str(status.getPath().toUri().toString())
                    found[uri] = int(status.getModificationTime())
        except Py4JError:
            return {}  # a source of another kind
        return found

    def _file_locations(self) -> list[Any]:
        """Where the batch's file sources read; one that feeds several outputs is there once."""
        system = self._context._jvm.System  # type: ignore[union-attr]
        found: dict[int, Any] = {}
        for leaf in each(self._execution.lastExecution().analyzed().collectLeaves()):
            if leaf.isStreaming() and class_name(leaf) == "LogicalRelation":
                location = leaf.relation().location()
                found[system.identityHashCode(location)] = location
        return list(found.values())

    def cancel_jobs(self) -> None:
        """Make the action that the batch is running fail."""
        self._context.cancelJobGroup(self._run_id)

    def is_stopped(self) -> bool:
        """Whether the query is to stop, or has stopped: then Spark cancels what its batch runs."""
        return not bool(self._execution.isActive())

    def wait_until_stopped(self, patience: float) -> None:
        """Wait until Spark knows that the query is to stop."""
        deadline = time.monotonic() + patience
        while not self.is_stopped() and time.monotonic() < deadline:
            time.sleep(0.01)

    def state_partitions(self) -> dict[int, int]:
        """How many partitions each stateful operator really has, by its number.

        One over all rows, without a key, has a single one, whatever Spark notes about it.
        """
        plan = self._execution.lastExecution().executedPlan()
        writer = state_writer(self._context._jvm)
        return {
            int(node.getStateInfo().operatorId()): int(node.outputPartitioning().numPartitions())
            for node in state_writers(plan, writer)
        }
