"""A running query, seen from inside its batch: what Spark itself will write when the batch ends.

Tests: ``tests/pipeline/test_shared_state.py``.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

from py4j.protocol import Py4JError, Py4JJavaError

from seamark.errors import RefusedError, SeamarkError
from seamark.spark.batch_log import StateIds, commit_text
from seamark.spark.plans.executed_plan import (
    REUSED,
    WATERMARK,
    PlanNode,
    PlanOperator,
    lowest_marked,
    mixes_state,
    require_declared,
    require_watermarks,
)
from seamark.spark.session import WATERMARK_POLICY

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

INTERRUPTED_BY_STOP: Final = (
    "py4j.protocol.Py4JJavaError: An error occurred while calling the batch: "
    "java.lang.InterruptedException: the query is being stopped"
)
"""What a batch raises when it is not to begin: by these words Spark knows that it is no failure."""

_HIDDEN: Final[Mapping[str, Callable[[Any], Any]]] = {
    "ReusedExchangeExec": lambda node: node.child(),
    "AdaptiveSparkPlanExec": lambda node: node.executedPlan(),
    "ShuffleQueryStageExec": lambda node: node.plan(),
    "BroadcastQueryStageExec": lambda node: node.plan(),
    "TableCacheQueryStageExec": lambda node: node.plan(),
    "InMemoryTableScanExec": lambda node: node.relation().cachedPlan(),
}
"""Leaves that hold a plan of their own."""

_HIDING: Final = (REUSED, "AdaptiveSparkPlan", "QueryStage")
"""What such leaves are called in a plan's text. A cached table is always one: it is static."""

_MARK: Final = re.compile(r"([0-9a-f-]{36}) -> (?:Some\()?(-?\d+)")


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
    ) -> None:
        self._jvm: Any = spark.sparkContext._jvm
        wrapper: Any = query._jsq
        self._execution = wrapper.streamingQuery()
        self._run_id = str(query.runId)
        self._context = spark.sparkContext
        self._format_2 = format_2
        self._operators = operators
        self._watermarks = watermarks
        self._leaves = 0
        self._marked: frozenset[int] = frozenset()
        self.mixes_state = False
        """Whether a task that computes several partitions would write different kinds of state."""
        self._numbers: list[int] = []

    def require_declared_plan(self, epoch: int, watermark: int) -> None:
        """:class:`RefusedError` when Spark's plan of this batch would lose rows.

        The whole plan is looked at in the first batch, and again when it may have another shape:
        it has other leaves, one of them is reused or hides a plan, or an operator has moved.
        """
        if self._leaves and not self._operators:
            return  # a plan without state has nothing to lose, in whatever shape
        plan = self._execution.lastExecution().executedPlan()
        leaves = plan.collectLeaves()
        text = str(leaves.toString())
        same = int(leaves.size()) == self._leaves and not any(name in text for name in _HIDING)
        if not same or not self._still_there(plan):
            shape = self._shape(plan)
            require_declared(shape, self._operators, epoch)
            if self._operators and self._takes_the_slowest():
                require_watermarks(shape, self._watermarks, epoch)
            self._leaves = int(leaves.size())
            self._marked = lowest_marked(shape)
            self.mixes_state = mixes_state(shape)
        if self._marked:
            self._require_watermark(plan, epoch, watermark)

    def _require_watermark(self, plan: Any, epoch: int, watermark: int) -> None:
        for node in self._state_writers(plan):
            number = int(node.getStateInfo().operatorId())
            if number not in self._marked:
                continue
            given = node.eventTimeWatermarkForEviction()
            if not given.isDefined() or int(given.get()) != watermark:
                raise RefusedError(
                    f"epoch {epoch}: an operator would run with another watermark than the epoch",
                    where=f"operator {number} ({node.nodeName()}) has {given.toString()}, the "
                    f"epoch {watermark}",
                    hint="Nothing was written. Please report this with the output of explain().",
                )

    def _takes_the_slowest(self) -> bool:
        """Whether the slowest watermark is that of the query, which is Spark's default."""
        conf = self._execution.lastExecution().sparkSession().conf()
        return str(conf.get(WATERMARK_POLICY)).lower() == "min"

    def _still_there(self, plan: Any) -> bool:
        numbers = self._numbers
        found = self._state_writers(plan)
        return len(found) == len(self._operators) and self._numbers == numbers

    def _shape(self, plan: Any) -> PlanNode:
        """A plan and what is hidden in its nodes."""
        children = plan.children()
        below = [self._shape(children.apply(n)) for n in range(children.size())]
        if not below:
            inner = _HIDDEN.get(str(plan.getClass().getSimpleName()))
            below = [] if inner is None else [self._shape(inner(plan))]
        writes = bool(self._writer.isInstance(plan))
        number = int(plan.getStateInfo().operatorId()) if writes else None
        name = str(plan.nodeName())
        mark = str(plan.nodeId().toString()) if name == WATERMARK else None
        return PlanNode(name, tuple(below), number, mark)

    def next_commit(self) -> tuple[str, int, StateIds | None]:
        """(text of ``commits/N``, next watermark, state ids), after the batch's last action.

        The watermark is moved by Spark's own tracker, so that the value is the one that Spark
        commits; doing it twice changes nothing.
        """
        plan = self._execution.lastExecution().executedPlan()
        tracker = self._execution.watermarkTracker()
        tracker.updateWatermark(plan)
        watermark = int(tracker.currentWatermark())
        ids = self._state_ids(plan) if self._format_2 else None
        return commit_text(watermark, ids or None), watermark, ids or None

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

    def cancel_jobs(self) -> None:
        """Make the action that the batch is running fail."""
        self._context.cancelJobGroup(self._run_id)

    def wait_until_stopped(self, patience: float) -> None:
        """Wait until Spark knows that the query is to stop."""
        deadline = time.monotonic() + patience
        while bool(self._execution.isActive()) and time.monotonic() < deadline:
            time.sleep(0.01)

    def state_partitions(self) -> dict[int, int]:
        """How many partitions each stateful operator really has, by its number.

        One over all rows, without a key, has a single one, whatever Spark notes about it.
        """
        plan = self._execution.lastExecution().executedPlan()
        return {
            int(node.getStateInfo().operatorId()): int(node.outputPartitioning().numPartitions())
            for node in self._state_writers(plan)
        }

    def watermarks(self) -> dict[str, int]:
        """How far each ``withWatermark`` of the plan has come, by the id of its node."""
        try:
            text = str(self._execution.watermarkTracker().watermarkMap().toString())
        except Py4JError:
            return {}  # before Spark 4.3 the tracker keeps them to itself
        return {node: int(mark) for node, mark in _MARK.findall(text)}

    def _state_ids(self, plan: Any) -> StateIds:
        ids: dict[int, list[list[str]]] = {}
        formats = getattr(getattr(self._jvm.org.json4s, "DefaultFormats$"), "MODULE$")
        for node in self._state_writers(plan):
            # one call instead of several for each partition
            infos = node.getStateStoreCheckpointInfo()
            text = self._jvm.org.json4s.jackson.Serialization.write(infos, formats)
            rows = sorted(json.loads(str(text)), key=lambda row: int(row["partitionId"]))
            if any("stateStoreCkptId" not in row for row in rows):
                raise SeamarkError("Spark does not tell the ids of the state that it has written")
            operator = int(node.getStateInfo().operatorId())
            ids[operator] = [list(row["stateStoreCkptId"]) for row in rows]
        return dict(sorted(ids.items()))

    def _state_writers(self, plan: Any) -> list[Any]:
        """The nodes that write state. Walking a plan is slow, so their numbers are remembered."""
        known = [plan.apply(number) for number in self._numbers]
        if not known or not all(
            node is not None and self._writer.isInstance(node) for node in known
        ):
            known = [node for node in _nodes(plan) if self._writer.isInstance(node)]
            self._numbers = [self._number(plan, node) for node in known]
        return known

    def _number(self, plan: Any, wanted: Any) -> int:
        """Which node of the plan it is, as Spark counts them: one call leads back to it."""
        identity = self._jvm.java.lang.System.identityHashCode
        number = 0
        while (node := plan.apply(number)) is not None:
            if identity(node) == identity(wanted):
                return number
            number += 1
        return -1  # Spark finds nothing under it, so the plan is walked each time

    @cached_property
    def _writer(self) -> Any:
        """The class of nodes that write state."""
        package = "org.apache.spark.sql.execution.streaming"
        for_name = self._jvm.java.lang.Class.forName
        try:
            return for_name(f"{package}.operators.stateful.StateStoreWriter")
        except Py4JJavaError:  # before Spark 4.1
            return for_name(f"{package}.StateStoreWriter")


def _nodes(plan: Any) -> Iterator[Any]:
    yield plan
    children = plan.children()
    for number in range(children.size()):
        yield from _nodes(children.apply(number))
